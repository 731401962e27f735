"""The fit of every estimator: profile all rows, build a coreset, solve on it, and evaluate the solution.

Rows may be in memory, in a scan or in a Dask collection: a source that is read in passes. In memory a pass is
one batch. What is computed in a pass is a reducer; only its summary leaves a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from duramen.arrays import Array, check_count, generator, is_number, is_whole, refuse_nonfinite
from duramen.coreset.build import refuse_beside_scan, robust_coreset
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.passes import Reducer, ScanSource, Source, Summarizer, Summary, finish, plan, run_passes
from duramen.coreset.view import ROWS_A_PARAMETER, anchor_sample
from duramen.distributed.dask import DaskSource
from duramen.io.scan import Scan
from duramen.losses import KMeansLoss, SquaredLoss
from duramen.losses.base import Anchor, Loss
from duramen.losses.centres import distinct_rows
from duramen.points import WeightedPoints
from duramen.samplers.base import Sampler
from duramen.solvers.solve import Solution, solve_quietly
from duramen.trimming import kept_sum, kept_weights, outlier_weight

_MIN_SIZE = 1000  # rows of a coreset with coreset_size="auto"
_SMALL = 20_000  # entries of a problem that is solved to full precision, as that takes no time
_PERFECT = 1e-20  # the cost of a perfect fit, by rounding, in units of squared labels
_HUGE = 1e140  # labels whose squares may overflow
_SAFETY = 1.2  # factor on the size that the error implies, since the error is itself an estimate
_ANY_LABELS = KMeansLoss(1)  # a loss that accepts all labels

Change = Callable[[WeightedPoints], WeightedPoints]


class Needs(NamedTuple):
    """What a fit must know about all rows before it begins.

    ``labels``: whether there must be some; ``sparse``: whether rows may be so; ``classes``: which
    labels there are; ``distinct``: how many rows must differ.
    """

    labels: bool
    sparse: bool
    classes: bool
    distinct: int


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
    needs: Needs

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
    return int(random_state) if is_whole(random_state) else int(generator(random_state).integers(2**63))


def with_parts(points: WeightedPoints, **parts: Any) -> WeightedPoints:
    """Return points with X, y, weights or ids replaced, unchecked."""
    here = {name: getattr(points, name) for name in ("X", "y", "weights", "ids")}
    return WeightedPoints._from_parts(**{**here, **parts})


def codes_of(y: Any, classes: Array) -> Array:
    """Return the number of the class of each label; -1 for unknown ones."""
    y = np.asarray(y)
    try:
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    except TypeError:
        raise _mixed(y) from None
    return np.where(classes[codes] == y, codes, -1)


def _mixed(y: Array) -> ValueError:
    kinds = sorted({type(label).__name__ for label in y.tolist()})
    return ValueError(f"y holds labels of several types, {' and '.join(kinds)}; convert them to one type")


def weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values, each counted by its weight."""
    order = np.argsort(values)
    steps = np.cumsum(weights[order])
    below, above = np.searchsorted(steps, steps[-1] / 2 * np.array([1 - 1e-12, 1 + 1e-12]))
    return float(values[order[[below, above]]].mean())


@dataclass(frozen=True, eq=False)
class InMemory:
    """Points in memory, as a source of passes."""

    points: WeightedPoints

    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        """Make one pass, in one batch."""
        reducer = make()
        reducer.add(self.points)
        return reducer.summary()


class Profile(NamedTuple):
    """The classes and their weights, as many distinct rows as are needed, and the first pass of a coreset."""

    classes: Array
    class_weights: Array
    distinct: Array
    first_pass: Summary | None


