"""The fit of every estimator: profile all rows, build a coreset, solve on it, and evaluate the solution.

Rows may be in memory, in a scan or in a Dask collection: a source that is read in passes. In memory a pass is
one batch. What is computed in a pass is a reducer, which is its own summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from duramen.arrays import (
    ABOVE_ZERO,
    LARGEST,
    Array,
    Rows,
    check_count,
    check_range,
    generator,
    is_whole,
    refuse_nonfinite,
    weighted_quantiles,
)
from duramen.coreset.build import refuse_beside_scan, robust_coreset
from duramen.coreset.candidates import Plan, Summarizer
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.passes import Reducer, ScanSource, Source, finish, plan, run_passes
from duramen.coreset.view import ROWS_A_PARAMETER, anchor_sample
from duramen.distributed.dask import DaskSource
from duramen.io.scan import Scan
from duramen.losses import KMeansLoss, SquaredLoss
from duramen.losses.base import Anchor, Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import Sampler
from duramen.solvers.solve import Solution, solve_quietly
from duramen.trimming import kept_sum, kept_weights, outlier_weight

MIN_SIZE = 1000  # rows of a coreset with coreset_size="auto"
MIN_LEARNED = 4000  # the same, if the contamination is learned: its shares and the margins trade off
_SMALL = 20_000  # entries of a problem that is solved to full precision, as that takes no time
_ROUGH = 1e-4  # the tolerance of a solution that is only an anchor
_PERFECT = 1e-20  # the cost of a perfect fit, by rounding, in units of squared labels
_HUGE = 1e140  # labels whose squares may overflow
_SAFETY = 1.2  # factor on the size that the error implies, since the error is itself an estimate
_MORE_LIKELY = 0.5  # the probability of noise above which a row is an outlier
_ANY_LABELS = KMeansLoss(1)  # a loss that accepts all labels

Change = Callable[[WeightedPoints], WeightedPoints]
Conversion = Callable[[Rows, Any], tuple[Rows, Any]]  # of rows and labels to those that a loss takes


@dataclass(frozen=True)
class FitSettings:
    """The settings of a fit, checked: a loss with its penalty, a seed, and parameters of an estimator."""

    loss: Loss
    l2: float
    seed: int
    n_outliers: Any
    coreset_size: Any
    sampler: Sampler | str
    n_init: Any
    n_rounds: Any
    max_iter: Any
    tol: Any

    def __post_init__(self) -> None:
        size = self.coreset_size
        if not (size is None or is_auto(size) or (is_whole(size) and size >= 2)):
            raise ValueError(
                f"coreset_size={size!r} must be a whole number of 2 or more, 'auto', or None for all"
            )
        check_range(
            "tol", self.tol, ABOVE_ZERO, LARGEST, "a positive number, such as 0.01 for an error of 1%"
        )
        check_count("n_init", self.n_init)
        check_count("n_rounds", self.n_rounds)

    def coreset_arguments(self, size: int, anchor: Any) -> dict[str, Any]:
        """Return the arguments with which a coreset is built, in memory or in passes."""
        problem = {"loss": self.loss, "n_outliers": self.n_outliers, "sampler": self.sampler}
        return {**problem, "size": size, "anchor": anchor, "random_state": self.seed}


def is_auto(value: Any) -> bool:
    """Return whether the fit chooses the value of a parameter."""
    return isinstance(value, str) and value == "auto"


def seed_of(random_state: Any) -> int:
    """Draw one seed for a whole fit; an integer is its own seed, so that a fit can be reproduced by hand."""
    return int(random_state) if is_whole(random_state) else int(generator(random_state).integers(2**63))


def encoded(X: Rows, y: Any, *, classes: Array) -> tuple[Rows, Array]:
    """Replace labels by the numbers of their classes; refuse a label that is not one of the classes."""
    y = np.asarray(y)
    try:
        codes = classes.searchsorted(y).clip(max=len(classes) - 1)
    except TypeError:
        raise _mixed(y) from None
    unknown = np.flatnonzero(classes[codes] != y)
    if len(unknown):
        raise ValueError(
            f"y holds the class {y.tolist()[unknown[0]]!r}, but the model knows {classes.tolist()}; call fit "
            "to learn other classes, from data that does not change between passes"
        )
    return X, codes


def _mixed(y: Array) -> ValueError:
    kinds = sorted({type(label).__name__ for label in y.tolist()})
    return ValueError(f"y holds labels of several types, {' and '.join(kinds)}; convert them to one type")


def weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values, each counted by its weight."""
    return weighted_quantiles(values, weights, (0.5, 0.5 + 2e-12)).mean()


