"""A site: rows that change, of which only summaries are shared."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.coreset.candidates import Collected, Collector
from duramen.coreset.exact import ExactSums
from duramen.coreset.first_pass import FirstPassResult
from duramen.coreset.passes import Plan, Summarizer, Summary, summarize
from duramen.coreset.streaming import RankedPoints
from duramen.coreset.view import View, complete_view
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.ranked import Ranked
from duramen.dynamic.rows import Slots
from duramen.losses.base import Anchor
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints

_MARGIN = 1e-5  # more than what a summary holds beyond the weight to suspect; merging cuts it


def selection_of(rows: DynamicCoreset, view: View) -> Collected | None:
    """Return what a second pass collects from the points, read off the sorted lists of a dynamic coreset.

    Parameters
    ----------
    rows : DynamicCoreset
    view : View
        Of the pass.

    Returns
    -------
    Collected or None
        None if anchor, seed, loss or sampler differ, or if a loss is infinite.

    Notes
    -----
    Cost: O(m d + s (size + m)), for m points that may be suspected and s strata.
    """
    with rows._lock:
        here = rows._state.current_candidates()
        if here is None or not isinstance(here.engine, Ranked) or not _scores_alike(here.view, view):
            return None
        slots, table, engine = rows._sound().slots, here.table, here.engine
        worst, n = _largest(here, slots, view)
        if engine.nonfinite or not np.isfinite(here.scores.losses[worst]).all():
            return None
        found = _inliers(engine, slots, worst[table.n_suspected : n], view)
        if n < table.n_suspected:
            collector = Collector(view)
            collector.absorb(found)
            collector.release(_anchored_points(slots, here, worst[n:], view))
            found = collector.summary()
        suspects = _anchored_points(slots, here, worst[:n], view) if n else None
        return replace(found, n_rows=len(slots), n_points=len(table), suspects=suspects)


def _scores_alike(one: View, view: View) -> bool:
    """Return whether points score the same in one view as in another, with all the features it asks for."""
    known = view.features is None or (
        one.features is not None and one.features.n_columns >= view.features.n_columns
    )
    return (
        known
        and one.seed == view.seed
        and are_alike(one.loss, view.loss)
        and are_alike(one.sampler, view.sampler)
        and same_anchor(one.anchor, view.anchor)
    )


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two losses or samplers are equal; custom ones may not define equality."""
    if one is other or one == other:
        return True
    try:
        return type(one) is type(other) and bool(vars(one) == vars(other))
    except (TypeError, ValueError):  # it has no such attributes, or arrays among them
        return False


def _largest(here: LiveCandidates, slots: Slots, view: View) -> tuple[Array, int]:
    """Return the slots of the largest losses, descending, and how many of them the pass may suspect.

    These are all points that it may suspect, and all that are suspected here.
    """
    enough = view.suspected * (1 + _MARGIN)
    parts, weight, count = [np.empty(0, dtype=np.int64)], 0.0, 0
    table = here.table
    for chunk in table.order.from_place(np.inf, 2**63, up=False):
        parts.append(chunk)
        weight, count = weight + float(slots.weights[chunk].sum()), count + len(chunk)
        if weight > enough and count > table.n_suspected:
            break
    worst = np.concatenate(parts).astype(np.int64)
    weights = slots.weights[worst]
    takes = (np.cumsum(weights) - weights <= enough) & (here.scores.losses[worst] >= view.floor)
    n = int(np.count_nonzero(takes)) if view.suspected > 0 else 0
    return worst[: max(n, table.n_suspected)], n


def _anchored_points(slots: Slots, here: LiveCandidates, which: Array, view: View) -> AnchoredPoints:
    """Return points as the pass scores them, in the order of their ids."""
    which = which[np.argsort(slots.ids[which])]
    return AnchoredPoints(slots.points(which), view.loss, view.anchor, here.scores.losses[which])


