"""Build a coreset in two passes over parts of the data, by plans and mergeable summaries."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from duramen.arrays import Array
from duramen.coreset import wire
from duramen.coreset.candidates import Collected, Collector, MergedCandidates
from duramen.coreset.choose import choose
from duramen.coreset.coreset import Coreset
from duramen.coreset.view import SAMPLE, Settings, View, find_view, first_view, plan_of
from duramen.errors import rows_from
from duramen.losses.base import Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import RankedSampler, Sampler
from duramen.trimming import outlier_weight

_OTHER_PLAN = (
    "these summaries were made by different plans, so they cannot be merged; use one plan for all "
    "summaries of a pass"
)


@dataclass(frozen=True, eq=False)
class Plan:
    """What to do with every batch in one pass: send it to every machine that has some of the data.

    Made by :func:`plan` for the first pass, and by :func:`finish` for the next one.
    It can be pickled, and contains only the problem, the anchor and a few numbers.

    Attributes
    ----------
    number : int
        The number of the pass, from 1.
    """

    number: int
    problem: Settings = field(repr=False)
    view: View = field(repr=False)
    columns: tuple[str, ...] | None = field(default=None, repr=False)
    first_pass: Collected | None = field(default=None, repr=False)
    fingerprint: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", self.fingerprint or _fingerprint(self))

    def expecting(self, n_rows: int) -> Plan:
        """Plan for ``n_rows`` rows of weight 1 over all parts: each then sends only its share of the sample.

        If there are fewer, the pass is repeated.
        """
        enough = SAMPLE + 1 + 6 * SAMPLE**0.5 + 40
        return self.with_view(limit=enough / n_rows if n_rows > enough else np.inf)

    def with_view(self, **changes: Any) -> Plan:
        """Return the plan with another view."""
        return replace(self, view=replace(self.view, **changes), fingerprint="")


@dataclass(frozen=True, eq=False)
class Summary:
    """The result of a pass over some of the rows: mergeable, and small however many they are."""

    plan: Plan
    body: Collected = field(repr=False)

    @property
    def n_rows(self) -> int:
        """The number of rows it summarizes."""
        return self.body.n_rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Summary) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Summary of {self.n_rows:,} rows in pass {self.plan.number}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Summary.from_bytes, (self.to_bytes(), self.plan)

    def to_bytes(self) -> bytes:
        """Return the bytes of the summary, without the plan: the same on every machine."""
        facts, arrays = self.body.to_parts()
        return wire.pack({"plan": self.plan.fingerprint, **facts}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, plan: Plan) -> Summary:
        """Read what :meth:`to_bytes` returned; raise ValueError unless it is a summary made by this plan."""
        facts, arrays = wire.unpack(data)
        if facts.get("plan") != plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        try:
            return cls(plan, Collected.of_parts(facts, arrays, plan.view))
        except (TypeError, KeyError, IndexError, OverflowError) as error:
            raise wire.damaged(str(error)) from error


def plan(
    *,
    loss: Loss,
    size: int,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    anchor: Any = None,
    calibrate: bool = True,
    random_state: Any = None,
    columns: Sequence[str] | None = None,
    beta: float | None = None,
) -> Plan:
    """Plan the first pass over data that is distributed, or larger than memory.

    Parameters
    ----------
    loss, size, n_outliers, sampler, suspects, anchor, calibrate, random_state, beta
        As for :func:`duramen.robust_coreset`; a sampler must score each point by itself.
    columns : sequence of str, optional
        The names of the columns, kept in the coreset.
    """
    settings = Settings.of(
        loss,
        plan_of(size, None, beta, 0.1, suspects),
        n_outliers=n_outliers,
        sampler=sampler,
        calibrate=calibrate,
        random_state=random_state,
        anchor=anchor,
    )
    if settings.by_size and settings.chooser is not None:
        _check_ranked(settings.chooser)
    return Plan(1, settings, first_view(settings), None if columns is None else tuple(columns))


class Summarizer:
    """A summary in progress, to which batches are added; faster than merging a summary of each."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._collector = plan, Collector(plan.view)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add some rows; errors number rows from ``before``, or from the rows added so far."""
        with rows_from(self._collector.n_rows if before is None else before):
            self._collector.add(points)

    def absorb(self, summary: Summary) -> None:
        """Merge a summary by the same plan into this one."""
        if summary.plan.fingerprint != self._plan.fingerprint:
            raise ValueError(_OTHER_PLAN)
        self._collector.absorb(summary.body)

    def summary(self) -> Summary:
        """Return the summary of all rows added; no more may be added after it."""
        return Summary(self._plan, self._collector.summary())


