"""Where to start: a given theta, a named seeding, or what suits the loss."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.losses.base import Loss, ignore_overflow
from duramen.losses.centres import CentreLoss
from duramen.losses.linear import PredictorLoss
from duramen.points import WeightedPoints
from duramen.solvers.alternate import Run, Stopping, alternate, fit_of
from duramen.solvers.problem import Problem
from duramen.solvers.seeding import SEEDINGS, draw_distinct_rows, draw_rows, thresholded
from duramen.trimming import kept_weights, trimmed_sum


class Subsampler:
    """Draw points in proportion to their weight, with replacement, and the weight to set aside with them.

    A point drawn twice has weight 2. Each of two classes has exactly its share of
    the sample, so the rare one is never missing. A sample may hold more outliers
    than its share, so two standard deviations more may be set aside.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.total = problem.points.total_weight
        self.even = bool((problem.points.weights == problem.points.weights[0]).all())
        self.strata = [np.arange(len(problem.points))]
        if problem.loss.classifies:
            assert problem.y is not None
            self.strata = [np.flatnonzero(problem.y > 0), np.flatnonzero(~(problem.y > 0))]

    def draw(self, size: int, rng: np.random.Generator) -> Problem:
        """Draw ``size`` points."""
        share = size / self.total
        drawn = np.concatenate([self._draw_rows(stratum, share, rng) for stratum in self.strata])
        rows, counts = np.unique(drawn, return_counts=True)
        part = self.problem.points.take_unchecked(rows, counts.astype(np.float64))
        z = min(self._aside(size), 0.9 * self._most(part))
        return replace(self.problem, points=part, z=z, l2=self.problem.l2 * share)

    def _draw_rows(self, stratum: Array, share: float, rng: np.random.Generator) -> Array:
        weights = self.problem.points.weights
        if self.even:
            n = len(stratum)
            return stratum[rng.integers(n, size=max(1, round(share * (n * float(weights[0])))))]
        weights = weights[stratum]
        return stratum[draw_rows(np.cumsum(weights), max(1, round(share * float(weights.sum()))), rng)]

    def score(self, samples: list[Problem], theta: Array) -> float:
        """Evaluate the trimmed objective on all samples together.

        A single one may hold more outliers than may be set aside in it.
        """
        losses = np.concatenate([part.loss.values(theta, part.X, part.y) for part in samples])
        weights = np.concatenate([part.points.weights for part in samples])
        return trimmed_sum(losses, weights, min(self._aside(weights.sum()), 0.9 * weights.sum()))

    def _aside(self, size: float) -> float:
        """Compute the weight to set aside in a sample: its share, and two standard deviations."""
        z = self.problem.z * size / self.total
        return float(z + 2 * z**0.5)

    def _most(self, part: WeightedPoints) -> float:
        """Compute the weight that must not be set aside entirely: of all points, or of the smaller class."""
        if not self.problem.loss.classifies:
            return part.total_weight
        assert part.y is not None
        return float(np.bincount(part.y > 0, part.weights, minlength=2).min())


_A_LITTLE = Stopping(max_iter=3)
_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
CLEARLY = 0.98  # of the objective from zero


class Effort(NamedTuple):
    """How many subsets to fit, how many of the best to refine, and how far.

    Enough subsets are fitted for a clean one with probability ``sure``, but at most ``subsets``, and at most
    ``columns`` over the number of parameters, since that is what they cost. Those that come within ``near``
    times the objective from zero in a few iterations are refined to the end.
    """

    subsets: int
    columns: float
    sure: float
    refined: int
    near: float
    stopping: Stopping


THOROUGH = Effort(30, math.inf, 1.0, 3, 1.05, Stopping(max_iter=30))
QUICK = Effort(30, 48, 0.99, 1, 1.0, Stopping(max_iter=4, tol=3e-3))


class SearchResult(NamedTuple):
    """The runs on a sample from zero, from its middle, and the best from subsets, if there are any."""

    from_zero: Run
    from_middle: Run | None = None
    from_subset: Run | None = None

    @property
    def best(self) -> Run:
        """The run from zero, unless another is clearly better."""
        others = [run for run in (self.from_middle, self.from_subset) if run is not None]
        best = min(others, key=_objective, default=self.from_zero)
        return best if best.objective < CLEARLY * self.from_zero.objective else self.from_zero