def _inliers(engine: Ranked, slots: Slots, without: Array, view: View) -> Collected:
    """Collect the engine's points, without some of them."""
    lists, most = engine, view.settings.by_size.size + 1
    lost = np.zeros(len(without), dtype=np.int64)
    if engine._scores.strata is not None:
        lost += engine._scores.strata[without]
    strata = lists.strata()
    counts = strata.counts - np.bincount(np.searchsorted(strata.numbers, lost), minlength=len(strata.counts))
    numbers = strata.numbers[counts > 0]
    weights, parts = ExactSums(len(numbers)), []
    for at, number in enumerate(numbers.tolist()):
        mine, exact = without[lost == number], lists._weights[number]
        first = lists._lists[number].first(most + len(mine))
        parts.append(first[~np.isin(first, mine)][:most])
        left = exact.total()
        left.add_rows(slots.weights[mine], -1)
        weights.absorb(left, at=[at])
    totals = None
    if view.features is not None:
        assert engine.exact_totals is not None
        totals = ExactSums(view.features.n_columns)
        totals.absorb(engine.exact_totals)
        if len(without):
            totals.add_rows(engine.contributions(without)[:, : len(totals)], -1)
    kept = _ranked_points(engine, slots, parts, numbers)
    return Collected(0, 0, None, numbers, counts[counts > 0], weights, totals, kept)


def _ranked_points(engine: Ranked, slots: Slots, parts: list[Array], numbers: Array) -> RankedPoints | None:
    """Return points in the order of their ids, each with its rank and the number of its stratum."""
    if not parts:
        return None
    chosen = np.concatenate(parts).astype(np.int64)
    places = np.repeat(numbers, [len(part) for part in parts])
    order = np.argsort(slots.ids[chosen])
    chosen = chosen[order]
    return RankedPoints(slots.points(chosen), engine._scores.ranks[chosen], places[order])


_TOGETHER = 1 << 16  # rows copied together