class Profiler:
    """The classes and their weights, and the first pass of a coreset over rows out of core: a reducer."""

    def __init__(self, loss: Loss, first: Plan | None = None) -> None:
        self._has_classes = loss.has_classes
        self.classes: Array = np.empty(0)
        self.class_weights: Array = np.empty(0)
        self.first_pass: Any = first and Summarizer(first)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        if self.first_pass is not None:
            self.first_pass.add(points, before)
        if self._has_classes:
            self._add_classes(points.y, points.weights)

    def absorb(self, other: Profiler) -> None:
        self.first_pass.absorb(other.first_pass)
        if len(other.classes):
            self._add_classes(other.classes, other.class_weights)

    def summary(self) -> Profiler:
        self.first_pass = self.first_pass.summary()
        return self

    def _add_classes(self, labels: Any, weights: Any) -> None:
        fractions = labels[labels % 1 != 0] if labels.dtype.kind == "f" else labels[:0]
        if len(fractions):  # scikit-learn expects the first words
            raise ValueError(
                f"Unknown label type: continuous; {fractions[0]:g} is not a class; pass whole numbers or text"
            )
        if len(self.classes):
            labels, weights = np.append(self.classes, labels), np.append(self.class_weights, weights)
        try:
            self.classes, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            raise _mixed(labels) from None
        self.class_weights = np.bincount(codes, weights)


class TrimmedPass:
    """The trimmed loss of a solution over all rows, and its outliers, the largest loss first: a reducer.

    Where the loss learns the contamination, outliers are rows whose label is noise with a probability above
    one half, the most probable first; and ``noise`` are sums of weight, and of weight times this probability,
    over the rows of each class, near the middle and far out: (2, k, 2). ``cache`` is that of
    ``Loss.values_and_cache``, None for rows out of core.
    """

    def __init__(self, loss: Any, theta: Array, z: float) -> None:
        self._loss, self._theta, self._z = loss, theta, z
        self._learned = loss.base is not None
        self.noise = np.zeros((2, loss.n_classes if self._learned else 0, 2))
        self.rows = [np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)]
        self._rest = ExactSums()  # the losses of all other rows
        self.cache: Array | None = None

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        X, y = points.X, points.y
        if self._learned:
            losses, scores, far = self._loss.values_and_blame(self._theta, X, y)
            cells = 2 * self._loss.classes_of(y) + far
            for total, part in zip(self.noise, (points.weights, points.weights * scores), strict=True):
                total += np.bincount(cells, part, minlength=total.size).reshape(total.shape)
        else:
            losses, self.cache = self._loss.values_and_cache(self._theta, X, y)
            scores = losses
        labels = np.zeros(len(points)) if y is None else y
        self._keep(scores, losses, points.weights, labels, points.ids)

    def absorb(self, other: TrimmedPass) -> None:
        self._rest.absorb(other._rest)
        self.noise += other.noise
        self._keep(*other.rows)

    def summary(self) -> TrimmedPass:
        self.cache = None
        return self

    def _keep(self, *rows: Array) -> None:
        """Keep the rows that are set aside of these and earlier ones; no other row can be."""
        both = list(map(np.concatenate, zip(self.rows, rows, strict=True)))
        scores, losses, weights, _, ids = both
        kept = kept_weights(losses, weights, min(self._z, weights.sum()), ids)
        worst = np.flatnonzero(scores > _MORE_LIKELY if self._learned else kept < weights)
        worst = worst[np.lexsort((-ids[worst], -scores[worst]))]
        self._rest.add_rows(np.delete(losses, worst) * np.delete(weights, worst))
        self.rows = [column[worst] for column in both]
        _, self.losses, self.weights, self.labels, self.ids = self.rows
        self.trimmed_loss = self._rest.values + kept_sum(self.losses, kept[worst])


