"""A sampler as a black box: what it returns is checked, built-in or custom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.losses.base import Anchor, Loss
from duramen.points import WeightedPoints
from duramen.samplers.ranks import apportion, draw, scale_weights, uniforms

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

    def take_unchecked(self, rows: Array) -> AnchoredPoints:
        """Copy the points numbered ``rows``, which must be distinct."""
        points = self.points.take_unchecked(rows, self.points.weights[rows])
        return AnchoredPoints(points, self.loss, self.anchor, self.losses[rows])


class Strata(NamedTuple):
    """The non-empty strata: their numbers, how many points each has, and their weights."""

    numbers: Array
    counts: Array
    weights: Array


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

    freezes: tuple[str, ...] | None = None
    """The names of all that ``freeze`` returns; None where they are not known."""

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
        """Return the number of each point's stratum: (n,) integers; None for a single stratum."""
        return None

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Share ``size`` out: the group each stratum is pooled into, and the size of each group.

        By default each stratum is a group, with a size in proportion to its weight.
        """
        return np.arange(len(strata.numbers)), apportion(strata.weights, strata.counts, size)

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        return Bound(self).reduce(points, size, rng)

    def bind(self, loss: Loss, anchor: Anchor) -> Sampler:
        return Bound(self, loss, anchor)


@final
@dataclass(frozen=True, repr=False)
class Bound(Sampler):
    """A ranked sampler with its problem and its anchor."""

    sampler: RankedSampler
    loss: Loss | None = None
    anchor: Anchor | None = None

    def __repr__(self) -> str:
        return repr(self.sampler)

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        check_count("size", size)
        live = np.flatnonzero(points.weights > 0)
        if len(live) <= size:
            return points if len(live) == len(points) else points.take(live)
        anchored = freeze(self.sampler, self._anchored(points))
        seed = int(rng.integers(2**63))
        ranks, strata = compute_ranks(self.sampler, anchored, seed), self.sampler.strata(anchored)
        found = draw_by_rank(self.sampler, RankedRows(points, ranks, strata), size, seed)
        order = np.argsort(points.ids[found.rows])
        return points.take_unchecked(found.rows[order], found.weights[order])

    def _anchored(self, points: WeightedPoints) -> AnchoredPoints:
        losses = np.zeros(len(points))
        if self.loss is not None and self.anchor is not None:
            self.sampler.check(self.loss, points)
            if self.sampler.needs_losses:
                losses = self.loss.values(self.anchor.theta, points.X, points.y)
        elif self.sampler.needs_losses:
            name = type(self.sampler).__name__
            raise ValueError(
                f"{name} uses losses, so it needs a problem and an anchor; "
                f"call {name}().bind(loss, anchor).reduce(points, size, rng)"
            )
        return AnchoredPoints(points, self.loss, self.anchor or NOWHERE, losses)


def has_frozen(sampler: RankedSampler, anchor: Anchor) -> bool:
    """Return whether an anchor already keeps all that the sampler would freeze."""
    if type(sampler).freeze is RankedSampler.freeze:
        return True
    names = sampler.freezes if _still_holds(sampler, "freezes", "freeze") else None
    return names is not None and set(names) <= set(anchor.frozen)


def _still_holds(sampler: RankedSampler, promise: str, method: str) -> bool:
    """Return whether ``promise`` is defined at least as deep in the MRO as the ``method`` it is about.

    A subclass that overrides the method alone inherits a promise that it need not keep.
    """
    kinds = type(sampler).__mro__
    depths = [next(k for k, kind in enumerate(kinds) if name in vars(kind)) for name in (promise, method)]
    return depths[0] <= depths[1]


def freeze(sampler: RankedSampler, anchored: AnchoredPoints) -> AnchoredPoints:
    """Freeze what the sampler derives from these points, unless the anchor keeps it already."""
    state, anchor = sampler.freeze(anchored), anchored.anchor
    new = {name: value for name, value in state.items() if name not in anchor.frozen}
    if not new:
        return anchored
    return AnchoredPoints(anchored.points, anchored.loss, anchor.freeze(**new), anchored.losses)


def size_measures(weights: Any, scores: Any) -> Any:
    """Compute size measures, weight times score, not so small that a rank overflows."""
    return np.maximum(weights * scores, _SMALLEST_MEASURE)


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
    weights = anchored.points.weights
    steady = steady and _still_holds(sampler, "steady_scores", "scores")
    scores = np.asarray(sampler.steady_scores(anchored) if steady else sampler.scores(anchored))
    if scores.shape != (len(anchored),):
        raise ValueError(
            f"{sampler!r} returned scores of shape {scores.shape} for {len(anchored)} points; "
            "one score per point is needed"
        )
    if len(scores) and not (scores.min() > 0 and scores.max() < np.inf):  # or NaN
        valid = (scores > 0) & (scores < np.inf)
        wrong = np.flatnonzero(~valid & (weights > 0))
        if wrong.size and refuse:
            raise ValueError(
                f"{sampler!r} gave the score {scores[wrong[0]]} to id {anchored.points.ids[wrong[0]]}; "
                "scores must be positive numbers"
            )
        scores, weights = np.where(valid, scores, 1.0), np.where(valid, weights, 0.0)
    measures = np.where(weights > 0, size_measures(weights, scores), 0.0)
    ranks = uniforms(seed, anchored.points.ids)
    with np.errstate(divide="ignore", over="ignore"):
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
    groups: Array | None


class Stratified(Protocol):
    """Points by stratum, in whatever form they are kept."""

    def strata(self) -> Strata:
        """Return the non-empty strata, ascending."""

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        """Return at least the ``sizes[g] + 1`` smallest (rank, id) of every group g of strata.

        ``pooled`` is the group of each stratum; the groups of the entries may be None if there is one.
        """

    def rest(self, strata: Array, rows: Array) -> float:
        """Sum the weights of the strata in a mask, without those of some rows."""


class RankedRows:
    """Points in arrays, the rank of each, and the number of its stratum (None: they are one stratum).

    Points of weight zero count as absent.
    """

    def __init__(self, points: WeightedPoints, ranks: Array, numbers: Array | None) -> None:
        self.points, self.ranks = points, ranks
        self.places: Array | None = None  # where each point's stratum is, after a place for none
        if numbers is None:
            count, weight = np.array([np.count_nonzero(points.weights)]), np.array([points.total_weight])
            self._strata = Strata(*(column[count > 0] for column in (np.zeros(1, np.int64), count, weight)))
        else:
            self._strata, places, occupied = strata_of(numbers, points.weights)
            lookup = np.zeros(int(places.max()) + 1, dtype=np.int32)
            lookup[occupied] = np.arange(1, len(occupied) + 1)
            self.places = lookup.take(places)

    def strata(self) -> Strata:
        return self._strata

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        groups = None
        if self.places is not None and len(sizes) > 1:
            groups = np.append(-1, pooled).astype(np.int32).take(self.places)
        points = self.points
        return Entries(np.arange(len(points)), points.ids, points.weights, self.ranks, groups)

    def rest(self, strata: Array, rows: Array) -> float:
        weights = np.array(self.points.weights)
        if self.places is not None:
            weights *= np.append(False, strata).take(self.places)
        weights[rows] = 0.0
        return float(weights.sum())


def draw_by_rank(sampler: RankedSampler, points: Stratified, size: int, seed: int) -> Chosen:
    """Share the size out between groups of strata, and draw the smallest ranks of each."""
    strata = points.strata()
    pooled, sizes = allocate_size(sampler, strata, size)
    entries = points.smallest(pooled, sizes)
    totals = np.bincount(pooled, strata.weights)

    def rest(group: int, rows: Array) -> float:
        return points.rest(pooled == group, rows)

    return draw_entries(entries, sizes, totals, rest, seed)


def draw_entries(
    entries: Entries, sizes: Array, totals: Array, rest: Callable[[int, Array], float], seed: int
) -> Chosen:
    """Draw ``sizes[g]`` entries of each group by rank, and scale their weights to the group's total.

    ``rest(g, rows)`` returns the weight of a group without some rows.
    """
    found = draw(seed, entries.ranks, entries.ids, entries.groups, sizes)
    rows = entries.rows[found.rows]
    weights = scale_weights(found, entries.weights[found.rows], totals, lambda g, kept: rest(g, rows[kept]))
    return Chosen(rows, weights, found.inclusion, found.groups)


def allocate_size(sampler: RankedSampler, strata: Strata, size: int) -> tuple[Array, Array]:
    """Have the sampler share the size out: return the group of each stratum and the size of each group.

    Raises
    ------
    ValueError
        Unless every stratum is in a group, and every group has a size.
    """
    pooled, sizes = (np.asarray(part) for part in sampler.allocate(strata, size))
    complete = set(pooled.tolist()) == set(range(len(sizes))) and pooled.shape == strata.numbers.shape
    if not (complete and (sizes >= 1).all() and sizes.sum() <= size):
        raise ValueError(
            f"{sampler!r} shared size={size} out as {sizes.tolist()[:5]}, with strata in groups "
            f"{pooled.tolist()[:5]}; put each stratum in a group, and give each group one point or more"
        )
    return pooled, sizes


def strata_of(numbers: Array, weights: Array) -> tuple[Strata, Array, Array]:
    """Count the points of each stratum; return the strata, each point's place, and each stratum's place.

    The place of a point without weight is 0, which belongs to no stratum.
    """
    low, high = int(numbers.min()), int(numbers.max())
    names: Array
    if high - low < 2**15:
        places = numbers.astype(np.intp)
        places -= low - 1
        names = np.arange(low, high + 1)
    else:
        names, places = np.unique(numbers, return_inverse=True)
        places += 1
    places *= weights > 0
    counts = np.bincount(places, minlength=len(names) + 1)[1:]
    sums = np.bincount(places, weights, minlength=len(names) + 1)[1:]
    present = np.flatnonzero(counts)
    return Strata(names[present], counts[present], sums[present]), places, present + 1


def reduce_rows(
    sampler: Sampler, points: WeightedPoints, size: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Let a sampler reduce points of positive weight: the rows it kept, and weights of the same total.

    Raises
    ------
    TypeError
        If it returns anything but points.
    ValueError
        If it returns none, more than ``size``, other points than it was given, one
        of them twice, or weights that are not positive numbers.

    Examples
    --------
    >>> import duramen as dm
    >>> points = dm.points([[0.0], [1.0], [2.0], [3.0]], ids=[10, 11, 12, 13])
    >>> rows, weights = reduce_rows(dm.UniformSampler(), points, 2, np.random.default_rng(0))
    >>> len(rows), weights
    (2, array([2., 2.]))
    """
    reduced = sampler.reduce(points, size, rng)
    if not isinstance(reduced, WeightedPoints):
        raise TypeError(f"{sampler!r} must return points from reduce; found {type(reduced).__name__}")
    order = np.argsort(points.ids)
    places = np.minimum(np.searchsorted(points.ids, reduced.ids, sorter=order), len(order) - 1)
    rows = order[places]
    if not 0 < len(reduced) <= size or not np.array_equal(points.ids[rows], reduced.ids):
        raise ValueError(
            f"{sampler!r} returned {len(reduced)} points where {size} of those it was given were expected; "
            "reduce must return some of them, with their ids"
        )
    repeated = np.flatnonzero(np.bincount(rows) > 1)
    if repeated.size:
        raise ValueError(
            f"{sampler!r} returned id {points.ids[repeated[0]]} more than once; "
            "reduce must return each point once, with all the weight it represents"
        )
    wrong = np.flatnonzero(~((reduced.weights > 0) & (reduced.weights < np.inf)))
    if wrong.size:
        raise ValueError(
            f"{sampler!r} gave the weight {reduced.weights[wrong[0]]} to id {reduced.ids[wrong[0]]}; "
            "weights must be positive numbers"
        )
    return rows, reduced.weights * (points.total_weight / reduced.total_weight)