@final
class Site:
    """The rows of one site, which are inserted, deleted and updated there, and summaries of them.

    Parameters
    ----------
    rows : DynamicCoreset
        Holds the rows: of the same problem and ``random_state`` as the federation, with ``n_outliers`` as a
        fraction or 0. A :class:`duramen.Store` keeps them on disk.
    max_rows : int, optional
        The most rows that a summary may contain.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> from duramen.distributed import Summary, plan
    >>> site = Site(dm.DynamicCoreset(dm.KMeansLoss(1), size=100, random_state=0))
    >>> ids = site.insert(np.random.default_rng(0).normal(size=(5000, 2)), ids=np.arange(5000))
    >>> site.delete(ids[:2000])
    >>> first = plan(loss=dm.KMeansLoss(1), size=100, random_state=0)
    >>> site.summary(first)
    Summary of 3,000 rows in pass 1
    """

    def __init__(self, rows: DynamicCoreset, *, max_rows: int | None = None) -> None:
        if not isinstance(rows, DynamicCoreset):
            raise TypeError(
                f"a site holds its rows in a DynamicCoreset or a Store; found {type(rows).__name__}"
            )
        self.rows = rows
        self.max_rows = None if max_rows is None else check_count("max_rows", max_rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_points(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Site of {len(self):,} rows"

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        """Insert rows, as :meth:`duramen.DynamicCoreset.insert` does, with ids that no other site has.

        Raises
        ------
        TypeError, ValueError
            Naming the row and what to do; nothing is changed.
        """
        if ids is None:
            raise TypeError(
                "a site cannot number its rows, as other sites may use the same numbers; pass ids that no "
                "other site has, such as ids=['berlin-1', 'berlin-2']"
            )
        return self.rows.insert(X, y, sample_weight, ids)

    def delete(self, ids: Any) -> None:
        """Delete rows, as :meth:`duramen.DynamicCoreset.delete` does."""
        self.rows.delete(ids)

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        """Update rows, as :meth:`duramen.DynamicCoreset.update` does."""
        self.rows.update(ids, X, y, sample_weight)

    def summary(self, plan: Plan) -> Summary:
        """Summarize the current rows, all at one moment.

        Parameters
        ----------
        plan : Plan
            The plan of the first or the second pass.

        Returns
        -------
        Summary

        Raises
        ------
        PermissionError
            If the summary would contain more than ``max_rows`` rows.
        TypeError, ValueError
            If the loss does not accept a row.

        Notes
        -----
        The first pass reads all rows. The second one does if its anchor is new: the rows
        are then scored again, as by ``rows.reanchor(anchor)``, and later summaries are read
        off the sorted lists.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"a site takes a Plan, or the pickle of one; found {type(plan).__name__}")
        with self.rows._lock:
            summary = self._first_pass(plan) if plan.view is None else self._second_pass(plan, plan.view)
        if self.max_rows is not None and rows_in(summary) > self.max_rows:
            raise PermissionError(
                f"the summary would have {rows_in(summary):,} rows, but max_rows={self.max_rows:,}; use a "
                "smaller size, fewer outliers, or an anchor that has all that the sampler freezes"
            )
        return summary

    def answer(self, plan: Plan | bytes) -> bytes:
        """Return the bytes of the summary for a plan, or for its pickle.

        Unpickling runs code: accept pickles only from those who may run code here.
        """
        return self.summary(pickle.loads(plan) if isinstance(plan, bytes) else plan).to_bytes()

    def _first_pass(self, plan: Plan) -> Summary:
        """Summarize for a first pass; without a sample if the given anchor needs none."""
        summary = summarize(self._parts(), plan)
        body = summary.body
        assert isinstance(body, FirstPassResult)
        problem = plan.problem
        if body.kept is None or not isinstance(problem.given, Anchor):
            return summary
        points, numbers, places = body.kept
        if not complete_view(problem, points):
            return summary
        one = RankedPoints(points.take([0]), numbers[:1], places[:1])  # shows the form of the rows
        return Summary(plan, replace(body, kept=one))

    def _second_pass(self, plan: Plan, view: View) -> Summary:
        found = selection_of(self.rows, view)
        if found is None and self._reanchor(view):
            found = selection_of(self.rows, view)
        if found is None:
            return summarize(self._parts(), plan)
        summarizer = Summarizer(plan)
        summarizer.absorb(Summary(plan, found))
        return summarizer.summary()

    def _reanchor(self, view: View) -> bool:
        """Score all rows at the view's anchor, if they are for this problem; return whether that was done."""
        rows, anchor = self.rows, view.anchor
        matches = rows.engine == "ranked" and rows.seed == view.seed and are_alike(rows.loss, view.loss)
        if not matches or (rows.anchor is not None and same_anchor(rows.anchor, anchor)):
            return False
        try:
            rows.reanchor(anchor)
        except (ValueError, PermissionError):  # too little weight, or read-only
            return False
        return True

    def _parts(self) -> Iterator[WeightedPoints]:
        """Iterate over all rows, in parts small enough to copy."""
        ids = self.rows.ids
        for start in range(0, len(ids), _TOGETHER):
            yield self.rows.points(ids[start : start + _TOGETHER])


def rows_in(summary: Summary) -> int:
    """Count the rows that a summary contains.

    Examples
    --------
    >>> import duramen as dm
    >>> from duramen.distributed import plan, summarize
    >>> first = plan(loss=dm.KMeansLoss(1), size=10)
    >>> rows_in(summarize(dm.points([[0.0], [1.0]]), first))
    2
    """
    return sum(map(len, points_in(summary)))


def points_in(summary: Summary) -> list[WeightedPoints]:
    """Return the rows that a summary contains."""
    body = summary.body
    if isinstance(body, Collected):
        kept, suspects = body.kept, body.suspects
        return [part.points for part in (kept, suspects) if part is not None]
    return [] if body.kept is None else [body.kept.points]
