"""Fit on data that does not fit in memory: scans and Dask collections, of which only summaries are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.first_pass import FirstPass, FirstPassResult
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan
from duramen.distributed.dask.partitions import Parts, constant, parts_of, task
from duramen.estimators.fitting import SOME_SEED, FitSettings, LossesAtSolution, MemoryData
from duramen.io.scan import Scan
from duramen.losses import KMeansLoss
from duramen.losses.base import Loss
from duramen.parallel import on_one_thread, one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers import Sampler
from duramen.trimming import kept_weights, outlier_weight

_BATCH = 1 << 16  # rows of a partition that are looked at together
_FAN_IN = 8  # summaries that one task merges

Change = Callable[[WeightedPoints], WeightedPoints]


class Source(Protocol):
    """What a pass gathers, under way: from batches, and from summaries of others."""

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Take in some rows; an error counts those in ``before`` them."""

    def absorb(self, summary: Any) -> None:
        """Take in what another pass over other rows gathered."""

    def summary(self) -> Any:
        """Give all that was gathered: small, and fit to travel."""


@dataclass(frozen=True)
class Preparation:
    """What becomes of rows before anything is gathered: those without weight are as good as absent.

    Attributes
    ----------
    labelled : bool
        Whether labels are needed; else they are ignored.
    change : function or None
        What else is to be done with points.
    """

    labelled: bool
    change: Change | None = None

    def __call__(self, points: WeightedPoints) -> WeightedPoints:
        """Prepare a batch."""
        if self.labelled and points.y is None:
            raise ValueError(
                "labels are needed, and there are none; name their column in dm.scan(..., label=...), or "
                "pass a Dask array or Series as y"
            )
        if not self.labelled and points.y is not None:
            points = WeightedPoints._from_parts(points.X, None, points.weights, points.ids)
        if not points.weights.all():
            points = points.take(points.weights > 0)
        return points if self.change is None or not len(points) else self.change(points)


class ScanSource:
    """A scan, pass after pass.

    Parameters
    ----------
    data : Scan
    """

    def __init__(self, data: Scan) -> None:
        self._data, self._n_passes = data, 0
        self.classes = data.classes

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The names of the columns."""
        return self._data.names

    @one_blas_thread()
    def gather(self, begin: Callable[[], Source], prepare: Preparation, stage: str) -> Any:
        """Make one pass, parts of files side by side: a gathering for each thread."""
        self._n_passes += 1

        def take(mine: Source, first: int, points: WeightedPoints) -> None:
            batch = prepare(points)
            if len(batch):
                mine.add(batch, before=first if len(batch) == len(points) else None)

        with self._data.shown() as shown:
            found = self._data.passed(begin, take, lambda share, n_rows: shown(self._n_passes, share, n_rows))
        return _merge(begin, [one.summary() for one in found])


class DaskSource:
    """The partitions of a Dask collection, pass after pass."""

    classes = None

    def __init__(self, parts: Parts) -> None:
        self._parts = parts.numbered()

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The names of the columns."""
        return self._parts.layout.features

    def gather(self, begin: Callable[[], Source], prepare: Preparation, stage: str) -> Any:
        """Make one pass: a task a partition, and a tree of tasks that merge what they gathered."""
        name = f"duramen-fit-{stage}"
        shared = constant((begin, prepare), f"{name}-plan")
        summaries = self._parts.each(_gathered, shared, name)
        merge = task(f"{name}-merge")
        while len(summaries) > 1:
            groups = [summaries[at : at + _FAN_IN] for at in range(0, len(summaries), _FAN_IN)]
            summaries = [merge(_merged, shared, group) for group in groups]
        return self._parts.fetch(summaries[0])[0]


def is_out_of_core(X: Any) -> bool:
    """Tell whether data is a scan or a Dask collection."""
    if isinstance(X, Scan):
        return True
    dask = sys.modules.get("dask")  # whoever has a collection has imported it
    return dask is not None and hasattr(type(X), "__dask_graph__") and bool(dask.is_dask_collection(X))


def source_of(X: Any, y: Any, sample_weight: Any, *, labelled: bool) -> ScanSource | DaskSource:
    """See data as what passes can be made over; a Dask frame's rows are counted.

    Raises
    ------
    TypeError, ValueError
        If labels or weights do not go with it.
    """
    if isinstance(X, Scan):
        given = {"y": (y if labelled else None, "label"), "sample_weight": (sample_weight, "weight")}
        for name, (value, role) in given.items():
            if value is not None:
                raise TypeError(
                    f"{name} cannot be passed beside data that is scanned; name the column in "
                    f"dm.scan(..., {role}=...)"
                )
        return ScanSource(X)
    return DaskSource(parts_of(X, y if labelled else None, sample_weight=sample_weight))


