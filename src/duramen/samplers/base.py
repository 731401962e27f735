"""A sampler as a black box: what it returns is checked, whoever wrote it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.samplers.ranks import apportion, draw, scale_weights, uniforms

__all__ = [
    "NOWHERE",
    "AnchoredPoints",
    "Bound",
    "RankedSampler",
    "Sampler",
    "Strata",
    "check_size",
    "reduce_rows",
]


_FAINT = 1e-290  # the least size measure

NOWHERE = Anchor(np.zeros(1), 0.0)
"""Where a sampler looks from that looks at no losses: it only holds what the sampler freezes."""


@dataclass(frozen=True, eq=False)
class AnchoredPoints:
    """Points as seen from an anchor: what a ranked sampler may look at.

    Attributes
    ----------
    points : WeightedPoints
    loss : Loss or None
        None only where the sampler was not bound to a problem.
    anchor : Anchor
        With what the sampler froze in it.
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
    """What is in each stratum now: its number, how many points, and their weight."""

    numbers: Array
    counts: Array
    weights: Array


class Sampler(ABC):
    """A way to make few weighted points of many that stand for them all.

    A sampler of your own is a subclass with ``reduce``; or, if it can say how
    much each point matters by itself, a :class:`RankedSampler` with ``scores``.
    """

    @abstractmethod
    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        """Make at most ``size`` weighted points that stand for ``points``, of the same total weight.

        The rows are some of those given, with their ids. Where there are no
        more than ``size`` points, they are returned as they are.
        """

    def bind(self, loss: Loss, anchor: Anchor) -> Sampler:
        """Return a sampler that knows the problem and the anchor, if this one needs them."""
        return self

    def check(self, loss: Loss, points: WeightedPoints) -> None:  # noqa: B027 (most samplers ask for nothing)
        """Raise TypeError, with the way out, if the loss on such points lacks what this sampler needs."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RankedSampler(Sampler):
    """A sampler that scores each point by itself.

    A subclass defines ``scores``. What scores depend on must be the point
    itself, the loss, the anchor's theta, or what ``freeze`` derived once from
    data and the anchor keeps: never which other points are there.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> class ByLength(dm.RankedSampler):
    ...     def scores(self, seen):
    ...         return 1 + np.linalg.norm(seen.points.X, axis=1)
    >>> rng = np.random.default_rng(0)
    >>> core = ByLength().reduce(dm.points(rng.normal(size=(1000, 2))), 50, rng)
    >>> core
    WeightedPoints: 50 rows x 2 columns of float64, total weight 1,000
    """

    freezes: tuple[str, ...] | None = None
    """The names of all that ``freeze`` gives; None where that is not known."""

    needs_losses = False
    """Whether it looks at losses at the anchor, so that it must be bound before it can reduce."""

    @abstractmethod
    def scores(self, seen: AnchoredPoints) -> Array:
        """Say how much a unit of weight of each point matters: (n,), positive, up to a common factor."""

    def ceiling(self, seen: AnchoredPoints) -> float:
        """Give a number that no score of these points exceeds, if one can be had for less than the scores."""
        return np.inf

    def steady_scores(self, seen: AnchoredPoints) -> Array:
        """Score points as ``scores`` does; a score has the same bits whichever other points are there."""
        return self.scores(seen)

    def freeze(self, seen: AnchoredPoints) -> dict[str, Array]:
        """Derive from points what later scores depend on; it is kept in the anchor under these names."""
        return {}

    def strata(self, seen: AnchoredPoints) -> Array | None:
        """Give the number of each point's stratum: (n,) integers; None for a single one."""
        return None

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Share ``size`` out: the group each stratum is pooled into, and the size of each group.

        By weight, a group for each stratum, unless a sampler does otherwise.
        """
        return np.arange(len(strata.numbers)), apportion(strata.weights, strata.counts, size)

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        return Bound(self).reduce(points, size, rng)

    def bind(self, loss: Loss, anchor: Anchor) -> Sampler:
        return Bound(self, loss, anchor)


@final
@dataclass(frozen=True)
class Bound(Sampler):
    """A ranked sampler that knows its problem, and the anchor it looks from."""

    sampler: RankedSampler
    loss: Loss | None = None
    anchor: Anchor | None = None

    def reduce(self, points: WeightedPoints, size: int, rng: np.random.Generator) -> WeightedPoints:
        check_size(size)
        live = np.flatnonzero(points.weights > 0)
        if len(live) <= size:
            return points if len(live) == len(points) else points.take(live)
        seen = self._seen(points)
        seed = int(rng.integers(2**63))
        groups, sizes, totals = group_strata(self.sampler, self.sampler.strata(seen), points.weights, size)
        found = draw(seed, compute_ranks(self.sampler, seen, seed), points.ids, groups, sizes)
        weights = scale_weights(found, points.weights, groups, totals)
        order = np.argsort(points.ids[found.rows])
        return points.take_unchecked(found.rows[order], weights[order])

    def _seen(self, points: WeightedPoints) -> AnchoredPoints:
        name = type(self.sampler).__name__
        if self.loss is None or self.anchor is None:
            if self.sampler.needs_losses:
                raise ValueError(
                    f"{name} looks at losses, so it needs a problem and an anchor; "
                    f"use {name}().bind(loss, anchor).reduce(points, size, rng)"
                )
            return freeze(self.sampler, AnchoredPoints(points, None, NOWHERE, np.zeros(len(points))))
        self.sampler.check(self.loss, points)
        losses = np.zeros(len(points))
        if self.sampler.needs_losses:
            losses = self.loss.values(self.anchor.theta, points.X, points.y)
        return freeze(self.sampler, AnchoredPoints(points, self.loss, self.anchor, losses))


def has_frozen(sampler: RankedSampler, anchor: Anchor) -> bool:
    """Tell whether an anchor holds all that the sampler would freeze, so that nothing need be looked at."""
    names = () if type(sampler).freeze is RankedSampler.freeze else sampler.freezes
    told = names is not None and _goes_with(sampler, "freezes", "freeze")
    return told and set(names or ()) <= set(anchor.frozen)


def ceiling_of(sampler: RankedSampler, seen: AnchoredPoints) -> float:
    """Give a number that no measure, weight times score, of these points exceeds; it may be infinite."""
    most = float(seen.points.weights.max(initial=0.0))
    ceiling = sampler.ceiling(seen) if _goes_with(sampler, "ceiling", "scores") else np.inf
    return float(size_measures(most, float(ceiling)))


def _goes_with(sampler: RankedSampler, one: str, other: str) -> bool:
    """Tell whether a class knows of what it says: not if it inherits that, and does the other thing anew."""
    owners = [
        next(at for at, kind in enumerate(type(sampler).__mro__) if name in vars(kind))
        for name in (one, other)
    ]
    return owners[0] <= owners[1]


def freeze(sampler: RankedSampler, seen: AnchoredPoints) -> AnchoredPoints:
    """Have the sampler freeze what it derives from these points, unless the anchor holds it already."""
    state = sampler.freeze(seen)
    new = {name: value for name, value in state.items() if name not in seen.anchor.frozen}
    return AnchoredPoints(seen.points, seen.loss, seen.anchor.freeze(**new), seen.losses) if new else seen


def size_measures(weights: Any, scores: Any) -> Any:
    """Compute size measures, weight times score: not so faint that a rank overflows, and counts as absent."""
    if isinstance(scores, float):
        return max(weights * scores, _FAINT)
    return np.maximum(weights * scores, _FAINT)


def compute_ranks(sampler: RankedSampler, seen: AnchoredPoints, seed: int, *, steady: bool = False) -> Array:
    """Compute the ranks, u over weight times score; refuse scores that are not positive numbers.

    If ``steady``, the rank of a point has the same bits whichever others are with it.
    """
    weights = seen.points.weights
    steady = steady and _goes_with(sampler, "steady_scores", "scores")
    scores = np.asarray(sampler.steady_scores(seen) if steady else sampler.scores(seen))
    if scores.shape != (len(seen),):
        raise ValueError(
            f"{sampler!r} gave scores of shape {scores.shape} for {len(seen)} points; one a point is needed"
        )
    if len(scores) and not (scores.min() > 0 and scores.max() < np.inf):  # or NaN
        wrong = np.flatnonzero(~((scores > 0) & (scores < np.inf)) & (weights > 0))
        if wrong.size:
            raise ValueError(
                f"{sampler!r} gave the score {scores[wrong[0]]} to id {seen.points.ids[wrong[0]]}; "
                "scores must be positive numbers"
            )
        scores = np.where(weights > 0, scores, 1.0)
    measures = np.where(weights > 0, size_measures(weights, scores), 0.0)
    ranks = uniforms(seed, seen.points.ids)
    with np.errstate(divide="ignore", over="ignore"):
        ranks /= measures
    return ranks


def group_strata(
    sampler: RankedSampler, numbers: Array | None, weights: Array, size: int
) -> tuple[Array | None, Array, Array]:
    """Share the size out between groups of strata: the group of each point, their sizes and total weights.

    ``numbers`` are the strata of the points; those of weight zero count as absent.
    """
    if numbers is None:
        return None, np.array([size]), np.array([float(weights.sum())])
    strata, place, seats = strata_of(numbers, weights)
    pooled, sizes = allocate_size(sampler, strata, size)
    lookup = np.full(int(place.max()) + 1, -1, dtype=np.int32)
    lookup[seats] = pooled
    return lookup.take(place), sizes, np.bincount(pooled, strata.weights)


def allocate_size(sampler: RankedSampler, strata: Strata, size: int) -> tuple[Array, Array]:
    """Have the sampler share the size out, and check what it says: groups of strata, and their sizes."""
    pooled, sizes = (np.asarray(part) for part in sampler.allocate(strata, size))
    _check_allocation(sampler, strata, pooled, sizes, size)
    return pooled, sizes


def strata_of(numbers: Array, weights: Array) -> tuple[Strata, Array, Array]:
    """Count what is in each stratum; seat every point, at 0 if it weighs nothing, and every stratum."""
    low, high = int(numbers.min()), int(numbers.max())
    names: Array
    if high - low < 2**15:
        place = numbers.astype(np.intp)
        place -= low - 1
        names = np.arange(low, high + 1)
    else:
        names, place = np.unique(numbers, return_inverse=True)
        place += 1
    place *= weights > 0
    counts = np.bincount(place, minlength=len(names) + 1)[1:]
    heavy = np.bincount(place, weights, minlength=len(names) + 1)[1:]
    there = np.flatnonzero(counts)
    return Strata(names[there], counts[there], heavy[there]), place, there + 1


def _check_allocation(sampler: RankedSampler, strata: Strata, pooled: Array, sizes: Array, size: int) -> None:
    """Raise ValueError unless every stratum is in a group, and every group has a size."""
    there = set(pooled.tolist()) == set(range(len(sizes))) and pooled.shape == strata.numbers.shape
    if not (there and (sizes >= 1).all() and sizes.sum() <= size):
        raise ValueError(
            f"{sampler!r} shared size={size} out as {sizes.tolist()[:5]}, with strata in groups "
            f"{pooled.tolist()[:5]}; each needs a group, and each group a point or more of the size"
        )


def check_size(size: Any) -> None:
    """Raise ValueError unless size is a whole number of 1 or more."""
    whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    if not (whole and size >= 1):
        raise ValueError(f"size={size!r} must be a whole number of 1 or more")


def reduce_rows(
    sampler: Sampler, points: WeightedPoints, size: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Let a sampler reduce points of positive weight: the rows it kept, and weights of the same total.

    Raises
    ------
    TypeError
        If it returns something else than points.
    ValueError
        If it returns none, more than ``size``, others than it was given, one
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
    rows = _found_again(sampler, points, reduced, size)
    return rows, reduced.weights * (points.total_weight / reduced.total_weight)


def _found_again(sampler: Sampler, points: WeightedPoints, reduced: Any, size: int) -> Array:
    """Find the rows of the points that a black box returned; raise if it returned something else."""
    if not isinstance(reduced, WeightedPoints):
        raise TypeError(f"{sampler!r} must return points from reduce; found {type(reduced).__name__}")
    order = np.argsort(points.ids)
    place = np.minimum(np.searchsorted(points.ids, reduced.ids, sorter=order), len(order) - 1)
    if not 0 < len(reduced) <= size or not np.array_equal(points.ids[order[place]], reduced.ids):
        raise ValueError(
            f"{sampler!r} gave {len(reduced)} points where {size} of those it was given were asked for; "
            "reduce must return some of them, with their ids"
        )
    twice = np.flatnonzero(np.bincount(place) > 1)
    if twice.size:
        raise ValueError(
            f"{sampler!r} gave id {points.ids[order[twice[0]]]} more than once; "
            "reduce must return each point once, with all the weight it stands for"
        )
    wrong = np.flatnonzero(~((reduced.weights > 0) & (reduced.weights < np.inf)))
    if wrong.size:
        raise ValueError(
            f"{sampler!r} gave the weight {reduced.weights[wrong[0]]} to id {reduced.ids[wrong[0]]}; "
            "weights must be positive numbers"
        )
    return np.asarray(order[place])
