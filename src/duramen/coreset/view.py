"""The view from an anchor: the anchor, the sampler with what it froze, and the losses at the anchor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from duramen.arrays import Array, refuse_nonfinite
from duramen.ball import Anchor, Ball
from duramen.coreset.choose import split_at
from duramen.coreset.settings import ROWS_A_PARAMETER, ByDeltaSample, BySize, ByTheorem, SizeRule
from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.samplers import (
    AnchoredPoints,
    LayeredSampler,
    LeverageSampler,
    RankedSampler,
    Sampler,
    SensitivitySampler,
    UniformSampler,
)
from duramen.samplers.base import Bound, freeze
from duramen.samplers.ranks import smallest, uniforms
from duramen.solvers.anchor import _find_anchor

__all__ = [
    "SAMPLE",
    "anchor_sample",
    "anchored_points",
    "are_few",
    "as_anchor",
    "best_sampler",
    "chances",
    "check_plan",
    "checked_losses",
    "find_anchor_and_sampler",
    "given_anchor",
    "is_bare",
    "is_built_in",
    "refuse_infinite",
    "sample_of",
    "sample_rows",
    "sampler_of",
    "take_or_find_anchor",
]


SAMPLE = 20_000
"""How many points an anchor is made from, and all that is frozen with it, where there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample is drawn by other numbers than the coreset
_FAINT = 1e-290  # the least weight: beyond, a chance would overflow and count as absence


def chances(seed: int, ids: Array, weights: Array) -> Array:
    """Compute the random numbers by which points come into an anchor's sample: the smallest do.

    A uniform number over the weight, so that heavy points are not missed; infinite where there is no weight.
    """
    numbers = uniforms(seed ^ _SALT, ids)
    if not (weights == 1.0).all():
        with np.errstate(divide="ignore", over="ignore"):
            numbers /= np.where(weights > 0, np.maximum(weights, _FAINT), 0.0)
    return numbers


def anchor_sample(points: WeightedPoints, seed: int) -> WeightedPoints:
    """Sample at most 20,000 points of positive weight, in the order of their ids.

    Examples
    --------
    >>> import duramen as dm
    >>> anchor_sample(dm.points([[1.0], [2.0]], ids=[7, 3]), seed=0).ids
    array([3, 7])
    """
    if len(points) <= SAMPLE:
        return sample_of(points, np.where(points.weights > 0, 0.0, np.inf))
    return sample_of(points, chances(seed, points.ids, points.weights))


def sample_of(points: WeightedPoints, numbers: Array) -> WeightedPoints:
    """Take the 20,000 points of the smallest numbers, in the order of their ids."""
    return points.take_unchecked(*sample_rows(numbers, points.ids, points.weights))


def sample_rows(numbers: Array, ids: Array, weights: Array) -> tuple[Array, Array]:
    """Find the rows of the 20,000 smallest numbers, weighted so that together they stand for all.

    A point of less weight than the others stand for was drawn by chance, and weighs as much as they do.
    """
    rows, following = smallest(numbers, ids, SAMPLE)
    rows = rows[np.argsort(ids[rows])]
    heavy = weights[rows]
    if np.isfinite(following) and not (heavy == heavy[0]).all():
        heavy = np.maximum(heavy, 1 / following)
    return rows, heavy


_SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "layered": LayeredSampler,
    "leverage": LeverageSampler,
    "sensitivity": SensitivitySampler,
}


def is_bare(anchor: Any) -> bool:
    """Tell whether an anchor was given as a theta, without a radius."""
    return anchor is not None and not isinstance(anchor, (Anchor, Ball))


def anchored_points(
    place: Anchor, points: WeightedPoints, loss: Loss, *, cached: bool
) -> tuple[AnchoredPoints, Any]:
    """Look at the points from an anchor: also at the cache of their losses, if asked."""
    if cached:
        losses, cache = loss.values_and_cache(place.theta, points.X, points.y)
    else:
        losses, cache = loss.values(place.theta, points.X, points.y), None
    return AnchoredPoints(points, loss, place, checked_losses(losses, loss, points)), cache


