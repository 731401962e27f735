"""The view from an anchor: how to find the anchor, the sampler with what it freezes, and the losses there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from duramen.arrays import Array, refuse_nonfinite
from duramen.ball import Anchor, Ball
from duramen.coreset.settings import ROWS_A_PARAMETER, ByDeltaSample, BySize, ByTheorem, SizeRule
from duramen.coreset.split import split_at
from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints, Bound, RankedSampler, Sampler, freeze
from duramen.samplers.calibration import CalibrationFeatures
from duramen.samplers.layered import LayeredSampler, UniformSampler
from duramen.samplers.leverage import LeverageSampler
from duramen.samplers.ranks import smallest, uniforms
from duramen.samplers.sensitivity import SensitivitySampler
from duramen.solvers.anchor import _find_anchor
from duramen.trimming import check_points_and_loss

SAMPLE = 20_000
"""The number of points from which an anchor is made, and all that is frozen with it, if there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample uses other random numbers than the coreset
_SMALLEST_WEIGHT = 1e-290  # below, a rank would overflow and count as absent


@dataclass(frozen=True, eq=False)
class View:
    """What the second pass needs: the problem, the anchor to compute losses at, and the size.

    Attributes
    ----------
    loss : Loss
    anchor : Anchor
        With all that the sampler freezes.
    sampler : RankedSampler
    seed : int
    plan : BySize
    suspected : float
        The weight to suspect.
    floor : float
        A loss below which no point is suspected; minus infinity where it is not known.
    features : CalibrationFeatures or None
        What the weights are calibrated to.
    """

    loss: Loss
    anchor: Anchor
    sampler: RankedSampler
    seed: int
    plan: BySize
    suspected: float
    floor: float
    features: CalibrationFeatures | None


def chances(seed: int, ids: Array, weights: Array) -> Array:
    """Compute the random ranks by which points enter an anchor's sample: the smallest do.

    A uniform number over the weight, so that heavy points are not missed; infinite where the weight is zero.
    """
    ranks = uniforms(seed ^ _SALT, ids)
    if not (weights == 1.0).all():
        with np.errstate(divide="ignore", over="ignore"):
            ranks /= np.where(weights > 0, np.maximum(weights, _SMALLEST_WEIGHT), 0.0)
    return ranks


def anchor_sample(points: WeightedPoints, seed: int) -> WeightedPoints:
    """Sample at most 20,000 points of positive weight, sorted by id.

    Examples
    --------
    >>> import duramen as dm
    >>> anchor_sample(dm.points([[1.0], [2.0]], ids=[7, 3]), seed=0).ids
    array([3, 7])
    """
    if len(points) <= SAMPLE:
        return sample_of(points, np.where(points.weights > 0, 0.0, np.inf))
    return sample_of(points, chances(seed, points.ids, points.weights))


def sample_of(points: WeightedPoints, ranks: Array) -> WeightedPoints:
    """Take the 20,000 points of the smallest ranks, sorted by id."""
    return points.take_unchecked(*sample_rows(ranks, points.ids, points.weights))


def sample_rows(ranks: Array, ids: Array, weights: Array) -> tuple[Array, Array]:
    """Find the rows of the 20,000 smallest ranks, and the weights with which they represent all.

    A light point was included by chance, and weighs as much as the points that the others represent.
    """
    rows, following = smallest(ranks, ids, SAMPLE)
    rows = rows[np.argsort(ids[rows])]
    own = weights[rows]
    if np.isfinite(following) and not (own == own[0]).all():
        own = np.maximum(own, 1 / following)
    return rows, own


_SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "layered": LayeredSampler,
    "leverage": LeverageSampler,
    "sensitivity": SensitivitySampler,
}


def is_bare(anchor: Any) -> bool:
    """Return whether an anchor was given as a theta, without a radius."""
    return anchor is not None and not isinstance(anchor, (Anchor, Ball))


def anchored_points(
    anchor: Anchor, points: WeightedPoints, loss: Loss, *, cached: bool
) -> tuple[AnchoredPoints, Any]:
    """Compute the losses of points at an anchor; also return the loss's cache, if ``cached``."""
    if cached:
        losses, cache = loss.values_and_cache(anchor.theta, points.X, points.y)
    else:
        losses, cache = loss.values(anchor.theta, points.X, points.y), None
    return AnchoredPoints(points, loss, anchor, checked_losses(losses, loss, points)), cache


def are_few(plan: SizeRule, loss: Loss, n_columns: int) -> bool:
    """Return whether the coreset is so small that a fit would overfit it."""
    n_parameters = int(np.prod(loss.parameter_shape(n_columns) or (1,)))
    return isinstance(plan, BySize) and plan.size < ROWS_A_PARAMETER * n_parameters


def best_sampler(loss: Any, has_radius: bool, few: bool) -> Sampler:
    """Choose the sampler that measured best (docs/sampling.md); sensitivities need a radius.

    A function of what a coreset keeps: passing its anchor back chooses the same sampler.
    """
    if isinstance(loss, SoftmaxLoss):
        return LeverageSampler()
    if not isinstance(loss, LinearLoss):
        return LayeredSampler()
    if loss.classifies and not (few and has_radius):
        return LeverageSampler()
    return SensitivitySampler(quiet=True) if has_radius else LayeredSampler()


def sampler_of(sampler: Any, plan: SizeRule) -> Sampler | None:
    """Return the sampler asked for; None for "auto", which depends on the anchor."""
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
        needs_radius = "epsilon" if isinstance(plan, ByTheorem) else repr(sampler)
        raise ValueError(
            f"{needs_radius} needs to know how far from the anchor a solution may be; "
            "pass anchor=dm.Anchor(theta, radius) instead of a theta alone"
        )


