"""What is known of points near an anchor: values, gradients, and how fast they can change.

Any loss is asked method by method. A linear loss has all of it from the length
of a row and the derivatives in its predictor, at a tenth of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from duramen.ball import dual_norms
from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.linear import LinearLoss, Neighbourhood
from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.sampling.base import Seen

__all__ = ["METHODS", "Local", "constant_of", "scratch_bytes"]

METHODS = {"lipschitz": "lipschitz", "smooth": "smoothness", "hessian": "hessian_lipschitz"}
"""The kinds of continuity, and what a loss calls their constants."""


@dataclass(frozen=True, eq=False)
class Local:
    """What is known of some points at the anchor; None where the loss does not say.

    ``norms`` are those of the gradients.
    """

    values: Array
    norms: Array
    lipschitz: Array | None
    smooth: Array | None
    hessian: Array | None
    deviation: Array | None
    gradients: Any = None

    @staticmethod
    def of(seen: Seen) -> Local:
        """Ask the loss."""
        if isinstance(seen.loss, LinearLoss):
            return _of_linear(seen, seen.loss)
        loss, theta, points = seen.loss, seen.anchor.theta, seen.points
        constants = {kind: constant_of(loss, kind, points) for kind in METHODS}
        twist = constants["hessian"]
        if twist is not None:
            curved = loss.hessian_norms(theta, points.X, points.y)
            twist = None if curved is None else curved + twist * (seen.anchor.radius / 3)
        gradients, norms = None, np.zeros(len(points))
        if loss.convex or constants["smooth"] is not None or twist is not None:
            gradients = loss.gradients(theta, points.X, points.y)
            norms = np.asarray(dual_norms(gradients), dtype=np.float64)
            if not sparse.issparse(gradients):
                gradients = gradients.reshape(len(points), -1)
        try:
            deviation = loss.deviation(seen.anchor.ball, points.X, points.y)
        except MissingPropertyError:
            deviation = None
        values = np.asarray(seen.losses, dtype=np.float64)
        return Local(values, norms, constants["lipschitz"], constants["smooth"], twist, deviation, gradients)

    @property
    def has_gradients(self) -> bool:
        """Whether the loss gave gradients."""
        return self.gradients is not None

    def products(self, gradient: Array) -> Array:
        """Compute <g_i, G>."""
        return np.asarray(self.gradients @ gradient.ravel(), dtype=np.float64)

    def pulled(self, weights: Array) -> Array:
        """Sum weight times gradient."""
        return np.asarray(0.0 if self.gradients is None else self.gradients.T @ weights)


@dataclass(frozen=True, eq=False)
class _LinearLocal(Local):
    """The same of a linear loss, whose gradients are slopes times rows (x, 1)."""

    slopes: Any = None
    X: Any = None
    fit_intercept: bool = True

    @property
    def has_gradients(self) -> bool:
        return True

    def products(self, gradient: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            predictors = np.asarray(self.X @ gradient[: self.X.shape[1]], dtype=np.float64)
            return self.slopes * (predictors + gradient[-1] if self.fit_intercept else predictors)

    def pulled(self, weights: Array) -> Array:
        pull = self.slopes * weights
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.asarray(self.X.T @ pull, dtype=np.float64)
        return np.append(total, pull.sum()) if self.fit_intercept else total


def _of_linear(seen: Seen, loss: LinearLoss) -> Local:
    points = seen.points
    around: Neighbourhood = loss.neighbourhood(seen.anchor.ball, points.X, points.y)
    slopes, curvatures, norms, deviation = (np.asarray(part, dtype=np.float64) for part in around)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        twist = None
        if loss.max_third is not None:
            twist = curvatures * norms**2 + loss.max_third * norms**3 * (seen.anchor.radius / 3)
        return _LinearLocal(
            values=np.asarray(seen.losses, dtype=np.float64),
            norms=np.abs(slopes) * norms,
            lipschitz=None if loss.max_slope is None else loss.max_slope * norms,
            smooth=None if loss.max_curvature is None else loss.max_curvature * norms**2,
            hessian=twist,
            deviation=deviation,
            slopes=slopes,
            X=points.X,
            fit_intercept=loss.fit_intercept,
        )


def constant_of(loss: Loss, kind: str, points: WeightedPoints) -> Array | None:
    """Give the constants of one kind of continuity, where the loss has them."""
    constant = getattr(loss, METHODS[kind])(points.X, points.y)
    return None if constant is None else np.asarray(constant, dtype=np.float64)


def scratch_bytes(seen: Seen) -> int:
    """Count the bytes a row that all this takes."""
    return 200 if isinstance(seen.loss, LinearLoss) else 16 * int(seen.anchor.theta.size)
