"""Sensitivity: the largest share of the total loss that a point can have in the ball (paper, section 4.1)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from duramen.arrays import Array
from duramen.losses.base import (
    METHODS,
    Anchor,
    Loss,
    MissingPropertyError,
    Neighbourhood,
    dual_norms,
    ignore_overflow,
)
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints, RankedSampler, freeze
from duramen.trimming import weigh

KINDS = ("auto", *METHODS)
_FROZEN = (*METHODS, "deviation")
"""The constants whose means are frozen, after that of the losses."""
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
    with ignore_overflow():
        reach = np.float64(radius)
        low = value - bend * reach**2 / 2
        steep = reach * np.linalg.norm(gradient)
        if not low > steep:
            return np.full(len(values), np.inf)
        # in units of the denominator's value, so that squares of large losses do not overflow
        high = (values + bends * (reach**2 / 2)) / low
        unit = reach / low
        a = 1 - (steep / low) ** 2
        b = high - products * unit * unit
        c = high**2 - squares * unit * unit
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
        kinds = {kind for kind, name in METHODS.items() if getattr(loss, name)(one.X, one.y) is not None}
        if kinds or type(loss).deviation is not Loss.deviation:
            kinds.add("auto")
        if self.kind not in kinds:
            needed = METHODS.get(self.kind, "lipschitz, smoothness or hessian_lipschitz")
            raise MissingPropertyError(
                f"{self!r} needs the {needed} of {loss!r}, which has none; kind='auto' uses what there is, "
                "and LayeredSampler() needs only values"
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
        fresh = Anchor(anchor.theta, anchor.radius)  # without what was frozen on other points
        anchored = AnchoredPoints(points, loss, fresh, loss.values(anchor.theta, points.X, points.y))
        bounds, _, _ = self._bounds(freeze(replace(self, quiet=True), anchored))
        return bounds / points.total_weight

    def scores(self, anchored: AnchoredPoints) -> Array:
        bounds, costs, lowest = self._bounds(anchored)
        if lowest > 0:
            return np.maximum(bounds, 1.0)
        mean = _frozen_means(anchored)["loss"]
        finite = np.isfinite(costs)
        costs[~finite] = costs[finite].max(initial=0.0)
        return np.maximum(costs / mean, 1.0) if mean > 0 else np.ones(len(anchored))

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        state = _means(anchored)
        known = replace(anchored, anchor=anchored.anchor.freeze(**state))
        if not (self.quiet or state["sensitivity"][0] == 0 or max(self._lows(known).values()) > 0):
            warnings.warn(
                f"the ball of radius {anchored.anchor.radius:.4g} is too large to bound sensitivities in it; "
                "points are drawn in proportion to the most they can cost there. A smaller radius, or a "
                "better anchor, gives a bound",
                stacklevel=2,
            )
        return state

    @one_blas_thread()
    def _bounds(self, anchored: AnchoredPoints) -> tuple[Array, Array, float]:
        """Bound sensitivities times the total weight, the cost of each point, and the mean loss from below.

        Costs are over the ball. The closed form is for a single vector of parameters.
        """
        both = np.full((2, len(anchored)), np.inf)
        lows, anchor, means = self._lows(anchored), anchored.anchor, _frozen_means(anchored)
        lowest, gradient = max(lows.values()), anchor.frozen["sensitivity_gradient"]
        is_vector = anchor.theta.size == anchor.theta.shape[-1]
        closed = lows.keys() & {"smooth", "hessian"} if is_vector else ()

        def work(chunk: slice) -> None:
            values, around = anchored.losses[chunk], _around(anchored.take(chunk))
            bounds, costs = both[:, chunk]
            with ignore_overflow():
                for kind, rise in around.rises().items():
                    if kind in lows:
                        np.fmin(costs, values + rise, out=costs)
                if lowest > 0:
                    np.divide(costs, lowest, out=bounds)
                for kind in closed:
                    bound = quadratic_fraction(
                        values,
                        around.constants[kind],
                        np.square(around.norms),
                        around.products(gradient),
                        value=means["loss"],
                        bend=means[kind],
                        gradient=gradient,
                        radius=anchor.radius,
                    )
                    np.fmin(bounds, bound, out=bounds)

        for_each_chunk(work, len(anchored), _chunk_rows(anchored), fixed=True)
        return both[0], both[1], lowest

    def _lows(self, anchored: AnchoredPoints) -> dict[str, float]:
        """Bound the mean loss over the ball from below, by each kind of continuity in use; 0 if none can."""
        around, anchor = _around(anchored.take(slice(0, 1))), anchored.anchor
        means, slope, lows = _frozen_means(anchored), 0.0, {"none": 0.0}
        with ignore_overflow():
            if around.products is not None:
                gradient = anchor.frozen["sensitivity_gradient"]
                (slope,) = dual_norms(gradient.reshape(1, *anchor.theta.shape))
                if anchored.loss.convex:
                    lows["convex"] = means["loss"] - around.radius * slope
            for kind in around.constants:
                if self.kind in ("auto", kind):
                    lows[kind] = means["loss"] - around.rise(kind, means[kind], slope)
        return lows


@one_blas_thread()
def _means(anchored: AnchoredPoints) -> dict[str, Array]:
    """Average over the points, by weight, what the bounds are made from."""
    theta = anchored.anchor.theta

    def work(chunk: slice) -> tuple[Array, Array]:
        part = anchored.take(chunk)
        points, around, gradient = part.points, _around(part), np.zeros(())
        columns = [part.losses, *(around.constants.get(kind, 0.0) for kind in _FROZEN)]
        with ignore_overflow():
            weighed = [weigh(column, points.weights) for column in columns]
        if around.products is not None:
            gradient = part.loss.gradient_sum(theta, points.X, points.y, points.weights).ravel()
        return np.sum(weighed, axis=1), gradient

    sums, gradient = sum_over_chunks(work, len(anchored), _chunk_rows(anchored))
    total = anchored.points.total_weight
    means = np.nan_to_num(sums / total, posinf=_UNBOUNDED)
    return {"sensitivity": means, "sensitivity_gradient": gradient / total}


def _frozen_means(anchored: AnchoredPoints) -> dict[str, float]:
    """Return the mean loss, and of each constant the mean by which the sum of losses may bend downward."""
    means = dict(zip(("loss", *_FROZEN), anchored.anchor.frozen["sensitivity"].tolist(), strict=True))
    return means | ({"smooth": 0.0, "hessian": 0.0} if anchored.loss.convex else {})


def _around(anchored: AnchoredPoints) -> Neighbourhood:
    """Return what bounds the losses of points in the anchor's ball."""
    points = anchored.points
    around: Neighbourhood = anchored.loss.neighbourhood(anchored.anchor.ball, points.X, points.y)
    return around


def _chunk_rows(anchored: AnchoredPoints) -> int:
    """Choose how many rows to bound at once, by the bytes per row that a neighbourhood takes."""
    theta = anchored.anchor.theta
    one = anchored.loss.has_predictors and theta.ndim == 1
    return rows_per_chunk(200 if one else 16 * theta.size)
