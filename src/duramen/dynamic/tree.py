"""The merge-and-reduce tree: the engine for any sampler, also a user's own black box (paper, appendix C)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.look import Engine, Holder
from duramen.points import WeightedPoints
from duramen.samplers import Sampler
from duramen.samplers.base import check_size, reduce_rows

__all__ = ["Buckets", "NodeSummary", "Tree", "check_shape"]


_ABSENT = array("i", [-1])


@final
class Buckets:
    """Slots in buckets of equal size.

    Parameters
    ----------
    size : int
        How many slots a bucket holds.
    height : int or None
        How many levels a binary tree on the buckets is to have. If given, the
        size is n / 2^(height - 1), rounded up, and is chosen again whenever n
        has doubled or halved since it was; in between there may be a level more
        or fewer.

    Notes
    -----
    ``order`` and ``position`` are int32 arrays of the standard library: one item
    of them is read and written faster than one of NumPy's. Invariants 1 to 3 of
    :class:`~duramen.dynamic.tree.Tree` are about them.
    """

    def __init__(self, size: int, height: int | None = None) -> None:
        self.size = size if height is None else 1
        self.order = array("i")
        self.position = array("i")
        self._height = height
        self.measured = 0  # the number of points that the size was chosen for
        self.touched: set[int] | None = None  # places that changed, while somebody wants to know

    def __len__(self) -> int:
        return len(self.order)

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return -(-len(self.order) // self.size)

    @property
    def nbytes(self) -> int:
        """How many bytes both arrays take."""
        return 4 * (len(self.order) + len(self.position))

    def slots(self, first: int = 0, stop: int | None = None) -> Array:
        """Copy the slots in the buckets from ``first`` to before ``stop``; in all of them by default."""
        end = None if stop is None else stop * self.size
        return np.array(self.order[first * self.size : end], dtype=np.int32)

    def add(self, slot: int) -> int:
        """Put a slot into the hot bucket, or into a new one where that is full; return its position."""
        position = self.position
        if slot >= len(position):
            position.extend(_ABSENT * (slot + 1 - len(position)))
        elif slot < 0 or position[slot] >= 0:
            self._refuse([slot])
        place = len(self.order)
        self.order.append(slot)
        position[slot] = place
        if self.touched is not None:
            self.touched.add(place)
        return place

    def add_many(self, slots: Array) -> None:
        """Put one slot or more in, in the order given; none, if one cannot be."""
        self._refuse(slots[slots < 0])
        self.position.extend(_ABSENT * max(0, int(slots.max()) + 1 - len(self.position)))
        position = np.frombuffer(self.position, np.int32)
        self._refuse(slots[position[slots] >= 0])
        places = np.arange(len(self), len(self) + len(slots), dtype=np.int32)
        position[slots] = places
        if not np.array_equal(position[slots], places):
            position[slots] = -1
            raise ValueError("slots to add must be distinct; one of them is given twice")
        self.order.frombytes(slots.astype(np.int32).tobytes())
        if self.touched is not None:
            self.touched.update(places.tolist())

    def restore(self, slots: Array, size: int, measured: int) -> None:
        """Put the same slots in another order, with the size that was chosen for it."""
        self.order, self.position = array("i"), array("i")
        if len(slots):
            self.add_many(slots)
        self.size, self.measured = size, measured

    def remove(self, slot: int) -> int:
        """Take a slot out, and fill its place with the last one of the hot bucket; return that place."""
        position = self.position
        place = position[slot] if 0 <= slot < len(position) else -1
        if place < 0:
            raise KeyError(f"slot {slot} is not here; it was removed or never added")
        last = self.order.pop()
        if last != slot:
            self.order[place] = last
            position[last] = place
        position[slot] = -1
        if self.touched is not None:
            self.touched.update((place, len(self.order)))
        return place

    def resize(self) -> bool:
        """Choose the size again if it is due; say whether it was. To be called after each update."""
        if self._height is None:
            return False
        n, then = len(self.order), self.measured
        while n >= 2 * then:  # once for each time that it doubled, if many came
            then = max(1, 2 * then)
        if 2 * n <= then:
            then = n
        due = then != self.measured
        self.measured, self.size = then, self._asked(then)
        return due

    def verdicts(self) -> Iterator[tuple[bool, str]]:
        """Say of each invariant whether it holds; a later one may rely on those before it."""
        yield (
            self._are_inverse(),
            "position and order are inverse to each other, and any other slot has position -1",
        )
        yield self._are_full(), "every bucket but the hot one is full, and the hot one has a point at least"
        yield self._height is None or self._is_measured(), "the bucket size is what the height asks for"

    def _asked(self, n: int) -> int:
        assert self._height is not None
        return max(1, -(-n // 2 ** (self._height - 1)))

    @staticmethod
    def _refuse(slots: Array | list[int]) -> None:
        if len(slots):
            raise ValueError(f"slot {slots[0]} cannot be added; it is negative, or here already")

    def _are_inverse(self) -> bool:
        position, order = np.array(self.position, dtype=np.int32), self.slots()
        if len(order) and not (order.min() >= 0 and order.max() < len(position)):
            return False
        expected = np.full(len(position), -1)
        expected[order] = np.arange(len(order))
        return np.array_equal(position, expected) and np.count_nonzero(position >= 0) == len(order)

    def _are_full(self) -> bool:
        n, size = len(self), self.size
        if size < 1:
            return False
        sizes = [len(self.slots(index, index + 1)) for index in range(self.count)]
        return sum(sizes) == n and all(full == size for full in sizes[:-1]) and all(sizes[-1:])

    def _is_measured(self) -> bool:
        n, then = len(self), self.measured
        return self.size == self._asked(then) and (then < 2 * n < 4 * then or n == then == 0)


_NODES_A_BUCKET = 8  # node sizes that a bucket holds by default; docs/dynamic.md has the measurement
_SLACK = 1e-9  # relative: what rounding may add up to from the points to the root


class NodeSummary(NamedTuple):
    """Slots with the weights that they stand for."""

    slots: Array
    weights: Array


@final
class Tree(Engine):
    """The merge-and-reduce tree with a hot bucket.

    An update takes about a microsecond and drops O(log n) nodes, those that are
    there; ``choose`` reduces each missing node once. ``sampler`` is bound
    already, and must choose by its arguments alone.

    Parameters
    ----------
    holder : Holder
    sampler : Sampler
        The black box A; only its ``reduce`` is called.
    seed : int
        The node (level, index) is drawn with the generator of (seed, level, index).
    node_size : int
        How many points a node keeps, at most: the paper's M.
    bucket_size : int, optional
        How many points a bucket holds; eight times ``node_size`` by default.
    height : int, optional
        How many levels to have, instead: a bucket holds n / 2^(height - 1)
        points, rounded up. It is chosen again, and all nodes are dropped,
        whenever n has doubled or halved since; in between there may be a level
        more or fewer.

    Notes
    -----
    Between calls:

    1. position and order are inverse to each other, and any other slot has position -1;
    2. every bucket but the hot one is full, and the hot one has a point at least;
    3. the bucket size is what the height asks for;
    4. every node has a place above the buckets there are;
    5. every node has its children stored with it;
    6. no node holds a slot that is not in the tree;
    7. a node holds points of the buckets below it, each at most once, with positive weights;
    8. a node weighs what the points below it weigh;
    9. a node is what building it again from the buckets gives.

    By the fifth, the nodes above a bucket are dropped from below until one is missing.
    """

    def __init__(
        self,
        holder: Holder,
        sampler: Sampler,
        seed: int,
        node_size: int,
        *,
        bucket_size: int | None = None,
        height: int | None = None,
    ) -> None:
        _check_whole("node_size", node_size)
        check_shape(bucket_size, height)
        self._holder = holder
        self._sampler = sampler
        self._seed = seed
        self._node_size = int(node_size)
        self.buckets = Buckets(
            int(bucket_size or _NODES_A_BUCKET * node_size), None if height is None else int(height)
        )
        self._nodes: dict[tuple[int, int], NodeSummary] = {}

    def __len__(self) -> int:
        return len(self.buckets)

    def __repr__(self) -> str:
        return f"Tree: {len(self):,} points in {self.buckets.count:,} buckets of {self.buckets.size:,}"

    @property
    def nbytes(self) -> int:
        distinct = {id(node): node for node in self._nodes.values()}.values()  # an only child is its parent
        held = sum(node.slots.nbytes + node.weights.nbytes for node in distinct)
        return held + self.buckets.nbytes

    def add(self, slot: int) -> None:
        place, size = self.buckets.add(slot), self.buckets.size
        if place % size:
            self._drop(place // size)
        else:
            self._drop_all(place // size)
        if self.buckets.resize():
            self._nodes.clear()

    def remove(self, slot: int) -> None:
        place, size = self.buckets.remove(slot), self.buckets.size
        self._drop(place // size)
        self._drop(len(self.buckets) // size)  # whence its place was filled
        if self.buckets.resize():
            self._nodes.clear()

    def add_many(self, slots: Array) -> None:
        """Take points in, in the order given; none, if one cannot be."""
        if not len(slots):
            return
        before, size = len(self), self.buckets.size
        self.buckets.add_many(slots)
        self._drop_all(before // size)  # what is above later ones, and was there, is above this one
        if self.buckets.resize():
            self._nodes.clear()

    def choose(self, size: int) -> tuple[Array, Array]:
        """Choose at most ``size`` points that stand for all: their slots, and weights of the same total.

        Where there are no more than ``size``, it is all of them with their own
        weights; else the root, at most ``node_size`` points, reduced if it has
        more than ``size``. Points that weigh nothing are left out. If ``reduce``
        raises, so does this, and the tree is as good as before.

        Examples
        --------
        >>> import numpy as np
        >>> import duramen as dm
        >>> class Line:
        ...     def points(self, slots):
        ...         return dm.points(slots[:, None] + 0.0, ids=slots)
        >>> tree = Tree(Line(), dm.UniformSampler(), seed=0, node_size=10)
        >>> tree.add_many(np.arange(1000))
        >>> tree.remove(17)
        >>> slots, weights = tree.choose(5)
        >>> len(slots), round(float(weights.sum()), 9)
        (5, 999.0)
        """
        if not len(self):
            return np.empty(0, dtype=np.intp), np.empty(0)
        check_size(size)
        if len(self) <= size:
            chosen, _ = self._alive(self.buckets.slots())
        else:
            top = self._top()
            chosen = self._reduced(self._node(top, 0, self._nodes), size, top + 1, 0)
        return chosen.slots.astype(np.intp), chosen.weights.copy()

    def slots(self) -> Array:
        """Give the slots of all points, in the order in which they stand."""
        return self.buckets.slots()

    def check(self) -> None:
        for number, (holds, text) in enumerate(self._verdicts(), start=1):
            if not holds:
                raise AssertionError(f"invariant {number} is broken: {text}")

    def _drop(self, bucket: int) -> None:
        """Drop the nodes above a bucket that was there before: where one is missing, all above are."""
        level = 0
        while self._nodes.pop((level, bucket >> level), None) is not None:
            level += 1

    def _drop_all(self, bucket: int) -> None:
        """Drop the nodes above a bucket that may be new: those above it may have done without."""
        for level in range(bucket.bit_length() + 1):
            self._nodes.pop((level, bucket >> level), None)

    def _top(self) -> int:
        """Say at which level the root is."""
        return (self.buckets.count - 1).bit_length()

    def _width(self, level: int) -> int:
        """Count the nodes of a level."""
        return -(-self.buckets.count >> level)

    def _below(self, level: int, index: int) -> Array:
        """Find the slots in the buckets below a node: one bucket, below level 0."""
        return self.buckets.slots(index << level, (index + 1) << level)

    def _node(self, level: int, index: int, nodes: dict[tuple[int, int], NodeSummary]) -> NodeSummary:
        """Find a node, or build it with whatever is missing below; what is built is kept in ``nodes``."""
        found = nodes.get((level, index))
        if found is None:
            found = self._merged(level, index, nodes) if level else self._leaf(index)
            nodes[level, index] = found
        return found

    def _leaf(self, index: int) -> NodeSummary:
        alive, points = self._alive(self._below(0, index))
        return self._reduced(alive, self._node_size, 0, index, points)

    def _merged(self, level: int, index: int, nodes: dict[tuple[int, int], NodeSummary]) -> NodeSummary:
        """Reduce the union of two children; an only child is passed on."""
        left = self._node(level - 1, 2 * index, nodes)
        if 2 * index + 1 == self._width(level - 1):
            return left
        right = self._node(level - 1, 2 * index + 1, nodes)
        union = NodeSummary(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))
        return self._reduced(union, self._node_size, level, index)

    def _alive(self, slots: Array) -> tuple[NodeSummary, WeightedPoints]:
        """Leave out what weighs nothing."""
        points = self._holder.points(slots)
        live = np.flatnonzero(points.weights > 0)
        if len(live) < len(slots):
            points = points.take(live)
        return NodeSummary(slots[live], np.array(points.weights)), points

    def _reduced(
        self, whole: NodeSummary, size: int, level: int, index: int, points: WeightedPoints | None = None
    ) -> NodeSummary:
        """Reduce to at most ``size``; ``points`` are those of ``whole``, where they are at hand."""
        if len(whole.slots) <= size:
            return whole
        if points is None:
            points = self._holder.points(whole.slots).with_weights(whole.weights)
        rng = np.random.default_rng((self._seed, level, index))
        rows, weights = reduce_rows(self._sampler, points, size, rng)
        return NodeSummary(whole.slots[rows], weights)

    def _verdicts(self) -> Iterator[tuple[bool, str]]:
        """Say of each invariant whether it holds; a later one may rely on those before it."""
        yield from self.buckets.verdicts()
        nodes, order = self._nodes, self.buckets.slots()
        yield (
            all(self._exists(*place) for place in nodes),
            "every node has a place above the buckets there are",
        )
        yield (
            all(child in nodes for place in nodes for child in self._children(*place)),
            "every node has its children stored with it",
        )
        yield (
            all(np.isin(node.slots, order).all() for node in nodes.values()),
            "no node holds a slot that is not in the tree",
        )
        yield (
            all(_stands_for(node, self._below(*place)) for place, node in nodes.items()),
            "a node holds points of the buckets below it, each at most once, with positive weights",
        )
        yield (
            all(self._weighs_right(node, self._below(*place)) for place, node in nodes.items()),
            "a node weighs what the points below it weigh",
        )
        fresh: dict[tuple[int, int], NodeSummary] = {}
        yield (
            all(all(map(np.array_equal, node, self._node(*place, fresh))) for place, node in nodes.items()),
            "a node is what building it again from the buckets gives",
        )

    def _exists(self, level: int, index: int) -> bool:
        return 0 <= level <= self._top() and 0 <= index < self._width(level)

    def _children(self, level: int, index: int) -> list[tuple[int, int]]:
        below = range(2 * index, min(2 * index + 2, self._width(level - 1))) if level else range(0)
        return [(level - 1, child) for child in below]

    def _weighs_right(self, node: NodeSummary, slots: Array) -> bool:
        total = self._holder.points(slots).total_weight
        return abs(float(node.weights.sum()) - total) <= _SLACK * total


def _stands_for(node: NodeSummary, below: Array) -> bool:
    known = len(np.unique(node.slots)) == len(node.slots) == len(node.weights)
    return known and bool(np.isin(node.slots, below).all() and (node.weights > 0).all())


def check_shape(bucket_size: Any, height: Any) -> None:
    """Raise ValueError unless at most one of them is given, a whole number of 1 or more."""
    if bucket_size is not None and height is not None:
        raise ValueError(
            f"bucket_size={bucket_size!r} and height={height!r} both say how large a bucket is; "
            "pass one of them, or neither"
        )
    for name, value in (("bucket_size", bucket_size), ("height", height)):
        if value is not None:
            _check_whole(name, value)


def _check_whole(name: str, value: Any) -> None:
    """Raise ValueError unless the value is a whole number of 1 or more."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"{name}={value!r} must be a whole number of 1 or more")
