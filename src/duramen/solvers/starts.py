"""Where to start: a given theta, a named seeding, or what suits the loss."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.solvers.alternate import Run, Stopping, alternate, fit_of
from duramen.solvers.problem import Problem, is_linear, is_of_centres
from duramen.solvers.seeding import SEEDINGS, thresholded
from duramen.trimming import kept_weights, trimmed_sum

__all__ = [
    "CLEARLY",
    "QUICK",
    "THOROUGH",
    "Effort",
    "Search",
    "Subsampler",
    "check_init",
    "damped_start",
    "rough",
    "search",
    "start",
]


class Subsampler:
    """Draw points in proportion to their weight, with replacement; the weight to set aside shrinks along.

    A point drawn twice has weight 2. Where two classes are told apart, each has
    its share of the sample, exactly: the rare one does not go missing. A sample
    may hold more outliers than its share, so two standard deviations more may
    be set aside.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.total = problem.points.total_weight
        weights = problem.points.weights
        even = bool((weights == weights[0]).all())
        self.classes = isinstance(problem.loss, LinearLoss) and problem.loss.classifies
        if self.classes:
            assert problem.y is not None
            positive = problem.y > 0
            self.strata = [_Stratum(weights, np.flatnonzero(side), even) for side in (positive, ~positive)]
        else:
            self.strata = [_Stratum(weights, None, even)]

    def draw(self, size: int, rng: np.random.Generator) -> Problem:
        """Draw ``size`` points."""
        points, share = self.problem.points, size / self.total
        rows, counts = np.unique(
            np.concatenate([stratum.draw(share, rng) for stratum in self.strata]), return_counts=True
        )
        part = points.take_unchecked(rows, counts.astype(np.float64))
        z = min(self._aside(size), 0.9 * self._most(part))
        return replace(self.problem, points=part, z=z, l2=self.problem.l2 * share)

    def score(self, samples: list[Problem], theta: Array) -> float:
        """Evaluate the trimmed objective on all samples together.

        One of them alone may hold more outliers than may be set aside there.
        """
        losses = np.concatenate([part.loss.values(theta, part.X, part.y) for part in samples])
        weights = np.concatenate([part.points.weights for part in samples])
        return trimmed_sum(losses, weights, min(self._aside(weights.sum()), 0.9 * weights.sum()))

    def _aside(self, size: float) -> float:
        """Give the weight to set aside in a sample: its share, and two standard deviations."""
        z = self.problem.z * size / self.total
        return float(z + 2 * z**0.5)

    def _most(self, part: WeightedPoints) -> float:
        """Weigh what must not all be set aside: everything, or a class."""
        if not self.classes:
            return part.total_weight
        assert part.y is not None
        return float(np.bincount(part.y > 0, part.weights, minlength=2).min())


class _Stratum:
    """Rows (None for all) to draw from by weight; where all weigh the same, nothing is looked up."""

    def __init__(self, weights: Array, rows: Array | None, even: bool) -> None:
        self.rows, self.even = rows, even
        self.n = len(weights) if rows is None else len(rows)
        self.weights = weights if even or rows is None else weights[rows]
        self.total = self.n * float(weights[0]) if even else float(self.weights.sum())

    def draw(self, share: float, rng: np.random.Generator) -> Array:
        n = max(1, round(share * self.total))
        if self.even:
            picks = rng.integers(self.n, size=n)
        else:
            steps = np.cumsum(self.weights)
            picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
            picks = np.minimum(picks, np.flatnonzero(self.weights)[-1])
        return picks if self.rows is None else self.rows[picks]


_A_LITTLE = Stopping(max_iter=3)
_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
CLEARLY = 0.98  # of the objective from zero


class Effort(NamedTuple):
    """How many handfuls to fit, how many of the best to refine, and how far.

    They are as many as make a clean one as likely as ``sure``, but no more than ``handfuls``, nor than have
    ``columns`` together, which is what they cost. Refined to the end is only what comes within ``near`` times
    the objective from zero in a few iterations.
    """

    handfuls: int
    columns: float
    sure: float
    refined: int
    near: float
    stopping: Stopping


THOROUGH = Effort(30, math.inf, 1.0, 3, 1.05, Stopping(max_iter=30))
QUICK = Effort(30, 48, 0.99, 1, 1.0, Stopping(max_iter=4, tol=3e-3))


class Search(NamedTuple):
    """What was found on a sample: the ways from zero, from the centre, and the best from handfuls, if any."""

    from_zero: Run
    from_centre: Run | None = None
    from_handful: Run | None = None

    @property
    def best(self) -> Run:
        """The way from zero, unless it is beaten clearly."""
        others = [run for run in (self.from_centre, self.from_handful) if run is not None]
        best = min(others, key=_objective, default=self.from_zero)
        return best if best.objective < CLEARLY * self.from_zero.objective else self.from_zero