def _gathered(points: WeightedPoints | None, shared: Any) -> Any:
    begin, prepare = shared
    mine = begin()
    for at in range(0, 0 if points is None else len(points), _BATCH):
        assert points is not None
        batch = prepare(points.take(slice(at, at + _BATCH)))
        if len(batch):
            mine.add(batch, before=at)
    return mine.summary()


def _merged(shared: Any, summaries: Sequence[Any]) -> Any:
    with on_one_thread():
        return _merge(shared[0], summaries)


def _merge(begin: Callable[[], Source], summaries: Sequence[Any]) -> Any:
    def together(whole: Source, summary: Any) -> Source:
        whole.absorb(summary)
        return whole

    return summaries[0] if len(summaries) == 1 else reduce(together, summaries, begin()).summary()


_MARGIN = 1e-6  # more than what rounding makes of sums of weights


class _Rows(NamedTuple):
    """What is held of some rows."""

    losses: Array
    ids: Array
    weights: Array
    labels: Array | None

    def take(self, rows: Array) -> _Rows:
        """Take some of them."""
        return _Rows(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


class TrimmedResult(NamedTuple):
    """What was seen of some rows: those of the largest losses, and the sum over all others."""

    rows: _Rows | None
    rest: ExactSums

    def evaluate(self, z: float) -> LossesAtSolution:
        """Trim weight z, once all rows were seen."""
        rows, total = self.rows, ExactSums(1)
        total.absorb(self.rest)
        if rows is None:
            return LossesAtSolution(
                float(total.values[0]), np.empty(0, dtype=np.int64), np.inf, None, None, np.empty(0)
            )
        kept = kept_weights(rows.losses, rows.weights, z, rows.ids)
        left = kept > 0
        total.add_column(0, kept[left] * rows.losses[left])
        aside = rows.take(np.flatnonzero(kept < rows.weights))
        aside = aside.take(np.lexsort((-aside.ids, -aside.losses)))
        threshold = float(aside.losses[-1]) if len(aside.ids) else np.inf
        return LossesAtSolution(
            float(total.values[0]), aside.ids, threshold, None, aside.labels, aside.weights
        )


class TrimmedPass:
    """The look, under way: it holds rows of the largest (loss, id) that weigh a little more than z.

    As rows come, the edge moves up only: a row below it is kept for good, and
    its loss is added to an exact sum. At most twice as many are held: newcomers
    wait until they are as many.

    Parameters
    ----------
    loss : Loss
    theta : array
    z : float
        The weight to set aside of all rows.
    """

    def __init__(self, loss: Loss, theta: Array, z: float) -> None:
        self._loss, self._theta, self._z = loss, theta, z
        self._edge: tuple[float, int] = (-np.inf, np.iinfo(np.int64).min)
        self._held: _Rows | None = None
        self._waiting: list[_Rows] = []
        self._n_waiting = 0
        self._rest = ExactSums(1)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add the losses of some rows."""
        values = self._loss.values(self._theta, points.X, points.y)
        losses = np.asarray(values, dtype=np.float64)
        if np.isnan(losses).any():
            name = points.ids[np.isnan(losses)][0]
            raise ValueError(f"the loss of the row with id {name} is no number; scale the columns down")
        self._take(_Rows(losses, points.ids, points.weights, points.y))

    def absorb(self, summary: TrimmedResult) -> None:
        """Take in what was seen elsewhere."""
        self._rest.absorb(summary.rest)
        if summary.rows is not None:
            self._take(summary.rows)

    def summary(self) -> TrimmedResult:
        """Give what was seen."""
        self._cut()
        return TrimmedResult(self._held, self._rest)

    def _take(self, rows: _Rows) -> None:
        if self._z == 0:
            return self._let_go(rows)
        loss, name = self._edge
        above = (rows.losses > loss) | ((rows.losses == loss) & (rows.ids > name))
        if not above.all():
            self._let_go(rows.take(~above))
            rows = rows.take(above)
        if len(rows.ids):
            self._waiting.append(rows)
            self._n_waiting += len(rows.ids)
        if self._n_waiting > (0 if self._held is None else len(self._held.ids)):
            self._cut()
        return None

    def _let_go(self, rows: _Rows) -> None:
        self._rest.add_column(0, rows.losses * rows.weights)

    def _cut(self) -> None:
        """Hold no more rows than may be set aside."""
        if not self._waiting:
            return
        rows = _concatenate(self._waiting if self._held is None else [self._held, *self._waiting])
        self._waiting, self._n_waiting = [], 0
        order = np.lexsort((rows.ids, rows.losses))[::-1]
        heavy = np.cumsum(rows.weights[order])
        most = int(np.searchsorted(heavy, self._z * (1 + _MARGIN), side="right")) + 1
        if most < len(order):
            self._let_go(rows.take(order[most:]))
        self._held = rows.take(order[:most])
        if most <= len(order):
            self._edge = float(self._held.losses[-1]), int(self._held.ids[-1])


def _concatenate(parts: list[_Rows]) -> _Rows:
    columns: Any = zip(*parts, strict=True)
    return _Rows(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


_ANY = KMeansLoss(1)  # a loss that takes any labels


class IntakeSettings(NamedTuple):
    """What a fit must know of all rows before it begins, beside how many there are.

    ``loss`` refuses labels that it cannot take; ``classes``: which labels there
    are; ``distinct``: whether so many rows differ; ``some``: a sample to measure a
    scale on. ``dense``: that no rows are sparse.
    """

    loss: Loss = _ANY
    classes: bool = False
    distinct: int = 0
    some: bool = False
    dense: bool = False


class Intake(NamedTuple):
    """What the first pass tells."""

    census: Summary
    classes: Array | None
    class_weights: Array
    distinct: Array | None
    some: FirstPassResult | None


class IntakeReducer:
    """The first pass, under way."""

    def __init__(self, step: Plan, needs: IntakeSettings) -> None:
        self._needs, self._summarizer = needs, Summarizer(step)
        self._classes: Array | None = None
        self._weights = np.empty(0)
        self._distinct: Array | None = None
        self._some = FirstPass(_ANY, SOME_SEED) if needs.some else None

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Take in some rows."""
        if self._needs.dense and sparse.issparse(points.X):
            raise TypeError("dense rows are needed, and these are sparse; pass their toarray()")
        self._summarizer.add(points, before)
        if self._needs.classes:
            assert points.y is not None
            self._count(points.y, points.weights)
        if self._needs.distinct:
            self._tell_apart(points.X)
        if self._some is not None:
            self._some.add(points)

    def absorb(self, summary: Intake) -> None:
        """Take in what came elsewhere."""
        self._summarizer.absorb(summary.census)
        if summary.classes is not None:
            self._count(summary.classes, summary.class_weights)
        if summary.distinct is not None:
            self._tell_apart(summary.distinct)
        if self._some is not None and summary.some is not None:
            self._some.absorb(summary.some)

    def summary(self) -> Intake:
        """Give all that is known."""
        some = None if self._some is None else self._some.summary()
        return Intake(self._summarizer.summary(), self._classes, self._weights, self._distinct, some)

    def _count(self, labels: Array, weights: Array) -> None:
        known = labels[:0] if self._classes is None else self._classes
        codes = _codes(labels, known)
        if (codes < 0).any():
            names = np.unique(labels)
            if names.dtype.kind == "f" and (names != np.floor(names)).any():
                odd = names[names != np.floor(names)][0]
                raise ValueError(
                    f"a label such as {odd:g} is no class; a classifier takes whole numbers, True and False, "
                    "or text"
                )
            self._classes = np.union1d(known, names)
            counts = np.zeros(len(self._classes))
            counts[_codes(known, self._classes)] = self._weights
            self._weights, codes = counts, _codes(labels, self._classes)
        self._weights = self._weights + np.bincount(codes, weights, minlength=len(self._weights))

    def _tell_apart(self, X: Any) -> None:
        enough, found = self._needs.distinct, self._distinct
        looked, n = 4 * enough, X.shape[0]
        while n and (found is None or len(found) < enough):
            rows = X[:looked]
            found = np.unique(rows if found is None else np.concatenate([found, rows]), axis=0)[:enough]
            if looked >= n:
                break
            looked *= 8
        self._distinct = found


def _map_rows(points: WeightedPoints, change: Callable[[Any], Any]) -> WeightedPoints:
    return WeightedPoints._from_parts(change(points.X), points.y, points.weights, points.ids)


def _encode_labels(points: WeightedPoints, classes: Array) -> WeightedPoints:
    """Replace the labels by the numbers of their classes."""
    assert points.y is not None
    codes = _codes(points.y, classes)
    if (codes < 0).any():
        label = points.y[codes < 0][0].item()
        raise ValueError(
            f"label {label!r} was not in the data in the first pass; the data must not change between passes"
        )
    return WeightedPoints._from_parts(points.X, codes, points.weights, points.ids)


@dataclass(frozen=True, eq=False)
class OutOfCoreData:
    """Data that does not fit in memory, as a fit needs it.

    Attributes
    ----------
    source : ScanSource or DaskSource
    prepare : Preparation
    intake : Intake
        Of the rows before any change.
    censuses : dict
        What is known of the rows, and the sample for an anchor, by the seed of it.
    """

    source: ScanSource | DaskSource
    prepare: Preparation
    intake: Intake
    censuses: dict[int, FirstPassResult] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any,
        settings: FitSettings,
        *,
        labelled: bool,
        needs: IntakeSettings,
    ) -> OutOfCoreData:
        """Make the first pass over a scan or a Dask collection; the settings's random state is the seed.

        Raises
        ------
        TypeError, ValueError
            If it cannot be fitted on.
        """
        first = _first(needs.loss, settings.random_state, settings.sampler)
        source, prepare = source_of(X, y, sample_weight, labelled=labelled), Preparation(labelled)
        if source.classes is not None and labelled and not needs.classes:
            raise ValueError(
                f"labels must be numbers; the scan's are text: {source.classes[:3]}; take another label="
            )
        intake = source.gather(partial(IntakeReducer, first, needs), prepare, "census")
        data = cls(source, prepare, intake, {first.problem.seed: intake.census.body})
        if not data.n_points:
            rows = "all weights are zero" if data._census.n_rows else "there are no rows"
            raise ValueError(
                f"{rows}, so that there is nothing to fit; at least one row must weigh something"
            )
        return data

    @property
    def _census(self) -> Any:
        return self.intake.census.body

    @property
    def n_points(self) -> int:
        """How many rows weigh anything."""
        return int(self._census.n_points)

    @property
    def n_rows(self) -> int:
        """How many rows weigh anything: the others are not counted."""
        return self.n_points

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""
        return int(self._census.form.n_columns)

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, as scikit-learn takes them: all text, or none."""
        names = self.source.names
        if names is None or not all(isinstance(name, str) for name in names):
            return None
        return np.array(names, dtype=object)

    def with_class_codes(self) -> tuple[Array, OutOfCoreData]:
        """Return the sorted classes, and the same rows with the numbers of their classes as labels."""
        labels, names = self.intake.classes, self.source.classes
        assert labels is not None
        classes = labels if names is None else np.array(names)[labels.astype(np.intp)]
        return classes, self._changed(partial(_encode_labels, classes=labels))

    def map_rows(self, change: Callable[[Any], Any]) -> OutOfCoreData:
        """Return the same data with all rows changed from now on."""
        return self._changed(partial(_map_rows, change=change))

    def _changed(self, change: Change) -> OutOfCoreData:
        return replace(self, prepare=replace(self.prepare, change=change))

    def build(self, settings: FitSettings, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset, in one pass."""
        step: Plan | Coreset = plan(
            loss=settings.loss,
            size=size,
            n_outliers=settings.n_outliers,
            sampler=settings.sampler,
            anchor=anchor,
            random_state=seed,
        )
        assert isinstance(step, Plan)
        step = finish(Summary(step, self._counted(seed)))
        while isinstance(step, Plan):
            step = finish(self._gather(partial(Summarizer, step), "choose"))
        return step

    def evaluate(self, settings: FitSettings, theta: Array) -> LossesAtSolution:
        """Compute the losses of all rows at theta."""
        z = outlier_weight(settings.n_outliers, self._census.total)
        return self._gather(partial(TrimmedPass, settings.loss, theta, z), "look").evaluate(z)

    def ids_of(self, outliers: Array) -> Array:
        """Give the ids of outliers: themselves."""
        return outliers

    def some(self) -> MemoryData:
        """Take some rows by chance, before any change."""
        assert self.intake.some is not None
        points = self.intake.some.sample()
        return MemoryData(points.X, points.y, points.weights, points.ids)

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes."""
        return self.intake.class_weights

    def distinct(self, enough: int) -> int:
        """Count the distinct rows."""
        assert self.intake.distinct is not None
        return min(enough, len(self.intake.distinct))

    def _gather(self, begin: Callable[[], Any], stage: str) -> Any:
        return self.source.gather(begin, self.prepare, stage)

    def _counted(self, seed: int) -> FirstPassResult:
        """Give the census whose sample was drawn by a seed, with points as they are now."""
        first = _first(_ANY, seed)
        number = first.problem.seed
        if number not in self.censuses:
            plain = Preparation(self.prepare.labelled)
            self.censuses[number] = self.source.gather(partial(Summarizer, first), plain, "census").body
        census, change = self.censuses[number], self.prepare.change
        if change is None or census.kept is None:
            return census
        return replace(census, kept=census.kept._replace(points=change(census.kept.points)))


def _first(loss: Loss, seed: int, sampler: Sampler | str = "auto") -> Plan:
    """Plan a first pass: the census is the same for every size, anchor and solution."""
    return plan(loss=loss, size=2, sampler=sampler, random_state=seed)


def _codes(labels: Array, classes: Array) -> Array:
    """Find the numbers of classes, which are sorted; -1 for those that are not there."""
    if not len(classes):
        return np.full(len(labels), -1, dtype=np.intp)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[codes] == labels, codes, -1)
