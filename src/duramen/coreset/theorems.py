"""The rules by which a coreset has the sizes of the paper's theorems."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from duramen import theory
from duramen.arrays import Array
from duramen.losses.base import Ball, Loss, MissingPropertyError
from duramen.samplers.base import AnchoredPoints, LayeredSampler, RankedSampler, Sampler
from duramen.samplers.sensitivity import SensitivitySampler
from duramen.trimming import trimmed_sum


@final
@dataclass(frozen=True)
class ByTheorem:
    """The sizes of Theorem 2, with the sampler's own theorem for the inliers.

    Without epsilon, that of Theorem 1: a uniform sample of all points, for any loss.
    """

    eta: float
    epsilon: float | None = None
    beta: float = 0.0

    @property
    def uniform(self) -> bool:
        """Whether all points are sampled uniformly, with no anchor: Theorem 1."""
        return self.epsilon is None

    @property
    def failure(self) -> float:
        """The failure probability of one side."""
        return self.eta / 2 if self.beta else self.eta

    def suspected_of(self, z: float, total: float, anchored: AnchoredPoints) -> float:
        """Compute z-tilde from epsilon_0, with a lower bound on f at (1 + beta) z outliers over the ball.

        It may exceed the total weight.
        """
        if self.epsilon is None and not (z > 0 and self.beta > 0):
            raise ValueError(
                f"beta={self.beta:g} alone means Theorem 1, which needs both beta and n_outliers above 0, "
                f"and n_outliers is {z:g} here; pass size or epsilon"
            )
        if z == 0 or self.epsilon is None:
            return 0.0
        points = anchored.points
        deviation = anchored.loss.deviation(anchored.anchor.ball, points.X, points.y)
        least = trimmed_sum(_least(anchored, deviation), points.weights, min((1 + self.beta) * z, total))
        epsilon0 = theory.epsilon0(
            self.epsilon,
            lowest_objective=least,
            n_points=total,
            n_outliers=z,
            deviation=deviation[points.weights > 0].max(),
        )
        return theory.n_suspected(z, epsilon0)

    def sizes(self, n_outer: int, n_inner: int, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        inner, outer, size = candidates.inner, float(n_outer), 0.0
        total = inner.points.total_weight
        if self.epsilon is None:
            size = theory.delta_sample_size(
                self.beta * (z / total), _vc_dimension(view.loss, inner), self.eta
            )
        elif total:
            size = self._inner_size(inner, view.sampler, self.epsilon / 4)
        if self.beta and n_outer:  # beta epsilon_0 / (1 + epsilon_0), as z-tilde defines it
            delta = self.beta * z / candidates.suspects().weights.sum()
            outer = min(outer, theory.delta_sample_size(delta, _vc_dimension(view.loss, inner), self.failure))
        if outer >= n_outer and size >= n_inner:
            required = f"{outer + size:,.0f}" if np.isfinite(outer + size) else "infinitely many"
            warnings.warn(
                f"the theorem requires {required} points and there are {n_outer + n_inner:,}, so all are "
                "kept; pass a larger epsilon or beta, an anchor with a smaller radius, or a size",
                stacklevel=5,
            )
        return outer, size

    def _inner_size(self, inner: AnchoredPoints, sampler: Sampler, epsilon: float) -> float:
        """Compute the size of an epsilon-coreset of the inliers, by the better theorem."""
        if not isinstance(sampler, RankedSampler):
            raise TypeError(
                f"{sampler!r} has no theorem that gives the number of points for epsilon={self.epsilon}; "
                "pass size instead"
            )
        points = inner.points
        doubling = theory.doubling_dimension(inner.anchor.theta.size)
        bounds = _bounds_in_ball(inner)
        if isinstance(sampler, LayeredSampler):
            # a layer holds no less than one point: weights are counted in units of the smallest
            unit = float(points.weights[points.weights > 0].min())
            bounds["lowest_objective"] /= unit
            n = points.total_weight / unit
            return theory.layered_size(n, epsilon, doubling_dimension=doubling, eta=self.failure, **bounds)
        spread = _spread(inner, sampler)
        bounds["n_points"] = points.total_weight
        size = theory.importance_size(
            spread, epsilon, doubling_dimension=doubling, eta=self.failure, **bounds
        )
        dimension = theory.vc_dimension(inner.loss, points.n_columns)
        if dimension is None:
            return size
        return min(size, theory.importance_size(spread, epsilon, vc_dimension=dimension, eta=self.failure))


def _vc_dimension(loss: Loss, inner: AnchoredPoints) -> float:
    dimension = theory.vc_dimension(loss, inner.points.n_columns)
    if dimension is None:
        raise MissingPropertyError(
            f"{loss!r} has no known VC dimension, which beta needs; define "
            f"{type(loss).__name__}.vc_dimension(n_columns), or pass size"
        )
    return dimension


def _least(anchored: AnchoredPoints, deviation: Array) -> Array:
    """Bound each loss from below over the ball."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.maximum(anchored.losses - deviation, 0.0))


def _bounds_in_ball(inner: AnchoredPoints) -> dict[str, float]:
    """Bound the objective over the ball from below, and how far one step of a net can move a loss.

    The proofs of Theorems 5 and 6 step between any two parameters of the ball, so
    they need the steepest slope in it, not only at the anchor: a Lipschitz
    constant, or for a convex loss the slopes that two balls bound.
    """
    points, ball = inner.points, inner.anchor.ball
    live = points.weights > 0
    deviation = inner.loss.deviation(ball, points.X, points.y)
    lowest = float(points.weights @ _least(inner, deviation))
    slopes = inner.loss.lipschitz(points.X, points.y)
    steps = math.inf if slopes is None else float(slopes[live].max()) * ball.radius
    if inner.loss.convex:
        twice = inner.loss.deviation(Ball(ball.theta, 2 * ball.radius), points.X, points.y)
        steps = min(steps, (deviation + twice)[live].max())
    return {"lowest_objective": lowest, "deviation": steps}


def _spread(inner: AnchoredPoints, sampler: RankedSampler) -> float:
    """Compute S for a sampler: the most by which a sensitivity exceeds its share of the sample."""
    points = inner.points
    live = points.weights > 0
    sensitivities = SensitivitySampler().sensitivities(points, inner.loss, inner.anchor)[live]
    needed = np.maximum(sensitivities, 1 / points.total_weight) * points.weights[live]
    shares = sampler.scores(inner)[live] * points.weights[live]
    return max(float((needed / shares).max() * shares.sum()), 1.0)
