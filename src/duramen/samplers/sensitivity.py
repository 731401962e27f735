"""Sensitivity: the largest share of the total loss that a point can have in the ball (paper, section 4.1)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.losses.base import Anchor, Loss, MissingPropertyError, dual_norms
from duramen.losses.linear import LinearLoss, Neighbourhood
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints, RankedSampler

METHODS = {"lipschitz": "lipschitz", "smooth": "smoothness", "hessian": "hessian_lipschitz"}
"""The kinds of continuity, and what a loss calls their constants."""


@dataclass(frozen=True, eq=False)
class Local:
    """The loss of some points around the anchor; None where the loss does not define a quantity.

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
    def of(anchored: AnchoredPoints) -> Local:
        """Evaluate the loss at the anchor."""
        if isinstance(anchored.loss, LinearLoss):
            return _of_linear(anchored, anchored.loss)
        loss, theta, points = anchored.loss, anchored.anchor.theta, anchored.points
        constants = {kind: constant_of(loss, kind, points) for kind in METHODS}
        twist = constants["hessian"]
        if twist is not None:
            curved = loss.hessian_norms(theta, points.X, points.y)
            twist = None if curved is None else curved + twist * (anchored.anchor.radius / 3)
        gradients, norms = None, np.zeros(len(points))
        if loss.convex or constants["smooth"] is not None or twist is not None:
            gradients = loss.gradients(theta, points.X, points.y)
            norms = np.asarray(dual_norms(gradients), dtype=np.float64)
            if not sparse.issparse(gradients):
                gradients = gradients.reshape(len(points), -1)
        try:
            deviation = loss.deviation(anchored.anchor.ball, points.X, points.y)
        except MissingPropertyError:
            deviation = None
        values = np.asarray(anchored.losses, dtype=np.float64)
        return Local(values, norms, constants["lipschitz"], constants["smooth"], twist, deviation, gradients)

    def products(self, gradient: Array) -> Array:
        """Compute <g_i, G>."""
        return np.asarray(self.gradients @ gradient.ravel(), dtype=np.float64)

    def gradient_sum(self, weights: Array) -> Array:
        """Sum weight times gradient."""
        return np.asarray(0.0 if self.gradients is None else self.gradients.T @ weights)


