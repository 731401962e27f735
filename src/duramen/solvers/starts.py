"""Where to start: a given theta, a named seeding, or what suits the loss; and the anchor.

Plain k-means++ draws far points, and outliers are far. Two seedings are robust: thresholded k-means++
(Bhaskara, Vadgama and Xu 2019), where a point's cost counts only up to a guess of the optimum over z; and
local search (Gupta et al. 2017), which swaps centres for points while that lowers the trimmed cost, with
candidates drawn by their thresholded cost (Lattanzi and Sohler 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from duramen.arrays import Array, draw_distinct_rows, draw_rows, generator, spawn
from duramen.losses.base import Anchor, Loss, distance, ignore_overflow, lengths
from duramen.losses.centres import least_two
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk
from duramen.points import WeightedPoints
from duramen.solvers.alternate import Run, Stopping, alternate
from duramen.solvers.newton import with_frame
from duramen.trimming import Problem, kept_sum, kept_weights, problem_of, trimmed_sum

CLEARLY = 0.98  # of the objective from zero
_A_LITTLE = Stopping(max_iter=3)
_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
_SUBSETS = 30  # fitted at most
_ROUNDS = 2  # of seeding, for an anchor: with one, a tight far cluster is more often mistaken for a good one
_ANCHORS = 2
_MOST = 3000  # rows per sample that are enough for any loss of few parameters
_GUESSES = 4.0 ** -np.arange(6)  # of the optimum, as shares of the cost of one centre
_SWAPS = 20  # candidates tried at least, and twice as many as centres: measured, in docs/solving.md
_ROUNDING = 1e-9  # of all weight at a cap: far more than sums over the points lose to rounding
_TRIMMED = 0.1  # the share of the weight that fits worst, which one start leaves out
_SAME, _BEHIND = 1.003, 1.1  # objectives of starts of a mixture that have met, and that are given up
_RACE = Stopping(max_iter=12)  # before they are compared
_REFITS = Stopping(max_iter=5)  # before a swap is judged

_objective = attrgetter("objective")


def draw_sample(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw points in proportion to their weight, with replacement, and the weight to set aside with them.

    A point drawn twice has weight 2. Each class has exactly its share of the sample, so none is missing.
    """
    points, loss, share = problem.points, problem.loss, size / problem.points.total_weight
    classes = loss.classes_of(problem.y) if loss.has_classes else np.zeros(len(points), np.int32)
    drawn = []
    for stratum in filter(len, (np.flatnonzero(classes == one) for one in np.unique(classes)[::-1])):
        weights = points.weights[stratum]
        n = max(1, round(share * weights.sum()))
        alike = (weights == weights[0]).all()
        places = rng.integers(len(stratum), size=n) if alike else draw_rows(np.cumsum(weights), n, rng)
        drawn.append(stratum[places])
    rows, counts = np.unique(np.concatenate(drawn), return_counts=True)
    part = points.take_unchecked(rows, counts.astype(np.float64))
    # neither all points nor one class of two must be set aside
    heavy = np.bincount(classes[rows] if loss.classifies else 0 * rows, counts)
    z = min(_aside(problem, size), 0.9 * heavy[heavy > 0].min())
    return replace(problem, points=part, z=z, ridge=problem.ridge * share, frame=None)


def _aside(problem: Problem, size: float) -> float:
    """Compute the weight to set aside in a sample: its share, and two standard deviations."""
    z = problem.z * size / problem.points.total_weight
    return z + 2 * z**0.5


class Effort(NamedTuple):
    """Fit subsets until one is clean but for a chance of ``log_doubt``, at most ``columns`` over their size.

    The best are ``refined``, to the end if they come ``near`` the objective from zero in a few iterations.
    """

    columns: float
    log_doubt: float
    refined: int
    near: float
    stopping: Stopping