def _objective(run: Run) -> float:
    return run.objective


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> Search:
    """Solve a sample from zero, from its middle, and from handfuls.

    Everything is shrunken a little towards zero: a sample has a few rows of each rare kind only, and a
    start that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    zero = np.zeros(part.ridge().shape)
    part = _shrunken(part)
    from_zero = alternate(part, zero, effort.stopping)
    if part.z == 0:
        return Search(from_zero)
    handfuls = _best_handfuls(part, zero, rng, effort)
    runs = []
    far = _distances(part)
    for theta in [_central(part, zero, far), _damped(part, zero, far), *handfuls]:
        run = alternate(part, theta, _A_LITTLE)
        if run.objective < effort.near * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping)
        runs.append(run)
    return Search(from_zero, min(runs[:2], key=_objective), min(runs[2:], key=_objective, default=None))


def damped_start(problem: Problem) -> Array:
    """Find where to start on points that are few: from a fit in which those far out count for less."""
    part = _shrunken(problem)
    return _damped(part, np.zeros(part.ridge().shape), _distances(part))


def _distances(part: Problem) -> Array:
    """Compute how far points lie from the middle, sparse ones from zero: squared, in each column's spread."""
    assert part.frame is not None
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(part.X):
            return np.asarray(part.X.multiply(1 / part.frame.spread).power(2).sum(axis=1)).ravel()
        return np.asarray(np.square((part.X - part.frame.middle) / part.frame.spread).sum(axis=1))


def _nearer_half(part: Problem, far: Array) -> Array:
    """Give the weights of the half that lies nearest."""
    points = part.points
    return kept_weights(far, points.weights, points.total_weight / 2, points.ids)


def _damped(part: Problem, zero: Array, far: Array) -> Array:
    """Fit all points, those beyond the usual distance by the less weight the farther they lie.

    Usual is what half of the weight does not exceed; the least distance there is, where that is none.
    """
    points = part.points
    usual = far[_nearer_half(part, far) > 0].max()
    usual = usual if usual > 0 else far[far > 0].min(initial=np.inf)
    with np.errstate(under="ignore"):
        weights = points.weights * np.divide(usual, far, out=np.ones(len(far)), where=far > usual)
    rows = np.flatnonzero(weights)
    share = weights.sum() / points.total_weight
    near = replace(part, points=points.take_unchecked(rows, weights[rows]), z=0.0, l2=part.l2 * share)
    return alternate(near, zero, _A_LITTLE).theta


def _central(part: Problem, zero: Array, far: Array) -> Array:
    """Fit the half of the weight that lies nearest to the middle, which outliers far out are not in."""
    points = part.points
    kept = _nearer_half(part, far)
    rows = np.flatnonzero(kept)
    half = replace(part, points=points.take_unchecked(rows, kept[rows]), z=0.0, l2=part.l2 / 2)
    return alternate(half, zero, _A_LITTLE).theta


def _best_handfuls(part: Problem, zero: Array, rng: np.random.Generator, effort: Effort) -> list[Array]:
    n_handfuls = _n_handfuls(part, zero.size, effort)
    if not n_handfuls:
        return []
    judge = fit_of(part)
    fitted = []
    for number in range(n_handfuls):  # small ones are more often clean, larger ones less noisy
        few = _handful(part, (zero.size + 1) * (1 + number % 2), rng)
        fitted.append(judge.evaluate(alternate(few, zero, _A_LITTLE).theta))
    fitted.sort(key=lambda place: place.objective)
    return [place.theta for place in fitted[: effort.refined]]


def _n_handfuls(part: Problem, p: int, effort: Effort) -> int:
    """Choose how many handfuls of p + 1 points and more to fit."""
    clean = (1 - part.z / part.points.total_weight) ** (p + 1)  # the chance of one
    most = int(min(effort.handfuls, effort.columns / p))
    if clean * most < 0.1:  # none to be expected without an outlier
        return 0
    if effort.sure == 1:
        return most
    return min(most, math.ceil(math.log1p(-effort.sure) / math.log1p(-min(clean, 1 - 1e-9))))


def _handful(part: Problem, size: int, rng: np.random.Generator) -> Problem:
    weights = part.points.weights
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    rows = rng.choice(heavy, size=min(size, heavy.size), replace=False, p=share)
    few = part.points.take(rows)
    scale = few.total_weight / part.points.total_weight
    return replace(part, points=few, z=0.0, l2=part.l2 * scale)