@dataclass(frozen=True, eq=False)
class _LinearLocal(Local):
    """The same for a linear loss: ``gradients`` are the rows x, and a gradient is slope times (x, 1)."""

    slopes: Any = None
    fit_intercept: bool = True

    def products(self, gradient: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            predictors = super().products(gradient[: self.gradients.shape[1]])
            return self.slopes * (predictors + gradient[-1] if self.fit_intercept else predictors)

    def gradient_sum(self, weights: Array) -> Array:
        weighted = self.slopes * weights
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.asarray(self.gradients.T @ weighted, dtype=np.float64)
        return np.append(total, weighted.sum()) if self.fit_intercept else total


def _of_linear(anchored: AnchoredPoints, loss: LinearLoss) -> Local:
    points = anchored.points
    around: Neighbourhood = loss.neighbourhood(anchored.anchor.ball, points.X, points.y)
    slopes, curvatures, norms, deviation = (np.asarray(part, dtype=np.float64) for part in around)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        twist = None
        if loss.max_third is not None:
            twist = curvatures * norms**2 + loss.max_third * norms**3 * (anchored.anchor.radius / 3)
        return _LinearLocal(
            values=np.asarray(anchored.losses, dtype=np.float64),
            norms=np.abs(slopes) * norms,
            lipschitz=None if loss.max_slope is None else loss.max_slope * norms,
            smooth=None if loss.max_curvature is None else loss.max_curvature * norms**2,
            hessian=twist,
            deviation=deviation,
            gradients=points.X,
            slopes=slopes,
            fit_intercept=loss.fit_intercept,
        )


def constant_of(loss: Loss, kind: str, points: WeightedPoints) -> Array | None:
    """Return the constants of one kind of continuity, if the loss has them."""
    constant = getattr(loss, METHODS[kind])(points.X, points.y)
    return None if constant is None else np.asarray(constant, dtype=np.float64)


def _chunk_rows(anchored: AnchoredPoints) -> int:
    """Choose how many rows to bound at once, by the bytes per row that :class:`Local` takes."""
    linear = isinstance(anchored.loss, LinearLoss)
    return rows_per_chunk(200 if linear else 16 * int(anchored.anchor.theta.size))


KINDS = ("auto", *METHODS)
_UNBOUNDED = 1e300  # stands for a constant without bound


def quadratic_fraction(
    values: Array,
    bends: Array,
    squares: Array,
    products: Array,
    *,
    value: float,
    bend: float,
    gradient: Array,
    radius: float,
) -> Array:
    """Maximise, for every point, a quadratic over a common quadratic inside a ball, in closed form.

    For point i the maximum over ``|D| <= radius`` of ::

        values_i + <g_i, D> + bends_i |D|^2 / 2
        ---------------------------------------
           value + <gradient, D> - bend |D|^2 / 2

    with ``squares_i = |g_i|^2`` and ``products_i = <g_i, gradient>``. It is the t
    at which numerator less t times denominator has maximum zero. That is convex
    in D for t >= 0, so its maximum is on the sphere, in the direction of
    ``g_i - t gradient``; which leaves a quadratic equation in t.

    Parameters
    ----------
    values, bends, squares, products : arrays (n,)
    value, bend : float
    gradient : array (p,)
    radius : float

    Returns
    -------
    array (n,)
        Infinite for all if the denominator can vanish inside the ball.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.float64(radius)
        low = value - bend * reach**2 / 2
        steep = reach * np.linalg.norm(gradient)
        if not low > steep:
            return np.full(len(values), np.inf)
        # in units of the denominator's value, so that squares of large losses do not overflow
        high = (
            np.asarray(values, dtype=np.float64) + np.asarray(bends, dtype=np.float64) * (reach**2 / 2)
        ) / low
        a = 1 - (steep / low) ** 2
        b = high - np.asarray(products, dtype=np.float64) * (reach / low) * (reach / low)
        c = high**2 - np.asarray(squares, dtype=np.float64) * (reach / low) * (reach / low)
        roots = (b + np.sqrt(np.maximum(b * b - a * c, 0.0))) / a
    return np.where(np.isnan(roots), np.inf, roots)


@dataclass(frozen=True)
class SensitivitySampler(RankedSampler):
    """Draw points in proportion to a bound on their sensitivity, sup f(theta, x) / f(theta, X) over the ball.

    Parameters
    ----------
    kind : str
        Which of the paper's kinds of continuity bounds it: "lipschitz", "smooth"
        or "hessian" (Lipschitz Hessian); "auto" is the least, point by point,
        of all that the loss allows, its ``deviation`` among them.
    quiet : bool
        Whether to suppress the warning that the ball is too large for a bound.

    Notes
    -----
    A convex loss lies above its tangents, so its sum needs no constant to be
    bounded below: then, and at an anchor that is nearly a solution, the bound
    holds for large balls. Where the ball is too large for any bound, a warning
    is issued and points are drawn in proportion to the most they can cost inside
    it, f + deviation.

    No point counts for less than its share of the weight: the proof of Theorem
    5 needs the sampled weights to add up to about the total; S grows by at
    most 1. Means over the points are frozen into the anchor when it is first used.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> anchor = dm.Anchor([0.0, 0.0], radius=0.1)
    >>> sampler = dm.SensitivitySampler().bind(dm.TruthDiscoveryLoss(), anchor)
    >>> sampler.reduce(dm.points(X), 100, rng)
    WeightedPoints: 100 rows x 2 columns of float64, total weight 1,000
    """

    kind: str = "auto"
    quiet: bool = False
    needs_losses = True
    freezes = ("sensitivity", "sensitivity_gradient")

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} must be one of {', '.join(KINDS)}")

    def check(self, loss: Loss, points: WeightedPoints) -> None:
        one = points.take(slice(0, 1))
        has = [kind for kind in KINDS[1:] if constant_of(loss, kind, one) is not None]
        if self.kind != "auto" and self.kind not in has:
            raise MissingPropertyError(
                f"{self!r} needs the {METHODS[self.kind]} of {loss!r}, which has none; "
                f"use one of {['auto', *has]}, or LayeredSampler(), which needs only values"
            )
        if self.kind == "auto" and not has and type(loss).deviation is Loss.deviation:
            raise MissingPropertyError(
                f"SensitivitySampler needs a bound on how fast a loss changes; {loss!r} has no lipschitz, "
                "smoothness or hessian_lipschitz. LayeredSampler() needs only values"
            )

    def sensitivities(self, points: WeightedPoints, loss: Loss, anchor: Anchor) -> Array:
        """Bound sup f(theta, x_i) / f(theta, X) over the anchor's ball: (n,), infinite if there is no bound.

        Examples
        --------
        >>> import duramen as dm
        >>> points = dm.points([[0.0], [1.0], [2.0], [9.0]])
        >>> anchor = dm.Anchor([[1.0]], radius=0.5)
        >>> dm.SensitivitySampler().sensitivities(points, dm.KMeansLoss(1), anchor).round(3)
        array([0.039, 0.004, 0.03 , 0.976])
        """
        self.check(loss, points)
        losses = loss.values(anchor.theta, points.X, points.y)
        fresh = Anchor(anchor.theta, anchor.radius)  # without what was frozen on other points
        anchored = AnchoredPoints(points, loss, fresh, losses)
        anchored = replace(anchored, anchor=fresh.freeze(**self._means(anchored)))
        return np.asarray(self._bounds(anchored)[0] / points.total_weight)

    def scores(self, anchored: AnchoredPoints) -> Array:
        bounds, costs = self._bounds(anchored)
        if self._lowest_mean(anchored) > 0:
            return np.maximum(bounds, 1.0)
        mean = float(anchored.anchor.frozen["sensitivity"][0])
        finite = np.isfinite(costs)
        most = costs if finite.all() else np.where(finite, costs, np.max(costs[finite], initial=0.0))
        return np.maximum(most / mean, 1.0) if mean > 0 else np.ones(len(anchored))

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        if "sensitivity" in anchored.anchor.frozen:
            return {}
        state = self._means(anchored)
        bounded = self._lowest_mean(replace(anchored, anchor=anchored.anchor.freeze(**state))) > 0
        if not (bounded or self.quiet or state["sensitivity"][0] == 0):
            warnings.warn(
                f"the ball of radius {anchored.anchor.radius:.4g} is too large to bound sensitivities in it; "
                "points are drawn in proportion to the most they can cost there. A smaller radius, or a "
                "better anchor, gives a bound",
                stacklevel=2,
            )
        return state

    def _means(self, anchored: AnchoredPoints) -> dict[str, Array]:
        """Average over the points, by weight, what the bounds are made from."""
        all_weights = anchored.points.weights

        def work(chunk: slice) -> tuple[Array, Array]:
            weights = all_weights[chunk]
            part = Local.of(anchored.take(chunk))
            columns = [part.values, part.lipschitz, part.smooth, part.hessian, part.deviation]
            with np.errstate(invalid="ignore", over="ignore"):
                sums = [
                    0.0 if column is None else np.where(weights > 0, weights * column, 0.0).sum()
                    for column in columns
                ]
            return np.array(sums), part.gradient_sum(weights)

        with one_blas_thread():
            sums, gradient = sum_over_chunks(work, len(anchored), _chunk_rows(anchored))
        total = float(all_weights.sum())
        means = np.nan_to_num(sums / total, posinf=_UNBOUNDED)
        return {"sensitivity": means, "sensitivity_gradient": np.asarray(gradient) / total}

    def _bounds(self, anchored: AnchoredPoints) -> tuple[Array, Array]:
        """Bound sensitivities times the total weight, and the most that each point can cost."""
        bounds, costs = np.full(len(anchored), np.inf), np.full(len(anchored), np.inf)

        def work(chunk: slice) -> None:
            part = Local.of(anchored.take(chunk))
            lows = self._lows(part, anchored)
            low = max(lows.values())
            with np.errstate(over="ignore", invalid="ignore"):
                for cost in self._costs(part, lows, anchored.anchor.radius):
                    np.fmin(costs[chunk], cost, out=costs[chunk])
                if low > 0:
                    np.divide(costs[chunk], low, out=bounds[chunk])
                for bound in self._fractions(part, lows, anchored):
                    np.fmin(bounds[chunk], bound, out=bounds[chunk])

        with one_blas_thread():
            for_each_chunk(work, len(anchored), _chunk_rows(anchored), fixed=True)
        return bounds, costs

    def _lowest_mean(self, anchored: AnchoredPoints) -> float:
        """Bound the mean loss over the ball from below, by the best of all kinds; at most 0 if none can."""
        return max(self._lows(Local.of(anchored.take(slice(0, 1))), anchored).values())

    def _lows(self, part: Local, anchored: AnchoredPoints) -> dict[str, float]:
        """Bound the mean loss over the ball from below, by each kind of continuity that the loss has."""
        reach, convex = np.float64(anchored.anchor.radius), anchored.loss.convex
        value, slope, bend, twist, deviation = anchored.anchor.frozen["sensitivity"].tolist()
        lows = {"none": 0.0}
        with np.errstate(over="ignore", invalid="ignore"):
            if part.lipschitz is not None:
                lows["lipschitz"] = value - slope * reach
            if part.gradients is not None:
                gradient = anchored.anchor.frozen["sensitivity_gradient"]
                steepest = float(dual_norms(gradient.reshape(1, *anchored.anchor.theta.shape))[0])
                tangent = value - reach * steepest
                if convex:
                    lows["convex"] = tangent
                if part.smooth is not None:
                    lows["smooth"] = tangent - (0.0 if convex else bend) * reach**2 / 2
                if part.hessian is not None:
                    lows["hessian"] = tangent - (0.0 if convex else twist) * reach**2 / 2
            if part.deviation is not None:
                lows["auto"] = value - deviation
        allowed = lows if self.kind == "auto" else (self.kind, "none", "convex")
        return {kind: float(low) for kind, low in lows.items() if kind in allowed}

    def _costs(self, part: Local, lows: dict[str, float], radius: float) -> Iterator[Array]:
        """Bound the most that each point can cost in the ball, by each kind of continuity in use."""
        reach = np.float64(radius)
        for kind, alpha in (("smooth", part.smooth), ("hessian", part.hessian)):
            if kind in lows:
                yield part.values + reach * part.norms + alpha * (reach**2 / 2)
        if "lipschitz" in lows:
            yield part.values + part.lipschitz * reach
        if "auto" in lows:
            yield part.values + part.deviation

    def _fractions(self, part: Local, lows: dict[str, float], anchored: AnchoredPoints) -> Iterator[Array]:
        """Bound the sensitivities of a single vector of parameters in closed form."""
        if anchored.anchor.theta.ndim > 1 and len(anchored.anchor.theta) > 1:
            return
        value, _, bend, twist, _ = anchored.anchor.frozen["sensitivity"].tolist()
        gradient = anchored.anchor.frozen["sensitivity_gradient"]
        for kind, alpha, mean in (("smooth", part.smooth, bend), ("hessian", part.hessian, twist)):
            if kind in lows and alpha is not None:
                yield quadratic_fraction(
                    part.values,
                    alpha,
                    np.square(part.norms),
                    part.products(gradient),
                    value=value,
                    bend=0.0 if anchored.loss.convex else mean,
                    gradient=gradient,
                    radius=anchored.anchor.radius,
                )
