"""A site: rows that change, and of which only summaries leave."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.ball import Anchor
from duramen.coreset.candidates import Candidates, Inliers, InlierState
from duramen.coreset.exact import ExactSums, sum_in_units
from duramen.coreset.first_pass import FirstPassResult
from duramen.coreset.passes import Plan, Summarizer, Summary, summarize
from duramen.coreset.streaming import RankedPoints
from duramen.coreset.view import View, complete_anchor
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.ranked import Ranked, Scorer
from duramen.dynamic.rows import Slots
from duramen.dynamic.table import LossTable
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints

_MARGIN = 1e-5  # more than what a summary holds beyond the weight to suspect; merging cuts it


def selection_of(rows: DynamicCoreset, outlook: View) -> Candidates | None:
    """Return what a second pass collects from the points, read off the sorted lists of a dynamic coreset.

    Parameters
    ----------
    rows : DynamicCoreset
    outlook : View
        Of the pass.

    Returns
    -------
    Candidates or None
        None if anchor, seed, loss or sampler differ, or if a loss is infinite.

    Notes
    -----
    Cost: O(m d + s (size + m)), for m points that may be suspected and s strata.
    """
    with rows._lock:
        view = rows._current_candidates()
        if view is None or not isinstance(view.engine, Ranked) or not _sees_alike(view.scorer, outlook):
            return None
        slots, table, engine = rows._sound().slots, view.table, view.engine
        worst, n = _largest(table, slots, outlook)
        if engine.nonfinite or not np.isfinite(table.losses[worst]).all():
            return None
        inliers = _inliers(engine, slots, worst[table.n_suspected : n], outlook)
        if n < table.n_suspected:
            inliers = _with(inliers, _seen(slots, table, worst[n:], outlook), outlook)
        suspects = _seen(slots, table, worst[:n], outlook) if n else None
        return Candidates(len(slots), len(table), suspects, inliers)


def _sees_alike(look: Scorer, outlook: View) -> bool:
    """Return whether points score the same here as in the pass, with all the features it asks for."""
    known = outlook.features is None or (
        look.known is not None and look.known.n_columns >= outlook.features.n_columns
    )
    return (
        known
        and look.seed == outlook.seed
        and are_alike(look.loss, outlook.loss)
        and are_alike(look.sampler, outlook.sampler)
        and same_anchor(look.anchor, outlook.anchor)
    )


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two losses or samplers are equal; custom ones may not define equality."""
    if one is other or one == other:
        return True
    try:
        return type(one) is type(other) and bool(vars(one) == vars(other))
    except (TypeError, ValueError):  # it has no such parts, or arrays among them
        return False


def _largest(table: LossTable, slots: Slots, outlook: View) -> tuple[Array, int]:
    """Return the slots of the largest losses, descending, and how many of them the pass may suspect.

    These are all points that it may suspect, and all that are suspected here.
    """
    enough = outlook.suspected * (1 + _MARGIN)
    parts, heavy, count = [np.empty(0, dtype=np.int64)], 0.0, 0
    for chunk in table.order.parts():
        parts.append(chunk[::-1])
        heavy, count = heavy + float(slots.weights[chunk].sum()), count + len(chunk)
        if heavy > enough and count > table.n_suspected:
            break
    worst = np.concatenate(parts).astype(np.int64)
    weights = slots.weights[worst]
    takes = (np.cumsum(weights) - weights <= enough) & (table.losses[worst] >= outlook.floor)
    n = int(np.count_nonzero(takes)) if outlook.suspected > 0 else 0
    return worst[: max(n, table.n_suspected)], n


def _seen(slots: Slots, table: LossTable, which: Array, outlook: View) -> AnchoredPoints:
    """Return points as the pass sees them, in the order of their ids."""
    which = which[np.argsort(slots.ids[which])]
    return AnchoredPoints(slots.points(which), outlook.loss, outlook.anchor, table.losses[which])


def _with(state: InlierState, seen: AnchoredPoints, outlook: View) -> InlierState:
    """Take points for inliers that are suspected here, and not by the pass."""
    inner = Inliers(outlook)
    inner.absorb(state)
    inner.add_few(seen)
    return inner.state()


