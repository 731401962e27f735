"""Fit on data that does not fit in memory: scans and Dask collections, of which only summaries are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset.build import refuse_beside_scan
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.first_pass import FirstPass, FirstPassResult
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan
from duramen.coreset.streaming import LargestLosses
from duramen.distributed.dask.coreset import merge_tree
from duramen.distributed.dask.partitions import Parts, constant, naming, parts_of
from duramen.estimators.fitting import SUBSAMPLE_SEED, FitSettings, LossesAtSolution, with_parts
from duramen.io.scan import Scan
from duramen.losses import KMeansLoss
from duramen.losses.base import Loss
from duramen.losses.centres import distinct_rows
from duramen.parallel import on_one_thread, one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints
from duramen.trimming import kept_weights, outlier_weight

_BATCH = 1 << 16  # rows of a partition that are processed together
_ANY_LABELS = KMeansLoss(1)  # a loss that accepts all labels

Change = Callable[[WeightedPoints], WeightedPoints]


class Reducer(Protocol):
    """What one pass computes, from batches of rows and from summaries of other reducers."""

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add a batch; error messages count rows from ``before``."""

    def absorb(self, summary: Any) -> None:
        """Add the summary of other rows."""

    def summary(self) -> Any:
        """Return the result so far: small, and picklable."""


class ScanSource:
    """Passes over a scan."""

    def __init__(self, data: Scan) -> None:
        self._data, self._n_passes = data, 0
        self.classes, self.names = data.classes, data.names

    @one_blas_thread()
    def reduce(self, make: Callable[[], Reducer], prepare: Change, stage: str) -> Any:
        """Make one pass, parts of files side by side: one reducer per thread."""
        self._n_passes += 1

        def add(reducer: Reducer, first: int, points: WeightedPoints) -> None:
            batch = prepare(points)
            if len(batch):
                reducer.add(batch, before=first if len(batch) == len(points) else None)

        found = self._data.passed(make, add, self._n_passes)
        return _merge(make, [reducer.summary() for reducer in found])


class DaskSource:
    """Passes over the partitions of a Dask collection."""

    classes = None

    def __init__(self, parts: Parts) -> None:
        self._parts, self.names = parts.with_row_numbers(), parts.layout.features

    def reduce(self, make: Callable[[], Reducer], prepare: Change, stage: str) -> Any:
        """Make one pass: one task per partition, and a tree of tasks that merge their summaries."""
        name = f"duramen-fit-{stage}"
        shared = constant((make, prepare), f"{name}-plan")
        summaries = self._parts.each(_reduce_partition, shared, name)
        return self._parts.fetch(merge_tree(_merge_on_worker, summaries, shared, f"{name}-merge"))[0]


def is_out_of_core(X: Any) -> bool:
    """Return whether data is a scan or a Dask collection."""
    if isinstance(X, Scan):
        return True
    dask = sys.modules.get("dask")  # imported by now if X is a collection
    return dask is not None and hasattr(type(X), "__dask_graph__") and bool(dask.is_dask_collection(X))


def _source_of(X: Any, y: Any, sample_weight: Any) -> ScanSource | DaskSource:
    if not isinstance(X, Scan):
        return DaskSource(parts_of(X, y, sample_weight=sample_weight))
    refuse_beside_scan(y=y, sample_weight=sample_weight)
    return ScanSource(X)


def _reduce_partition(points: WeightedPoints | None, shared: Any) -> Any:
    make, prepare = shared
    reducer = make()
    if points is not None:
        for at in range(0, len(points), _BATCH):
            batch = prepare(points.take(slice(at, at + _BATCH)))
            if len(batch):
                reducer.add(batch, before=at)
    return reducer.summary()


def _merge_on_worker(shared: Any, name: str, summaries: Sequence[Any]) -> Any:
    with naming(name), on_one_thread():
        return _merge(shared[0], summaries)


def _merge(make: Callable[[], Reducer], summaries: Sequence[Any]) -> Any:
    if len(summaries) == 1:
        return summaries[0]
    whole = make()
    for summary in summaries:
        whole.absorb(summary)
    return whole.summary()


def _prepare(points: WeightedPoints, *, labelled: bool, change: Change | None) -> WeightedPoints:
    """Drop rows without weight and labels that are not needed, and change the rows."""
    if labelled and points.y is None:
        raise ValueError(
            "labels are needed, but there are none; name their column in dm.scan(..., label=...), or "
            "pass a Dask array or Series as y"
        )
    if not labelled and points.y is not None:
        points = with_parts(points, y=None)
    if not points.weights.all():
        points = points.take(points.weights > 0)
    return points if change is None or not len(points) else change(points)


