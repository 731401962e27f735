"""The view from an anchor: how to find the anchor, the sampler with what it freezes, and the losses there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from duramen.arrays import Array, refuse_nonfinite
from duramen.ball import Anchor
from duramen.coreset.settings import BySize, Settings, as_anchor
from duramen.coreset.suspects import split_at
from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.centres import CentreLoss
from duramen.losses.linear import PredictorLoss
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints, RankedSampler, Sampler, freeze, has_frozen
from duramen.samplers.calibration import CalibrationFeatures
from duramen.solvers.starts import _find_anchor
from duramen.trimming import check_points_and_loss


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


def anchored_points(
    anchor: Anchor, points: WeightedPoints, loss: Loss, *, cached: bool
) -> tuple[AnchoredPoints, Any]:
    """Compute the losses of points at an anchor; also return the loss's cache, if ``cached``."""
    if cached:
        losses, cache = loss.values_and_cache(anchor.theta, points.X, points.y)
    else:
        losses, cache = loss.values(anchor.theta, points.X, points.y), None
    return AnchoredPoints(points, loss, anchor, checked_losses(losses, loss, points)), cache


def given_anchor(given: Any, loss: Loss, n_columns: int) -> Anchor | None:
    """Return the anchor given; None where one has to be found.

    Raises
    ------
    ValueError
        If it does not fit this loss on ``n_columns`` columns, or none was given and none can be found.
    """
    shape = loss.parameter_shape(n_columns)
    if given is None:
        if shape is None:
            raise ValueError(
                f"{loss!r} does not define the shape of theta, so no anchor can be found; "
                "pass a rough solution as anchor="
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
    if loss.needs_labels and points.y is None:
        raise ValueError(f"{loss!r} needs labels; pass y, one label per row")


def checked_losses(losses: Any, loss: Loss, points: WeightedPoints) -> Array:
    """Raise ValueError unless a custom loss returned one number per point, zero or more."""
    if is_built_in(loss):
        return losses
    values = np.asarray(losses)
    if values.shape != (len(points),) or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{loss!r} returned values of shape {values.shape} and type {values.dtype}; "
            f"one number for each of {len(points)} points is needed"
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
    return isinstance(loss, (PredictorLoss, CentreLoss))


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


def complete_anchor(settings: Settings, n_columns: int) -> tuple[Anchor, Sampler] | None:
    """Return the anchor given, and the sampler, if nothing has to be found or frozen on a sample."""
    anchor = given_anchor(settings.given, settings.loss, n_columns)
    if anchor is None:
        return None
    sampler = settings.sampler_at(anchor, n_columns)
    complete = not isinstance(sampler, RankedSampler) or has_frozen(sampler, anchor)
    return (anchor, sampler) if complete else None


def find_anchor_and_sampler(
    settings: Settings, sample: WeightedPoints, z: float, total: float, n_points: int
) -> tuple[Anchor, Sampler]:
    """Return the anchor given, or one found on a sample, with what the sampler freezes; and the sampler.

    Only for a size is anything frozen on the sample: theorems use all points.

    Parameters
    ----------
    settings : Settings
    sample : WeightedPoints
        From :func:`anchor_sample`.
    z, total, n_points
        The weight to set aside, and the weight and number of all points.
    """
    loss, plan = settings.loss, settings.plan
    if settings.chooser is not None:
        settings.chooser.check(loss, sample)
    settings.check_radius()
    fraction = float(f"{z / total:.12g}")  # so that the anchor does not depend on how the total was rounded
    anchor = given_anchor(settings.given, loss, sample.n_columns)
    if anchor is None:
        rng = np.random.default_rng(settings.seed)
        try:
            anchor = _find_anchor(sample, loss, fraction, rng, n_rows=n_points)
        except MissingPropertyError as error:
            raise MissingPropertyError(f"{error}; or pass a rough solution as anchor=") from None
        except ValueError:
            refuse_nonfinite(sample.X)  # with the number of the row here, not in a sample of it
            raise
    sampler = settings.sampler_at(anchor, sample.n_columns)
    if not (isinstance(sampler, RankedSampler) and isinstance(plan, BySize)):
        return anchor, sampler
    anchored, _ = anchored_points(anchor, sample, loss, cached=False)
    weight = sample.total_weight
    split = split_at(sample, anchored.losses, plan.suspected_of(fraction * weight, weight))
    inner = np.where(np.isfinite(anchored.losses), split.inner, 0.0)  # in all the data they may be suspected
    if inner.any():
        anchored = replace(anchored, points=sample.with_weights(inner))
    return freeze(sampler, anchored).anchor, sampler
