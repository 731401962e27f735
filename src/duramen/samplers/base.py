"""What a sampler is; ranks, one selection for every sampler that scores points; uniform and layered sampling.

Each point has a pseudo-random number u(id) in (0, 1), a hash of a seed and its
id, and a size measure a = weight times score. Its rank is u / a, and the sample
of m points has the m smallest ranks. With t the next rank, a sampled
point was included with probability pi = min(1, a t), and weight / pi estimates
its share of any sum without bias: priority sampling, which draws without
replacement (Duffield, Lund and Thorup 2007).

Nothing here depends on the order of the points, or on earlier points: the
sample is a function of the points that are present.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.losses.base import Anchor, Loss, ignore_overflow
from duramen.parallel import for_each_chunk
from duramen.points import WeightedPoints
from duramen.trimming import kept_sum

_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_STEP = 2.0**40  # shares are rounded to multiples of one over it
_PROBES = 1 << 14  # ranks from which a limit is guessed, for each group
_MANY = 200  # groups; for more, limits take longer than sorting
OF_A_CLASS = 200
"""The rows of a class, if the size allows: where fewer are expected, it is set apart (docs/sampling.md)."""


def uniforms(seed: int, ids: Array) -> Array:
    """Compute u(id): (n,) numbers in (0, 1), by Steele, Lea and Flood's splitmix64 of seed and id.

    Examples
    --------
    >>> uniforms(0, np.array([1, 2, 3])) == uniforms(0, np.array([3, 1, 2]))[[1, 2, 0]]
    array([ True,  True,  True])
    """
    start = _mixed(np.array([seed], dtype=np.uint64) + _GOLDEN)
    result = np.empty(len(ids))

    def work(chunk: slice) -> None:
        numbers = ids[chunk].view(np.uint64) * _GOLDEN
        numbers += start
        np.add(_mixed(numbers) >> 11, 0.5, out=result[chunk])
        result[chunk] *= 2.0**-53

    for_each_chunk(work, len(ids), 1 << 16)
    return result


def _mixed(numbers: Array) -> Array:
    """Mix the bits of every number, in place."""
    for shift, factor in _ROUNDS:
        numbers ^= numbers >> shift
        numbers *= factor
    numbers ^= numbers >> 31
    return numbers


def smallest(ranks: Array, ids: Array, m: int) -> tuple[Array, float]:
    """Find the rows of the ``m`` smallest ranks, in their order, ties by id; and the next rank.

    Infinite ranks count as absent. Where no more than m are finite, the next rank is infinity.

    Examples
    --------
    >>> rows, threshold = smallest(np.array([0.4, 0.1, 0.3, 0.2]), np.arange(4), 2)
    >>> rows, threshold
    (array([1, 3]), 0.3)
    """
    rows = few_rows(ranks, None, np.array([m]))
    found, _, thresholds = smallest_of_groups(ranks[rows], ids[rows], np.zeros_like(rows), np.array([m]))
    return rows[found], float(thresholds[0])


def smallest_of_groups(ranks: Array, ids: Array, groups: Array, sizes: Array) -> tuple[Array, Array, Array]:
    """Find the ``sizes[g]`` smallest ranks of every group g, as :func:`smallest` does for one.

    Return their rows and groups, in the order of (group, rank, id), and the next rank of each group. A
    group below zero is none.
    """
    rows = np.flatnonzero((ranks < np.inf) & (groups >= 0))
    rows = rows[np.lexsort((ids[rows], ranks[rows], groups[rows]))]
    mine = groups[rows]
    ends = np.searchsorted(mine, np.arange(len(sizes))) + sizes
    left = ends[mine] - np.arange(len(rows))
    found, following = left > 0, left == 0
    thresholds = np.full(len(sizes), np.inf)
    thresholds[mine[following]] = ranks[rows[following]]
    return rows[found], mine[found], thresholds


def few_rows(ranks: Array, groups: Array | None, sizes: Array) -> Array:
    """Find few rows with the ``sizes[g] + 1`` smallest ranks of every group g, and all that tie there.

    As ranks are random, every so many of them bound those that are needed: about one comparison per point.
    """
    n, n_groups = len(ranks), len(sizes)
    step = max(1, n // _PROBES)
    if n_groups > 1 and (step == 1 or n_groups > _MANY):
        return np.arange(n)
    limits = np.full(n_groups + 1, -np.inf)  # the last: for groups below zero
    for group, size in enumerate(sizes):
        mine = ranks[::step] if groups is None else ranks[::step][groups[::step] == group]
        place = int(size / step + 6 * (size / step) ** 0.5 + 6)  # clearly more than are expected
        limits[group] = np.partition(mine, place)[place] if place < len(mine) else np.inf
    rows = np.flatnonzero(ranks <= (limits[0] if groups is None else limits[groups]))
    counts = len(rows) if groups is None else np.bincount(groups[rows], minlength=n_groups)
    misled = (counts <= sizes) & (limits[:-1] < np.inf)  # the order of the points misled: a limit is too low
    return np.arange(n) if misled.any() else rows


def apportion(shares: Any, capacities: Any, size: int) -> Array:
    """Share ``size`` out in proportion to ``shares``, within capacities: 2 or more each, or 1 of many.

    Where a share exceeds its capacity, the rest is shared out among the others; what
    rounding leaves goes to the largest remainders, the first of equals.

    Examples
    --------
    >>> apportion([1.0, 1.0, 8.0], [100, 100, 3], 10)
    array([4, 3, 3])
    """
    room = np.asarray(capacities, dtype=np.int64)
    size = min(size, room.sum())
    least = np.minimum(room, 2 if 2 * len(room) <= size else 1)
    if size < least.sum():
        raise ValueError(f"size={size} is below {least.sum()}, one for each group")
    if len(room) == 1:
        return np.array([size])
    shares = np.divide(shares, max(np.max(shares), np.finfo(float).tiny))
    shares = np.maximum(np.rint(shares * _STEP) / _STEP, 1e-9)  # so that the rounding of sums hardly matters
    low, high = 1.0, room.max() / shares.min()
    while low < (level := (low + high) / 2) < high:  # until clipped shares add up
        if np.clip(level * shares, least, room).sum() < size:
            low = level
        else:
            high = level
    parts = np.clip(low * shares, least, room)
    sizes = parts.astype(np.int64)
    order = np.argsort(np.where(sizes < room, sizes - parts, np.inf), kind="stable")
    sizes[order[: size - sizes.sum()]] += 1
    return sizes


_SMALLEST_MEASURE = 1e-290  # below, a rank would overflow and count as absent

NOWHERE = Anchor(np.zeros(1), 0.0)
"""The anchor of a sampler that does not use losses: it only keeps what the sampler freezes."""


@dataclass(frozen=True, eq=False)
class AnchoredPoints:
    """Points with their losses at an anchor: the input of a ranked sampler.

    Attributes
    ----------
    points : WeightedPoints
    loss : Loss or None
        None only where the sampler was not bound to a problem.
    anchor : Anchor
        Including what the sampler froze in it.
    losses : array (n,)
        f(anchor, x), for a sampler that ``needs_losses``.
    """

    points: WeightedPoints
    loss: Any
    anchor: Anchor
    losses: Array

    def __len__(self) -> int:
        return len(self.points)

    def take(self, which: Any) -> AnchoredPoints:
        """Select by position, as :meth:`WeightedPoints.take` does."""
        return AnchoredPoints(self.points.take(which), self.loss, self.anchor, self.losses[which])


class Strata(NamedTuple):
    """The non-empty strata: their numbers, how many points each has, and their weights."""

    numbers: Array
    counts: Array
    weights: Array

    def share_out(self, size: int, groups: Array, factors: Any = 1.0) -> tuple[Array, Array]:
        """Share ``size`` out between groups of strata, in proportion to their weights times factors."""
        counts = np.bincount(groups, self.counts)
        return groups, apportion(np.bincount(groups, self.weights) * factors, counts, size)

    def set_rare_apart(self, size: int) -> tuple[Array, Array]:
        """Share ``size`` out so that none is missed: a few for each that is rare, the rest for all others.

        Examples
        --------
        >>> Strata(np.arange(3), np.array([700, 3, 500]), np.array([700.0, 3.0, 500.0])).set_rare_apart(60)
        (array([1, 0, 1]), array([ 3, 57]))
        """
        least = min(OF_A_CLASS, max(size // (2 * len(self.counts)), size >= len(self.counts)))
        expected = size * self.weights / self.weights.sum()
        rare = (expected < least * (1 - 1e-9)) & (size < self.counts.sum())  # however sums are rounded
        groups = np.where(rare, np.cumsum(rare) - 1, np.count_nonzero(rare))
        few = np.minimum(self.counts[rare], least)
        return groups, np.append(few, min(size - few.sum(), self.counts[~rare].sum()))


class Sampler(ABC):
    """A method that reduces many points to a few weighted points that represent them.

    A custom sampler is a subclass with ``reduce``; or, if it can score each
    point by itself, a :class:`RankedSampler` with ``scores``.
    """

    @abstractmethod
    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        """Return at most ``size`` weighted points that represent ``points``, of the same total weight.

        The rows are some of those given, with their ids. Where there are no
        more than ``size`` points, they are returned unchanged.
        """

    def bind(self, loss: Loss, anchor: Anchor) -> Sampler:
        """Return a sampler that knows the problem and the anchor, if this one needs them."""
        return self

    def check(self, loss: Loss, points: WeightedPoints) -> None:  # noqa: B027 (most samplers need nothing)
        """Raise TypeError, with advice, if the loss lacks what this sampler needs on such points."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RankedSampler(Sampler):
    """A sampler that scores each point by itself.

    A subclass defines ``scores``. Scores may depend on the point itself, the
    loss, the anchor's theta, and what ``freeze`` derived once from data and the
    anchor keeps; never on which other points are present.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> class ByLength(dm.RankedSampler):
    ...     def scores(self, anchored):
    ...         return 1 + np.linalg.norm(anchored.points.X, axis=1)
    >>> rng = np.random.default_rng(0)
    >>> core = ByLength().reduce(dm.points(rng.normal(size=(1000, 2))), 50, rng)
    >>> core
    WeightedPoints: 50 rows x 2 columns of float64, total weight 1,000
    """

    freezes: tuple[str, ...] = ()
    """The names of all that ``freeze`` returns; not known of a subclass that overrides only ``freeze``."""

    needs_losses = False
    """Whether it uses losses at the anchor, so that it must be bound before it can reduce."""

    @abstractmethod
    def scores(self, anchored: AnchoredPoints) -> Array:
        """Compute how much a unit of weight of each point matters: (n,), positive, up to a common factor."""

    def steady_scores(self, anchored: AnchoredPoints) -> Array:
        """Compute ``scores`` so that a score has the same bits whichever other points are present."""
        return self.scores(anchored)

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        """Derive from points what later scores depend on; the anchor keeps it under these names."""
        return {}

    def strata(self, anchored: AnchoredPoints) -> Array | None:
        """Return the number of each point's stratum: (n,) integers; None for a single stratum.

        By default it is the class of the point, for a loss that has classes.
        """
        has_classes = anchored.loss is not None and anchored.loss.has_classes
        return anchored.loss.classes_of(anchored.points.y) if has_classes and self.has_class_strata else None

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Share ``size`` out: the group each stratum is pooled into, and the size of each group.

        By default each stratum is a group, with a size in proportion to its weight; but classes are one
        group, the last, except those that it would hardly draw from.
        """
        if self.has_class_strata:
            return strata.set_rare_apart(size)
        return strata.share_out(size, np.arange(len(strata.numbers)))

    @property
    def has_class_strata(self) -> bool:
        """Whether strata and groups are those of the default: the classes, or a single one."""
        kind = type(self)
        return kind.strata is RankedSampler.strata and kind.allocate is RankedSampler.allocate

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        return Bound(self).reduce(points, size, rng)

    def bind(self, loss: Loss, anchor: Anchor) -> Sampler:
        return Bound(self, loss, anchor)


@final
@dataclass(frozen=True, repr=False)
class Bound(Sampler):
    """A ranked sampler with its problem and its anchor."""

    sampler: RankedSampler
    loss: Any = None
    anchor: Anchor = NOWHERE

    def __repr__(self) -> str:
        return repr(self.sampler)

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        check_count("size", size)
        sampler, losses = self.sampler, np.zeros(len(points))
        live = np.flatnonzero(points.weights > 0)
        if len(live) <= size:
            return points.take(live)
        if self.loss is not None:
            sampler.check(self.loss, points)
        elif sampler.needs_losses:
            raise ValueError(f"{sampler!r} uses losses; call bind(loss, anchor), and reduce with its result")
        if sampler.needs_losses:
            losses = self.loss.values(self.anchor.theta, points.X, points.y)
        anchored, seed = AnchoredPoints(points, self.loss, self.anchor, losses), int(rng.integers(2**63))
        found = draw_by_rank(sampler, ranked_rows(sampler, freeze(sampler, anchored), seed), size, seed)
        order = np.argsort(points.ids[found.rows])
        return points.take_unchecked(found.rows[order], found.weights[order])


def has_frozen(sampler: Sampler, anchor: Anchor) -> bool:
    """Return whether an anchor already keeps all that the sampler would freeze."""
    if not isinstance(sampler, RankedSampler):
        return True
    return _still_holds(sampler, "freezes", "freeze") and {*sampler.freezes} <= anchor.frozen.keys()


def _still_holds(sampler: RankedSampler, promise: str, method: str) -> bool:
    """Return whether ``promise`` is defined at least as deep in the MRO as the ``method`` it is about.

    A subclass that overrides the method alone inherits a promise that it need not keep.
    """
    deepest = next(kind for kind in type(sampler).__mro__ if {promise, method} & vars(kind).keys())
    return promise in vars(deepest)


def freeze(sampler: RankedSampler, anchored: AnchoredPoints) -> AnchoredPoints:
    """Freeze what the sampler derives from these points and the anchor does not keep already."""
    anchor = anchored.anchor
    if has_frozen(sampler, anchor):
        return anchored
    return replace(anchored, anchor=anchor.freeze(**{**sampler.freeze(anchored), **anchor.frozen}))


def compute_ranks(
    sampler: RankedSampler,
    anchored: AnchoredPoints,
    seed: int,
    *,
    steady: bool = False,
    refuse: bool = True,
) -> Array:
    """Compute the ranks, u over weight times score; refuse scores that are not positive numbers.

    If ``steady``, the rank of a point has the same bits whichever others are with it. Without
    ``refuse``, the rank is infinite where the score is not a positive number.
    """
    weights, ids = anchored.points.weights, anchored.points.ids
    steady = steady and _still_holds(sampler, "steady_scores", "scores")
    scores = np.asarray((sampler.steady_scores if steady else sampler.scores)(anchored))
    if scores.shape != weights.shape:
        raise ValueError(
            f"{sampler!r} returned scores of shape {scores.shape} for {len(anchored)} points; "
            "one score per point is needed"
        )
    if not (scores.min(initial=1.0) > 0 and scores.max(initial=1.0) < np.inf):  # or NaN
        valid = (scores > 0) & (scores < np.inf)
        wrong = np.flatnonzero(~valid & (weights > 0))
        if wrong.size and refuse:
            raise ValueError(
                f"{sampler!r} gave the score {scores[wrong[0]]} to id {ids[wrong[0]]}; "
                "scores must be positive numbers"
            )
        scores, weights = np.where(valid, scores, 1.0), np.where(valid, weights, 0.0)
    ranks, measures = uniforms(seed, ids), weights * scores
    measures[(measures < _SMALLEST_MEASURE) & (weights > 0)] = _SMALLEST_MEASURE
    with ignore_overflow():
        ranks /= measures
    return ranks


class Chosen(NamedTuple):
    """Rows of the data, and the weights with which they represent it."""

    rows: Array
    weights: Array
    inclusion: Array
    groups: Array


class Entries(NamedTuple):
    """Points to draw from: the row of each where it is kept, and what the draw depends on."""

    rows: Array
    ids: Array
    weights: Array
    ranks: Array
    groups: Array


class Stratified(Protocol):
    """Points by stratum, in whatever form they are kept."""

    def strata(self) -> Strata:
        """Return the non-empty strata, ascending."""

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        """Return at least the ``sizes[g] + 1`` smallest (rank, id) of every group g of strata.

        ``pooled`` is the group of each stratum.
        """

    def rest(self, strata: Array, rows: Array) -> float:
        """Sum the weights of the strata in a mask, without those of some rows."""


class RankedRows:
    """Points in arrays, the rank of each, and the number of its stratum (None: they are one stratum).

    Points of weight zero count as absent.
    """

    def __init__(self, points: WeightedPoints, ranks: Array, numbers: Array | None) -> None:
        self.points, self.ranks = points, ranks
        self.places: Any = None  # of each point's stratum, from 1; 0 for none
        if numbers is not None:
            self._strata, self.places = strata_of(numbers, points.weights)
        else:
            sums = np.array([np.count_nonzero(points.weights)]), np.array([points.total_weight])
            self._strata = Strata(np.zeros(1, dtype=np.int64), *sums)

    def strata(self) -> Strata:
        return self._strata

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        groups, points = None, self.points
        if len(sizes) > 1:
            groups = np.append(-1, pooled).astype(np.int32).take(self.places)
        rows = few_rows(self.ranks, groups, sizes)
        mine = np.zeros_like(rows) if groups is None else groups[rows]
        return Entries(rows, points.ids[rows], points.weights[rows], self.ranks[rows], mine)

    def rest(self, strata: Array, rows: Array) -> float:
        weights = np.array(self.points.weights)
        if self.places is not None:
            weights *= np.append(False, strata).take(self.places)
        weights[rows] = 0.0
        return weights.sum()


def ranked_rows(
    sampler: RankedSampler, anchored: AnchoredPoints, seed: int, *, steady: bool = False
) -> RankedRows:
    """Rank points by what a sampler says of them; see :func:`compute_ranks`."""
    ranks = compute_ranks(sampler, anchored, seed, steady=steady)
    return RankedRows(anchored.points, ranks, sampler.strata(anchored))


def strata_of(numbers: Array, weights: Array) -> tuple[Strata, Array]:
    """Count the points of each stratum; return the strata, and the place of each point's stratum, from 1.

    The place of a point without weight is 0.
    """
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 2**15:
        names, codes = np.arange(low, high + 1), numbers.astype(np.intp) - low
    else:
        names, codes = np.unique(numbers, return_inverse=True)
    live = weights > 0
    counts = np.bincount(codes[live], minlength=len(names))
    sums, present = np.bincount(codes, weights), counts > 0
    strata = Strata(names[present], counts[present], sums[present])
    return strata, np.cumsum(present, dtype=np.int32).take(codes) * live


def draw_by_rank(sampler: RankedSampler, points: Stratified, size: int, seed: int) -> Chosen:
    """Share the size out between groups of strata, draw the smallest ranks of each, and weight them.

    Weights are divided by inclusion probabilities, and scaled to the total weight of each group. Points that
    were certain to be included represent only themselves and keep their weight; the others are scaled
    to what is left.
    """
    strata = points.strata()
    pooled, sizes = (np.asarray(part) for part in sampler.allocate(strata, size))
    complete = set(pooled.tolist()) == set(range(len(sizes))) and pooled.shape == strata.numbers.shape
    if not (complete and (sizes >= 1).all() and sizes.sum() <= size):
        raise ValueError(
            f"{sampler!r} shared size={size} out as {sizes.tolist()[:5]}, with strata in groups "
            f"{pooled.tolist()[:5]}; put each stratum in a group, and give each group one point or more"
        )
    totals = np.bincount(pooled, strata.weights)
    if sampler.has_class_strata and len(sizes) > 1:
        entries, found, thresholds = _smallest_of_classes(points, pooled, sizes)
    else:
        entries = points.smallest(pooled, sizes)
        found, _, thresholds = smallest_of_groups(entries.ranks, entries.ids, entries.groups, sizes)
    rows, ids, own, ranks, groups = (column[found] for column in entries)
    with ignore_overflow():
        inclusion = np.fmin(uniforms(seed, ids) / ranks * thresholds[groups], 1.0)
        weights, certain = own / inclusion, inclusion >= 1
        kept, others = (np.bincount(groups, part, len(sizes)) for part in (own * certain, weights * ~certain))
        left = totals - kept
        for group in np.flatnonzero(left < 0.5 * totals):  # the difference lost the digits of light points
            left[group] = points.rest(pooled == group, rows[certain & (groups == group)])
        # where only certain points were drawn, they must represent the others too
        factors = np.where(others > 0, left / others, 1 + left / kept)[groups]
        weights *= np.where(certain & (others > 0)[groups], 1.0, factors)
    return Chosen(rows, weights, inclusion, groups.astype(np.int32))


def _smallest_of_classes(points: Stratified, pooled: Array, sizes: Array) -> tuple[Entries, Array, Array]:
    """Find the smallest ranks of each rare class, and of the others, the last group; and the next ranks.

    Rare points compete in the draw from the last group, too, to no effect but that all draws need the
    smallest ranks of all points and a few of each class, and a summary holds no more than those.
    """
    last = len(sizes) - 1
    entries = points.smallest(pooled, np.full(len(sizes), sizes[-1]))
    rows, ranks, ids, groups = np.arange(len(entries.rows)), entries.ranks, entries.ids, entries.groups
    first = np.lexsort((ids, ranks))[: sizes[-1]]
    if (groups[first] == last).any():
        rare = np.flatnonzero(groups < last)
        rows, groups = np.append(rows, rare), np.append(groups, np.full(len(rare), last))
    else:
        sizes = np.append(sizes[:-1], min(sizes[-1], sizes[:-1].max()))
    found, _, thresholds = smallest_of_groups(ranks[rows], ids[rows], groups, sizes)
    return entries, found[found < len(entries.rows)], thresholds


@dataclass(frozen=True)
class UniformSampler(RankedSampler):
    """Draw points in proportion to their weight: the paper's Uniform (section 3.1).

    It needs no property of the loss. By Theorem 1 it gives a robust coreset by
    itself for any loss, but with an error in the number of outliers, and it is
    only useful where outliers are a fair share of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> points = dm.points(np.arange(100.0)[:, None])
    >>> dm.UniformSampler().reduce(points, 4, np.random.default_rng(0)).weights
    array([25., 25., 25., 25.])
    """

    def scores(self, anchored: AnchoredPoints) -> Array:
        return np.ones(len(anchored))


_LOWEST, _HIGHEST = -60, 1000  # exponents: below, losses are negligible beside their mean


@dataclass(frozen=True)
class LayeredSampler(RankedSampler):
    """Divide points into layers by their loss at the anchor, and draw uniformly from each.

    With r the smallest loss and T the mean of f - r, layer 0 holds the points
    with f - r below about T, and layer j those in [2^(j-1) T, 2^j T). (The
    paper's proof needs this; its text has twice as much.) A point's own exponent,
    the floor of log2((f - r) / T), uses the r and T frozen in the anchor; how many
    low exponents are pooled into layer 0 depends on the mean of the points
    present.

    Each layer has a share of the size in proportion to its weight times the
    square root of its upper end: between its share of the points and its share
    of the loss (docs/sampling.md has the measurement). The paper gives equal
    shares to all.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.concatenate([np.zeros(900), np.full(100, 30.0)])[:, None]
    >>> sampler = dm.LayeredSampler().bind(dm.KMedianLoss(1), dm.Anchor([[0.0]], radius=1.0))
    >>> core = sampler.reduce(dm.points(X), 10, np.random.default_rng(0))
    >>> [round(float(core.weights[core.X[:, 0] == x].sum()), 9) for x in (0.0, 30.0)]
    [900.0, 100.0]
    """

    needs_losses = True
    freezes = ("layers",)

    def scores(self, anchored: AnchoredPoints) -> Array:
        return np.ones(len(anchored))

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        points, losses = anchored.points, anchored.losses
        lowest = float(np.min(losses, initial=np.inf, where=points.weights > 0))
        mean = kept_sum(losses, points.weights) / points.total_weight - lowest
        return {"layers": np.array([lowest if lowest < np.inf else 0.0, mean if mean > 0 else 1.0])}

    def strata(self, anchored: AnchoredPoints) -> Array:
        lowest, unit = anchored.anchor.frozen["layers"].tolist()
        with ignore_overflow():
            height = np.maximum(np.subtract(anchored.losses, lowest, dtype=np.float64) / unit, 0.0)
        exponents = (height.view(np.int64) >> 52) - 1023  # the floor of log2, from the bits of the float
        return np.clip(exponents, _LOWEST, _HIGHEST).astype(np.int16)

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Pool the low exponents, and share the size out between the layers."""
        exponents = strata.numbers
        if exponents.min() < _LOWEST or exponents.max() > _HIGHEST:  # from another machine
            raise ValueError(f"layers are numbered from {_LOWEST} to {_HIGHEST}; found {exponents[:3]}")
        middle = np.ldexp(1.5, exponents)  # of a stratum, in frozen units
        mean = strata.weights / strata.weights.sum() @ middle
        lowest = int(np.floor(np.log2(mean) + 1e-9))  # the rounding of sums must not matter
        pooled = np.maximum(exponents - lowest + 1, 0)
        while len(np.unique(pooled)) > max(1, size // 2):  # a layer needs two points
            pooled = np.maximum(pooled - 1, 0)
        layers, groups = np.unique(pooled, return_inverse=True)
        return strata.share_out(size, groups, 2.0 ** (layers / 2))


def reduce_rows(
    sampler: Sampler, points: WeightedPoints, size: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Let a sampler reduce points of positive weight: the rows it kept, and weights of the same total."""
    reduced = sampler.reduce(points, size, rng)
    if not isinstance(reduced, WeightedPoints):
        raise TypeError(f"{sampler!r} must return points from reduce; found {type(reduced).__name__}")
    order = np.argsort(points.ids)
    # an id above all but the last leads to the last
    rows, weights = order[np.searchsorted(points.ids[order[:-1]], reduced.ids)], reduced.weights
    sound = (points.ids[rows] == reduced.ids) & (weights > 0) & (weights < np.inf)
    sound &= np.bincount(rows)[rows] == 1
    if not (0 < len(reduced) <= size and sound.all()):
        wrong = np.flatnonzero(~sound)[:3]
        raise ValueError(
            f"{sampler!r} returned {len(reduced)} points for size={size} (wrong: ids "
            f"{reduced.ids[wrong].tolist()} with weights {weights[wrong].tolist()}); reduce must return 1 to "
            "size of the points it was given, each once, with their ids and positive weights"
        )
    return rows, weights * (points.total_weight / reduced.total_weight)