def _inliers(engine: Ranked, slots: Slots, without: Array, outlook: View) -> InlierState:
    """Return the state of the engine's points without some."""
    lists, most = engine, outlook.plan.size + 1
    gone = engine.strata_of(without)
    gone = np.zeros(len(without), dtype=np.int64) if gone is None else gone.astype(np.int64)
    strata = lists.strata()
    counts = strata.counts - np.bincount(np.searchsorted(strata.numbers, gone), minlength=len(strata.counts))
    numbers = strata.numbers[counts > 0]
    weights, parts = [], []
    for number in numbers.tolist():
        mine, exact = without[gone == number], lists._weights[number]
        first = lists._lists[number].first(most + len(mine))
        parts.append(first[~np.isin(first, mine)][:most])
        weights.append(exact.units - sum_in_units(slots.weights[mine]))
    totals = None
    if outlook.features is not None:
        assert engine.exact_totals is not None
        totals = ExactSums(outlook.features.n_columns)
        totals.absorb(engine.exact_totals)
        if len(without):
            totals.add_rows(engine.contributions(without)[:, : len(totals)], -1)
    held = _held(engine, slots, parts, numbers)
    stratified = held is not None and engine._scorer.strata_type is not None
    return InlierState(numbers, counts[counts > 0], weights, totals, stratified, held)


def _held(engine: Ranked, slots: Slots, parts: list[Array], numbers: Array) -> RankedPoints | None:
    """Return points in the order of their ids, each with its rank and the number of its stratum."""
    if not parts:
        return None
    chosen = np.concatenate(parts).astype(np.int64)
    places = np.repeat(numbers, [len(part) for part in parts])
    order = np.argsort(slots.ids[chosen])
    chosen = chosen[order]
    return RankedPoints(slots.points(chosen), engine._ranks[chosen], places[order])


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
        self.max_rows = None if max_rows is None else check_count("max_rows", max_rows, 1)

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
            Naming the row and what to do; nothing has changed.
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
            raise TypeError(f"a site answers a Plan, or the pickle of one; found {type(plan).__name__}")
        with self.rows._lock:
            made = self._counted(plan) if plan.view is None else self._selected(plan, plan.view)
        if self.max_rows is not None and rows_in(made) > self.max_rows:
            raise PermissionError(
                f"the summary would have {rows_in(made):,} rows, and max_rows={self.max_rows:,}; ask for a "
                "smaller size, fewer outliers, or with an anchor that has all that the sampler freezes"
            )
        return made

    def answer(self, plan: Plan | bytes) -> bytes:
        """Return the bytes of the summary for a plan, or for its pickle.

        Unpickling runs code: accept pickles only from those who may run code here.
        """
        return self.summary(pickle.loads(plan) if isinstance(plan, bytes) else plan).to_bytes()

    def _counted(self, plan: Plan) -> Summary:
        """Count for a first pass; without a sample, where the anchor that is given needs none."""
        made = summarize(self._parts(), plan)
        body = made.body
        assert isinstance(body, FirstPassResult)
        problem = plan.problem
        if body.kept is None or not isinstance(problem.given, Anchor):
            return made
        points, numbers, places = body.kept
        if not complete_anchor(problem, points.n_columns):
            return made
        one = RankedPoints(points.take([0]), numbers[:1], places[:1])  # to tell what rows are like
        return Summary(plan, replace(body, kept=one))

    def _selected(self, plan: Plan, outlook: View) -> Summary:
        found = selection_of(self.rows, outlook)
        if found is None and self._follows(outlook):
            found = selection_of(self.rows, outlook)
        if found is None:
            return summarize(self._parts(), plan)
        tally = Summarizer(plan)
        tally.absorb(Summary(plan, found))
        return tally.summary()

    def _follows(self, outlook: View) -> bool:
        """See all rows from another anchor, if they are for this problem; tell whether that was done."""
        rows, anchor = self.rows, outlook.anchor
        meant = rows.engine == "ranked" and rows.seed == outlook.seed and are_alike(rows.loss, outlook.loss)
        if not meant or (rows.anchor is not None and same_anchor(rows.anchor, anchor)):
            return False
        try:
            rows.reanchor(anchor)
        except (ValueError, PermissionError):  # too little weight is here, or it may only be read
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
    return sum(map(len, held_points(summary)))


def held_points(summary: Summary) -> list[WeightedPoints]:
    """Return the rows that a summary contains."""
    body = summary.body
    if isinstance(body, Candidates):
        held, suspects = body.inliers.kept, body.suspects
        return [part.points for part in (held, suspects) if part is not None]
    return [] if body.kept is None else [body.kept.points]
