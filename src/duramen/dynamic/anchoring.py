"""The anchor of changing data: found on a sample of what is there, with all that the sampler freezes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duramen.ball import Anchor
from duramen.dynamic.slots import Slots
from duramen.losses.base import Loss, MissingPropertyError
from duramen.points import WeightedPoints
from duramen.robust.outlook import (
    anchor_of,
    are_few,
    best_sampler,
    check_plan,
    given_anchor,
    is_bare,
    sampler_of,
    seen_from,
)
from duramen.robust.plan import BySize
from duramen.robust.sample import SAMPLE, chances, drawn
from duramen.robust.split import split_at
from duramen.rows import Array
from duramen.sampling import RankedSampler, Sampler
from duramen.sampling.base import frozen

__all__ = ["NoAnchorError", "Recipe", "all_with", "rows_needed", "sample_of"]

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
        rows, heavy = drawn(chances(seed, ids, weights), ids, weights)
        return slots.points(there[rows]).weighing(heavy)
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
class Recipe:
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
            return self._frozen(anchor_of(given, points, self.loss, fraction, rng), points, z, named)
        try:
            place = anchor_of(None, points, self.loss, fraction, rng, n_rows)
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
        seen, _ = seen_from(place, points, self.loss, marked=False)
        split = split_at(points, seen.losses, self.plan.suspected_of(z, points.total_weight))
        if split.n_inner:
            seen = replace(seen, points=points.weighing(split.inner))
        return frozen(named, seen).anchor, named

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