class TrimmedResult(NamedTuple):
    """The rows with the largest losses, without X, and the sum of the losses of all others."""

    largest: AnchoredPoints | None
    rest: ExactSums

    def evaluate(self, z: float) -> LossesAtSolution:
        """Trim weight z, after all rows were added."""
        if self.largest is None:
            empty = np.empty(0)
            return LossesAtSolution(
                float(self.rest.values[0]), empty.astype(np.int64), None, empty, np.inf, None
            )
        points, losses = self.largest.points, self.largest.losses
        kept = kept_weights(losses, points.weights, z, points.ids)
        self.rest.add_rows((kept[kept > 0] * losses[kept > 0])[:, None])
        return LossesAtSolution.of(points, losses, kept, float(self.rest.values[0]))


class TrimmedPass:
    """The last pass: keep the rows with the largest losses at theta, of a total weight a little above z."""

    def __init__(self, loss: Loss, theta: Array, z: float) -> None:
        self._loss, self._anchor = loss, Anchor(theta, 0.0)
        self._largest, self._rest = LargestLosses(z), ExactSums(1)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        values = self._loss.values(self._anchor.theta, points.X, points.y)
        losses = np.asarray(values, dtype=np.float64)
        if np.isnan(losses).any():
            bad = points.ids[np.isnan(losses)][0]
            raise ValueError(f"the loss of the row with id {bad} is not a number; scale the columns down")
        bare = with_parts(points, X=np.empty((len(points), 0)))
        self._add(AnchoredPoints(bare, None, self._anchor, losses))

    def absorb(self, summary: TrimmedResult) -> None:
        self._rest.absorb(summary.rest)
        if summary.largest is not None:
            self._add(summary.largest)

    def summary(self) -> TrimmedResult:
        self._release(self._largest.cut())
        return TrimmedResult(self._largest.kept(), self._rest)

    def _add(self, rows: AnchoredPoints) -> None:
        is_large = np.zeros(len(rows), dtype=bool)
        is_large[self._largest.among(rows)] = True
        self._release(rows, ~is_large)
        if is_large.any():
            self._release(self._largest.add(rows.take(is_large)))

    def _release(self, rows: AnchoredPoints | None, which: Any = slice(None)) -> None:
        """Add the losses of rows that can no longer be outliers to the sum."""
        if rows is not None:
            self._rest.add_rows((rows.losses[which] * rows.points.weights[which])[:, None])


class ProfileSettings(NamedTuple):
    """What a fit must know about all rows before it begins.

    ``loss`` refuses labels that it does not accept; ``classes``: which labels there
    are; ``distinct``: whether that many rows differ; ``subsample``: rows to measure
    a scale on; ``dense``: that no rows are sparse.
    """

    loss: Loss = _ANY_LABELS
    classes: bool = False
    distinct: int = 0
    subsample: bool = False
    dense: bool = False


class DataProfile(NamedTuple):
    """The result of the first pass, before any change of the rows."""

    first_pass: Summary
    class_weights: dict[Any, float]
    distinct: Array
    subsample: FirstPassResult | None


class Profiler:
    """The first pass."""

    def __init__(self, step: Plan, needs: ProfileSettings) -> None:
        self._needs, self._summarizer = needs, Summarizer(step)
        self._class_weights: dict[Any, float] = {}
        self._distinct = np.empty((0, 0), dtype=np.float32)
        self._subsample = FirstPass(_ANY_LABELS, SUBSAMPLE_SEED) if needs.subsample else None

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        if self._needs.dense and sparse.issparse(points.X):
            raise TypeError("X must be dense, but these rows are sparse; convert them by toarray()")
        self._summarizer.add(points, before)
        if self._needs.classes:
            assert points.y is not None
            classes = np.unique(points.y)
            weights = np.bincount(np.searchsorted(classes, points.y), points.weights)
            self._add_classes(dict(zip(classes, weights, strict=True)))
        if self._needs.distinct:
            self._collect_distinct(points.X)
        if self._subsample is not None:
            self._subsample.add(points)

    def absorb(self, summary: DataProfile) -> None:
        self._summarizer.absorb(summary.first_pass)
        self._add_classes(summary.class_weights)
        if len(summary.distinct):
            self._collect_distinct(summary.distinct)
        if self._subsample is not None and summary.subsample is not None:
            self._subsample.absorb(summary.subsample)

    def summary(self) -> DataProfile:
        subsample = None if self._subsample is None else self._subsample.summary()
        first_pass = self._summarizer.summary()
        return DataProfile(first_pass, self._class_weights, self._distinct, subsample)

    def _add_classes(self, weights: dict[Any, float]) -> None:
        for label, weight in weights.items():
            if label != np.floor(label):
                raise ValueError(
                    f"label {label:g} is not a class; a classifier takes whole numbers, booleans, or text"
                )
            self._class_weights[label] = self._class_weights.get(label, 0.0) + weight

    def _collect_distinct(self, X: Any) -> None:
        """Keep as many distinct rows as are needed."""
        if len(self._distinct) < self._needs.distinct:
            both = np.concatenate([self._distinct.reshape(-1, X.shape[1]), X])
            self._distinct = distinct_rows(both, np.arange(len(both)), self._needs.distinct)


