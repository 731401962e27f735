"""The merge-and-reduce tree: the engine for any sampler, including a custom black box (paper, appendix C)."""

from __future__ import annotations

import copy
from array import array
from typing import NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.rows import Slots
from duramen.samplers.base import Sampler, Strata, reduce_rows

_ABSENT = array("i", [-1])
_NODES_PER_BUCKET = 8  # node sizes that a bucket holds by default; docs/dynamic.md has the measurement


class NodeSummary(NamedTuple):
    """Slots with the weights that they represent."""

    slots: Array
    weights: Array


@final
class Tree:
    """The merge-and-reduce tree with a hot bucket.

    Slots are in buckets of equal size; the last one, the hot bucket, may have fewer. A
    bucket holds eight times ``node_size`` points unless one of ``bucket_size`` and
    ``height`` is given. If the tree is to have ``height`` levels, the size is n / 2^(height - 1),
    rounded up, and is chosen again whenever n has doubled or halved since then; in
    between there may be a level more or fewer.

    An update takes a few microseconds and drops O(log n) nodes, those that
    exist; ``choose`` reduces each missing node once, to at most ``node_size`` points
    (the paper's M), with the generator of (seed, level, index). ``sampler`` is the
    black box A, bound already; only its ``reduce`` is called, and it must choose by its
    arguments alone.

    Invariants
    ----------
    1. ``position`` and ``order`` are inverse to each other, and any other slot has position -1.
    2. The bucket size is positive, and what the height requires.
    3. Every node has a place above the buckets there are.
    4. Every node has its children stored with it.
    5. A node is what rebuilding it from the buckets gives: points below it, each at most once, with
       positive weights of the same total.

    Notes
    -----
    ``order`` and ``position`` are int32 arrays of the standard library: one item
    of them is read and written faster than one of NumPy's.
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
        self._height = height
        self.bucket_size = 1 if height is not None else bucket_size or _NODES_PER_BUCKET * node_size
        self.measured = 0  # the number of points that the bucket size was chosen for
        self.order = array("i")
        self.position = array("i")
        self.touched: set[int] | None = None  # places that changed, if they are to be recorded
        self._nodes: dict[tuple[int, int], NodeSummary] = {}

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        nodes = sum(node.slots.nbytes + node.weights.nbytes for node in self._nodes.values())
        return nodes + 4 * (len(self.order) + len(self.position))

    def add(self, slots: Array) -> None:
        """Add points, in the order given, to the hot bucket, or to a new one where that is full.

        Their data must not change while they are here.
        """
        for slot in slots.tolist():
            self.position.extend(_ABSENT * (slot + 1 - len(self.position)))
            self.position[slot] = len(self)
            self.order.append(slot)
            self._changed(len(self) - 1)

    def remove(self, slots: Array) -> None:
        """Remove points, in the order given; the last one of the hot bucket fills the place of each."""
        for slot in slots.tolist():
            place, last = self.position[slot], self.order[-1]
            self.order[place], self.position[last] = last, place
            self.position[slot] = -1
            self.order.pop()
            self._changed(place, len(self))

    def _changed(self, *places: int) -> None:
        """Drop the nodes above places that changed, and choose the bucket size again if it is due."""
        if self.touched is not None:
            self.touched.update(places)
        for place in places if self._nodes else ():
            bucket = place // self.bucket_size
            for level in range(self._top() + 2):  # the root may have been one level higher
                self._nodes.pop((level, bucket >> level), None)
        n, then = len(self), self.measured
        if self._height is not None and (n >= 2 * then or 2 * n <= then):
            self._nodes.clear()
            self.measured, self.bucket_size = n, self._size_for(n)

    def restore(self, slots: Array, bucket_size: int, measured: int) -> None:
        """Arrange the same slots in another order, with the bucket size that was chosen for it."""
        self.order, self._nodes = array("i"), {}
        self.add(slots)
        self.bucket_size, self.measured = bucket_size, measured

    def _size_for(self, n: int) -> int:
        """Return the bucket size that the height requires for so many points."""
        assert self._height is not None
        return max(1, -(-n // 2 ** (self._height - 1)))

    totals = None  # a tree does not calibrate weights

    def strata(self) -> Strata:
        return Strata(np.zeros(1), np.array([len(self)]), np.zeros(1))

    def choose(self, size: int) -> tuple[Array, Array]:
        """Choose at most ``size`` points that represent all: their slots, and weights of the same total.

        If ``reduce`` raises, so does this, and the tree stays valid.
        """
        if len(self) <= size:
            chosen = self._alive(self.slots())
        else:
            top = self._top()
            chosen = self._reduced(self._node(top, 0), size, top + 1, 0)
        return chosen.slots.astype(np.intp), chosen.weights.copy()

    def slots(self) -> Array:
        """Return the slots of all points, in their order."""
        return np.array(self.order, dtype=np.int32)

    def check(self) -> None:
        n, then, position = len(self), self.measured, np.full(len(self.position), -1)
        position[self.slots()] = np.arange(n)
        assert np.array_equal(position, self.position), "1: a position is not where the order has a slot"
        assert self.bucket_size >= 1, "2: the bucket size is not positive"
        if self._height is not None:
            size = self._size_for(then)
            assert self.bucket_size == size, f"2: the bucket size is not {size}, which the height requires"
            assert then < 2 * n < 4 * then or n == then == 0, "2: the bucket size is out of date"
        fresh = copy.copy(self)
        fresh._nodes = {}
        for level, index in self._nodes:
            there = level <= self._top() and index < self._width(level)
            assert there, f"3: the node {level, index} has no place"
            fresh._node(level, index)
        assert fresh._nodes.keys() == self._nodes.keys(), "4: a node lacks a child"
        for place, node in self._nodes.items():
            same = all(map(np.array_equal, node, fresh._nodes[place]))
            assert same, f"5: the node {place} is not what rebuilding it gives"

    def _top(self) -> int:
        """Return the level of the root."""
        return (self._width(0) - 1).bit_length()

    def _width(self, level: int) -> int:
        """Count the nodes of a level."""
        return -(-len(self) // (self.bucket_size << level))

    def _node(self, level: int, index: int) -> NodeSummary:
        """Return a node; build it if it is missing, with what is missing below it."""
        if (level, index) not in self._nodes:
            if level:
                below = range(2 * index, min(2 * index + 2, self._width(level - 1)))
                children = [self._node(level - 1, child) for child in below]
                whole = NodeSummary(*map(np.concatenate, zip(*children, strict=True)))
            else:
                bucket = self.order[index * self.bucket_size : (index + 1) * self.bucket_size]
                whole = self._alive(np.array(bucket, dtype=np.int32))
            self._nodes[level, index] = self._reduced(whole, self._node_size, level, index)
        return self._nodes[level, index]

    def _alive(self, slots: Array) -> NodeSummary:
        """Leave out points of weight zero."""
        weights = self._holder.weights[slots]
        return NodeSummary(slots[weights > 0], weights[weights > 0])

    def _reduced(self, whole: NodeSummary, size: int, level: int, index: int) -> NodeSummary:
        """Reduce to at most ``size``."""
        if len(whole.slots) <= size:
            return whole
        points = self._holder.points(whole.slots).with_parts(weights=whole.weights)
        rng = np.random.default_rng((self._seed, level, index))
        rows, weights = reduce_rows(self._sampler, points, size, rng)
        return NodeSummary(whole.slots[rows], weights)
