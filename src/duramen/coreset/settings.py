"""The settings of a coreset: its size (given, or by the theorems), the weight to suspect, the sampler."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from duramen import theory
from duramen.arrays import Array, check_count, is_number
from duramen.losses.base import Anchor, Ball, Loss, MissingPropertyError, check_loss
from duramen.samplers import as_sampler, default_sampler
from duramen.samplers.base import AnchoredPoints, RankedSampler, Sampler
from duramen.samplers.layered import LayeredSampler, UniformSampler
from duramen.samplers.sensitivity import SensitivitySampler
from duramen.seeds import generator
from duramen.trimming import checked_outliers, trimmed_sum

if TYPE_CHECKING:
    from typing_extensions import Self

_SUSPECTS = 1.5  # n_suspected over n_outliers; docs/sampling.md has the measurement
_SHARE = 0.2  # of the size, for the suspected; measured there too
ROWS_A_PARAMETER = 50
"""With fewer rows per parameter, a fit overfits the sample: docs/estimators.md."""


class SizeRule(ABC):
    """How much weight to suspect, and how many rows to choose on each side."""

    calibrates = False
    """Whether weights may be calibrated: theorems are about weights as sampled."""

    @abstractmethod
    def suspected_weight(self, anchored: AnchoredPoints, z: float) -> float:
        """Choose how much weight to suspect, the paper's z-tilde; it may exceed the total."""

    @abstractmethod
    def sizes(self, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        """Choose how many rows represent the suspected points and the others, if there are as many."""


@final
@dataclass(frozen=True)
class BySize(SizeRule):
    """A total number of rows."""

    size: int
    keep_suspected: bool
    suspects: float

    calibrates = True

    def suspected_weight(self, anchored: AnchoredPoints, z: float) -> float:
        return self.suspected_of(z, anchored.points.total_weight)

    def suspected_of(self, z: float, total: float) -> float:
        """Choose how much of a total weight to suspect."""
        return min(self.suspects * z, (z + total) / 2)  # some must be left

    def sizes(self, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        return self.shares(len(candidates.suspects().rows), int(candidates.strata().counts.sum()))

    def shares(self, n_outer: int, n_inner: int) -> tuple[int, int]:
        """Share the size out between the suspected and the others."""
        if n_outer + n_inner <= self.size:
            return n_outer, n_inner
        one = int(n_inner > 0)
        if self.keep_suspected and n_outer + one > self.size:
            raise ValueError(
                f"size={self.size} is too small to keep all {n_outer:,} suspected outliers, as beta=0 does; "
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
    """The sizes of Theorem 2, with the sampler's own theorem for the inliers."""

    epsilon: float
    beta: float
    eta: float

    @property
    def failure(self) -> float:
        """The failure probability of one side."""
        return self.eta / 2 if self.beta else self.eta

    def suspected_weight(self, anchored: AnchoredPoints, z: float) -> float:
        """Compute z-tilde from epsilon_0, with a lower bound on f at (1 + beta) z outliers over the ball."""
        if z == 0:
            return 0.0
        points = anchored.points
        deviation = anchored.loss.deviation(anchored.anchor.ball, points.X, points.y)
        total = points.total_weight
        least = trimmed_sum(_least(anchored, deviation), points.weights, min((1 + self.beta) * z, total))
        epsilon0 = theory.epsilon0(
            self.epsilon,
            lowest_objective=least,
            n_points=total,
            n_outliers=z,
            deviation=float(deviation[points.weights > 0].max()),
        )
        return theory.n_suspected(z, epsilon0)

    def sizes(self, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        inner, suspects = candidates.scored.inner, candidates.suspects()
        outer: float = len(suspects.rows)
        if self.beta and outer:  # beta epsilon_0 / (1 + epsilon_0), as z-tilde defines it
            delta = self.beta * z / float(suspects.weights.sum())
            dimension = _vc_dimension(inner.loss, inner.points.n_columns)
            outer = min(outer, theory.delta_sample_size(delta, dimension, self.failure))
        sizes = outer, self._inner_size(inner, view.sampler) if inner.points.total_weight else 0
        _warn_if_all(candidates, *sizes)
        return sizes

    def _inner_size(self, inner: AnchoredPoints, sampler: Sampler) -> float:
        """Compute the size of an epsilon/4-coreset of the inliers, by the better theorem."""
        if not isinstance(sampler, RankedSampler):
            raise TypeError(
                f"{sampler!r} has no theorem that gives the number of points for epsilon={self.epsilon}; "
                "pass size instead"
            )
        points, epsilon = inner.points, self.epsilon / 4
        doubling = theory.doubling_dimension(inner.anchor.theta.size)
        bounds = _bounds_in_ball(inner)
        if isinstance(sampler, LayeredSampler):
            # a layer holds no less than one point: weights are counted in units of the smallest
            unit = float(points.weights[points.weights > 0].min())
            bounds["lowest_objective"] /= unit
            n = points.total_weight / unit
            return theory.layered_size(n, epsilon, doubling_dimension=doubling, eta=self.failure, **bounds)
        spread = _spread(inner, sampler)
        if not np.isfinite(spread):
            return math.inf
        bounds["n_points"] = points.total_weight
        size = theory.importance_size(
            spread, epsilon, doubling_dimension=doubling, eta=self.failure, **bounds
        )
        dimension = theory.vc_dimension(inner.loss, points.n_columns)
        if dimension is None:
            return size
        return min(size, theory.importance_size(spread, epsilon, vc_dimension=dimension, eta=self.failure))


@final
@dataclass(frozen=True)
class ByDeltaSample(SizeRule):
    """Theorem 1: a uniform sample of all points, for any loss."""

    beta: float
    eta: float

    def suspected_weight(self, anchored: AnchoredPoints, z: float) -> float:
        if not (z > 0 and self.beta > 0):
            raise ValueError(
                f"beta={self.beta:g} alone means Theorem 1, which needs both beta and n_outliers above 0, "
                f"and n_outliers is {z:g} here; pass size or epsilon"
            )
        return 0.0

    def sizes(self, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        points = candidates.scored.inner.points
        dimension = _vc_dimension(view.loss, points.n_columns)
        size = theory.uniform_size(
            self.beta, n_points=points.total_weight, n_outliers=z, vc_dimension=dimension, eta=self.eta
        )
        _warn_if_all(candidates, 0, size)
        return 0, size


def plan_of(size: Any, epsilon: Any, beta: Any, eta: Any, suspects: Any) -> SizeRule:
    """Return the size rule that the arguments ask for.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; the message says what to pass.
    """
    _check_range("eta", eta, above_zero=True)
    if size is not None and epsilon is not None:
        raise TypeError(
            f"size={size} and epsilon={epsilon} both set the size of the coreset; pass one of them"
        )
    if size is None and epsilon is None and beta is None:
        raise TypeError("the size of the coreset is not set; pass size=4000, say, or epsilon")
    if beta is not None:
        _check_range("beta", beta)
    is_auto = isinstance(suspects, str) and suspects == "auto"
    if size is not None:
        check_count("size", size)
        if beta:
            raise TypeError(
                f"beta={beta} goes with epsilon; with size={size} only beta=0 is allowed (keep all)"
            )
        if not is_auto and not (is_number(suspects) and 0 <= suspects < math.inf):
            raise ValueError(
                f"suspects={suspects!r} must be 'auto', or how many to suspect per outlier, such as 1.5; "
                "0 suspects none"
            )
        return BySize(int(size), beta is not None, _SUSPECTS if is_auto else float(suspects))
    if not is_auto:
        raise TypeError(f"suspects={suspects!r} goes with size; the theorems set how many to suspect")
    if epsilon is None:
        return ByDeltaSample(float(beta), float(eta))
    _check_range("epsilon", epsilon, above_zero=True)
    return ByTheorem(float(epsilon), float(beta or 0.0), float(eta))


def _check_range(name: str, value: Any, *, above_zero: bool = False) -> None:
    if not (is_number(value) and 0 <= value < 1) or (above_zero and value == 0):
        raise ValueError(
            f"{name}={value!r} must be a number {'above' if above_zero else 'from'} 0 and below 1"
        )


def _warn_if_all(candidates: Any, outer: float, inner: float) -> None:
    """Warn if a theorem requires as many points as there are, or more."""
    if outer < len(candidates.suspects().rows) or inner < candidates.strata().counts.sum():
        return
    required = f"{outer + inner:,.0f}" if np.isfinite(outer + inner) else "infinitely many"
    warnings.warn(
        f"the theorem requires {required} points and there are {candidates.n_points:,}, so all are kept; "
        "pass a larger epsilon or beta, an anchor with a smaller radius, or a size",
        stacklevel=6,
    )


def _vc_dimension(loss: Loss, n_columns: int) -> float:
    dimension = theory.vc_dimension(loss, n_columns)
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


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a coreset: the problem, how many rows, and how to choose them.

    ``given`` is an anchor, a ball or a theta; None to find one.
    """

    loss: Loss
    plan: SizeRule
    sampler: Sampler | str
    n_outliers: float
    calibrate: bool
    seed: int
    given: Any

    @classmethod
    def of(
        cls,
        loss: Any,
        plan: SizeRule,
        *,
        n_outliers: Any,
        sampler: Any,
        calibrate: Any,
        random_state: Any,
        anchor: Any,
        **more: Any,
    ) -> Self:
        """Check the settings, before there are points.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; the message says what to pass.
        """
        check_loss(loss)
        if not isinstance(calibrate, (bool, np.bool_)):
            raise TypeError(f"calibrate={calibrate!r} must be True or False")
        checked_outliers(n_outliers)
        seed = int(generator(random_state).integers(2**63))
        settings = cls(loss, plan, sampler, n_outliers, bool(calibrate), seed, anchor, **more)
        if anchor is not None:
            as_anchor(anchor)
        settings.check_radius()
        return settings

    @property
    def by_size(self) -> BySize:
        """The plan, where it is a number of rows."""
        if not isinstance(self.plan, BySize):
            raise TypeError("data that is read in passes needs size=, the number of rows to choose")
        return self.plan

    @property
    def chooser(self) -> Sampler | None:
        """The requested sampler; None for "auto", which depends on the anchor."""
        return sampler_of(self.sampler, self.plan)

    def sampler_at(self, anchor: Anchor, n_columns: int) -> Sampler:
        """Choose the sampler for an anchor."""
        n_parameters = int(np.prod(self.loss.parameter_shape(n_columns) or (1,)))
        few = isinstance(self.plan, BySize) and self.plan.size < ROWS_A_PARAMETER * n_parameters
        return self.chooser or default_sampler(self.loss, anchor.radius > 0, few)

    def check_radius(self) -> None:
        """Raise ValueError, with advice, if an anchor lacks the radius that is needed."""
        is_bare = self.given is not None and not isinstance(self.given, Ball)
        by_theorem = isinstance(self.plan, ByTheorem)
        if is_bare and (by_theorem or isinstance(self.chooser, SensitivitySampler)):
            raise ValueError(
                f"{'epsilon' if by_theorem else repr(self.chooser)} needs to know how far from the anchor a "
                "solution may be; pass anchor=dm.Anchor(theta, radius) instead of a theta alone"
            )


def as_anchor(given: Any) -> Anchor:
    """Convert an Anchor, a Ball, a Solution or a theta to an anchor; raise ValueError for anything else."""
    if isinstance(given, Anchor):
        return given
    radius = given.radius if isinstance(given, Ball) else 0.0
    return Anchor(getattr(given, "theta", given), radius)


def sampler_of(sampler: Any, plan: SizeRule) -> Sampler | None:
    """Return the requested sampler; None for "auto", which depends on the anchor."""
    if not isinstance(plan, ByDeltaSample):
        return as_sampler(sampler)
    if sampler not in ("auto", "uniform") and not isinstance(sampler, UniformSampler):
        raise TypeError(
            f"beta alone means a uniform sample (Theorem 1); sampler={sampler!r} needs size or epsilon"
        )
    return UniformSampler()
