"""How much weight to suspect, and how many rows each side gets: by a size, or by the theorems."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from duramen import theory
from duramen.arrays import Array
from duramen.ball import Ball
from duramen.coreset.choose import Split
from duramen.losses.base import Loss, MissingPropertyError
from duramen.samplers import LayeredSampler, RankedSampler, Sampler, SensitivitySampler
from duramen.samplers.base import AnchoredPoints, check_size
from duramen.trimming import trimmed_sum

__all__ = ["ROWS_A_PARAMETER", "ByDeltaSample", "BySize", "ByTheorem", "SizeRule", "plan_of"]


_SUSPECTS = 1.5  # n_suspected over n_outliers; docs/sampling.md has the measurement
ROWS_A_PARAMETER = 50
"""Fewer rows than so many for each parameter, and a fit bends to the sample: docs/estimators.md."""

_SHARE = 0.2  # of the size, for the suspected; measured there too


class SizeRule(ABC):
    """A way to set the hybrid framework."""

    calibrates = False
    """Whether weights may be calibrated: theorems speak of weights as drawn."""

    @abstractmethod
    def suspected_weight(self, seen: AnchoredPoints, z: float) -> float:
        """Choose how much weight to suspect, the paper's z-tilde; it may exceed what there is."""

    @abstractmethod
    def sizes(self, inner: AnchoredPoints, split: Split, z: float, sampler: Sampler) -> tuple[float, float]:
        """Choose how many rows stand for the suspected, and for the others.

        ``inner`` are all points with the suspected weighing nothing. A size may
        exceed the points there are.
        """


@final
@dataclass(frozen=True)
class BySize(SizeRule):
    """A number of rows in all: what people use."""

    size: int
    keep_suspected: bool
    suspects: float

    calibrates = True

    def suspected_weight(self, seen: AnchoredPoints, z: float) -> float:
        return self.suspected_of(z, seen.points.total_weight)

    def suspected_of(self, z: float, total: float) -> float:
        """Choose how much of a total weight to suspect."""
        return min(self.suspects * z, (z + total) / 2)  # some must be left

    def sizes(self, inner: AnchoredPoints, split: Split, z: float, sampler: Sampler) -> tuple[float, float]:
        return self.shares(len(split.rows), split.n_inner)

    def shares(self, n_outer: int, n_inner: int) -> tuple[int, int]:
        """Share the size out between so many suspected and so many others."""
        if n_outer + n_inner <= self.size:
            return n_outer, n_inner
        one = int(n_inner > 0)
        if self.keep_suspected and n_outer + one > self.size:
            raise ValueError(
                f"size={self.size} is too small to keep all {n_outer:,} suspected outliers, as beta=0 asks; "
                f"take size={n_outer + one} or more, or leave beta out"
            )
        if self.size < int(n_outer > 0) + one:
            raise ValueError(
                f"size={self.size} is below 2: suspected outliers and the other points need a row each; "
                "take a larger size, or suspects=0"
            )
        outer = n_outer if self.keep_suspected else min(n_outer, max(round(_SHARE * self.size), 1))
        outer = min(max(outer, self.size - n_inner), self.size - one)
        return outer, self.size - outer


@final
@dataclass(frozen=True)
class ByTheorem(SizeRule):
    """The values of Theorem 2, with the sampler's own theorem for the suspected inliers."""

    epsilon: float
    beta: float
    eta: float

    @property
    def failure(self) -> float:
        """The probability with which one side may fail."""
        return self.eta / 2 if self.beta else self.eta

    def suspected_weight(self, seen: AnchoredPoints, z: float) -> float:
        """Compute z-tilde from epsilon_0, with a lower bound on f at (1 + beta) z outliers over the ball."""
        if z == 0:
            return 0.0
        points = seen.points
        deviation = seen.loss.deviation(seen.anchor.ball, points.X, points.y)
        total = points.total_weight
        least = trimmed_sum(_least(seen, deviation), points.weights, min((1 + self.beta) * z, total))
        epsilon0 = theory.epsilon0(
            self.epsilon,
            lowest_objective=least,
            n_points=total,
            n_outliers=z,
            deviation=float(deviation[points.weights > 0].max()),
        )
        return theory.n_suspected(z, epsilon0)

    def sizes(self, inner: AnchoredPoints, split: Split, z: float, sampler: Sampler) -> tuple[float, float]:
        outer: float = len(split.rows)
        if self.beta and outer:
            delta = self.beta * z / split.weight  # beta epsilon_0 / (1 + epsilon_0), as z-tilde has it
            dimension = _vc_dimension(inner.loss, inner.points.n_columns)
            outer = min(outer, theory.delta_sample_size(delta, dimension, self.failure))
        return outer, self._inner_size(inner, sampler) if inner.points.total_weight else 0

    def _inner_size(self, inner: AnchoredPoints, sampler: Sampler) -> float:
        """Compute the size of an epsilon/4-coreset of the suspected inliers, by the better theorem."""
        if not isinstance(sampler, RankedSampler):
            raise TypeError(
                f"{sampler!r} has no theorem that tells how many points epsilon={self.epsilon} takes; "
                "pass size instead"
            )
        points, epsilon = inner.points, self.epsilon / 4
        doubling = theory.doubling_dimension(inner.anchor.theta.size)
        known = _known_of_ball(inner)
        if isinstance(sampler, LayeredSampler):
            # a layer holds no less than one point: weights are counted in units of the smallest
            unit = float(points.weights[points.weights > 0].min())
            known = {"lowest_objective": known["lowest_objective"] / unit, "deviation": known["deviation"]}
            n = points.total_weight / unit
            return theory.layered_size(n, epsilon, doubling_dimension=doubling, eta=self.failure, **known)
        spread = _spread(inner, sampler)
        if not np.isfinite(spread):
            return math.inf
        known["n_points"] = points.total_weight
        size = theory.importance_size(spread, epsilon, doubling_dimension=doubling, eta=self.failure, **known)
        dimension = theory.vc_dimension(inner.loss, points.n_columns)
        if dimension is None:
            return size
        return min(size, theory.importance_size(spread, epsilon, vc_dimension=dimension, eta=self.failure))