@one_blas_thread()
def summarize(batch: WeightedPoints | Iterable[WeightedPoints], plan: Plan) -> Summary:
    """Summarize some of the rows for a pass.

    Parameters
    ----------
    batch : WeightedPoints, or an iterable of them
        With ids that are distinct over all batches. An empty batch is fine.
    plan : Plan

    Raises
    ------
    TypeError, ValueError
        If the loss does not accept a row; the message has its number in this batch.
    """
    if not isinstance(plan, Plan):
        raise TypeError(
            f"a batch is summarized by a Plan, from plan() or finish(); found {type(plan).__name__}"
        )
    summarizer = Summarizer(plan)
    for points in [batch] if isinstance(batch, WeightedPoints) else batch:
        summarizer.add(points)
    return summarizer.summary()


@one_blas_thread()
def merge(a: Summary, b: Summary) -> Summary:
    """Merge the summaries of two disjoint sets of rows into a new one.

    Associative and commutative, and an empty summary changes nothing. All sums are
    exact, so that the bytes are the same however many are merged, in whatever order.
    """
    for summary in (a, b):
        _check_summary(summary)
    summarizer = Summarizer(a.plan)
    for summary in (a, b):
        summarizer.absorb(summary)
    return summarizer.summary()


@one_blas_thread()
def finish(summary: Summary) -> Plan | Coreset:
    """Return the plan of the next pass, or the coreset, from the summary of all rows.

    There are two passes: the first counts, and samples an anchor; the second
    chooses. (With a probability below 2e-8 the sample misjudges how large the
    largest losses are; then there is a third.) Every pass must read the same rows.
    """
    _check_summary(summary)
    plan, view, body, first = summary.plan, summary.plan.view, summary.body, summary.plan.first_pass
    if first is None:
        if view.limit < np.inf and body.is_short:
            return plan.with_view(limit=np.inf)
        return _plan_second_pass(plan, body)
    if (body.n_rows, body.n_points) != (first.n_rows, first.n_points):
        raise ValueError(
            f"the first pass had {first.n_rows:,} rows, {first.n_points:,} of positive weight, and pass "
            f"{plan.number} had {body.n_rows:,} and {body.n_points:,}; every pass must read the same points"
        )
    z = outlier_weight(plan.problem.n_outliers, body.total)
    weight = 0.0 if body.suspects is None else body.suspects.points.total_weight
    if view.floor > -np.inf and weight < view.suspected:  # the floor was too high to decide who is suspected
        return replace(plan, number=plan.number + 1).with_view(floor=-np.inf)
    return choose(MergedCandidates(body, view), view, n_outliers=z, columns=plan.columns)