class _Changing:
    """A reducer of rows that are changed first."""

    def __init__(self, make: Callable[[], Reducer], change: Change) -> None:
        self._reducer, self._change = make(), change
        self.absorb, self.summary = self._reducer.absorb, self._reducer.summary

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        changed = self._change(points)
        if len(changed):
            self._reducer.add(changed, before)


class _Changed(NamedTuple):
    """A source whose rows are changed, batch by batch, by a function that can be pickled."""

    source: Source
    change: Change

    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        return self.source.reduce(partial(_Changing, make, self.change), stage)


def is_out_of_core(X: Any) -> bool:
    """Return whether data is a scan or a Dask collection."""
    return isinstance(X, Scan) or hasattr(type(X), "__dask_graph__")


def _prepare(points: WeightedPoints, *, loss: Loss) -> WeightedPoints:
    """Drop rows without weight, and labels that are not needed."""
    if issparse(points.X) and not loss.has_predictors:
        raise TypeError("X must be dense, but these rows are sparse; convert them by toarray()")
    if loss.needs_labels and points.y is None:
        raise ValueError(
            "labels are needed, but there are none; name their column in dm.scan(..., label=...), or "
            "pass a Dask array or Series as y"
        )
    if not loss.needs_labels:
        points = points.with_parts(y=None)
    return points if points.weights.all() else points.take(points.weights > 0)


def _converted(points: WeightedPoints, *, convert: Conversion) -> WeightedPoints:
    X, y = convert(points.X, points.y)
    return points.with_parts(X=X, y=y)


