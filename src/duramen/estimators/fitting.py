"""What every estimator does: build the coreset, solve on it, and look once at all the rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from duramen.arrays import Array, Rows
from duramen.ball import Anchor
from duramen.coreset import Coreset, Estimate
from duramen.coreset.build import robust_coreset
from duramen.coreset.settings import ROWS_A_PARAMETER
from duramen.coreset.view import SAMPLE, anchor_sample
from duramen.dynamic import DynamicCoreset
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss, PredictorLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints, points
from duramen.samplers import RankedSampler, Sampler
from duramen.samplers.base import Bound
from duramen.seeds import generator
from duramen.solvers import Solution
from duramen.solvers.problem import count_distinct, is_number
from duramen.solvers.solve import solve_quietly
from duramen.trimming import kept_sum, kept_weights, outlier_weight


@dataclass(frozen=True)
class FitSettings:
    """How to fit: what the parameters of an estimator come to.

    ``size`` is a number of rows, "auto", or None for all the data; ``n_rounds``
    how often to build the coreset, each time around the last solution; ``tol``
    the relative standard error that a size chosen here must stay below. The
    rest is as in ``robust_coreset`` and ``solve``.
    """

    loss: Loss
    n_outliers: float
    size: Any = "auto"
    tol: Any = 0.01
    sampler: Sampler | str = "auto"
    l2: float = 0.0
    n_starts: Any = 1
    n_rounds: Any = 2
    max_iter: Any = 300
    random_state: Any = None

    def __post_init__(self) -> None:
        if not (self.size is None or self.is_auto or (_is_whole(self.size) and self.size >= 2)):
            raise ValueError(
                f"coreset_size={self.size!r} must be a whole number of 2 or more, 'auto', or None for all"
            )
        if not (is_number(self.tol) and 0 < self.tol < np.inf):
            raise ValueError(f"tol={self.tol!r} must be a positive number, such as 0.01 for an error of 1%")
        if not _is_whole(self.n_starts):
            raise ValueError(f"n_init={self.n_starts!r} must be a whole number of 1 or more")
        if not _is_whole(self.n_rounds):
            raise ValueError(f"n_rounds={self.n_rounds!r} must be a whole number of 1 or more")

    @property
    def is_auto(self) -> bool:
        """Whether the size is to be chosen here."""
        return isinstance(self.size, str) and self.size == "auto"

    @property
    def is_linear(self) -> bool:
        """Whether the loss is one of linear predictors."""
        return isinstance(self.loss, PredictorLoss)


def seed_of(random_state: Any) -> int:
    """Make one seed for all that follows; an integer is its own, so that a fit can be retraced by hand."""
    rng = generator(random_state)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(rng.integers(2**63))


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


SOME_SEED = 0
"""Of the sample that a scale is measured on: the same in every fit."""


class LossesAtSolution(NamedTuple):
    """What one look at all rows tells of a solution.

    ``outliers`` are as ``AllRows.named`` takes them, the largest loss first, with
    their labels and weights; ``cache`` are None where rows are not held.
    """

    trimmed_loss: float
    outliers: Array
    threshold: float
    cache: Array | None
    outlier_labels: Array | None
    outlier_weights: Array


class AllRows(Protocol):
    """All the data, wherever it is: what a fit does with every row of it."""

    @property
    def n_points(self) -> int:
        """How many rows weigh anything."""

    @property
    def n_rows(self) -> int:
        """How many rows there are, as far as known also those without weight."""

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""

    def with_class_codes(self) -> tuple[Array, AllRows]:
        """Return the sorted classes, and the same rows with the numbers of their classes as labels."""

    def map_rows(self, change: Callable[[Any], Any]) -> AllRows:
        """Return the same data with all rows changed by a function that can be pickled."""

    def build(self, settings: FitSettings, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset around an anchor, or around one that is found."""

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        """Compute the losses of all rows at theta."""

    def ids_of(self, outliers: Array) -> Array:
        """Give the ids of outliers, which are row numbers where nothing else was given."""

    def some(self) -> MemoryData:
        """Take some rows by chance, always the same: enough to measure a scale."""

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes, whose numbers are the labels."""

    def distinct(self, enough: int) -> int:
        """Count the distinct rows of positive weight, up to ``enough``."""


class MemoryData(NamedTuple):
    """Checked rows, labels as the loss takes them, weights, and where the rows stood if not all are here.

    Then ``n_given`` is how many rows there were.
    """

    X: Rows
    y: Array | None = None
    weights: Array | None = None
    ids: Array | None = None
    n_given: int = 0

    @property
    def n_points(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""
        return int(self.X.shape[1])

    @property
    def n_rows(self) -> int:
        """How many rows were passed to ``fit``, also those without weight."""
        return self.n_given or self.n_points

    def with_class_codes(self) -> tuple[Array, MemoryData]:
        """Return the sorted classes, and the same rows with the numbers of their classes as labels."""
        classes, codes = class_codes(np.asarray(self.y))
        return classes, self._replace(y=codes)

    def map_rows(self, change: Callable[[Any], Any]) -> MemoryData:
        """Return the same data with all rows changed."""
        return self._replace(X=change(self.X))

    def ids_of(self, outliers: Array) -> Array:
        """Return the ids of rows."""
        return outliers if self.ids is None else self.ids[outliers]

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes."""
        codes = np.asarray(self.y).astype(np.intp)
        return np.bincount(codes, self.weights, minlength=n_classes).astype(np.float64)

    def distinct(self, enough: int) -> int:
        """Count the distinct rows."""
        return count_distinct(self.X, self.weights, enough)

    def some(self) -> MemoryData:
        """Take some rows by chance, always the same: enough to measure a scale."""
        if self.n_points <= SAMPLE:
            return self
        all_rows = WeightedPoints._unvalidated(self.X, self.y, self.weights, self.ids)
        some = anchor_sample(all_rows, SOME_SEED)
        return MemoryData(some.X, some.y, some.weights, some.ids)

    def median(self, values: Array) -> float:
        """Take the median of one value a row, by weight."""
        order = np.argsort(values)
        steps = np.arange(1.0, len(order) + 1) if self.weights is None else np.cumsum(self.weights[order])
        place = np.searchsorted(steps, steps[-1] / 2 * (1 - 1e-12))
        above = np.searchsorted(steps, steps[-1] / 2 * (1 + 1e-12))
        return float(values[order[[place, above]]].mean())

    def build(self, settings: FitSettings, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset."""
        return robust_coreset(
            self.X,
            self.y,
            loss=settings.loss,
            size=size,
            n_outliers=settings.n_outliers,
            sampler=settings.sampler,
            anchor=anchor,
            sample_weight=self.weights,
            ids=self.ids,
            random_state=seed,
        )

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        """Compute the losses at theta: f_z, the rows set aside, the least loss among them, and the cache."""
        losses, cache = settings.loss.values_and_cache(theta, self.X, self.y)
        weights = np.ones(len(losses)) if self.weights is None else self.weights
        kept = kept_weights(losses, weights, outlier_weight(settings.n_outliers, float(weights.sum())))
        rows = np.flatnonzero(kept < weights)
        rows = rows[np.lexsort((-rows, -losses[rows]))]
        threshold = float(losses[rows[-1]]) if len(rows) else np.inf
        labels = None if self.y is None else self.y[rows]
        return LossesAtSolution(kept_sum(losses, kept), rows, threshold, cache, labels, weights[rows])


def class_codes(y: Array) -> tuple[Array, Array]:
    """Return the sorted classes, and the number of the class of each row."""
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise ValueError(
            f"y holds labels of several types, {' and '.join(kinds)}; convert them to one type"
        ) from None
    return classes, codes


_LEAST = 1000  # rows of a coreset whose size is chosen here
_SMALL = 20_000  # entries of a problem that is solved to the last digits, since it takes no time
_PERFECT = 1e-20  # the cost of a perfect fit, by rounding, in units of squared labels
_MORE = 1.2  # rows more than the error asks for, since the error is itself an estimate


class Trial(NamedTuple):
    """A size that was tried, and the relative standard error of the objective with it."""

    size: int
    relative_error: float


class FitResult(NamedTuple):
    """A fitted solution.

    ``size`` is the size asked of the coreset, None for all rows; ``objective``
    estimates f_z at the solution from the coreset; ``at_solution`` has the exact
    f_z over all rows, and the rows set aside.
    """

    solution: Solution
    coreset: Coreset | None
    size: int | None
    trials: list[Trial]
    objective: Estimate
    at_solution: LossesAtSolution


class _CoresetFit(NamedTuple):
    """A coreset, the size that was asked of it, and its solution."""

    coreset: Coreset
    size: int
    solution: Solution


def fit(settings: FitSettings, data: AllRows) -> FitResult:
    """Fit, on a coreset or on everything, and tell outliers from the rest among all rows.

    Raises
    ------
    TypeError, ValueError
        As ``robust_coreset`` and ``solve`` do.
    """
    if settings.size is None:
        assert isinstance(data, MemoryData)
        everything = points(data.X, data.y, data.weights, data.ids)
        return _on_everything(settings, data, _solve(settings, everything, seed_of(settings.random_state)))
    found, trials = _by_size(settings, data)
    return _evaluated(settings, data, found, trials)


def refit(settings: FitSettings, data: MemoryData, core: Coreset | None, start: Array) -> FitResult | None:
    """Fit, from ``start`` on too, on a coreset of the data that is there already; without one, on everything.

    None if the coreset no longer does: a class is missing from it, or its error bars are wider than
    ``tol``, where the size is to be chosen here.
    """
    if core is None:
        everything = points(data.X, data.y, data.weights, data.ids)
        return _on_everything(settings, data, _solved_again(settings, everything, start))
    if not _speaks_for_all(core, settings):
        return None
    found = _CoresetFit(core, len(core), _solved_again(settings, core, start))
    trials: list[Trial] = []
    if settings.is_auto:
        trials.append(Trial(len(core), _relative_error(core, found.solution, settings)))
        if not _is_enough(settings, trials[-1], core):
            return None
    return _evaluated(settings, data, found, trials)


def _on_everything(settings: FitSettings, data: MemoryData, solution: Solution) -> FitResult:
    found = data.evaluate(settings, solution.theta)
    return FitResult(solution, None, None, [], Estimate.of(found.trimmed_loss, 0.0), found)


def _evaluated(settings: FitSettings, data: AllRows, found: _CoresetFit, trials: list[Trial]) -> FitResult:
    core, size, solution = found
    objective = core.estimate(solution.theta)
    return FitResult(solution, core, size, trials, objective, data.evaluate(settings, solution.theta))


def rough_theta(settings: FitSettings, data: AllRows) -> Array:
    """Fit on a small coreset, without a look at the rows after it."""
    return _by_size(replace(settings, size=_LEAST, n_rounds=1), data)[0].solution.theta


def _by_size(settings: FitSettings, data: AllRows) -> tuple[_CoresetFit, list[Trial]]:
    """Solve on a coreset of the size asked for, or of one large enough by its own error bars."""
    seed, n = seed_of(settings.random_state), data.n_points
    n_parameters = int(np.prod(settings.loss.parameter_shape(data.n_columns) or (1,)))
    size = max(_LEAST, ROWS_A_PARAMETER * n_parameters) if settings.is_auto else int(settings.size)
    anchor: Any = None  # the first one: what a small coreset led to may have been misled
    trials: list[Trial] = []
    while True:
        core = data.build(settings, size, seed, anchor)
        anchor = core.anchor
        if not _speaks_for_all(core, settings):
            if size >= n:
                raise ValueError(
                    f"{settings.sampler!r} leaves out whole classes, or keeps too few distinct rows, even in "
                    f"a coreset of {size} rows; use another sampler"
                )
            size = 4 * size
            continue
        found = _CoresetFit(core, size, _solve(settings, core, seed))
        if len(core) < core.n_points:
            for _ in range(int(settings.n_rounds) - 1):
                found = _again(settings, data, found, seed)
        if not settings.is_auto:
            return found, trials
        trials.append(Trial(len(found.coreset), _relative_error(found.coreset, found.solution, settings)))
        if _is_enough(settings, trials[-1], found.coreset):
            return found, trials
        enough = _MORE * size * (trials[-1].relative_error / settings.tol) ** 2
        size = n if enough > n / 2 else int(max(enough, 2 * size))


def _is_enough(settings: FitSettings, trial: Trial, core: Coreset) -> bool:
    return trial.relative_error < settings.tol or len(core) >= core.n_points


def _solve(settings: FitSettings, on: Coreset | WeightedPoints, seed: int, init: Any = None) -> Solution:
    problem: dict[str, Any] = {"l2": settings.l2, "max_iter": settings.max_iter, "random_state": seed}
    problem.update(loss=None, n_outliers=None)  # which a coreset knows
    if settings.is_linear and len(on) * on.X.shape[1] <= _SMALL:
        problem["tol"] = 1e-16
    if isinstance(on, WeightedPoints):
        problem.update(loss=settings.loss, n_outliers=settings.n_outliers)
    if init is None and isinstance(settings.loss, LinearLoss) and len(on) <= on.X.shape[1]:
        everything = solve_quietly(on, **{**problem, "n_outliers": 0}, init="zero")
        size = 1.0 if on.y is None else float(np.abs(on.y).max())
        if everything.objective <= _PERFECT * on.total_weight * size**2:
            init = everything.theta  # what fits all rows fits those kept: which they are is no matter
    return solve_quietly(on, **problem, init=init, n_starts=1 if init is not None else settings.n_starts)


def _solved_again(settings: FitSettings, on: Coreset | WeightedPoints, start: Array) -> Solution:
    """Solve from the last solution, and once as if it and the anchor were not there: they may be misled."""
    seed, bare = seed_of(settings.random_state), on if isinstance(on, WeightedPoints) else on.points
    runs = [_solve(settings, on, seed, init=start), _solve(replace(settings, n_starts=1), bare, seed)]
    return min(runs, key=lambda run: run.objective)


def _again(settings: FitSettings, data: AllRows, found: _CoresetFit, seed: int) -> _CoresetFit:
    """Weigh the same rows so that they agree with all the data at the solution, and solve from there.

    Where the coreset was fitted more closely than the data, it no longer is.
    """
    core, _, solution = found
    assert core.anchor is not None
    again = data.build(settings, len(core), seed, Anchor(solution.theta, core.anchor.radius))
    if not _speaks_for_all(again, settings):
        return found
    return _CoresetFit(again, len(core), _solve(settings, again, seed, init=solution.theta))


def _speaks_for_all(core: Coreset, settings: FitSettings) -> bool:
    """Tell whether a problem that all the data can solve can be solved on the coreset, too.

    Classes that are rare, or all among the suspected, may be missing from it, or weigh less than z in it;
    of data with few distinct points it may have too few.
    """
    loss = settings.loss
    if len(core) >= core.n_points:
        return True
    if isinstance(loss, SoftmaxLoss):
        assert core.y is not None
        return len(np.unique(core.y)) == loss.n_classes
    if isinstance(loss, LinearLoss):
        if not loss.classifies:
            return True
        assert core.y is not None
        return bool(np.bincount(core.y > 0, core.weights, minlength=2).min() > core.n_outliers)
    k = getattr(loss, "k", 1)
    return k == 1 or count_distinct(core.X, None, k) == k


def _relative_error(core: Coreset, solution: Solution, settings: FitSettings) -> float:
    estimate = core.estimate(solution.theta)
    if np.isnan(estimate.std_error):
        raise ValueError(
            f"coreset_size='auto' goes by error bars, and {settings.sampler!r} gives none; pass a number"
        )
    return estimate.std_error / estimate.value if estimate.std_error else 0.0


def check_updatable(updatable: Any, settings: FitSettings) -> None:
    """Raise, with the way out, if rows that are to change cannot be kept so.

    A sampler that does not score points by themselves makes a coreset that depends on how its points
    came: forgetting some of them would leave a trace in it.
    """
    if not isinstance(updatable, (bool, np.bool_)):
        raise TypeError(f"updatable={updatable!r} must be True or False")
    sampler = settings.sampler.sampler if isinstance(settings.sampler, Bound) else settings.sampler
    if updatable and isinstance(sampler, Sampler) and not isinstance(sampler, RankedSampler):
        raise TypeError(
            f"updatable=True needs a sampler that scores points by themselves, and {sampler!r} does not; "
            "take one of ours, make it a RankedSampler, or pass updatable=False"
        )


def as_dynamic(settings: FitSettings, data: MemoryData, fitted: FitResult) -> DynamicCoreset:
    """Put the rows of a fit into a dynamic coreset that gives the coreset it was made on."""
    core = fitted.coreset
    live = DynamicCoreset(
        settings.loss,
        size=sys.maxsize if fitted.size is None else fitted.size,  # without an anchor it is all points
        n_outliers=settings.n_outliers,
        sampler=settings.sampler,
        random_state=settings.random_state,
        anchor=None if core is None else core.anchor,
    )
    ids = np.arange(data.X.shape[0]) if data.ids is None else data.ids
    live.insert(data.X, data.y, data.weights, ids)
    if core is not None:
        live.reanchor(core.anchor)  # so that its report does not count these rows as newer than the anchor
    remember(live, fitted)
    return live


def remember(live: DynamicCoreset, fitted: FitResult) -> None:
    """Let a solution be the one that a dynamic coreset starts from, and compares its anchor with."""
    live._solution = fitted.solution  # quietly: where all rows are kept, or n_rounds is 1, it may lie far off


@contextmanager
def undone_on_failure(live: DynamicCoreset, undo: Callable[[], Any]) -> Iterator[None]:
    """Undo a change of the rows if what follows it fails.

    The coreset is as before then; only the anchor's report counts rows that were put back as new.
    """
    before = live.solution
    try:
        yield
    except BaseException:
        undo()
        live._solution = before
        raise


def data_of(points: WeightedPoints) -> MemoryData:
    """Take points for data to fit on."""
    return MemoryData(points.X, points.y, points.weights, points.ids)


def joined(points: WeightedPoints, new: MemoryData) -> MemoryData:
    """Put new rows after those that are there."""
    weights = np.ones(new.X.shape[0]) if new.weights is None else new.weights
    old = data_of(points)
    columns: list[tuple[Any, Any]] = [
        (old.X, new.X),
        (old.y, new.y),
        (old.weights, weights),
        (old.ids, new.ids),
    ]
    return MemoryData(*(_end_to_end(*pair) for pair in columns))


def _end_to_end(one: Array | None, two: Array | None) -> Any:
    return None if one is None or two is None else np.concatenate([one, two])
