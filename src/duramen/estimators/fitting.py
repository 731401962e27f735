"""The fit of every estimator: build a coreset, solve on it, and evaluate the solution on all rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from duramen.arrays import Array, check_count, is_number, is_whole, refuse_nonfinite
from duramen.ball import Anchor
from duramen.coreset.anchor_sample import anchor_sample
from duramen.coreset.build import robust_coreset
from duramen.coreset.coreset import Coreset
from duramen.coreset.settings import ROWS_A_PARAMETER
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.losses.base import Loss
from duramen.losses.centres import distinct_rows
from duramen.losses.linear import LinearLoss, PredictorLoss
from duramen.points import WeightedPoints
from duramen.samplers.base import Bound, RankedSampler, Sampler
from duramen.seeds import generator
from duramen.solvers.problem import Solution, outlier_rows
from duramen.solvers.solve import solve_quietly
from duramen.trimming import kept_sum, kept_weights, outlier_weight

if TYPE_CHECKING:
    from duramen.estimators.out_of_core import OutOfCoreData

SUBSAMPLE_SEED = 0
"""The seed of the sample that a scale is measured on: the same in every fit."""

_MIN_SIZE = 1000  # rows of a coreset with coreset_size="auto"
_SMALL = 20_000  # entries of a problem that is solved to full precision, as that takes no time
_PERFECT = 1e-20  # the cost of a perfect fit, by rounding, in units of squared labels
_SAFETY = 1.2  # factor on the size that the error implies, since the error is itself an estimate


@dataclass(frozen=True)
class FitSettings:
    """The settings of a fit, checked.

    ``size`` is a number of rows, "auto", or None for all the data; ``tol`` is the
    relative standard error that "auto" aims at; ``n_rounds`` is how many times to build
    the coreset, each time around the last solution. The rest is as in
    ``robust_coreset`` and ``solve``.
    """

    loss: Loss
    n_outliers: float
    size: Any
    tol: Any
    sampler: Sampler | str
    l2: float
    n_starts: Any
    n_rounds: Any
    max_iter: Any
    seed: int

    def __post_init__(self) -> None:
        is_count = is_whole(self.size) and self.size >= 2
        if not (self.size is None or self.is_auto or is_count):
            raise ValueError(
                f"coreset_size={self.size!r} must be a whole number of 2 or more, 'auto', or None for all"
            )
        if not (is_number(self.tol) and 0 < self.tol < np.inf):
            raise ValueError(f"tol={self.tol!r} must be a positive number, such as 0.01 for an error of 1%")
        check_count("n_init", self.n_starts)
        check_count("n_rounds", self.n_rounds)

    @property
    def is_auto(self) -> bool:
        """Whether the fit chooses the size."""
        return isinstance(self.size, str) and self.size == "auto"

    def coreset_arguments(self, size: int, anchor: Any) -> dict[str, Any]:
        """Return the arguments with which a coreset is built, in memory or in passes."""
        problem = {"loss": self.loss, "n_outliers": self.n_outliers, "sampler": self.sampler}
        return {**problem, "size": size, "anchor": anchor, "random_state": self.seed}


def seed_of(random_state: Any) -> int:
    """Draw one seed for a whole fit; an integer is its own seed, so that a fit can be reproduced by hand."""
    rng = generator(random_state)
    if is_whole(random_state):
        return int(random_state)
    return int(rng.integers(2**63))


class LossesAtSolution(NamedTuple):
    """The trimmed loss of a solution over all rows, and its outliers, the largest loss first.

    ``cache`` is that of ``Loss.values_and_cache``, None for rows out of core.
    """

    trimmed_loss: float
    outliers: Array
    outlier_labels: Array | None
    outlier_weights: Array
    threshold: float
    cache: Array | None

    @classmethod
    def of(
        cls,
        points: WeightedPoints,
        losses: Array,
        kept: Array,
        trimmed_loss: float,
        cache: Array | None = None,
    ) -> LossesAtSolution:
        """Find the outliers among points, given the weights ``kept`` of each."""
        rows = outlier_rows(points, losses, kept)
        labels = None if points.y is None else points.y[rows]
        threshold = float(losses[rows[-1]]) if len(rows) else np.inf
        return cls(trimmed_loss, points.ids[rows], labels, points.weights[rows], threshold, cache)


@dataclass(frozen=True, eq=False)
class MemoryData:
    """Rows in memory: those of positive weight, and the number of rows including the others.

    ``OutOfCoreData`` has the same methods; of its rows only those of positive weight are known.
    """

    points: WeightedPoints
    n_rows: int

    @property
    def n_points(self) -> int:
        """The number of rows with positive weight."""
        return len(self.points)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return self.points.n_columns

    def with_class_codes(self) -> tuple[Array, MemoryData]:
        """Return the sorted classes, and the same rows with the numbers of their classes as labels."""
        classes, codes = class_codes(np.asarray(self.points.y))
        return classes, self.replace(y=codes)

    def map_rows(self, change: Callable[[Any], Any]) -> MemoryData:
        """Return the same data with all rows changed by a function that can be pickled."""
        return self.replace(X=change(self.points.X))

    def replace(self, **parts: Any) -> MemoryData:
        """Return the same data with X, y, weights or ids replaced, unchecked."""
        return replace(self, points=with_parts(self.points, **parts))

    def class_weights(self, n_classes: int) -> Array:
        """Sum the weights of each class; labels must be class numbers."""
        codes = np.asarray(self.points.y).astype(np.intp)
        return np.bincount(codes, self.points.weights, minlength=n_classes)

    def count_distinct(self, enough: int) -> int:
        """Count the distinct rows, up to ``enough``."""
        return len(distinct_rows(self.points.X, np.arange(len(self.points)), enough))

    def subsample(self) -> WeightedPoints:
        """Sample rows before any change, always the same ones: enough to measure a scale."""
        return anchor_sample(self.points, SUBSAMPLE_SEED)

    def build(self, settings: FitSettings, size: int, anchor: Any) -> Coreset:
        """Build a coreset around an anchor; None finds one."""
        return robust_coreset(
            self.points.X,
            self.points.y,
            sample_weight=self.points.weights,
            ids=self.points.ids,
            **settings.coreset_arguments(size, anchor),
        )

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        """Compute the losses of all rows at theta."""
        points = self.points
        losses, cache = settings.loss.values_and_cache(theta, points.X, points.y)
        z = outlier_weight(settings.n_outliers, points.total_weight)
        kept = kept_weights(losses, points.weights, z, points.ids)
        return LossesAtSolution.of(points, losses, kept, kept_sum(losses, kept), cache)


AllRows: TypeAlias = "MemoryData | OutOfCoreData"


def with_parts(points: WeightedPoints, **parts: Any) -> WeightedPoints:
    """Return points with X, y, weights or ids replaced, unchecked."""
    here = {name: getattr(points, name) for name in ("X", "y", "weights", "ids")}
    return WeightedPoints._from_parts(**{**here, **parts})


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


def weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values, each counted by its weight."""
    order = np.argsort(values)
    steps = np.cumsum(weights[order])
    below, above = np.searchsorted(steps, steps[-1] / 2 * np.array([1 - 1e-12, 1 + 1e-12]))
    return float(values[order[[below, above]]].mean())


