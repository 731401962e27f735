"""Where to start: a given theta, a named seeding, or what suits the loss; and the anchor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from duramen.arrays import Array, draw_distinct_rows, draw_rows, generator, spawn
from duramen.losses.base import Anchor, Loss, distance, ignore_overflow, lengths
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.solvers import seeding
from duramen.solvers.alternate import Run, Stopping, alternate, fit_of
from duramen.solvers.newton import Coordinates
from duramen.solvers.seeding import CheapestTwo, Costs, least_needed
from duramen.trimming import Fit, Iterate, Problem, kept_weights, problem_of, trimmed_sum

CLEARLY = 0.98  # of the objective from zero
_A_LITTLE = Stopping(max_iter=3)
_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
_SUBSETS = 30  # fitted at most
_SWAPS = 20  # candidates tried at least, and twice as many as centres: measured, in docs/solving.md
_REFITS = Stopping(max_iter=5)  # before a swap is judged
_ROUNDS = 2  # of seeding, for an anchor: with one, a tight far cluster is more often mistaken for a good one
_ANCHORS = 2
_MOST = 3000  # rows per sample that are enough for any loss of few parameters


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
            positive = problem.y > 0
            self.strata = [np.flatnonzero(positive), np.flatnonzero(~positive)]

    def draw(self, size: int, rng: np.random.Generator) -> Problem:
        """Draw ``size`` points."""
        share = size / self.total
        drawn = np.concatenate([self._draw_rows(stratum, share, rng) for stratum in self.strata])
        rows, counts = np.unique(drawn, return_counts=True)
        part = self.problem.points.take_unchecked(rows, counts.astype(np.float64))
        z = min(self._aside(size), 0.9 * self._most(part))
        return replace(self.problem, points=part, z=z, ridge=self.problem.ridge * share)

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


class Effort(NamedTuple):
    """How many subsets to fit, how many of the best to refine, and how far.

    Enough subsets are fitted for a clean one with probability ``sure``, but at most ``columns`` over the
    number of parameters, since that is what they cost. Those that come within ``near`` times the objective
    from zero in a few iterations are refined to the end.
    """

    columns: float
    sure: float
    refined: int
    near: float
    stopping: Stopping


THOROUGH = Effort(math.inf, 1.0, 3, 1.05, Stopping(max_iter=30))
QUICK = Effort(48, 0.99, 1, 1.0, Stopping(max_iter=4, tol=3e-3))


class Found(NamedTuple):
    """Where a search ended: from zero, where that is clearly better, and from a subset, if there are any."""

    from_zero: Array
    clearly_better: Array | None
    elsewhere: Array


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> Found:
    """Solve a sample from zero, from its middle, and from subsets.

    All fits are shrunk a little towards zero: a sample has only a few rows of each rare kind, and a start
    that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    part = _shrink(part)
    fit = fit_of(part)
    from_zero = alternate(part, part.zero(), effort.stopping, fit)
    if part.z == 0:
        return Found(from_zero.theta, None, from_zero.theta)
    half, damped = _weights_near_the_middle(part)
    middles = [_fit_weights(part, weights) for weights in (half, damped)]
    runs = []
    for theta in [*middles, *_best_subsets(part, fit, rng, effort)]:
        run = alternate(part, theta, _A_LITTLE, fit)
        if run.objective < effort.near * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping, fit)
        runs.append(run)
    best, other = min(runs, key=_objective), min(runs[len(middles) :] or runs, key=_objective)
    is_better = best.objective < CLEARLY * from_zero.objective
    return Found(from_zero.theta, best.theta if is_better else None, other.theta)


def damped_start(problem: Problem) -> Array:
    """Find a start for few points: a fit in which points far out count for less."""
    part = _shrink(problem)
    return _fit_weights(part, _weights_near_the_middle(part)[1])


def _objective(place: Run | Iterate) -> float:
    return place.objective


def _weights_near_the_middle(part: Problem) -> tuple[Array, Array]:
    """Weigh points by how far they lie from the middle (sparse ones: from zero), in column spreads.

    Return the half of the weight that lies nearest, which does not exceed the usual distance, and all weight,
    less of it the farther beyond. If the usual distance is zero, it is the least other distance.
    """
    points, X, frame = part.points, part.X, part.frame
    with ignore_overflow():
        if sparse.issparse(X):
            far = np.asarray(X.multiply(1 / frame.spread).power(2).sum(axis=1)).ravel()
        else:
            far = np.asarray(np.square((X - frame.middle) / frame.spread).sum(axis=1))
        half = kept_weights(far, points.weights, points.total_weight / 2, points.ids)
        usual = far[half > 0].max()
        usual = usual if usual > 0 else far[far > 0].min(initial=np.inf)
        return half, points.weights * np.divide(usual, far, out=np.ones(len(far)), where=far > usual)