def weighed(points: WeightedPoints, factors: Array) -> WeightedPoints:
    """Multiply the weight of each point by the factor of its class; labels are the numbers of classes."""
    return points.with_parts(weights=points.weights * factors[points.y])


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows to fit on, in memory or in a source, with their profile and the settings of the fit.

    ``points`` are the rows in memory, and ``X`` these with those of weight zero, which ``n_rows``
    counts, too. ``first_pass`` is the first pass of a coreset over the rows of a source, ``classes``
    are names of its labels, if they are numbers of classes, and ``feature_names`` those of its
    columns, if they are all text.
    """

    settings: FitSettings
    profile: Profiler
    n_rows: int
    n_points: int
    n_columns: int
    total_weight: float
    points: Any = None
    X: Rows = None
    source: Any = None
    first_pass: Any = None
    classes: Sequence[Any] | None = None
    feature_names: Array | None = None

    @classmethod
    def in_memory(cls, settings: FitSettings, X: Rows, points: WeightedPoints) -> AllRows:
        """Profile points."""
        profile = Profiler(settings.loss)
        profile.add(points)
        return cls(
            settings, profile, X.shape[0], len(points), points.n_columns, points.total_weight, points, X
        )

    @classmethod
    def out_of_core(cls, settings: FitSettings, X: Any, y: Any, sample_weight: Any) -> AllRows:
        """Make the first pass over a scan or a Dask collection; raise an error if it cannot be fitted to."""
        loss, source = settings.loss, None  # type: Loss, Any
        labels = y if loss.needs_labels else None
        if isinstance(X, Scan):
            refuse_beside_scan(y=labels, sample_weight=sample_weight)
            source = ScanSource(X)
        else:
            source = DaskSource(X, y=labels, sample_weight=sample_weight)
        if source.classes is not None and loss.needs_labels and not loss.has_classes:
            raise ValueError(
                f"labels must be numbers; those of the scan are text, such as {source.classes[0]!r}; "
                "choose another label="
            )
        # what the first pass computes is the same for every size and anchor
        problem = _ANY_LABELS if loss.has_classes else loss
        first = plan(loss=problem, size=2, sampler=settings.sampler, random_state=settings.seed)
        changed = _Changed(source, partial(_prepare, loss=loss))
        profile = changed.reduce(partial(Profiler, loss, first), "profile")
        found = profile.first_pass
        if not found.n_points:
            raise ValueError("there are no rows with positive weight; at least one is needed")
        named = source.names is not None and all(isinstance(name, str) for name in source.names)
        return cls(
            settings,
            profile,
            found.n_points,
            found.n_points,
            found.kept.points.n_columns,
            found.total,
            source=changed,
            first_pass=found,
            classes=source.classes,
            feature_names=np.array(source.names, dtype=object) if named else None,
        )

    def converted(self, convert: Conversion) -> AllRows:
        """Return the same data with all rows and labels converted by a function that can be pickled."""
        change = partial(_converted, convert=convert)
        if self.points is not None:
            return replace(self, points=change(self.points))
        kept = self.first_pass.kept
        first = replace(self.first_pass, kept=kept._replace(points=change(kept.points)))
        return replace(self, source=_Changed(self.source, change), first_pass=first)

    def weighed(self, factors: Array) -> AllRows:
        """Return the same data, whose labels are numbers of classes, with weights multiplied by class."""
        change = partial(weighed, factors=factors)
        if self.points is not None:
            points = change(self.points)
            return replace(self, points=points, total_weight=points.total_weight)
        source = _Changed(self.source, change)
        first = source.reduce(partial(Summarizer, self.first_pass.plan), "class-weights")
        return replace(self, source=source, first_pass=first, total_weight=first.total)

    def with_settings(self, **changed: Any) -> AllRows:
        """Return the same data with some settings changed."""
        return replace(self, settings=replace(self.settings, **changed))

    def sample(self) -> WeightedPoints:
        """Sample rows, at most 20,000: enough to measure a scale. The same ones make the anchor."""
        if self.points is None:
            return self.first_pass.sample()
        return anchor_sample(self.points, seed_of(np.random.default_rng(self.settings.seed)))

    def build(self, size: int, anchor: Any) -> Coreset:
        """Build a coreset around an anchor; None finds one."""
        asked, points = self.settings.coreset_arguments(size, anchor), self.points
        if points is None:
            return run_passes(self.source, finish(replace(self.first_pass, plan=plan(**asked))))
        return robust_coreset(points.X, points.y, sample_weight=points.weights, ids=points.ids, **asked)

    @one_blas_thread()
    def evaluate(self, solution: Solution) -> TrimmedPass:
        """Compute the losses of all rows at a solution."""
        z = outlier_weight(self.settings.n_outliers, self.total_weight)
        make = partial(TrimmedPass, solution.loss, solution.theta, z)
        if self.points is None:
            return self.source.reduce(make, "evaluate")
        found = make()
        found.add(self.points)
        return found

    def objective(self, solution: Solution) -> float:
        """Compute the objective of a solution over all rows."""
        return self.evaluate(solution).trimmed_loss + solution.penalty


class Trial(NamedTuple):
    """A size that was tried, and the relative standard error of the objective with it."""

    size: int
    relative_error: float


class FitResult(NamedTuple):
    """A solution, its coreset (None after a fit to all rows), the requested size, and the sizes tried."""

    solution: Solution
    coreset: Coreset | None
    size: int
    trials: list[Trial]


def fit(data: AllRows) -> FitResult:
    """Fit on everything, on a coreset of the requested size, or on one large enough by its own error bars."""
    settings, n = data.settings, data.n_points
    if settings.coreset_size is None:
        refuse_nonfinite(data.points.X)
        return FitResult(_solve(settings, data.points), None, sys.maxsize, [])
    enough_rows = ROWS_A_PARAMETER * np.prod(settings.loss.parameter_shape(data.n_columns) or 1)
    learns = settings.loss.base is not None
    size = (
        max(MIN_LEARNED if learns else MIN_SIZE, enough_rows)
        if is_auto(settings.coreset_size)
        else settings.coreset_size
    )
    anchor: Any = None  # the first one for every size: the solution on a small coreset may mislead
    trials: list[Trial] = []
    while True:
        core = data.build(size, anchor)
        anchor = core.anchor
        if not _is_representative(core):
            if size >= n:
                raise ValueError(
                    f"{settings.sampler!r} leaves out whole classes, or keeps too few distinct rows, even in "
                    f"a coreset of {size} rows; use another sampler"
                )
            size = 4 * size
            continue
        more = settings.n_rounds - 1 if len(core) < n else 0
        rough = {"init": anchor.theta, "tol": _ROUGH} if learns and more else {}  # good enough for an anchor
        rounds = [FitResult(_solve(settings, core, **rough), core, size, trials)]
        for _ in range(more):
            # agreeing with all rows around the solution undoes overfitting to the coreset
            theta = rounds[-1].solution.theta
            kept = {name: anchor.frozen[name] for name in settings.loss.freezes}
            core = data.build(len(core), Anchor(theta, anchor.radius).freeze(**kept))
            if not _is_representative(core):
                break
            solution = _solve(settings, core, init=None if learns else theta)
            rounds.append(FitResult(solution, core, len(core), trials))
        found = rounds[-1]
        if len(rounds) > 1 and len(core) < enough_rows:  # a later round may be worse: docs/estimators.md
            found = min(rounds, key=lambda one: data.objective(one.solution))
        if _is_accurate(data, found):
            return found
        enough = _SAFETY * size * (trials[-1].relative_error / settings.tol) ** 2
        size = n if enough > n / 2 else int(max(enough, 2 * size))


def refit(data: AllRows, core: Coreset | None, start: Array) -> FitResult | None:
    """Fit to changed data, on their coreset or on all of them; ``start`` is one of the starts.

    Return None if the coreset no longer suffices: a class is missing from it, or its error bars exceed
    ``tol`` and the size is "auto".
    """
    if core is not None and not _is_representative(core):
        return None
    settings = data.settings
    bare = data.points if core is None else core.points  # without the anchor, which may mislead
    runs = [_solve(settings, core or bare, init=start), _solve(replace(settings, n_init=1), bare)]
    found = FitResult(min(runs, key=lambda run: run.objective), core, len(bare), [])
    return found if _is_accurate(data, found) else None


def _is_accurate(data: AllRows, found: FitResult) -> bool:
    """Return whether the size is right: if it is "auto", measure the standard error of the objective."""
    settings, core = data.settings, found.coreset
    if core is None or not is_auto(settings.coreset_size):
        return True
    estimate = core.estimate(found.solution.theta)
    if np.isnan(estimate.std_error):
        raise ValueError(
            f"coreset_size='auto' needs error bars, but {settings.sampler!r} gives none; pass a number"
        )
    error = estimate.std_error / estimate.value if estimate.std_error else 0.0
    found.trials.append(Trial(len(core), error))
    return error < settings.tol or len(core) >= data.n_points


def _solve(
    settings: FitSettings, on: Coreset | WeightedPoints, init: Any = None, tol: float | None = None
) -> Solution:
    loss, points = settings.loss, on if isinstance(on, WeightedPoints) else on.points
    problem: dict[str, Any] = {
        "l2": settings.l2,
        "max_iter": settings.max_iter,
        "random_state": settings.seed,
        "tol": tol,
    }
    if tol is None and loss.has_predictors and len(points) * points.n_columns <= _SMALL:
        problem["tol"] = 1e-16
    if init is None and loss.has_predictors and len(points) <= points.n_columns:
        init = _perfect_fit(loss, points, problem)
    if on is points:  # a coreset knows both
        problem.update(loss=loss, n_outliers=settings.n_outliers)
    return solve_quietly(on, **problem, init=init, n_starts=1 if init is not None else settings.n_init)


def _perfect_fit(loss: Any, points: WeightedPoints, problem: dict[str, Any]) -> Array | None:
    """Return a theta that fits all rows perfectly, if there is one: it fits any that are kept."""
    size = float(np.abs(np.asarray(points.y)).max())
    if size > _HUGE:
        return None
    if loss.of_residual:  # least squares is zero there too, and treats weight 2 as two rows
        loss = SquaredLoss(fit_intercept=loss.fit_intercept)
    found = solve_quietly(points, loss, 0, **problem, init="zero")
    return found.theta if found.objective <= _PERFECT * points.total_weight * size**2 else None


def _is_representative(core: Coreset) -> bool:
    """Return whether the coreset has all classes, or enough distinct points, to be solved on."""
    if len(core) >= core.n_points:
        return True
    try:
        core.loss.check_solvable(core.X, core.y, core.weights, core.n_outliers)
    except ValueError:
        return False
    return True