THOROUGH = Effort(math.inf, -math.inf, 3, 1.05, Stopping(max_iter=30))
QUICK = Effort(48, math.log(0.01), 1, 1.0, Stopping(max_iter=4, tol=3e-3))


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> tuple[Run, Run, Run]:
    """Solve a sample from zero, from its middle, and from subsets.

    Return the run from zero, the best if it is clearly better, or else that one, and the best from a subset,
    if there are any. All fits are shrunk a little towards zero: a sample has only a few rows of each rare
    kind, and a start that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    part = _shrink(part)
    from_zero = alternate(part, part.zero(), effort.stopping)
    if part.z == 0:
        return from_zero, from_zero, from_zero
    middles = [_fit_weights(part, weights) for weights in _weights_near_the_middle(part)]
    runs = []
    for theta in [*middles, *_best_subsets(part, rng, effort)]:
        run = alternate(part, theta, _A_LITTLE)
        if run.objective < effort.near * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping)
        runs.append(run)
    best = min(runs, key=_objective)
    best = best if best.objective < CLEARLY * from_zero.objective else from_zero
    return from_zero, best, min(runs[len(middles) :] or runs, key=_objective)


def damped_start(problem: Problem) -> Array:
    """Find a start for few points: a fit in which points far out count for less."""
    part = _shrink(problem)
    return _fit_weights(part, _weights_near_the_middle(part)[1])


def _weights_near_the_middle(part: Problem) -> tuple[Array, Array]:
    """Return the half of the weight nearest to the middle, and all weight, less of it the farther beyond.

    Distances are in column spreads, of sparse points from zero.
    """
    points, X, units = part.points, part.X, part.frame.units[: part.points.n_columns]
    with ignore_overflow():
        gaps = (X if sparse.issparse(X) else X - part.frame.middle) * units
        far = (gaps**2).sum(axis=1)
        half = kept_weights(far, points.weights, points.total_weight / 2, points.ids)
        usual = far[half > 0].max()
        usual = usual if usual > 0 else far[far > 0].min(initial=np.inf)
        return half, points.weights * np.fmin(usual / far, 1.0)


def _fit_weights(part: Problem, weights: Array, rows: Array | None = None) -> Array:
    """Fit rows (None for all) with these weights in place of theirs, from zero and without outliers."""
    rows = np.flatnonzero(weights) if rows is None else rows
    points = part.points.take_unchecked(rows, weights[rows])
    share = points.total_weight / part.points.total_weight
    clean = replace(part, points=points, z=0.0, ridge=part.ridge * share)
    return alternate(clean, part.zero(), _A_LITTLE).theta


def _best_subsets(part: Problem, rng: np.random.Generator, effort: Effort) -> list[Array]:
    """Fit small subsets, and return the best fits."""
    p, points, fits = part.zero().size, part.points, []
    clean = min((1 - part.z / points.total_weight) ** (p + 1), 1 - 1e-9)  # the chance of a subset to be clean
    most = int(min(_SUBSETS, effort.columns / p))
    if clean * most < 0.1:  # none is expected to be without outliers
        return []
    for number in range(int(min(most, np.ceil(effort.log_doubt / math.log1p(-clean))))):
        # small ones are more often clean, larger ones less noisy
        rows = draw_distinct_rows(points.weights, (p + 1) * (1 + number % 2), rng)
        fits.append(part.at(_fit_weights(part, points.weights, rows)))
    return [iterate.theta for iterate in sorted(fits, key=_objective)[: effort.refined]]


def _shrink(part: Problem) -> Problem:
    """Add a ridge in units of each column's spread, also for columns that are constant in the sample only."""
    loss: Any = part.loss
    if loss.base is not None:
        noise = loss.split(part.ridge, part.points.n_columns)[1]
        return replace(part, ridge=loss.join(_shrink(_base_of(part)).ridge, noise))
    part = with_frame(part)
    labels = loss.encode_labels(part.y, np.float64)
    bends = loss.curvature(np.zeros((len(labels), *part.zero().shape[:-1])), labels)
    curvature = part.points.weights @ bends.reshape(len(labels), -1)[:, 0]
    ridge = _SHRINKAGE * curvature / part.frame.units**2
    if loss.fit_intercept:
        ridge[-1] = 0.0
    return replace(part, ridge=part.ridge + ridge)