def _shrunken(part: Problem) -> Problem:
    """Add a ridge, in units of each column's spread, that counts as a small share of all the data."""
    bend = float(part.points.weights @ _curvature_at_zero(part))
    # a column that is constant here would share the intercept's part, and be wrong where it is not constant:
    # it has a spread too
    frame = part.coordinates()
    spread = np.append(frame.spread, 0.0)[: part.ridge().shape[-1]]
    return replace(part, l2=1.0, scales=part.ridge() + _SHRINKAGE * bend * spread**2, frame=frame)


def _curvature_at_zero(part: Problem) -> Array:
    """Compute the second derivative of each loss in its predictor, where all predictors are zero."""
    assert part.y is not None
    if isinstance(part.loss, SoftmaxLoss):
        share = 1 / part.loss.n_classes
        return np.full(len(part.points), share * (1 - share))
    assert isinstance(part.loss, LinearLoss)
    return part.loss.curvature(np.zeros(len(part.points)), part.loss.encode_labels(part.y, np.float64))


_ROUNDS = 2  # of seeding, for an anchor: with one, a tight far cluster is taken for a good one more often
_BLIND = ("k-means++", "random")  # as everybody does them: on all points, no refining


def check_init(problem: Problem, init: Any) -> Any:
    """Check a theta, or the name of a seeding; return it ready for use.

    Raises
    ------
    ValueError
        Naming what is wrong with it, and what there is.
    """
    loss, d = problem.loss, problem.points.n_columns
    if init is None or isinstance(init, str):
        names = _names(problem)
        if init is not None and init not in names:
            raise ValueError(f"init={init!r} is not known for {loss!r}; take a theta, or one of {names}")
        if init is None and not names and loss.parameter_shape(d) is None:
            raise ValueError(f"{loss!r} does not give the shape of theta; pass init=, a theta to start from")
        return init
    try:
        given = np.array(init)
    except ValueError:  # NumPy's, of a ragged list
        given = np.array(None)
    if given.dtype.kind not in "biuf":
        raise ValueError(
            f"init={init!r} is no theta: it must be an array of numbers, or the name of a seeding"
        )
    theta = given.astype(np.float64)
    shape = loss.parameter_shape(d)
    if shape is not None and theta.shape != tuple(shape):
        raise ValueError(f"init has shape {theta.shape}; {loss!r} on {d} columns needs shape {tuple(shape)}")
    if not np.isfinite(theta).all():
        raise ValueError("init must hold finite numbers; it has NaN or infinity")
    return theta


def start(problem: Problem, init: Any, rng: np.random.Generator, number: int = 0) -> Array:
    """Choose where start ``number`` begins, as :func:`check_init` allowed it."""
    loss = problem.loss
    if isinstance(init, np.ndarray) and number == 0:
        return init.copy()
    if not (is_linear(loss) or is_of_centres(loss)):
        about = init if isinstance(init, np.ndarray) else _zero(problem)
        return about + (number > 0) * (1 + np.abs(about)) * rng.normal(size=about.shape)
    if isinstance(init, np.ndarray) or (init == "zero" and number > 0):
        init = None
    if init in _BLIND:
        return SEEDINGS[init](problem, rng)
    if init == "zero":
        return _zero(problem)
    if is_linear(loss):
        return _linear_start(problem, init, rng, number)
    part = _part(problem, max(5000, 100 * getattr(loss, "k", 1)), rng)
    return alternate(part, SEEDINGS[init or "local-search"](part, rng), Stopping()).theta


def rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    if isinstance(init, np.ndarray):
        return alternate(part, init, Stopping(max_iter=30)).theta
    if is_linear(part.loss):
        return search(part, rng, QUICK).best.theta
    if is_of_centres(part.loss):
        return alternate(part, thresholded(part, rng, _ROUNDS), Stopping()).theta
    return alternate(part, _zero(part), Stopping(max_iter=30)).theta


def _names(problem: Problem) -> list[str]:
    if is_linear(problem.loss):
        return ["subsets", "zero"]
    return list(SEEDINGS) if is_of_centres(problem.loss) else []


def _zero(problem: Problem) -> Array:
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    assert shape is not None
    return np.zeros(shape)


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return Subsampler(problem).draw(size, rng) if len(problem.points) > 2 * size else problem


def _linear_start(problem: Problem, init: Any, rng: np.random.Generator, number: int) -> Array:
    """Begin at zero unless a handful does clearly better; later starts begin at handfuls anyhow."""
    if problem.z == 0:  # nothing to mistake: one minimum, and zero is where Newton steps are at their best
        return _zero(problem)
    part = _part(problem, max(5000, 20 * problem.ridge().size), rng)
    found = search(part, rng, THOROUGH)
    if number > 0 or init == "subsets":
        return (found.from_handful or found.from_centre or found.from_zero).theta
    return _zero(problem) if found.best is found.from_zero else found.best.theta