def are_few(plan: SizeRule, loss: Loss, n_columns: int) -> bool:
    """Tell whether so few rows are to be chosen that a fit would bend to them."""
    n_parameters = int(np.prod(loss.parameter_shape(n_columns) or (1,)))
    return isinstance(plan, BySize) and plan.size < ROWS_A_PARAMETER * n_parameters


def best_sampler(loss: Any, has_radius: bool, few: bool) -> Sampler:
    """Choose by what was measured (docs/sampling.md); sensitivities need a radius.

    A function of what a coreset keeps: its anchor, handed back, chooses the same.
    """
    if isinstance(loss, SoftmaxLoss):
        return LeverageSampler()
    if not isinstance(loss, LinearLoss):
        return LayeredSampler()
    if loss.classifies and not (few and has_radius):
        return LeverageSampler()
    return SensitivitySampler(quiet=True) if has_radius else LayeredSampler()


def sampler_of(sampler: Any, plan: SizeRule) -> Sampler | None:
    """Find the sampler by its name; None for "auto", which depends on the anchor."""
    if isinstance(plan, ByDeltaSample):
        if sampler not in ("auto", "uniform") and not isinstance(sampler, UniformSampler):
            raise TypeError(
                f"beta alone means a uniform sample (Theorem 1); sampler={sampler!r} needs size or epsilon"
            )
        return UniformSampler()
    if isinstance(sampler, str):
        if sampler == "auto":
            return None
        if sampler not in _SAMPLERS:
            raise ValueError(
                f"sampler={sampler!r} is not known; take one of {['auto', *_SAMPLERS]} or your own Sampler"
            )
        return _SAMPLERS[sampler]()
    if isinstance(sampler, Bound):
        return sampler.sampler
    if isinstance(sampler, Sampler):
        return sampler
    found = f"the class {sampler.__name__}; call it" if isinstance(sampler, type) else repr(sampler)
    raise TypeError(f"sampler must be a Sampler, or one of {['auto', *_SAMPLERS]}; found {found}")


def check_plan(plan: SizeRule, z: float, bare: bool, sampler: Sampler | None) -> None:
    """Raise ValueError, with the way out, where a theorem or a sampler lacks what it needs."""
    if isinstance(plan, ByDeltaSample) and not (z > 0 and plan.beta > 0):
        raise ValueError(
            f"beta={plan.beta:g} alone means Theorem 1, which needs both beta and n_outliers above 0, "
            f"and n_outliers is {z:g} here; pass size or epsilon"
        )
    if bare and (isinstance(plan, ByTheorem) or isinstance(sampler, SensitivitySampler)):
        who = "epsilon" if isinstance(plan, ByTheorem) else repr(sampler)
        raise ValueError(
            f"{who} needs to know how far from the anchor a solution may be; "
            "pass anchor=dm.Anchor(theta, radius) in place of a theta alone"
        )


def take_or_find_anchor(
    given: Any,
    points: WeightedPoints,
    loss: Loss,
    n_outliers: float,
    rng: np.random.Generator,
    n_rows: int | None = None,
) -> Anchor:
    """Take the anchor that was given, or find one; ``n_rows`` of which the points may be a sample."""
    place = given_anchor(given, loss, points.n_columns)
    if place is not None:
        return place
    try:
        return _find_anchor(points, loss, n_outliers, rng, n_rows=n_rows)
    except MissingPropertyError as error:
        raise MissingPropertyError(f"{error}; or pass anchor=, a rough solution of your own") from None
    except ValueError:
        refuse_nonfinite(points.X)  # with the number of the row here, not in a sample
        raise


def as_anchor(given: Any) -> Anchor:
    """Make an anchor of an Anchor, a Ball, a Solution or a theta; raise ValueError if it is none of them."""
    if isinstance(given, Ball):
        return Anchor(given.theta, given.radius)
    return given if isinstance(given, Anchor) else Anchor(getattr(given, "theta", given), 0.0)