@final
@dataclass(frozen=True)
class ByDeltaSample(SizeRule):
    """Theorem 1: a uniform sample of everything, for any loss at all."""

    beta: float
    eta: float

    def suspected_weight(self, seen: AnchoredPoints, z: float) -> float:
        return 0.0

    def sizes(self, inner: AnchoredPoints, split: Split, z: float, sampler: Sampler) -> tuple[float, float]:
        points = inner.points
        dimension = _vc_dimension(inner.loss, points.n_columns)
        size = theory.uniform_size(
            self.beta, n_points=points.total_weight, n_outliers=z, vc_dimension=dimension, eta=self.eta
        )
        return 0, size


def plan_of(size: Any, epsilon: Any, beta: Any, eta: Any, suspects: Any) -> SizeRule:
    """Tell from the arguments which way is meant, or why none can be.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, and the way out.
    """
    _in_range("eta", eta, 0, 1, open_below=True)
    if size is not None and epsilon is not None:
        raise TypeError(f"size={size} and epsilon={epsilon} both say how large to be; pass one of them")
    if size is None and epsilon is None and beta is None:
        raise TypeError("nothing says how large the coreset may be; pass size=4000, say, or epsilon")
    if beta is not None:
        _in_range("beta", beta, 0, 1)
    if size is not None:
        check_size(size)
        if beta:
            raise TypeError(
                f"beta={beta} goes with epsilon; with size={size} only beta=0 is taken, to keep all suspected"
            )
        return BySize(int(size), beta is not None, _checked_suspects(suspects))
    if not _is_auto(suspects):
        raise TypeError(f"suspects={suspects!r} goes with size; the theorems say themselves whom to suspect")
    if epsilon is None:
        return ByDeltaSample(float(beta), float(eta))
    _in_range("epsilon", epsilon, 0, 1, open_below=True)
    return ByTheorem(float(epsilon), float(beta or 0.0), float(eta))


def _checked_suspects(suspects: Any) -> float:
    if _is_auto(suspects):
        return _SUSPECTS
    number = isinstance(suspects, (int, float, np.integer, np.floating)) and not isinstance(suspects, bool)
    if not (number and 0 <= suspects < math.inf):
        raise ValueError(
            f"suspects={suspects!r} must be 'auto', or how many to suspect for each outlier, such as 1.5; "
            "0 suspects nobody"
        )
    return float(suspects)


def _is_auto(suspects: Any) -> bool:
    return isinstance(suspects, str) and suspects == "auto"


def _in_range(name: str, value: Any, low: float, high: float, *, open_below: bool = False) -> None:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and low <= value < high and not (open_below and value == low)):
        raise ValueError(
            f"{name}={value!r} must be a number {'above' if open_below else 'from'} {low} and below {high}"
        )


def _vc_dimension(loss: Loss, n_columns: int) -> float:
    dimension = theory.vc_dimension(loss, n_columns)
    if dimension is None:
        raise MissingPropertyError(
            f"{loss!r} has no known VC dimension, which beta asks for; define "
            f"{type(loss).__name__}.vc_dimension(n_columns), or pass size"
        )
    return dimension


def _least(seen: AnchoredPoints, deviation: Array) -> Array:
    """Bound each loss from below over the ball."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.maximum(seen.losses - deviation, 0.0))


def _known_of_ball(inner: AnchoredPoints) -> dict[str, float]:
    """Bound the objective over the ball from below, and how far one step of a net can move a loss.

    The proofs of Theorems 5 and 6 step between any two parameters of the ball, so
    they need the steepest slope in it, not only what the anchor sees: a Lipschitz
    constant, or for a convex loss the slopes that two balls bound.
    """
    points, ball = inner.points, inner.anchor.ball
    live = points.weights > 0
    deviation = inner.loss.deviation(ball, points.X, points.y)
    lowest = float(points.weights[live] @ _least(inner, deviation)[live])
    slopes = inner.loss.lipschitz(points.X, points.y)
    steps = math.inf if slopes is None else float(slopes[live].max()) * ball.radius
    if inner.loss.convex:
        twice = inner.loss.deviation(Ball(ball.theta, 2 * ball.radius), points.X, points.y)
        steps = min(steps, float((deviation + twice)[live].max()))
    return {"lowest_objective": lowest if math.isfinite(steps) else 0.0, "deviation": min(steps, 1e300)}


def _spread(inner: AnchoredPoints, sampler: RankedSampler) -> float:
    """Compute S for a sampler: the most by which a sensitivity exceeds its share of the sample."""
    points = inner.points
    live = points.weights > 0
    sensitivities = SensitivitySampler().sensitivities(points, inner.loss, inner.anchor)[live]
    if not np.isfinite(sensitivities).all():
        return math.inf
    needed = np.maximum(sensitivities, 1 / points.total_weight) * points.weights[live]
    shares = sampler.scores(inner)[live] * points.weights[live]
    return max(float((needed / shares).max() * shares.sum()), 1.0)