def base_starts(problem: Problem, max_iter: int = _RACE.max_iter) -> list[Array]:
    """Find starts for a loss that extends another, the best first.

    They are fits of that one to all points, to those near the middle, and to those that fit best: which basin
    of the likelihood the parameters end in depends on it. After a few iterations from each, those that have
    met are one, and those far behind are given up.
    """
    race = _RACE._replace(max_iter=min(max_iter, _RACE.max_iter))
    runs = sorted((alternate(problem, theta, race) for theta in _base_fits(problem)), key=_objective)
    kept = runs[:1]
    for run in runs[1:]:
        if _SAME * kept[-1].objective < run.objective < _BEHIND * kept[0].objective:
            kept.append(run)
    return [run.theta for run in kept]


def _base_of(problem: Problem) -> Problem:
    """Return the problem of the loss that this one's extends, without outliers."""
    loss: Any = problem.loss
    ridge = loss.split(problem.ridge, problem.points.n_columns)[0]
    return replace(problem, loss=loss.base, z=0.0, ridge=ridge, frame=None)


def _base_fits(problem: Problem) -> Iterator[Array]:
    loss: Any = problem.loss
    points, base = problem.points, _base_of(problem)
    theta = alternate(base, base.zero(), Stopping()).theta
    yield loss.join(theta)
    with ignore_overflow():
        near = points.with_parts(weights=points.weights * np.exp(-loss.far(points.X)))
    theta = alternate(replace(base, points=near), theta, Stopping()).theta
    yield loss.join(theta)
    classes = np.bincount(loss.classes_of(problem.y), points.weights)
    z = min(_TRIMMED * points.total_weight, 0.5 * classes[classes > 0].min())
    yield loss.join(alternate(replace(base, z=z), theta, Stopping()).theta)


