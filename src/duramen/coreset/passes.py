"""Build a coreset in two passes over parts of the data, by plans and mergeable summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from duramen.arrays import Array, weighted_quantiles
from duramen.coreset.candidates import MergedCandidates, Plan, Summarizer, Summary
from duramen.coreset.choose import choose
from duramen.coreset.coreset import Coreset
from duramen.coreset.view import Settings, find_view, first_view
from duramen.losses.base import Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import RankedSampler, Sampler
from duramen.trimming import outlier_weight


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
        loss=loss,
        size=size,
        beta=beta,
        suspects=suspects,
        n_outliers=n_outliers,
        sampler=sampler,
        calibrate=calibrate,
        random_state=random_state,
        anchor=anchor,
    )
    if settings.by_size and not isinstance(settings.chooser, RankedSampler | None):
        raise TypeError(
            f"{settings.chooser!r} needs all points at once; data that is read in parts needs a sampler that "
            "scores each point by itself: 'uniform', 'layered', 'leverage', 'sensitivity', or a custom "
            "RankedSampler"
        )
    return Plan(1, settings, first_view(settings), None if columns is None else tuple(columns))


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
    _check_summary(a)
    _check_summary(b)
    return merge_summaries(partial(Summarizer, a.plan), (a, b))


@one_blas_thread()
def finish(summary: Summary) -> Plan | Coreset:
    """Return the plan of the next pass, or the coreset, from the summary of all rows.

    There are two passes: the first counts, and samples an anchor; the second
    chooses. (With a probability below 2e-8 the sample misjudges how large the
    largest losses are; then there is a third.) Every pass must read the same rows.
    """
    _check_summary(summary)
    plan, view = summary.plan, summary.plan.view
    if view.blind:
        enough = min(view.settings.by_size.size + 1, summary.n_points)
        if plan.limit < np.inf and len(summary.kept.keys) < enough:
            return replace(plan, limit=np.inf)
        return _plan_second_pass(summary)
    first, now = plan.expected, (summary.n_rows, summary.n_points)
    if first not in (None, now):
        text = "the first pass had {:,} rows, {:,} of positive weight, and pass {} had {:,} and {:,}"
        raise ValueError(f"{text.format(*first, plan.number, *now)}; every pass must read the same points")
    z = outlier_weight(plan.problem.n_outliers, summary.total)
    found = summary.suspects.points.total_weight
    if plan.floor > -np.inf and found < plan.suspected:  # the floor was too high to decide
        return replace(plan, number=plan.number + 1, floor=-np.inf)
    return choose(MergedCandidates(summary), view, n_outliers=z, columns=plan.columns)


class Reducer(Protocol):
    """What one pass computes, from batches of rows and from summaries of other reducers."""

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Add a batch; error messages count rows from ``before``."""

    def absorb(self, summary: Any) -> None:
        """Add the summary of other rows."""

    def summary(self) -> Any:
        """Return the result so far: small, and picklable."""


Make: TypeAlias = Callable[[], Reducer]


class Source(Protocol):
    """Rows that can be read as often as needed, in batches, by one reducer or by many that are merged."""

    def reduce(self, make: Make, stage: str) -> Any:
        """Make one pass, and return the summary of all rows; ``stage`` names the pass."""


class ScanSource:
    """The batches of a scan: one reducer per thread."""

    def __init__(self, data: Any) -> None:
        self._data, self._n_passes = data, 0
        self.names, self.classes = data.names, data.classes

    @one_blas_thread()
    def reduce(self, make: Make, stage: str) -> Any:
        """Make one pass over the scan."""
        self._n_passes += 1
        reducers = self._data.passed(
            make, lambda reducer, first, points: reducer.add(points, before=first), self._n_passes
        )
        return merge_summaries(make, [reducer.summary() for reducer in reducers])


def merge_summaries(make: Make, summaries: Sequence[Any]) -> Any:
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
        step = finish(source.reduce(partial(Summarizer, step), _PASSES[step.number - 1]))
    return step


# Spelled out: Dask's dashboard groups tasks by the letters at the beginning of their names.
_PASSES = ("first-pass", "second-pass", "third-pass")


def _check_summary(found: Any) -> None:
    if not isinstance(found, Summary):
        hint = "; read bytes with Summary.from_bytes(data, plan)" if isinstance(found, bytes) else ""
        raise TypeError(f"merge and finish take a Summary; found {type(found).__name__}{hint}")


def _plan_second_pass(first: Summary) -> Plan:
    """Find the anchor, and plan to compute losses there."""
    problem, sample, total = first.plan.problem, first.sample(), first.total
    z = outlier_weight(problem.n_outliers, total)
    view = find_view(problem, sample, z, total, first.n_points)
    suspected = problem.by_size.suspected_of(z, total)
    floor = _floor(view.anchored(sample)[0].losses, sample, suspected / total)
    return Plan(2, problem, view, first.plan.columns, (first.n_rows, first.n_points), suspected, floor)


def _floor(losses: Array, sample: WeightedPoints, share: float) -> float:
    """Find a loss that all suspected points exceed, almost certainly, from the losses of a sample.

    Its rank among the largest is six standard deviations beyond what is expected.
    """
    effective = 1 / np.square(sample.weights / sample.total_weight).sum()
    share = share + 6 * (share / effective) ** 0.5 + 40 / effective
    if not share < 0.5:
        return -np.inf
    floor = float(weighted_quantiles(losses, sample.weights, [1 - share])[0])
    return floor if np.isfinite(floor) else -np.inf