class Reducer(Protocol):
    """What one pass computes, from batches of rows and from summaries of other reducers."""

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add a batch; error messages count rows from ``before``."""

    def absorb(self, summary: Any) -> None:
        """Add the summary of other rows."""

    def summary(self) -> Any:
        """Return the result so far: small, and picklable."""


class Source(Protocol):
    """Rows that can be read as often as needed, in batches, by one reducer or by many that are merged."""

    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        """Make one pass, and return the summary of all rows; ``stage`` names the pass."""


class ScanSource:
    """The batches of a scan: one reducer per thread."""

    def __init__(self, data: Any) -> None:
        self._data, self._n_passes = data, 0
        self.names, self.classes = data.names, data.classes

    @one_blas_thread()
    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        """Make one pass over the scan."""
        self._n_passes += 1
        reducers = self._data.passed(make, _add_batch, self._n_passes)
        return merge_summaries(make, [reducer.summary() for reducer in reducers])


def _add_batch(reducer: Reducer, first: int, points: WeightedPoints) -> None:
    reducer.add(points, before=first)


def merge_summaries(make: Callable[[], Reducer], summaries: Sequence[Any]) -> Any:
    """Merge the summaries of reducers that ``make`` made."""
    if len(summaries) == 1:
        return summaries[0]
    whole = make()
    for summary in summaries:
        whole.absorb(summary)
    return whole.summary()


def run_passes(source: Source, step: Plan | Coreset) -> Coreset:
    """Make the passes that are left, from a plan to the coreset."""
    while isinstance(step, Plan):
        step = finish(source.reduce(partial(Summarizer, step), _PASSES[min(step.number, len(_PASSES)) - 1]))
    return step


# Spelled out: Dask's dashboard groups tasks by the letters at the beginning of their names.
_PASSES = ("first-pass", "second-pass", "third-pass")


def _check_summary(found: Any) -> None:
    if not isinstance(found, Summary):
        hint = "; read bytes with Summary.from_bytes(data, plan)" if isinstance(found, bytes) else ""
        raise TypeError(f"merge and finish take a Summary; found {type(found).__name__}{hint}")


def _plan_second_pass(plan: Plan, first: Collected) -> Plan:
    """Find the anchor, and plan to compute losses there."""
    problem, sample, total = plan.problem, first.sample(), first.total
    z = outlier_weight(problem.n_outliers, total)
    view = find_view(problem, sample, z, total, first.n_points)
    _check_ranked(view.sampler)
    suspected = problem.by_size.suspected_of(z, total)
    floor = _floor(view.anchored(sample)[0].losses, sample, suspected / total)
    view = replace(view, suspected=suspected, floor=floor)
    return Plan(2, problem, view, plan.columns, replace(first, kept=None))


def _floor(losses: Array, sample: WeightedPoints, share: float) -> float:
    """Find a loss that all suspected points exceed, almost certainly, from the losses of a sample.

    Its rank among the largest is six standard deviations beyond what is expected.
    """
    effective = 1 / float(np.square(sample.weights / sample.total_weight).sum())
    share = share + 6 * (share / effective) ** 0.5 + 40 / effective
    if not share < 0.5:
        return -np.inf
    order = np.argsort(losses)[::-1]
    shares_above = np.cumsum(sample.weights[order]) / sample.total_weight
    floor = float(losses[order[min(int(np.searchsorted(shares_above, share)), len(order) - 1)]])
    return floor if np.isfinite(floor) else -np.inf


def _check_ranked(sampler: Sampler) -> None:
    """Raise TypeError unless a sampler scores each point by itself."""
    if not isinstance(sampler, RankedSampler):
        raise TypeError(
            f"{sampler!r} needs all points at once; data that is read in parts needs a sampler that scores "
            "each point by itself: 'uniform', 'layered', 'leverage', 'sensitivity', or a custom RankedSampler"
        )


def _fingerprint(plan: Plan) -> str:
    """Compute a hash that distinguishes a plan from others."""
    problem, view = plan.problem, plan.view
    words = [plan.number, problem.seed, problem.plan, problem.calibrate, problem.n_outliers]
    words += [view.suspected, view.floor, view.limit]
    parts = [repr(words).encode(), *map(_as_bytes, (problem.loss, problem.chooser, view.sampler))]
    for name, state in sorted({**view.anchor.frozen, "": view.anchor.theta}.items()):
        parts.append(name.encode() + state.tobytes())
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def _as_bytes(part: Any) -> bytes:
    """Turn a loss or a sampler into bytes that distinguish it from others, as far as possible."""
    try:
        return pickle.dumps(part, protocol=4)
    except Exception:  # whatever a custom class may raise
        return type(part).__qualname__.encode()
