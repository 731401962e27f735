"""A site: rows that change, of which nothing but summaries leaves."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.ball import Anchor
from duramen.dynamic import DynamicCoreset
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.selection import are_alike, selection_of
from duramen.points import WeightedPoints
from duramen.robust.outlook import are_few, best_sampler
from duramen.robust.passes import Plan, Summary, Tally, summarize
from duramen.robust.passes.census import Census
from duramen.robust.passes.lowest import Held
from duramen.robust.passes.plans import Problem
from duramen.robust.passes.selection import Outlook, Selection
from duramen.rows import Array
from duramen.sampling import RankedSampler
from duramen.sampling.base import has_frozen

__all__ = ["Site", "held_points", "rows_in"]

_TOGETHER = 1 << 16  # rows copied together


@final
class Site:
    """The rows of one site, which come, go and are corrected there, and summaries of them.

    Parameters
    ----------
    rows : DynamicCoreset
        What holds them: of the same problem and ``random_state`` as the federation, with ``n_outliers`` as a
        fraction or 0. A :class:`duramen.Store` keeps them on disk.
    max_rows : int, optional
        No summary with more rows than so many leaves.

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
        if max_rows is not None and not (isinstance(max_rows, (int, np.integer)) and max_rows >= 1):
            raise ValueError(f"max_rows={max_rows!r} must be a whole number of 1 or more, or None")
        self.rows, self.max_rows = rows, max_rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_points(self) -> int:
        """How many rows are here."""
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Site of {len(self):,} rows"

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        """Put rows in, as :meth:`duramen.DynamicCoreset.insert` does; ``ids`` that no other site has.

        Raises
        ------
        TypeError, ValueError
            Naming the row and the way out; nothing has changed.
        """
        if ids is None:
            raise TypeError(
                "a site cannot number rows, as others may give the same numbers; pass ids that no other site "
                "has, such as names: ids=['berlin-1', 'berlin-2']"
            )
        return self.rows.insert(X, y, sample_weight, ids)

    def delete(self, ids: Any) -> None:
        """Take rows out, as :meth:`duramen.DynamicCoreset.delete` does."""
        self.rows.delete(ids)

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        """Put others in their place, as :meth:`duramen.DynamicCoreset.update` does."""
        self.rows.update(ids, X, y, sample_weight)

    def summary(self, plan: Plan) -> Summary:
        """Summarize the rows that are here now, all of one moment.

        Parameters
        ----------
        plan : Plan
            Of either pass.

        Returns
        -------
        Summary

        Raises
        ------
        PermissionError
            If it would have more than ``max_rows`` rows.
        TypeError, ValueError
            If the loss cannot take a row.

        Notes
        -----
        For a first pass, all rows are looked at. For a second pass they are where its
        anchor is a new one: they are then seen from it, as after
        ``rows.reanchor(anchor)``, and later summaries are read off what is kept in
        order anyhow.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"a site answers a Plan, or the pickle of one; found {type(plan).__name__}")
        with self.rows._lock:
            made = self._counted(plan) if plan.outlook is None else self._selected(plan, plan.outlook)
        if self.max_rows is not None and rows_in(made) > self.max_rows:
            raise PermissionError(
                f"the summary would have {rows_in(made):,} rows, and max_rows={self.max_rows:,}; ask for a "
                "smaller size, fewer outliers, or with an anchor that has all that the sampler freezes"
            )
        return made

    def answer(self, plan: Plan | bytes) -> bytes:
        """Summarize, for a wire: takes a plan, or its pickle, and gives the summary's bytes.

        To read a pickle is to run what it says: take none from those who may not run code here.
        """
        return self.summary(pickle.loads(plan) if isinstance(plan, bytes) else plan).to_bytes()

    def _counted(self, plan: Plan) -> Summary:
        """Count for a first pass; without a sample, where the anchor that is given needs none."""
        made = summarize(self._parts(), plan)
        body = made.body
        assert isinstance(body, Census)
        if body.held is None or _needs_sample(plan.problem, body.held.points.n_columns):
            return made
        points, numbers, places = body.held
        one = Held(points.take([0]), numbers[:1], places[:1])  # to tell what rows are like
        return Summary(plan, replace(body, held=one))

    def _selected(self, plan: Plan, outlook: Outlook) -> Summary:
        found = selection_of(self.rows, outlook)
        if found is None and self._follows(outlook):
            found = selection_of(self.rows, outlook)
        if found is None:
            return summarize(self._parts(), plan)
        tally = Tally(plan)
        tally.absorb(Summary(plan, found))
        return tally.summary()

    def _follows(self, outlook: Outlook) -> bool:
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
        """Give all rows, so many at a time that a copy of them is small."""
        ids = self.rows.ids
        for start in range(0, len(ids), _TOGETHER):
            yield self.rows.points(ids[start : start + _TOGETHER])


def rows_in(summary: Summary) -> int:
    """Count the rows that a summary holds, as they are.

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
    """Give the rows that a summary holds."""
    body = summary.body
    if isinstance(body, Selection):
        held, suspects = body.inliers.held, body.suspects
        return [part.points for part in (held, suspects) if part is not None]
    return [] if body.held is None else [body.held.points]


def _needs_sample(problem: Problem, n_columns: int) -> bool:
    """Tell whether an anchor must be sought, or something frozen with the one that is given."""
    place, sampler = problem.anchor, problem.sampler
    if not isinstance(place, Anchor):
        return True
    if sampler is None:
        sampler = best_sampler(problem.loss, place.radius > 0, are_few(problem.plan, problem.loss, n_columns))
    return not (isinstance(sampler, RankedSampler) and has_frozen(sampler, place))