def given_anchor(given: Any, loss: Loss, n_columns: int) -> Anchor | None:
    """Take what was given for an anchor; None where one is to be sought, if it can be.

    Raises
    ------
    ValueError
        If it is none for this loss on so many columns, or none was given and none can be sought.
    """
    shape = loss.parameter_shape(n_columns)
    if given is None:
        if shape is None:
            raise ValueError(
                f"{loss!r} does not give the shape of theta, so no anchor can be sought; "
                "pass anchor=, a rough solution of your own"
            )
        return None
    place = as_anchor(given)
    if shape is not None and place.theta.shape != tuple(shape):
        raise ValueError(
            f"the anchor's theta has shape {place.theta.shape}; {loss!r} on {n_columns} columns "
            f"needs shape {tuple(shape)}"
        )
    return place


def checked_losses(losses: Any, loss: Loss, points: WeightedPoints) -> Array:
    """Raise ValueError unless a loss of the user's own gave one number a point, zero or more."""
    if is_built_in(loss):
        return losses
    values = np.asarray(losses)
    if values.shape != (len(points),) or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{loss!r} gave values of shape {values.shape} and type {values.dtype} for {len(points)} points; "
            "one number a point is needed"
        )
    wrong = np.flatnonzero(~(values >= 0))
    if wrong.size:
        raise ValueError(
            f"{loss!r} gave the loss {values[wrong[0]]} to id {points.ids[wrong[0]]}; no loss is negative"
        )
    return values


def is_built_in(loss: Any) -> bool:
    """Tell whether a loss is ours, so that its values need no checks, and it finds NaN by itself."""
    return isinstance(loss, (LinearLoss, SoftmaxLoss, DistanceLoss, BregmanLoss))


def refuse_infinite(name: Any, loss: Any) -> NoReturn:
    """Raise ValueError for a point that costs infinitely much, and yet is not suspected."""
    raise ValueError(
        f"id {name} has the loss {loss} at the anchor; scale the columns, pass float64, or take more outliers"
    )


def find_anchor_and_sampler(
    given: Any,
    sample: WeightedPoints,
    loss: Loss,
    plan: SizeRule,
    named: Sampler | None,
    *,
    z: float,
    total: float,
    n_points: int,
    seed: int,
) -> tuple[Anchor, Sampler]:
    """Take the anchor given, or find one on a sample; and freeze on it what the sampler misses.

    Parameters
    ----------
    given : Anchor, Ball, array or None
    sample : WeightedPoints
        From :func:`duramen.coreset.view.anchor_sample`.
    loss : Loss
    plan : SizeRule
        Only for a size is anything frozen on the sample: theorems look at all points.
    named : Sampler or None
        None to choose one.
    z, total, n_points
        How much weight to set aside, and what there is of points and weight in all.
    seed : int

    Returns
    -------
    anchor : Anchor
    sampler : Sampler
    """
    if named is not None:
        named.check(loss, sample)
    check_plan(plan, z, is_bare(given), named)
    fraction = float(f"{z / total:.12g}")  # so that how the total was rounded does not show in the anchor
    place = take_or_find_anchor(given, sample, loss, fraction, np.random.default_rng(seed), n_points)
    chooser = named or best_sampler(loss, place.radius > 0, are_few(plan, loss, sample.n_columns))
    if not (isinstance(chooser, RankedSampler) and isinstance(plan, BySize)):
        return place, chooser
    seen, _ = anchored_points(place, sample, loss, cached=False)
    heavy = sample.total_weight
    split = split_at(sample, seen.losses, plan.suspected_of(fraction * heavy, heavy))
    inner = np.where(np.isfinite(seen.losses), split.inner, 0.0)  # of all points, such may well be suspected
    if inner.any():
        seen = replace(seen, points=sample.with_weights(inner))
    return freeze(chooser, seen).anchor, chooser