def _fit_weights(part: Problem, weights: Array, rows: Array | None = None) -> Array:
    """Fit rows (None for all) with these weights in place of theirs, from zero and without outliers."""
    rows = np.flatnonzero(weights) if rows is None else rows
    points = part.points.take_unchecked(rows, weights[rows])
    share = points.total_weight / part.points.total_weight
    clean = replace(part, points=points, z=0.0, ridge=part.ridge * share)
    return alternate(clean, part.zero(), _A_LITTLE).theta


def _best_subsets(part: Problem, fit: Fit, rng: np.random.Generator, effort: Effort) -> list[Array]:
    """Fit small subsets, and return the best fits."""
    p, points, fits = part.zero().size, part.points, []
    # small ones are more often clean, larger ones less noisy
    for number in range(_n_subsets(part, p, effort)):
        rows = draw_distinct_rows(points.weights, (p + 1) * (1 + number % 2), rng)
        fits.append(fit.evaluate(_fit_weights(part, points.weights, rows)))
    return [iterate.theta for iterate in sorted(fits, key=_objective)[: effort.refined]]


def _n_subsets(part: Problem, p: int, effort: Effort) -> int:
    """Choose how many subsets of p + 1 points and more to fit."""
    clean = (1 - part.z / part.points.total_weight) ** (p + 1)  # the chance of one
    most = int(min(_SUBSETS, effort.columns / p))
    if clean * most < 0.1:  # none is expected to be without outliers
        return 0
    if effort.sure == 1:
        return most
    return min(most, math.ceil(math.log1p(-effort.sure) / math.log1p(-min(clean, 1 - 1e-9))))


def _shrink(part: Problem) -> Problem:
    """Add a ridge, in units of each column's spread, that counts as a small share of all the data."""
    loss: Any = part.loss
    curvature = float(part.points.weights @ loss.curvature_at_zero(part.y))
    # a column that is constant here would share the intercept's part, and be wrong where it varies: it has a
    # spread too
    frame = Coordinates.of(part)
    spread = np.append(frame.spread, 0.0)[: part.zero().shape[-1]]
    return replace(part, ridge=part.ridge + _SHRINKAGE * curvature * spread**2, frame=frame)


def local_search(costs: Costs, problem: Problem, rng: np.random.Generator) -> Array:
    """Swap centres of the thresholded seeding for points, while that lowers the trimmed cost.

    A swap is judged after a few refits.
    """
    fit, shape = fit_of(problem), problem.zero().shape
    run = alternate(problem, seeding.thresholded(costs, rng).reshape(shape), Stopping(), fit)
    cheapest = None
    for _ in range(min(max(_SWAPS, 2 * costs.k), 3 * _SWAPS)):
        centres = run.theta.reshape(costs.k, -1)
        cheapest = cheapest or CheapestTwo.of(costs.of_each(centres))
        cap = run.objective / max(costs.z, 1.0)
        swapped = centres.copy()
        centre = costs.centres_at(costs.draw(np.minimum(cheapest.least, cap), 1, rng))[0]
        swapped[least_needed(costs, cheapest, costs.of(centre))] = centre
        tried = alternate(problem, swapped.reshape(shape), _REFITS, fit)
        if tried.objective < run.objective:
            run, cheapest = tried, None
    return run.theta


SEEDINGS: dict[str, Callable[[Costs, Problem, np.random.Generator], Array]] = {
    "local-search": local_search,
    "thresholded": lambda costs, problem, rng: seeding.thresholded(costs, rng),
    "k-means++": lambda costs, problem, rng: seeding.plus_plus(costs, rng),
    "random": lambda costs, problem, rng: seeding.random_centres(costs, rng),
}


def seed(name: str, problem: Problem, rng: np.random.Generator) -> Array:
    """Choose centres by the seeding of that name."""
    return SEEDINGS[name](Costs(problem), problem, rng).reshape(problem.zero().shape)


def check_init(problem: Problem, init: Any) -> Any:
    """Check a theta, or the name of a start, and return it ready for use."""
    loss, n_columns = problem.loss, problem.points.n_columns
    if init is not None and not isinstance(init, str):
        return loss.check_parameters(init, n_columns, "init").astype(np.float64)
    names = ["subsets", "zero"] if loss.has_predictors else [*SEEDINGS] if loss.has_centres else []
    if init is not None and init not in names:
        raise ValueError(f"init={init!r} is not known for {loss!r}; pass a theta, or one of {names}")
    if init is None and loss.parameter_shape(n_columns) is None:
        raise ValueError(f"{loss!r} does not define parameter_shape; pass init=, a theta to start from")
    return init


def start(problem: Problem, init: Any, rng: np.random.Generator, number: int = 0) -> Array:
    """Choose where start ``number`` begins, for an init that :func:`check_init` returned."""
    loss, theta = problem.loss, init if isinstance(init, np.ndarray) else None
    if theta is not None and number == 0:
        return theta.copy()
    if loss.has_predictors:
        return _start_predictors(problem, init, rng, number)
    if loss.has_centres:
        return _start_centres(problem, init if theta is None else None, rng)
    about = problem.zero() if theta is None else theta
    return about + (number > 0) * (1 + np.abs(about)) * rng.normal(size=about.shape)