class Profiler:
    """Collect a profile; ``make_first`` makes the first pass of a coreset."""

    def __init__(self, needs: Needs, make_first: Callable[[], Summarizer] | None) -> None:
        self._needs, self._first = needs, None if make_first is None else make_first()
        self._classes: Array = np.empty(0)
        self._class_weights: Array = np.empty(0)
        self._distinct = np.empty((0, 0), dtype=np.float32)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        if self._first is not None:
            self._first.add(points, before)
        if self._needs.classes and points.y is not None:
            _check_classes(points.y)
            self._add_classes(points.y, points.weights)
        self._add_distinct(points.X)

    def absorb(self, other: Profile) -> None:
        if self._first is not None and other.first_pass is not None:
            self._first.absorb(other.first_pass)
        if len(other.classes):
            self._add_classes(other.classes, other.class_weights)
        self._add_distinct(other.distinct)

    def summary(self) -> Profile:
        first = None if self._first is None else self._first.summary()
        return Profile(self._classes, self._class_weights, self._distinct, first)

    def _add_classes(self, labels: Array, weights: Array) -> None:
        if len(self._classes):
            labels = np.concatenate([self._classes, labels])
            weights = np.concatenate([self._class_weights, weights])
        try:
            self._classes, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            raise _mixed(labels) from None
        self._class_weights = np.bincount(codes, weights)

    def _add_distinct(self, X: Any) -> None:
        if len(self._distinct) < self._needs.distinct and X.shape[0]:
            both = np.concatenate([self._distinct, X]) if len(self._distinct) else X
            self._distinct = distinct_rows(both, np.arange(len(both)), self._needs.distinct)


def _check_classes(labels: Array) -> None:
    """Raise ValueError if labels are not classes; the first words are those that scikit-learn expects."""
    fractions = labels[labels != np.floor(labels)] if labels.dtype.kind == "f" else labels[:0]
    if len(fractions):
        raise ValueError(
            f"Unknown label type: continuous; {fractions[0]:g} is not a class; pass whole numbers or text"
        )


class LossesAtSolution(NamedTuple):
    """The trimmed loss of a solution over all rows, and its outliers, the largest loss first.

    ``cache`` is that of ``Loss.values_and_cache``, None for rows out of core.
    """

    trimmed_loss: float
    outliers: Array
    outlier_labels: Array
    outlier_weights: Array
    threshold: float
    cache: Array | None


class Trimmed(NamedTuple):
    """Rows set aside, as losses, weights, ids and labels; the sum of all other losses; and the cache."""

    worst: tuple[Array, ...]
    rest: ExactSums
    cache: Array | None

    def evaluate(self, z: float) -> LossesAtSolution:
        """Trim weight z, after all rows were added."""
        losses, weights, ids, labels = self.worst
        kept = kept_weights(losses, weights, min(z, float(weights.sum())), ids)
        trimmed = self.rest.values + kept_sum(losses, kept)
        order = np.lexsort((-ids, -losses))
        threshold = float(losses[order[-1]]) if len(order) else np.inf
        return LossesAtSolution(trimmed, ids[order], labels[order], weights[order], threshold, self.cache)


class TrimmedPass:
    """The last pass: the rows that weight z at ``theta`` sets aside, and the sum of all other losses."""

    def __init__(self, loss: Loss, theta: Array, z: float, *, cached: bool) -> None:
        self._loss, self._theta, self._z, self._cached = loss, theta, z, cached
        self._worst: tuple[Array, ...] = (np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0))
        self._rest = ExactSums()
        self._cache: Array | None = None

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        losses, cache = self._loss.values_and_cache(self._theta, points.X, points.y)
        labels = np.zeros(len(points)) if points.y is None else points.y
        self._keep((losses, points.weights, points.ids, labels))
        self._cache = cache if self._cached else None

    def absorb(self, summary: Trimmed) -> None:
        self._rest.absorb(summary.rest)
        self._keep(summary.worst)

    def summary(self) -> Trimmed:
        return Trimmed(self._worst, self._rest, self._cache)

    def _keep(self, rows: tuple[Array, ...]) -> None:
        """Keep the rows that are set aside of these and earlier ones; no other row can be."""
        rows = tuple(np.concatenate(pair) for pair in zip(self._worst, rows, strict=True))
        losses, weights, ids, _ = rows
        aside = kept_weights(losses, weights, min(self._z, float(weights.sum())), ids) < weights
        self._rest.add_rows(losses[~aside] * weights[~aside])
        self._worst = tuple(column[aside] for column in rows)


class _Changing:
    """A reducer of rows that are changed first."""

    def __init__(self, make: Callable[[], Reducer], changes: tuple[Change, ...]) -> None:
        self._reducer, self._changes = make(), changes
        self.absorb, self.summary = self._reducer.absorb, self._reducer.summary

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        changed = points
        for change in self._changes:
            if len(changed):
                changed = change(changed)
        if len(changed):
            self._reducer.add(changed, before if len(changed) == len(points) else None)