def _objective(run: Run) -> float:
    return run.objective


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> SearchResult:
    """Solve a sample from zero, from its middle, and from subsets.

    All fits are shrunk a little towards zero: a sample has only a few rows of each rare kind, and a start
    that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    part = _shrink(part)
    from_zero = alternate(part, np.zeros(part.ridge.shape), effort.stopping)
    if part.z == 0:
        return SearchResult(from_zero)
    subsets = _best_subsets(part, rng, effort)
    runs = []
    far = _distances(part)
    for theta in [_central_fit(part, far), _damped_fit(part, far), *subsets]:
        run = alternate(part, theta, _A_LITTLE)
        if run.objective < effort.near * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping)
        runs.append(run)
    from_subset = min(runs[2:], key=_objective, default=None)
    return SearchResult(from_zero, min(runs[:2], key=_objective), from_subset)


def damped_start(problem: Problem) -> Array:
    """Find a start for few points: a fit in which points far out count for less."""
    part = _shrink(problem)
    return _damped_fit(part, _distances(part))


def _distances(part: Problem) -> Array:
    """Compute the squared distance of points from the middle (sparse ones: from zero), in column spreads."""
    assert part.frame is not None
    with ignore_overflow():
        if sparse.issparse(part.X):
            return np.asarray(part.X.multiply(1 / part.frame.spread).power(2).sum(axis=1)).ravel()
        return np.asarray(np.square((part.X - part.frame.middle) / part.frame.spread).sum(axis=1))


def _fit_weights(part: Problem, weights: Array, share: float) -> Array:
    """Fit points under other weights, a ``share`` of theirs, from zero and without outliers."""
    rows = np.flatnonzero(weights)
    points = part.points.take_unchecked(rows, weights[rows])
    weighted = replace(part, points=points, z=0.0, l2=part.l2 * share)
    return alternate(weighted, np.zeros(part.ridge.shape), _A_LITTLE).theta


def _nearer_half(part: Problem, far: Array) -> Array:
    """Keep the half of the weight that lies nearest."""
    points = part.points
    return kept_weights(far, points.weights, points.total_weight / 2, points.ids)


def _damped_fit(part: Problem, far: Array) -> Array:
    """Fit all points, with less weight the farther they lie beyond the usual distance.

    Half of the weight does not exceed the usual distance; if that is zero, it is the least other distance.
    """
    points = part.points
    usual = far[_nearer_half(part, far) > 0].max()
    usual = usual if usual > 0 else far[far > 0].min(initial=np.inf)
    with ignore_overflow():
        weights = points.weights * np.divide(usual, far, out=np.ones(len(far)), where=far > usual)
    return _fit_weights(part, weights, weights.sum() / points.total_weight)


def _central_fit(part: Problem, far: Array) -> Array:
    """Fit the half of the weight that lies nearest to the middle, where outliers far out are not."""
    return _fit_weights(part, _nearer_half(part, far), 0.5)


def _best_subsets(part: Problem, rng: np.random.Generator, effort: Effort) -> list[Array]:
    """Fit small subsets, and return the best fits."""
    p = part.ridge.size
    n_subsets = _n_subsets(part, p, effort)
    if not n_subsets:
        return []
    fit, zero = fit_of(part), np.zeros(part.ridge.shape)
    fits = []
    for number in range(n_subsets):  # small ones are more often clean, larger ones less noisy
        few = _subset(part, (p + 1) * (1 + number % 2), rng)
        fits.append(fit.evaluate(alternate(few, zero, _A_LITTLE).theta))
    fits.sort(key=lambda iterate: iterate.objective)
    return [iterate.theta for iterate in fits[: effort.refined]]


def _n_subsets(part: Problem, p: int, effort: Effort) -> int:
    """Choose how many subsets of p + 1 points and more to fit."""
    clean = (1 - part.z / part.points.total_weight) ** (p + 1)  # the chance of one
    most = int(min(effort.subsets, effort.columns / p))
    if clean * most < 0.1:  # none is expected to be without outliers
        return 0
    if effort.sure == 1:
        return most
    return min(most, math.ceil(math.log1p(-effort.sure) / math.log1p(-min(clean, 1 - 1e-9))))


def _subset(part: Problem, size: int, rng: np.random.Generator) -> Problem:
    few = part.points.take(draw_distinct_rows(part.points.weights, size, rng))
    return replace(part, points=few, z=0.0, l2=part.l2 * (few.total_weight / part.points.total_weight))


def _shrink(part: Problem) -> Problem:
    """Add a ridge, in units of each column's spread, that counts as a small share of all the data."""
    assert isinstance(part.loss, PredictorLoss)
    assert part.y is not None
    curvature = float(part.points.weights @ part.loss.curvature_at_zero(part.y))
    # a column that is constant here would share the intercept's part, and be wrong where it varies: it has a
    # spread too
    frame = part.coordinates
    spread = np.append(frame.spread, 0.0)[: part.ridge.shape[-1]]
    return replace(part, l2=1.0, scales=part.ridge + _SHRINKAGE * curvature * spread**2, frame=frame)