def take_or_find_anchor(
    given: Any,
    points: WeightedPoints,
    loss: Loss,
    n_outliers: float,
    rng: np.random.Generator,
    n_rows: int | None = None,
) -> Anchor:
    """Return the anchor given, or find one on points that may be a sample of ``n_rows``."""
    anchor = given_anchor(given, loss, points.n_columns)
    if anchor is not None:
        return anchor
    try:
        return _find_anchor(points, loss, n_outliers, rng, n_rows=n_rows)
    except MissingPropertyError as error:
        raise MissingPropertyError(f"{error}; or pass anchor=, your own rough solution") from None
    except ValueError:
        refuse_nonfinite(points.X)  # with the number of the row here, not in a sample
        raise


def as_anchor(given: Any) -> Anchor:
    """Convert an Anchor, a Ball, a Solution or a theta to an anchor; raise ValueError for anything else."""
    if isinstance(given, Ball):
        return Anchor(given.theta, given.radius)
    return given if isinstance(given, Anchor) else Anchor(getattr(given, "theta", given), 0.0)


def given_anchor(given: Any, loss: Loss, n_columns: int) -> Anchor | None:
    """Return the anchor given; None where one has to be found.

    Raises
    ------
    ValueError
        If it does not fit this loss on so many columns, or none was given and none can be found.
    """
    shape = loss.parameter_shape(n_columns)
    if given is None:
        if shape is None:
            raise ValueError(
                f"{loss!r} does not define the shape of theta, so no anchor can be found; "
                "pass anchor=, your own rough solution"
            )
        return None
    anchor = as_anchor(given)
    if shape is not None and anchor.theta.shape != tuple(shape):
        raise ValueError(
            f"the anchor's theta has shape {anchor.theta.shape}; {loss!r} on {n_columns} columns "
            f"needs shape {tuple(shape)}"
        )
    return anchor


def check_points(points: WeightedPoints, loss: Loss) -> None:
    """Raise TypeError or ValueError unless these are points, and labelled if the loss needs labels."""
    check_points_and_loss(points, loss)
    if isinstance(loss, LinearLoss) and points.y is None:
        raise ValueError(f"{loss!r} needs labels; pass y, one label per row")


def checked_losses(losses: Any, loss: Loss, points: WeightedPoints) -> Array:
    """Raise ValueError unless a custom loss returned one number per point, zero or more."""
    if is_built_in(loss):
        return losses
    values = np.asarray(losses)
    if values.shape != (len(points),) or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{loss!r} gave values of shape {values.shape} and type {values.dtype} for {len(points)} points; "
            "one number per point is needed"
        )
    wrong = np.flatnonzero(~(values >= 0))
    if wrong.size:
        raise ValueError(
            f"{loss!r} gave the loss {values[wrong[0]]} to id {points.ids[wrong[0]]}; "
            "losses must not be negative"
        )
    return values


def is_built_in(loss: Any) -> bool:
    """Return whether a loss is built in, so that its values need no checks, and it finds NaN itself."""
    return isinstance(loss, (LinearLoss, SoftmaxLoss, DistanceLoss, BregmanLoss))


def check_finite(inner: AnchoredPoints) -> None:
    """Raise ValueError if the loss of a point that is not suspected is infinite or NaN."""
    if np.isfinite(inner.losses).all():
        return
    nonfinite = np.flatnonzero(~np.isfinite(inner.losses) & (inner.points.weights > 0))
    if nonfinite.size:
        refuse_infinite(inner.points.ids[nonfinite[0]], inner.losses[nonfinite[0]])


def refuse_infinite(name: Any, loss: Any) -> NoReturn:
    """Raise ValueError for a point of infinite loss that is not suspected."""
    raise ValueError(
        f"id {name} has the loss {loss} at the anchor; scale the columns, pass float64, or raise n_outliers"
    )


def find_anchor_and_sampler(
    given: Any,
    sample: WeightedPoints,
    loss: Loss,
    plan: SizeRule,
    sampler: Sampler | None,
    *,
    z: float,
    total: float,
    n_points: int,
    seed: int,
) -> tuple[Anchor, Sampler]:
    """Return the anchor given, or one found on a sample, with what the sampler freezes; and the sampler.

    Parameters
    ----------
    given : Anchor, Ball, array or None
    sample : WeightedPoints
        From :func:`anchor_sample`.
    loss : Loss
    plan : SizeRule
        Only for a size is anything frozen on the sample: theorems use all points.
    sampler : Sampler or None
        None to choose one.
    z, total, n_points
        The weight to set aside, and the weight and number of all points.
    seed : int
    """
    if sampler is not None:
        sampler.check(loss, sample)
    check_plan(plan, z, is_bare(given), sampler)
    fraction = float(f"{z / total:.12g}")  # so that the anchor does not depend on how the total was rounded
    anchor = take_or_find_anchor(given, sample, loss, fraction, np.random.default_rng(seed), n_points)
    sampler = sampler or best_sampler(loss, anchor.radius > 0, are_few(plan, loss, sample.n_columns))
    if not (isinstance(sampler, RankedSampler) and isinstance(plan, BySize)):
        return anchor, sampler
    anchored, _ = anchored_points(anchor, sample, loss, cached=False)
    weight = sample.total_weight
    split = split_at(sample, anchored.losses, plan.suspected_of(fraction * weight, weight))
    inner = np.where(np.isfinite(anchored.losses), split.inner, 0.0)  # in all the data they may be suspected
    if inner.any():
        anchored = replace(anchored, points=sample.with_weights(inner))
    return freeze(sampler, anchored).anchor, sampler