def is_out_of_core(X: Any) -> bool:
    """Return whether data is a scan or a Dask collection."""
    return isinstance(X, Scan) or hasattr(type(X), "__dask_graph__")


def _prepare(points: WeightedPoints, *, needs: Needs) -> WeightedPoints:
    """Drop rows without weight, and labels that are not needed."""
    if issparse(points.X) and not needs.sparse:
        raise TypeError("X must be dense, but these rows are sparse; convert them by toarray()")
    if needs.labels and points.y is None:
        raise ValueError(
            "labels are needed, but there are none; name their column in dm.scan(..., label=...), or "
            "pass a Dask array or Series as y"
        )
    if not needs.labels:
        points = with_parts(points, y=None)
    return points if points.weights.all() else points.take(points.weights > 0)


def _encode_labels(points: WeightedPoints, classes: Array) -> WeightedPoints:
    codes = codes_of(points.y, classes)
    if (codes < 0).any():
        assert points.y is not None
        raise ValueError(
            f"label {points.y[np.argmin(codes)].item()!r} was not in the data in the first pass; the data "
            "must not change between passes"
        )
    return with_parts(points, y=codes)


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows to fit on: where they are, their profile, and what to change in every batch.

    ``n_rows`` counts rows without weight, too, if they are in memory.
    """

    source: Source
    profile: Profile
    n_rows: int
    n_points: int
    n_columns: int
    total_weight: float
    changes: tuple[Change, ...] = ()

    @classmethod
    def in_memory(cls, points: WeightedPoints, needs: Needs, n_rows: int) -> AllRows:
        """Profile points."""
        source = InMemory(points)
        profile: Profile = source.reduce(partial(Profiler, needs, None), "profile")
        return cls(source, profile, n_rows, len(points), points.n_columns, points.total_weight)

    @classmethod
    def out_of_core(cls, X: Any, y: Any, sample_weight: Any, settings: FitSettings) -> AllRows:
        """Make the first pass over a scan or a Dask collection.

        Raises
        ------
        TypeError, ValueError
            If no model can be fitted to it.
        """
        needs, source = settings.needs, None  # type: Needs, Any
        labels = y if needs.labels else None
        if isinstance(X, Scan):
            refuse_beside_scan(y=labels, sample_weight=sample_weight)
            source = ScanSource(X)
        else:
            source = DaskSource(X, {"y": labels, "sample_weight": sample_weight})
        if source.classes is not None and needs.labels and not needs.classes:
            raise ValueError(
                f"labels must be numbers; those of the scan are text, such as {source.classes[0]!r}; "
                "choose another label="
            )
        # what the first pass computes is the same for every size and anchor
        loss = _ANY_LABELS if needs.classes else settings.loss
        first = plan(loss=loss, size=2, sampler=settings.sampler, random_state=settings.seed)
        changes = (partial(_prepare, needs=needs),)
        make = partial(_Changing, partial(Profiler, needs, partial(Summarizer, first)), changes)
        profile = source.reduce(make, "profile")
        found = profile.first_pass.body
        if not found.n_points:
            raise ValueError("there are no rows with positive weight; at least one is needed")
        form = found.form.n_columns, found.total
        return cls(source, profile, found.n_points, found.n_points, *form, changes)

    @property
    def points(self) -> WeightedPoints | None:
        """The points, where they are in memory."""
        return self.source.points if isinstance(self.source, InMemory) else None

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, as scikit-learn takes them: all text, or none."""
        names = getattr(self.source, "names", None)
        if names is None or not all(isinstance(name, str) for name in names):
            return None
        return np.array(names, dtype=object)

    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        """Make one pass over the changed rows."""
        if self.changes:
            make = partial(_Changing, make, self.changes)
        return self.source.reduce(make, stage)

    def changed(self, change: Change) -> AllRows:
        """Return the same data with all points changed by a function that can be pickled."""
        if isinstance(self.source, InMemory):
            return replace(self, source=InMemory(change(self.source.points)))
        return replace(self, changes=(*self.changes, change))

    def with_class_codes(self) -> tuple[Array, AllRows]:
        """Return the sorted classes, and the same data with the numbers of their classes as labels."""
        labels, names = self.profile.classes, getattr(self.source, "classes", None)
        classes = labels if names is None else np.array(names)[labels.astype(np.intp)]
        changed = self.changed(partial(_encode_labels, classes=labels))
        return classes, replace(changed, profile=self.profile._replace(classes=np.arange(len(labels))))

    def class_weights(self, n_classes: int) -> Array:
        """Return the weight of each class; labels must be class numbers."""
        codes = self.profile.classes.astype(np.intp)
        return np.bincount(codes, self.profile.class_weights, minlength=n_classes)

    def sample(self, settings: FitSettings) -> WeightedPoints:
        """Sample rows, at most 20,000: enough to measure a scale. The same ones make the anchor."""
        if self.points is not None:
            return anchor_sample(self.points, seed_of(np.random.default_rng(settings.seed)))
        return self._first_pass().sample()

    def build(self, settings: FitSettings, size: int, anchor: Any) -> Coreset:
        """Build a coreset around an anchor; None finds one."""
        asked, points = settings.coreset_arguments(size, anchor), self.points
        if points is not None:
            asked |= {"sample_weight": points.weights, "ids": points.ids}
            return robust_coreset(points.X, points.y, **asked)
        return run_passes(self, finish(Summary(plan(**asked), self._first_pass())))

    def _first_pass(self) -> Any:
        """Return the result of the first pass, with the sample for the anchor changed like the rows."""
        assert self.profile.first_pass is not None
        first: Any = self.profile.first_pass.body
        for change in self.changes[1:]:
            first = replace(first, kept=first.kept._replace(points=change(first.kept.points)))
        return first

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        """Compute the losses of all rows at theta."""
        z = outlier_weight(settings.n_outliers, self.total_weight)
        make = partial(TrimmedPass, settings.loss, theta, z, cached=self.points is not None)
        found: Trimmed = self.reduce(make, "evaluate")
        return found.evaluate(z)


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
    assert data.points is not None
    refuse_nonfinite(data.points.X)
    return FitResult(_solve(settings, data.points), None, None, [])