_ROUNDS = 2  # of seeding, for an anchor: with one, a tight far cluster is more often mistaken for a good one
_PLAIN = ("k-means++", "random")  # on all points, without refining


def check_init(problem: Problem, init: Any) -> Any:
    """Check a theta, or the name of a seeding, and return it ready for use."""
    loss, n_columns = problem.loss, problem.points.n_columns
    if init is not None and not isinstance(init, str):
        return loss.check_parameters(init, n_columns, "init").astype(np.float64)
    names = _names(loss)
    if init is not None and init not in names:
        raise ValueError(f"init={init!r} is not known for {loss!r}; pass a theta, or one of {names}")
    if init is None and not names and loss.parameter_shape(n_columns) is None:
        raise ValueError(f"{loss!r} does not define parameter_shape; pass init=, a theta to start from")
    return init


def start(problem: Problem, init: Any, rng: np.random.Generator, number: int = 0) -> Array:
    """Choose where start ``number`` begins, for an init that :func:`check_init` returned."""
    loss, theta = problem.loss, init if isinstance(init, np.ndarray) else None
    if theta is not None and number == 0:
        return theta.copy()
    if not isinstance(loss, (PredictorLoss, CentreLoss)):
        about = _zero(problem) if theta is None else theta
        return about + (number > 0) * (1 + np.abs(about)) * rng.normal(size=about.shape)
    if theta is not None or (init == "zero" and number > 0):
        init = None
    if init in _PLAIN:
        return SEEDINGS[init](problem, rng)
    if init == "zero":
        return _zero(problem)
    if isinstance(loss, PredictorLoss):
        return _linear_start(problem, init, rng, number)
    part = _part(problem, max(5000, 100 * loss.n_centres), rng)
    return alternate(part, SEEDINGS[init or "local-search"](part, rng), Stopping()).theta


def rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    if init is None and isinstance(part.loss, PredictorLoss):
        return search(part, rng, QUICK).best.theta
    if init is None and isinstance(part.loss, CentreLoss):
        return alternate(part, thresholded(part, rng, _ROUNDS), Stopping()).theta
    return alternate(part, _zero(part) if init is None else init, Stopping(max_iter=30)).theta


def _names(loss: Loss) -> list[str]:
    if isinstance(loss, PredictorLoss):
        return ["subsets", "zero"]
    return list(SEEDINGS) if isinstance(loss, CentreLoss) else []


def _zero(problem: Problem) -> Array:
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    assert shape is not None
    return np.zeros(shape)


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return Subsampler(problem).draw(size, rng) if len(problem.points) > 2 * size else problem


def _linear_start(problem: Problem, init: Any, rng: np.random.Generator, number: int) -> Array:
    """Begin at zero unless a subset does clearly better; later starts always begin at subsets."""
    if problem.z == 0:  # no outliers: a single minimum, and Newton steps work best from zero
        return _zero(problem)
    part = _part(problem, max(5000, 20 * problem.ridge.size), rng)
    found = search(part, rng, THOROUGH)
    if number > 0 or init == "subsets":
        return (found.from_subset or found.from_middle or found.from_zero).theta
    return _zero(problem) if found.best is found.from_zero else found.best.theta
