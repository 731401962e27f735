"""Find the anchor of changing data, and report how well it still fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset.settings import BySize
from duramen.coreset.split import split_at
from duramen.coreset.view import (
    SAMPLE,
    anchored_points,
    are_few,
    best_sampler,
    chances,
    check_plan,
    given_anchor,
    is_bare,
    sample_rows,
    sampler_of,
    take_or_find_anchor,
)
from duramen.dynamic.rows import Slots
from duramen.losses.base import Loss, MissingPropertyError
from duramen.points import WeightedPoints
from duramen.samplers import RankedSampler, Sampler
from duramen.samplers.base import freeze

__all__ = ["AnchorReport", "AnchorSettings", "NoAnchorError", "all_with", "rows_needed", "sample_of"]


_FAR = 4.0  # radii; closer by, chance alone may have made the radius too small: it comes from two samples
_MOST_LATE = 0.5  # of the points; then most of them had no say in the anchor


@dataclass(frozen=True)
class AnchorReport:
    """What has become of the anchor's world since it was made.

    Attributes
    ----------
    radius : float or None
        How far from the anchor a solution may be for the constants to hold; None without an anchor.
    distance : float or None
        How far the latest solution is; None if there is none.
    n_points : int
        How many points are here.
    n_late : int
        How many of them came, or were changed, after the anchor was made.
    n_sample, n_sample_gone : int
        How many points the anchor was made from, and how many of these were deleted or changed since.
    reason : str or None
        Why there is no anchor yet, where there is none.

    Examples
    --------
    >>> AnchorReport(radius=0.5, distance=2.7, n_points=100, n_late=10, n_sample=50, n_sample_gone=1)
    AnchorReport: reanchor() is advised
      the latest solution is 2.7 from the anchor, outside the radius of 0.5: bounds no longer hold there
      10 of 100 points (10%) came or changed since
      1 of the 50 points it was made from were deleted or changed
    """

    radius: float | None
    distance: float | None
    n_points: int
    n_late: int
    n_sample: int
    n_sample_gone: int
    reason: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the latest solution is within the radius; True while there is none, or no radius."""
        if not self.radius or self.distance is None:
            return True
        return self.distance <= self.radius * (1 + 1e-9)

    @property
    def is_outside(self) -> bool:
        """Whether the latest solution is clearly outside, by four times the radius: then a fit warns."""
        return bool(self.radius) and self.distance is not None and self.distance > _FAR * (self.radius or 0.0)

    @property
    def late_share(self) -> float:
        """Which share of the points came or changed since."""
        return self.n_late / self.n_points if self.n_points else 0.0

    @property
    def advised(self) -> bool:
        """Whether ``reanchor()`` is advised: the solution is far outside, or most points are new."""
        made_here = self.n_sample > 0  # one that was handed in owes nothing to these points
        return self.radius is not None and (self.is_outside or (made_here and self.late_share > _MOST_LATE))

    def __repr__(self) -> str:
        if self.radius is None:
            return f"AnchorReport: no anchor yet; {self.reason}"
        verdict = (
            "the anchor holds" if self.holds else "the solution is a little outside, as chance may have it"
        )
        if self.advised:
            verdict = "reanchor() is advised"
        return "\n  ".join([f"AnchorReport: {verdict}", self._where(), *self._who()])

    def _where(self) -> str:
        if self.distance is None:
            return f"no solution yet to compare with; radius {self.radius:.4g}"
        if not self.radius:
            return f"the latest solution is {self.distance:.4g} from the anchor, which has no radius"
        where = f"the latest solution is {self.distance:.4g} from the anchor"
        if self.holds:
            return f"{where}, within the radius of {self.radius:.4g}"
        return f"{where}, outside the radius of {self.radius:.4g}: bounds no longer hold there"

    def _who(self) -> list[str]:
        lines = [f"{self.n_late:,} of {self.n_points:,} points ({self.late_share:.0%}) came or changed since"]
        if self.n_sample:
            gone = f"{self.n_sample_gone:,} of the {self.n_sample:,} points it was made from"
            lines.append(f"{gone} were deleted or changed")
        return lines


_ROWS_A_PARAMETER = 5  # of fewer, a fit bends to the rows so much that it says nothing of others


def rows_needed(loss: Loss, size: int, n_columns: int) -> int:
    """Count the rows from which the first anchor is made: more than the size, and 5 a parameter."""
    shape = loss.parameter_shape(n_columns)
    return max(size + 1, _ROWS_A_PARAMETER * int(np.prod(shape or (1,))))