def refit(settings: FitSettings, data: AllRows, core: Coreset | None, start: Array) -> FitResult | None:
    """Fit on a coreset of changed data, or on all rows without one; ``start`` is one of the starts.

    Return None if the coreset no longer suffices: a class is missing from it, or its error bars exceed
    ``tol`` and the size is "auto".
    """
    if core is not None and not _is_representative(core, settings.loss):
        return None
    bare = data.points if core is None else core.points  # without the anchor, which may mislead
    assert bare is not None
    runs = [_solve(settings, core or bare, init=start), _solve(replace(settings, n_starts=1), bare)]
    solution = min(runs, key=lambda run: run.objective)
    found = FitResult(solution, core, None if core is None else len(core), [])
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
    if settings.loss.has_predictors and len(on) * on.X.shape[1] <= _SMALL:
        problem["tol"] = 1e-16
    if isinstance(on, WeightedPoints):  # a coreset knows both
        problem.update(loss=settings.loss, n_outliers=settings.n_outliers)
    if init is None and settings.loss.has_predictors and len(on) <= on.X.shape[1]:
        init = _perfect_fit(settings, on if isinstance(on, WeightedPoints) else on.points, problem)
    return solve_quietly(on, **problem, init=init, n_starts=1 if init is not None else settings.n_starts)


def _perfect_fit(settings: FitSettings, points: WeightedPoints, problem: dict[str, Any]) -> Array | None:
    """Return a theta that fits all rows perfectly, if there is one: it fits those kept, whichever they are.

    Where a loss of the residual is zero, least squares is too, and finds the same theta for a row of weight 2
    as for two rows; with a kink, theta would depend on the steps taken.
    """
    loss: Any = settings.loss
    size = 1.0 if points.y is None else float(np.abs(points.y).max())
    if size > _HUGE:
        return None
    if loss.of_residual:
        loss = SquaredLoss(fit_intercept=loss.fit_intercept)
    found = solve_quietly(points, **{**problem, "loss": loss, "n_outliers": 0}, init="zero")
    return found.theta if found.objective <= _PERFECT * points.total_weight * size**2 else None


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