def _map_rows(points: WeightedPoints, change: Callable[[Any], Any]) -> WeightedPoints:
    return with_parts(points, X=change(points.X))


def _encode_labels(points: WeightedPoints, classes: Array) -> WeightedPoints:
    """Replace the labels by the numbers of their classes."""
    assert points.y is not None
    codes = np.minimum(np.searchsorted(classes, points.y), len(classes) - 1)
    unknown = classes[codes] != points.y
    if unknown.any():
        label = points.y[unknown][0].item()
        raise ValueError(
            f"label {label!r} was not in the data in the first pass; the data must not change between passes"
        )
    return with_parts(points, y=codes)


@dataclass(frozen=True, eq=False)
class OutOfCoreData:
    """All rows of a scan or a Dask collection: where they are, their profile, and what to change in them."""

    source: ScanSource | DaskSource
    labelled: bool
    profile: DataProfile
    change: Change | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any,
        settings: FitSettings,
        needs: ProfileSettings,
        *,
        labelled: bool,
    ) -> OutOfCoreData:
        """Make the first pass over a scan or a Dask collection.

        Raises
        ------
        TypeError, ValueError
            If no model can be fitted to it.
        """
        # what the first pass computes is the same for every size and anchor
        first = plan(loss=needs.loss, size=2, sampler=settings.sampler, random_state=settings.seed)
        source = _source_of(X, y if labelled else None, sample_weight)
        if source.classes is not None and labelled and not needs.classes:
            raise ValueError(
                f"labels must be numbers; those of the scan are text, such as {source.classes[0]!r}; "
                "choose another label="
            )
        prepare = partial(_prepare, labelled=labelled, change=None)
        profile = source.reduce(partial(Profiler, first, needs), prepare, "profile")
        data = cls(source, labelled, profile)
        if not data.n_points:
            raise ValueError("there are no rows with positive weight; at least one is needed")
        return data

    @property
    def _first_pass(self) -> Any:
        return self.profile.first_pass.body

    @property
    def n_points(self) -> int:
        return int(self._first_pass.n_points)

    @property
    def n_rows(self) -> int:
        return self.n_points

    @property
    def n_columns(self) -> int:
        return int(self._first_pass.form.n_columns)

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, as scikit-learn takes them: all text, or none."""
        names = self.source.names
        if names is None or not all(isinstance(name, str) for name in names):
            return None
        return np.array(names, dtype=object)

    def with_class_codes(self) -> tuple[Array, OutOfCoreData]:
        labels, names = np.array(sorted(self.profile.class_weights)), self.source.classes
        classes = labels if names is None else np.array(names)[labels.astype(np.intp)]
        return classes, replace(self, change=partial(_encode_labels, classes=labels))

    def map_rows(self, change: Callable[[Any], Any]) -> OutOfCoreData:
        return replace(self, change=partial(_map_rows, change=change))

    def build(self, settings: FitSettings, size: int, anchor: Any) -> Coreset:
        step: Plan | Coreset = plan(**settings.coreset_arguments(size, anchor))
        assert isinstance(step, Plan)
        step = finish(Summary(step, self._changed_first_pass()))
        while isinstance(step, Plan):
            step = finish(self._reduce(partial(Summarizer, step), "choose"))
        return step

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        z = outlier_weight(settings.n_outliers, self._first_pass.total)
        return self._reduce(partial(TrimmedPass, settings.loss, theta, z), "evaluate").evaluate(z)

    def subsample(self) -> WeightedPoints:
        assert self.profile.subsample is not None
        return self.profile.subsample.sample()

    def class_weights(self, n_classes: int) -> Array:
        return np.array([weight for _, weight in sorted(self.profile.class_weights.items())])

    def count_distinct(self, enough: int) -> int:
        return len(self.profile.distinct)

    def _reduce(self, make: Callable[[], Any], stage: str) -> Any:
        return self.source.reduce(make, partial(_prepare, labelled=self.labelled, change=self.change), stage)

    def _changed_first_pass(self) -> FirstPassResult:
        """Return the result of the first pass, with the sample for the anchor changed like the rows."""
        first, change = self._first_pass, self.change
        if change is None or first.kept is None:
            return first
        return replace(first, kept=first.kept._replace(points=change(first.kept.points)))
