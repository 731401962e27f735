"""The merge-and-reduce tree: the engine for any sampler, including a custom black box (paper, appendix C)."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.dynamic.rows import Slots
from duramen.points import WeightedPoints
from duramen.samplers.base import Sampler, reduce_rows

_ABSENT = array("i", [-1])
_NODES_PER_BUCKET = 8  # node sizes that a bucket holds by default; docs/dynamic.md has the measurement
_SLACK = 1e-9  # relative: what rounding may add up to from the points to the root


@final
class Buckets:
    """Slots in buckets of equal size; the last one, the hot bucket, may have fewer.

    If a binary tree on the buckets is to have ``height`` levels, the size is
    n / 2^(height - 1), rounded up, and is chosen again whenever n has doubled or
    halved since then; in between there may be a level more or fewer.

    Invariants
    ----------
    1. ``position`` and ``order`` are inverse to each other, and any other slot has position -1.
    2. The size is positive, and what the height requires.

    Notes
    -----
    ``order`` and ``position`` are int32 arrays of the standard library: one item
    of them is read and written faster than one of NumPy's.
    """

    def __init__(self, size: int, height: int | None = None) -> None:
        self.size = size if height is None else 1
        self.order = array("i")
        self.position = array("i")
        self._height = height
        self.measured = 0  # the number of points that the size was chosen for
        self.touched: set[int] | None = None  # places that changed, if they are to be recorded

    def __len__(self) -> int:
        return len(self.order)

    @property
    def count(self) -> int:
        """The number of buckets."""
        return -(-len(self.order) // self.size)

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return 4 * (len(self.order) + len(self.position))

    def slots(self, first: int = 0, stop: int | None = None) -> Array:
        """Copy the slots in the buckets from ``first`` to before ``stop``; in all of them by default."""
        end = None if stop is None else stop * self.size
        return np.array(self.order[first * self.size : end], dtype=np.int32)

    def add(self, slot: int) -> int:
        """Add a slot to the hot bucket, or to a new one where that is full; return its position."""
        if slot >= len(self.position):
            self.position.extend(_ABSENT * (slot + 1 - len(self.position)))
        place = len(self.order)
        self.order.append(slot)
        self.position[slot] = place
        if self.touched is not None:
            self.touched.add(place)
        return place

    def add_many(self, slots: Array) -> None:
        """Add slots, in the order given."""
        self.position.extend(_ABSENT * max(0, int(slots.max(initial=-1)) + 1 - len(self.position)))
        places = np.arange(len(self), len(self) + len(slots), dtype=np.int32)
        np.frombuffer(self.position, np.int32)[slots] = places
        self.order.frombytes(slots.astype(np.int32).tobytes())
        if self.touched is not None:
            self.touched.update(places.tolist())

    def restore(self, slots: Array, size: int, measured: int) -> None:
        """Arrange the same slots in another order, with the size that was chosen for it."""
        self.order, self.position = array("i"), array("i")
        self.add_many(slots)
        self.size, self.measured = size, measured

    def remove(self, slot: int) -> int:
        """Remove a slot, and fill its place with the last one of the hot bucket; return that place."""
        place, last = self.position[slot], self.order.pop()
        if last != slot:
            self.order[place] = last
            self.position[last] = place
        self.position[slot] = -1
        if self.touched is not None:
            self.touched.update((place, len(self.order)))
        return place

    def resize(self) -> bool:
        """Choose the size again if it is due, after an update; return whether it was."""
        if self._height is None:
            return False
        n, then = len(self.order), self.measured
        while n >= 2 * then:  # once for each time that it doubled, if many were added
            then = max(1, 2 * then)
        if 2 * n <= then:
            then = n
        due = then != self.measured
        self.measured, self.size = then, self._size_for(then)
        return due

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        order, n, then = self.slots(), len(self), self.measured
        expected = np.full(len(self.position), -1)
        if len(order) and order.min() >= 0 and order.max() < len(expected):
            expected[order] = np.arange(n)
        inverse = np.array_equal(self.position, expected) and np.count_nonzero(expected >= 0) == n
        assert inverse, "1: position and order are not inverse to each other"
        assert self.size >= 1, "2: the bucket size is not positive"
        if self._height is not None:
            assert self.size == self._size_for(then), "2: the bucket size is not what the height requires"
            assert then < 2 * n < 4 * then or n == then == 0, "2: the bucket size is out of date"

    def _size_for(self, n: int) -> int:
        assert self._height is not None
        return max(1, -(-n // 2 ** (self._height - 1)))


class NodeSummary(NamedTuple):
    """Slots with the weights that they represent."""

    slots: Array
    weights: Array


@final
class Tree:
    """The merge-and-reduce tree with a hot bucket.

    An update takes about a microsecond and drops O(log n) nodes, those that
    exist; ``choose`` reduces each missing node once, to at most ``node_size`` points
    (the paper's M), with the generator of (seed, level, index). ``sampler`` is the
    black box A, bound already; only its ``reduce`` is called, and it must choose by its
    arguments alone. A bucket holds eight times ``node_size`` points unless one of
    ``bucket_size`` and ``height`` is given.

    Invariants
    ----------
    Those of the buckets are 1 and 2.

    3. Every node has a place above the buckets there are.
    4. Every node has its children stored with it.
    5. A node holds points of the buckets below it, each at most once, with positive weights.
    6. A node weighs what the points below it weigh.
    7. A node is what rebuilding it from the buckets gives.
    """

    def __init__(
        self,
        holder: Slots,
        sampler: Sampler,
        seed: int,
        node_size: int,
        bucket_size: int | None = None,
        height: int | None = None,
    ) -> None:
        self._holder, self._sampler, self._seed, self._node_size = holder, sampler, seed, node_size
        self.buckets = Buckets(bucket_size or _NODES_PER_BUCKET * node_size, height)
        self._nodes: dict[tuple[int, int], NodeSummary] = {}

    def __len__(self) -> int:
        return len(self.buckets)

    def __repr__(self) -> str:
        return f"Tree: {len(self):,} points in {self.buckets.count:,} buckets of {self.buckets.size:,}"

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        distinct = {id(node): node for node in self._nodes.values()}.values()  # an only child is its parent
        total = sum(node.slots.nbytes + node.weights.nbytes for node in distinct)
        return total + self.buckets.nbytes

    def add(self, slot: int) -> None:
        """Add a point; its data is in the holder already, and must not change while it is here."""
        self._drop(self.buckets.add(slot) // self.buckets.size)
        self._resize()

    def remove(self, slot: int) -> None:
        """Remove a point; its data is still in the holder."""
        place, size = self.buckets.remove(slot), self.buckets.size
        self._drop(place // size)
        self._drop(len(self.buckets) // size)  # the bucket whose last slot filled its place
        self._resize()

    def add_many(self, slots: Array) -> None:
        """Add points, in the order given."""
        if len(slots):
            before = len(self) // self.buckets.size
            self.buckets.add_many(slots)
            self._drop(before)  # nodes that exist above later buckets are above this one, too
            self._resize()

    def remove_many(self, slots: Array) -> None:
        """Remove points, in the order given."""
        for slot in slots.tolist():
            self.remove(slot)

    def _resize(self) -> None:
        if self.buckets.resize():
            self._nodes.clear()

    def choose(self, size: int) -> tuple[Array, Array]:
        """Choose at most ``size`` points that represent all: their slots, and weights of the same total.

        Where there are no more than ``size``, it is all of them with their own
        weights; else the root, at most ``node_size`` points, reduced if it has
        more than ``size``. Points of weight zero are left out. If ``reduce``
        raises, so does this, and the tree stays valid.

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
        check_count("size", size)
        if len(self) <= size:
            chosen, _ = self._alive(self.buckets.slots())
        else:
            top = self._top()
            chosen = self._reduced(self._node(top, 0, self._nodes), size, top + 1, 0)
        return chosen.slots.astype(np.intp), chosen.weights.copy()

    def slots(self) -> Array:
        """Return the slots of all points, in their order."""
        return self.buckets.slots()

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.buckets.check()
        fresh: dict[tuple[int, int], NodeSummary] = {}
        for level, index in self._nodes:
            there = 0 <= level <= self._top() and 0 <= index < self._width(level)
            assert there, f"3: the node {level, index} has no place"
        for place in self._nodes:
            missing = [child for child in self._children(*place) if child not in self._nodes]
            assert not missing, f"4: the node {place} lacks the children {missing}"
        for place, (slots, weights) in self._nodes.items():
            below = self._below(*place)
            distinct = len(np.unique(slots)) == len(slots) == len(weights)
            holds = distinct and np.isin(slots, below).all() and (weights > 0).all()
            assert holds, f"5: the node {place} does not hold points below it, once each, with weight"
            total = self._holder.points(below).total_weight
            assert abs(float(weights.sum()) - total) <= _SLACK * total, (
                f"6: the node {place} has the wrong weight"
            )
            again = self._node(*place, fresh)
            same = np.array_equal(slots, again.slots) and np.array_equal(weights, again.weights)
            assert same, f"7: the node {place} is not what rebuilding it gives"

    def _children(self, level: int, index: int) -> list[tuple[int, int]]:
        below = range(2 * index, min(2 * index + 2, self._width(level - 1))) if level else range(0)
        return [(level - 1, child) for child in below]

    def _drop(self, bucket: int) -> None:
        """Drop the nodes above a bucket."""
        for level in range(self._top() + 2):  # the root may have been one level higher
            self._nodes.pop((level, bucket >> level), None)

    def _top(self) -> int:
        """Return the level of the root."""
        return (self.buckets.count - 1).bit_length()

    def _width(self, level: int) -> int:
        """Count the nodes of a level."""
        return -(-self.buckets.count >> level)

    def _below(self, level: int, index: int) -> Array:
        """Return the slots in the buckets below a node: one bucket, below level 0."""
        return self.buckets.slots(index << level, (index + 1) << level)

    def _node(self, level: int, index: int, nodes: dict[tuple[int, int], NodeSummary]) -> NodeSummary:
        """Return a node of ``nodes``; build it there if it is missing, with what is missing below it."""
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
        children = [self._node(*child, nodes) for child in self._children(level, index)]
        if len(children) == 1:
            return children[0]
        union = NodeSummary(*(np.concatenate(columns) for columns in zip(*children, strict=True)))
        return self._reduced(union, self._node_size, level, index)

    def _alive(self, slots: Array) -> tuple[NodeSummary, WeightedPoints]:
        """Leave out points of weight zero."""
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


def check_shape(bucket_size: Any, height: Any) -> None:
    """Raise ValueError unless at most one of them is given, a whole number of 1 or more."""
    if bucket_size is not None and height is not None:
        raise ValueError(
            f"bucket_size={bucket_size!r} and height={height!r} both determine the size of a bucket; "
            "pass one of them, or neither"
        )
    for name, value in (("bucket_size", bucket_size), ("height", height)):
        if value is not None:
            check_count(name, value)