def _start_predictors(problem: Problem, init: Any, rng: np.random.Generator, number: int) -> Array:
    """Begin at zero unless a subset does clearly better; later starts always begin at subsets."""
    named_zero = number == 0 and isinstance(init, str) and init == "zero"
    if named_zero or problem.z == 0:  # no outliers: a single minimum, and Newton steps work best from zero
        return problem.zero()
    found = search(_part(problem, max(5000, 20 * problem.zero().size), rng), rng, THOROUGH)
    if number > 0 or init is not None:
        return found.elsewhere
    return problem.zero() if found.clearly_better is None else found.clearly_better


def _start_centres(problem: Problem, init: str | None, rng: np.random.Generator) -> Array:
    """Seed a sample, and refine the centres there; the plain seedings see all points and are not refined."""
    if init in ("k-means++", "random"):
        return seed(init, problem, rng)
    part = _part(problem, max(5000, 100 * problem.loss.n_centres), rng)
    return alternate(part, seed(init or "local-search", part, rng), Stopping()).theta


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return Subsampler(problem).draw(size, rng) if len(problem.points) > 2 * size else problem


def find_anchor(
    points: WeightedPoints, loss: Loss, n_outliers: float = 0, random_state: Any = None, *, init: Any = None
) -> Anchor:
    """Find a rough solution, robust against outliers, from samples of under 1% of the rows.

    Two samples are drawn independently by weight, together less than 1% of the
    rows but at least 600 each (for linear losses 1000, and 50 per column up to
    3000), and solved, with the weight to set aside in proportion. The anchor is the
    solution with the lower trimmed objective on both samples together; its radius
    is its distance from the other solution, with centres matched in close pairs.

    Parameters
    ----------
    points, loss, n_outliers, random_state
        As in :func:`duramen.solve`.
    init : array, optional
        Where to start; needed for a loss without ``parameter_shape``.

    Returns
    -------
    Anchor

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.random.default_rng(0).normal(size=(50_000, 2))
    >>> X[:1000] += 100
    >>> anchor = dm.find_anchor(dm.points(X), dm.KMeansLoss(1), n_outliers=0.02, random_state=0)
    >>> [0.0, 0.0] in dm.Ball(anchor.theta[0], 0.3)
    True
    """
    return _find_anchor(points, loss, n_outliers, random_state, init=init)


@one_blas_thread()
def _find_anchor(
    points: WeightedPoints,
    loss: Loss,
    n_outliers: float,
    random_state: Any,
    *,
    init: Any = None,
    n_rows: int | None = None,
) -> Anchor:
    """Find an anchor on points that may be a sample of ``n_rows``."""
    problem = problem_of(points, loss, n_outliers)
    if isinstance(init, str):
        raise TypeError(f"init={init!r} must be a theta for find_anchor, not a name; or leave it out")
    ready = check_init(problem, init)
    rngs = spawn(generator(random_state), _ANCHORS)
    sampler, size = Subsampler(problem), _size(problem, n_rows or len(points))
    samples = [sampler.draw(size, rng) for rng in rngs]
    found = [_rough(part, ready, rng) for part, rng in zip(samples, rngs, strict=True)]
    theta = min(found, key=lambda theta: sampler.score(samples, theta))
    radius = max(distance(theta, match_centres(loss, other, theta)) for other in found)
    ids = np.unique(np.concatenate([part.points.ids for part in samples]))
    return Anchor(theta, radius, ids)


def _rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    if init is None and part.loss.has_predictors:
        found = search(part, rng, QUICK)
        return found.from_zero if found.clearly_better is None else found.clearly_better
    if init is None and part.loss.has_centres:
        centres = seeding.thresholded(Costs(part), rng, _ROUNDS)
        return alternate(part, centres.reshape(part.zero().shape), Stopping()).theta
    return alternate(part, part.zero() if init is None else init, Stopping(max_iter=30)).theta


def _size(problem: Problem, n_rows: int) -> int:
    """Choose the number of rows of one sample: half of 1%, within bounds."""
    n_columns = problem.points.n_columns
    enough = max(_MOST, 10 * math.prod(problem.loss.parameter_shape(n_columns) or (1,)))
    return max(problem.loss.anchor_rows(n_columns), min(enough, (n_rows - 1) // (100 * _ANCHORS)))


def match_centres(loss: Loss, other: Array, theta: Array) -> Array:
    """Order the centres of ``other`` to match those of ``theta``, in close pairs."""
    if theta.ndim != 2 or not loss.has_centres:
        return other
    gaps = lengths(theta[:, None] - other[None])
    return other[linear_sum_assignment(gaps)[1]]