class Seeding:
    """Choose the centres of a problem among its points, by what the points cost under them."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        loss: Any = problem.loss
        self.problem, self.rng, self.loss, self.k = problem, rng, loss, loss.n_centres
        self.X, self.weights = problem.X, problem.points.weights

    def random(self) -> Array:
        """Draw k points by their weight."""
        return self._centres_at(np.resize(draw_distinct_rows(self.weights, self.k, self.rng), self.k))

    def plus_plus(self) -> Array:
        """Seed by k-means++, without regard to outliers: each centre is a point drawn by its cost so far."""
        return self._grow(np.inf)[0]

    def thresholded(self, rounds: int = 1) -> Array:
        """Seed by k-means++ with costs capped at guesses of the optimum over z, and choose the best."""
        if self.problem.z == 0:
            return self.plus_plus()
        first = self._costs(self._draw(1.0, 1))[0]
        caps = self._trimmed_sum(first) * _GUESSES / self.problem.z
        tried = [self._grow(cap) for _ in range(rounds) for cap in caps]
        return min(tried, key=lambda grown: self._trimmed_sum(grown[1]))[0]

    def local_search(self) -> Array:
        """Swap centres of the thresholded seeding for points, if that lowers the trimmed cost."""
        problem, shape = self.problem, self.problem.zero().shape
        run = alternate(problem, self.thresholded().reshape(shape), Stopping())
        cheapest = None
        for _ in range(np.clip(2 * self.k, _SWAPS, 3 * _SWAPS)):
            swapped = run.theta.reshape(self.k, -1).copy()
            cheapest = cheapest or least_two(self._costs(swapped))
            cap = run.objective / max(problem.z, 1.0)
            centre = self._draw(np.minimum(cheapest[1], cap), 1)
            swapped[self._least_needed(*cheapest, self._costs(centre)[0])] = centre[0]
            tried = alternate(problem, swapped.reshape(shape), _REFITS)
            if tried.objective < run.objective:
                run, cheapest = tried, None
        return run.theta

    def _grow(self, cap: float) -> tuple[Array, Array]:
        """Add centres, each the best of a few points drawn by their capped cost; also return all costs."""
        centres = self._draw(1.0, 1)
        least = self._costs(centres)[0]
        while len(centres) < self.k:
            candidates = self._draw(np.minimum(least, cap), 2 + int(np.log(self.k)))
            left = np.minimum(self._costs(candidates), least)
            chosen = np.argmin(np.minimum(left, cap) @ self.weights)
            centres, least = np.vstack([centres, candidates[chosen]]), left[chosen]
        return centres, least

    def _least_needed(self, first: Array, cost: Array, second: Array, new: Array) -> int:
        """Find which centre to replace, from each point's cheapest, its cost, the next and the new cost.

        Whatever weight z is set aside, it saves at most z caps more than capping costs does. So the sum of
        capped costs, less z caps, bounds the trimmed cost, and few centres are left to evaluate.
        """
        least, without = np.minimum(cost, new), np.minimum(second, new)
        cap = least[self.problem.kept(least) > 0].max(initial=0.0)
        with ignore_overflow():  # an infinite cap bounds nothing
            capped = np.minimum(least, cap)
            rises = np.bincount(first, self.weights * (np.minimum(without, cap) - capped), minlength=self.k)
            saved = (self.problem.z + _ROUNDING * self.weights.sum()) * cap
            bounds = rises + self.weights @ capped - saved
        best = np.inf, self.k
        for centre in np.argsort(bounds).tolist():
            if not bounds[centre] > best[0]:
                best = min(best, (self._trimmed_sum(np.where(first == centre, without, least)), centre))
        return best[1]

    def _trimmed_sum(self, costs: Array) -> float:
        return kept_sum(costs, self.problem.kept(costs))

    def _costs(self, centres: Array) -> Array:
        """Compute the cost of every point under each of several centres alone: (q, n)."""
        costs = np.empty((len(centres), len(self.X)))

        def work(chunk: slice) -> None:
            costs[:, chunk] = self.loss.costs(self.X[chunk], centres)

        with ignore_overflow():
            for_each_chunk(work, len(self.X), rows_per_chunk(8 * (self.X.shape[1] + 3 * len(centres))))
        return costs

    def _draw(self, costs: Any, n: int) -> Array:
        """Draw points by weight times cost, as centres; by weight alone if all costs are zero."""
        steps = np.cumsum(self.weights * costs)
        if not (0 < steps[-1] < np.inf):
            steps = np.cumsum(self.weights)
        return self._centres_at(draw_rows(steps, n, self.rng))

    def _centres_at(self, rows: Array) -> Array:
        """Make centres (q, d) from data points, moved off the edge of the domain where the loss has one."""
        centres = np.asarray(self.X[rows], dtype=np.float64, order="C")
        edge = (self.loss.inside(centres) != centres).any(axis=1)
        if edge.any():
            mean = np.average(self.X, axis=0, weights=self.weights)
            centres[edge] = self.loss.inside(0.9 * centres[edge] + 0.1 * mean)
        return centres


SEEDINGS: dict[str, Callable[[Seeding], Array]] = {
    "local-search": Seeding.local_search,
    "thresholded": Seeding.thresholded,
    "k-means++": Seeding.plus_plus,
    "random": Seeding.random,
}


def seed(name: str, problem: Problem, rng: np.random.Generator) -> Array:
    """Choose centres by the seeding of that name."""
    return SEEDINGS[name](Seeding(problem, rng)).reshape(problem.zero().shape)


def check_init(problem: Problem, init: Any) -> Any:
    """Check a theta, or the name of a start, and return it ready for use."""
    loss, n_columns = problem.loss, problem.points.n_columns
    if isinstance(init, str):
        names = ["subsets", "zero"] if loss.has_predictors else [*SEEDINGS] if loss.has_centres else []
        if init not in names:
            raise ValueError(f"init={init!r} is not known for {loss!r}; pass a theta, or one of {names}")
    elif init is not None:
        return loss.check_parameters(init, n_columns, "init")
    elif loss.parameter_shape(n_columns) is None:
        raise ValueError(f"{loss!r} does not define parameter_shape; pass init=, a theta to start from")
    return init


def start(problem: Problem, init: Any, rng: np.random.Generator, number: int = 0) -> Array:
    """Choose where start ``number`` begins, for an init that :func:`check_init` returned."""
    loss = problem.loss
    name, given = (init, None) if isinstance(init, str) else (None, init)
    if given is not None and number == 0:
        return given.copy()
    if loss.has_centres:
        if name in ("k-means++", "random"):
            return seed(name, problem, rng)
        part = _part(problem, max(5000, 100 * loss.n_centres), rng)
        return alternate(part, seed(name or "local-search", part, rng), Stopping()).theta
    if not loss.has_predictors:
        about = problem.zero() if given is None else given
        return about + (number > 0) * (1 + np.abs(about)) * rng.normal(size=about.shape)
    if problem.z == 0 or (number == 0 and name == "zero"):
        return problem.zero()  # without outliers a single minimum, and Newton steps work best from zero
    part = _part(problem, max(5000, 20 * problem.zero().size), rng)
    from_zero, best, other = search(part, rng, THOROUGH)
    if number > 0 or name is not None:
        return other.theta
    return problem.zero() if best is from_zero else best.theta


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return draw_sample(problem, size, rng) if len(problem.points) > 2 * size else problem


@one_blas_thread()
def find_anchor(
    points: WeightedPoints,
    loss: Loss,
    n_outliers: float = 0,
    random_state: Any = None,
    *,
    init: Any = None,
    n_rows: int | None = None,
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
    n_rows : int, optional
        The number of rows, if the points are a sample of them.

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
    n_rows = n_rows or len(points)
    problem = problem_of(points, loss, n_outliers, is_sample=n_rows > len(points))
    if isinstance(init, str):
        raise TypeError(f"init={init!r} must be a theta for find_anchor, not a name; or leave it out")
    ready = check_init(problem, init)
    rngs = spawn(generator(random_state), _ANCHORS)
    size = _size(problem, n_rows)
    samples = [draw_sample(problem, size, rng) for rng in rngs]
    found = [_rough(part, ready, rng) for part, rng in zip(samples, rngs, strict=True)]
    theta = min(found, key=partial(_score, problem, samples))
    radius = max(distance(theta, match_centres(loss, other, theta)) for other in found)
    return Anchor(theta, radius, np.unique(np.concatenate([part.points.ids for part in samples])))


def _score(problem: Problem, samples: list[Problem], theta: Array) -> float:
    """Evaluate the trimmed objective on all samples together: one may hold more outliers than its share."""
    losses = np.concatenate([part.loss.values(theta, part.X, part.y) for part in samples])
    weights = np.concatenate([part.points.weights for part in samples])
    return trimmed_sum(losses, weights, min(_aside(problem, weights.sum()), 0.9 * weights.sum()))


def _rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    stopping = Stopping(max_iter=30)
    if init is None:
        if part.loss.base is not None:
            part = _shrink(part)
            init = next(islice(_base_fits(part), 1, None))  # near the middle, so not misled from far out
            return alternate(part, init, _RACE).theta
        if part.loss.has_predictors:
            return search(part, rng, QUICK)[1].theta
        init = part.zero()
        if part.loss.has_centres:
            init, stopping = Seeding(part, rng).thresholded(_ROUNDS).reshape(init.shape), Stopping()
    return alternate(part, init, stopping).theta


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