class Trial(NamedTuple):
    """A size that was tried, and the relative standard error of the objective with it."""

    size: int
    relative_error: float


class FitResult(NamedTuple):
    """A solution, the coreset it was found on, the requested size, and the sizes tried.

    Coreset and size are None after a fit to all rows.
    """

    solution: Solution
    coreset: Coreset | None
    size: int | None
    trials: list[Trial]


def fit(settings: FitSettings, data: AllRows) -> FitResult:
    """Fit on a coreset, or on everything.

    Raises
    ------
    TypeError, ValueError
        As ``robust_coreset`` and ``solve`` do.
    """
    if settings.size is not None:
        return _choose_size(settings, data)
    assert isinstance(data, MemoryData)
    refuse_nonfinite(data.points.X)
    return FitResult(_solve(settings, data.points), None, None, [])


def refit(settings: FitSettings, data: MemoryData, core: Coreset | None, start: Array) -> FitResult | None:
    """Fit on a coreset of changed data, or on all rows without one; ``start`` is one of the starts.

    Return None if the coreset no longer suffices: a class is missing from it, or its error bars exceed
    ``tol`` and the size is "auto".
    """
    if core is None:
        return FitResult(_solve_again(settings, data.points, start), None, None, [])
    if not _is_representative(core, settings.loss):
        return None
    found = FitResult(_solve_again(settings, core, start), core, len(core), [])
    if settings.is_auto:
        found.trials.append(_measure(settings, found))
        if not _is_accurate(settings, found.trials[-1], data):
            return None
    return found


def rough_theta(settings: FitSettings, data: AllRows) -> Array:
    """Fit on a small coreset, without evaluating the solution on all rows."""
    return _choose_size(replace(settings, size=_MIN_SIZE, n_rounds=1), data).solution.theta


def _choose_size(settings: FitSettings, data: AllRows) -> FitResult:
    """Solve on a coreset of the requested size, or of one large enough by its own error bars."""
    n, size = data.n_points, settings.size
    if settings.is_auto:
        shape = settings.loss.parameter_shape(data.n_columns)
        size = max(_MIN_SIZE, ROWS_A_PARAMETER * int(np.prod(shape or (1,))))
    anchor: Any = None  # the first one for every size: the solution on a small coreset may mislead
    trials: list[Trial] = []
    while True:
        core = data.build(settings, int(size), anchor)
        anchor = core.anchor
        if not _is_representative(core, settings.loss):
            if size >= n:
                raise ValueError(
                    f"{settings.sampler!r} leaves out whole classes, or keeps too few distinct rows, even in "
                    f"a coreset of {size} rows; use another sampler"
                )
            size = 4 * size
            continue
        found = FitResult(_solve(settings, core), core, int(size), trials)
        if len(core) < core.n_points:
            for _ in range(int(settings.n_rounds) - 1):
                found = _recentre(settings, data, found)
        if settings.is_auto:
            trials.append(_measure(settings, found))
        if not settings.is_auto or _is_accurate(settings, trials[-1], data):
            return found
        enough = _SAFETY * size * (trials[-1].relative_error / settings.tol) ** 2
        size = n if enough > n / 2 else int(max(enough, 2 * size))


