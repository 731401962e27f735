"""What is asked of a problem before anything is chosen: the sampler, the anchor, the losses seen from it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from duramen.ball import Anchor, Ball
from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.bregman import BregmanLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.robust.plan import ROWS_A_PARAMETER, ByDeltaSample, BySize, ByTheorem, Plan
from duramen.rows import Array, refuse_nonfinite
from duramen.sampling import (
    LayeredSampler,
    LeverageSampler,
    Sampler,
    Seen,
    SensitivitySampler,
    UniformSampler,
)
from duramen.sampling.base import Bound
from duramen.solvers.anchoring import found_anchor

__all__ = [
    "anchor_of",
    "are_few",
    "as_anchor",
    "best_sampler",
    "check_plan",
    "checked_losses",
    "given_anchor",
    "is_bare",
    "is_built_in",
    "refuse_infinite",
    "sampler_of",
    "seen_from",
]

_SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "layered": LayeredSampler,
    "leverage": LeverageSampler,
    "sensitivity": SensitivitySampler,
}


def is_bare(anchor: Any) -> bool:
    """Tell whether an anchor was given as a theta, without a radius."""
    return anchor is not None and not isinstance(anchor, (Anchor, Ball))


def seen_from(place: Anchor, points: WeightedPoints, loss: Loss, *, marked: bool) -> tuple[Seen, Any]:
    """Look at the points from an anchor: also at the marks of their losses, if asked."""
    if marked:
        losses, marks = loss.values_and_marks(place.theta, points.X, points.y)
    else:
        losses, marks = loss.values(place.theta, points.X, points.y), None
    return Seen(points, loss, place, checked_losses(losses, loss, points)), marks


def are_few(plan: Plan, loss: Loss, n_columns: int) -> bool:
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


def sampler_of(sampler: Any, plan: Plan) -> Sampler | None:
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


def check_plan(plan: Plan, z: float, bare: bool, sampler: Sampler | None) -> None:
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


def anchor_of(
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
        return found_anchor(points, loss, n_outliers, rng, n_rows=n_rows)
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