def sample_of(slots: Slots, seed: int) -> WeightedPoints:
    """Take points of positive weight, at most 20,000 by chance, in the order of their ids.

    A function of the points that are there: the smallest random numbers of their ids.
    """
    there = slots.in_use()
    there = there[slots.weights[there] > 0]
    if len(there) > SAMPLE:
        ids, weights = slots.ids[there], slots.weights[there]
        rows, heavy = sample_rows(chances(seed, ids, weights), ids, weights)
        return slots.points(there[rows]).with_weights(heavy)
    return slots.points(there)


def all_with(slots: Slots, new: WeightedPoints) -> WeightedPoints:
    """Give the points of positive weight that are there with new ones, in the order of their ids."""
    there = slots.in_use()
    both = WeightedPoints.concat([slots.points(there), new]) if len(there) else new
    heavy = np.flatnonzero(both.weights > 0)
    return both.take(heavy[np.argsort(both.ids[heavy])])


class NoAnchorError(ValueError):
    """These points do not allow for an anchor: all are of one class, say."""


@dataclass(frozen=True)
class AnchorSettings:
    """How to make an anchor: the problem, how many rows to choose, by whom, and the seed."""

    loss: Loss
    plan: BySize
    sampler: Sampler | str
    seed: int

    def anchor(
        self, points: WeightedPoints, given: Any, fraction: float, n_rows: int
    ) -> tuple[Anchor, Sampler]:
        """Make an anchor of a sample of ``n_rows`` points, ``fraction`` of whose weight are outliers.

        Parameters
        ----------
        points : WeightedPoints
        given : Anchor, Ball, array or None
            Taken as it is, and only what the sampler misses in it is frozen anew.
        fraction : float
        n_rows : int

        Returns
        -------
        anchor : Anchor
        sampler : Sampler

        Raises
        ------
        NoAnchorError
            If these points do not allow for one; others may.
        TypeError, ValueError
            If the problem, or the anchor given, never will.
        """
        named = sampler_of(self.sampler, self.plan)
        if named is not None:
            named.check(self.loss, points)
        z = fraction * points.total_weight
        check_plan(self.plan, z, is_bare(given), named)
        rng = np.random.default_rng(self.seed)
        if given_anchor(given, self.loss, points.n_columns) is not None:
            return self._frozen(
                take_or_find_anchor(given, points, self.loss, fraction, rng), points, z, named
            )
        try:
            place = take_or_find_anchor(None, points, self.loss, fraction, rng, n_rows)
            return self._frozen(place, points, z, named)
        except MissingPropertyError:
            raise
        except ValueError as error:
            raise NoAnchorError(str(error)) from error

    def _frozen(
        self, place: Anchor, points: WeightedPoints, z: float, named: Sampler | None
    ) -> tuple[Anchor, Sampler]:
        """Choose the sampler, and have it freeze what it derives from the inliers among these points."""
        named = named or self._best(place, points.n_columns)
        if not isinstance(named, RankedSampler):
            return place, named
        seen, _ = anchored_points(place, points, self.loss, cached=False)
        split = split_at(points, seen.losses, self.plan.suspected_of(z, points.total_weight))
        if split.n_inner:
            seen = replace(seen, points=points.with_weights(split.inner))
        return freeze(named, seen).anchor, named

    def sampler_of(self, place: Anchor, n_columns: int) -> Sampler:
        """Choose the sampler that an anchor with all of its frozen parts was made for."""
        return sampler_of(self.sampler, self.plan) or self._best(place, n_columns)

    def _best(self, place: Anchor, n_columns: int) -> Sampler:
        return best_sampler(self.loss, place.radius > 0, are_few(self.plan, self.loss, n_columns))

    def is_ready(self, points: WeightedPoints, given: Any) -> bool:
        """Tell whether an anchor that was given has all that the sampler would freeze."""
        if not isinstance(given, Anchor):
            return False
        place, _ = self.anchor(points, given, 0.0, len(points))
        return set(place.frozen) <= set(given.frozen)


def same_anchor(one: Anchor, other: Anchor) -> bool:
    """Tell whether two anchors make the same choices."""
    if one is other:
        return True
    if one.radius != other.radius or not np.array_equal(one.theta, other.theta):
        return False
    names = set(one.frozen)
    return names == set(other.frozen) and all(_same(one.frozen[n], other.frozen[n]) for n in names)


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other)