def _measure(settings: FitSettings, found: FitResult) -> Trial:
    """Measure the relative standard error of the objective on a coreset."""
    assert found.coreset is not None
    estimate = found.coreset.estimate(found.solution.theta)
    if np.isnan(estimate.std_error):
        raise ValueError(
            f"coreset_size='auto' needs error bars, but {settings.sampler!r} gives none; pass a number"
        )
    return Trial(len(found.coreset), estimate.std_error / estimate.value if estimate.std_error else 0.0)


def _is_accurate(settings: FitSettings, trial: Trial, data: AllRows) -> bool:
    return trial.relative_error < settings.tol or trial.size >= data.n_points


def _solve(settings: FitSettings, on: Coreset | WeightedPoints, init: Any = None) -> Solution:
    problem: dict[str, Any] = {"l2": settings.l2, "max_iter": settings.max_iter}
    problem["random_state"] = settings.seed
    if isinstance(settings.loss, PredictorLoss) and len(on) * on.X.shape[1] <= _SMALL:
        problem["tol"] = 1e-16
    if isinstance(on, WeightedPoints):  # a coreset knows both
        problem.update(loss=settings.loss, n_outliers=settings.n_outliers)
    if init is None and isinstance(settings.loss, LinearLoss) and len(on) <= on.X.shape[1]:
        everything = solve_quietly(on, **{**problem, "n_outliers": 0}, init="zero")
        size = 1.0 if on.y is None else float(np.abs(on.y).max())
        if everything.objective <= _PERFECT * on.total_weight * size**2:
            init = everything.theta  # a perfect fit to all rows fits those kept, whichever they are
    return solve_quietly(on, **problem, init=init, n_starts=1 if init is not None else settings.n_starts)


def _solve_again(settings: FitSettings, on: Coreset | WeightedPoints, start: Array) -> Solution:
    """Solve from the last solution, and once without it and the anchor, which may mislead."""
    bare = on if isinstance(on, WeightedPoints) else on.points
    runs = [_solve(settings, on, init=start), _solve(replace(settings, n_starts=1), bare)]
    return min(runs, key=lambda run: run.objective)


def _recentre(settings: FitSettings, data: AllRows, found: FitResult) -> FitResult:
    """Build the coreset around its solution, so that it agrees with all rows there, and solve from there.

    This undoes overfitting to the coreset.
    """
    core, theta = found.coreset, found.solution.theta
    assert core is not None
    assert core.anchor is not None
    again = data.build(settings, len(core), Anchor(theta, core.anchor.radius))
    if not _is_representative(again, settings.loss):
        return found
    return FitResult(_solve(settings, again, init=theta), again, len(core), found.trials)


def _is_representative(core: Coreset, loss: Loss) -> bool:
    """Return whether a problem that can be solved on all the data can be solved on the coreset too.

    Classes that are rare, or entirely suspected, may be missing from it, or weigh less than z in it;
    if the data has few distinct points, it may have too few.
    """
    if len(core) >= core.n_points:
        return True
    try:
        loss.check_solvable(core.X, core.y, core.weights, core.n_outliers)
    except ValueError:
        return False
    return True


def check_updatable(updatable: Any, settings: FitSettings) -> None:
    """Raise TypeError if rows cannot be kept for later changes.

    The coreset of a sampler that does not score points one by one depends on how points arrived:
    forgetting some of them would leave a trace.
    """
    if not isinstance(updatable, (bool, np.bool_)):
        raise TypeError(f"updatable={updatable!r} must be True or False")
    sampler = settings.sampler.sampler if isinstance(settings.sampler, Bound) else settings.sampler
    if updatable and isinstance(sampler, Sampler) and not isinstance(sampler, RankedSampler):
        raise TypeError(
            f"updatable=True needs a sampler that scores points one by one, but {sampler!r} does not; "
            "use a built-in sampler or a RankedSampler, or pass updatable=False"
        )


def as_dynamic(settings: FitSettings, data: MemoryData, fitted: FitResult) -> DynamicCoreset:
    """Put the rows of a fit into a dynamic coreset that returns the coreset of the fit."""
    core, points = fitted.coreset, data.points
    live = DynamicCoreset(
        # without an anchor it is all points
        **settings.coreset_arguments(fitted.size or sys.maxsize, None if core is None else core.anchor)
    )
    live.insert(points.X, points.y, points.weights, points.ids)
    if core is not None:
        live.reanchor(core.anchor)  # so that its report does not count these rows as newer than the anchor
    live._solution = fitted.solution  # no warning if it is far from the anchor
    return live
