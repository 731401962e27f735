"""A federation: the coreset of rows that change on many sites, which share only summaries, merged on demand.

Once there is an anchor, one question to every site is enough. The answers give
the total weight, and thus how much weight to suspect; sites are asked to send a
quarter more suspects than were needed last time, and are asked again only if
that is too little. Every site answers for a single moment, so rows may be
inserted and deleted at one site while another is asked.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.coreset.candidates import Collected, Collector, FirstPass, FirstPassResult, RankedPoints
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan, summarize
from duramen.coreset.view import View, complete_view
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.ranked import Ranked
from duramen.dynamic.rows import Slots
from duramen.errors import prefixed
from duramen.losses.base import Anchor
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints
from duramen.trimming import checked_outliers, outlier_weight

Ask = Callable[[Plan], Any]
"""A function that sends a plan to a site and returns a Summary, its bytes, or a future of either."""

_ROOM = 1.25  # factor by which the weight to suspect may grow before sites must be asked twice
_MARGIN = 1e-6  # as in the passes: more than the rounding of sums of weights
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
        n_rows = sum(map(len, points_in(summary)))
        if self.max_rows is not None and n_rows > self.max_rows:
            raise PermissionError(
                f"the summary would have {n_rows:,} rows, but max_rows={self.max_rows:,}; use a "
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
        kept = getattr(summary.body, "kept", None)
        if kept is None or complete_view(plan.problem, kept.points) is None:
            return summary
        one = kept.take(np.array([0]))  # shows the form of the rows
        return Summary(plan, replace(summary.body, kept=one))

    def _second_pass(self, plan: Plan, view: View) -> Summary:
        found = read_off(self.rows, view)
        if found is None and self._reanchor(view):
            found = read_off(self.rows, view)
        return summarize(self._parts(), plan) if found is None else Summary(plan, found)

    def _reanchor(self, view: View) -> bool:
        """Score all rows at the view's anchor, if they are for this problem; return whether that was done."""
        rows, anchor = self.rows, view.anchor
        matches = rows.engine == "ranked" and rows.seed == view.seed and _are_alike(rows.loss, view.loss)
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


def points_in(summary: Summary) -> list[WeightedPoints]:
    """Return the rows that a summary contains."""
    body: Any = summary.body
    return [part.points for part in (body.kept, getattr(body, "suspects", None)) if part is not None]


def read_off(rows: DynamicCoreset, view: View) -> Collected | None:
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
        if here is None or not isinstance(here.engine, Ranked) or not _score_alike(here.view, view):
            return None
        slots, losses, own = rows._sound().slots, here.scores.losses, here.table.n_suspected
        worst, n = _largest(here, slots, view)
        if here.engine.nonfinite or not np.isfinite(losses[worst]).all():
            return None

        def anchored(which: Array) -> AnchoredPoints:
            which = which[np.argsort(slots.ids[which])]
            return AnchoredPoints(slots.points(which), view.loss, view.anchor, losses[which])

        found = _inliers(here, slots, worst[own:n], view)
        collector = Collector(view)
        collector.absorb(replace(found, n_rows=len(slots), n_points=here.n_points))
        if n < own:
            collector.release(anchored(worst[n:own]))
        return replace(collector.summary(), suspects=anchored(worst[:n]) if n else None)


def _score_alike(one: View, view: View) -> bool:
    """Return whether points score the same in one view as in another, with all the features it asks for."""
    known = view.features is None or (
        one.features is not None and one.features.n_columns >= view.features.n_columns
    )
    same = one.seed == view.seed and _are_alike(one.loss, view.loss) and _are_alike(one.sampler, view.sampler)
    return known and same and same_anchor(one.anchor, view.anchor)


def _are_alike(one: Any, other: Any) -> bool:
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
    enough, weight = view.suspected * (1 + _MARGIN), 0.0
    parts = [np.empty(0, dtype=np.int64)]
    for chunk in here.table.order.from_place(np.inf, 2**63, up=False):
        parts.append(chunk)
        weight += float(slots.weights[chunk].sum())
        if weight > enough and sum(map(len, parts)) > here.table.n_suspected:
            break
    worst = np.concatenate(parts).astype(np.int64)
    weights = slots.weights[worst]
    takes = (np.cumsum(weights) - weights < enough) & (here.scores.losses[worst] >= view.floor)
    n = int(np.count_nonzero(takes)) if view.suspected > 0 else 0
    return worst[: max(n, here.table.n_suspected)], n


def _inliers(here: LiveCandidates, slots: Slots, without: Array, view: View) -> Collected:
    """Collect the points of the engine, without some of them."""
    engine, strata, size = here.engine, here.strata(), view.settings.by_size.size
    lost = np.zeros(len(without), dtype=np.int64)
    if here.scores.strata is not None:
        lost += here.scores.strata[without]
    places = np.searchsorted(strata.numbers, lost)
    n_lost = np.bincount(places, minlength=len(strata.numbers))
    present = n_lost < strata.counts
    weights = ExactSums(int(present.sum()))
    for at, number in enumerate(strata.numbers[present].tolist()):
        weights.absorb(engine._weights[number], at=[at])
        left = ExactSums()
        left.add_rows(slots.weights[without[lost == number]])
        weights.absorb(left, at=[at], sign=-1)
    kept = None
    if len(strata.numbers):
        found = engine.smallest(np.arange(len(n_lost)), size + n_lost)
        mine = np.flatnonzero(~np.isin(found.rows, without))
        mine = mine[np.argsort(found.ids[mine])]
        groups = np.zeros(len(mine), dtype=np.intp) if found.groups is None else found.groups[mine]
        kept = RankedPoints(slots.points(found.rows[mine]), found.ranks[mine], strata.numbers[groups])
    totals = None
    if view.features is not None:
        totals = ExactSums(view.features.n_columns)
        totals.absorb(engine.exact_totals)
        if len(without):
            totals.add_rows(engine.contributions(without)[:, : len(totals)], -1)
    counts = (strata.counts - n_lost)[present]
    return Collected(0, 0, None, strata.numbers[present], counts, weights, totals, kept)


@final
class Federation:
    """The robust coreset of the rows of many sites, which stay where they are.

    At any moment ``coreset()`` is what :func:`duramen.robust_coreset` would build from
    all rows together, with the same anchor and seed.

    Parameters
    ----------
    sites : mapping of names to sites, or a sequence of sites
        Each a :class:`Site`, or a function that takes a plan and returns what ``Site.summary`` or
        ``Site.answer`` returns for it. It may return a future (anything with ``result()``), so that
        all sites work at the same time.
    **settings
        As for :func:`duramen.distributed.plan`.

    Attributes
    ----------
    sites : dict
        Sites may be added and removed; a coreset covers the current sites.

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> problem = {"loss": dm.KMeansLoss(1), "size": 100, "n_outliers": 0.02, "random_state": 0}
    >>> sites = {name: Site(dm.DynamicCoreset(**problem)) for name in ("berlin", "paris")}
    >>> federation = Federation(sites, **problem)
    >>> here = sites["berlin"].insert(rng.normal(size=(3000, 2)), ids=np.arange(3000))
    >>> there = sites["paris"].insert(rng.normal(size=(2000, 2)), ids=np.arange(3000, 5000))
    >>> federation.coreset().n_points
    5000
    >>> sites["berlin"].delete(here[:1000])
    >>> core = federation.coreset()
    >>> len(core), core.n_points, round(core.total_weight)
    (100, 4000, 4000)
    """

    def __init__(self, sites: Mapping[Any, Site | Ask] | Iterable[Site | Ask], **settings: Any) -> None:
        self.sites: dict[Any, Site | Ask] = dict(sites if isinstance(sites, Mapping) else enumerate(sites))
        self._first = plan(**settings)
        self._next: Plan | None = None
        self._full_anchor: Anchor | None = None

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with what the sampler froze; None until the first coreset."""
        return self._full_anchor

    def __repr__(self) -> str:
        state = "no anchor yet" if self._next is None else "with an anchor"
        return f"Federation of {len(self.sites):,} sites: {self._first.problem.loss!r}, {state}"

    def coreset(self) -> Coreset:
        """Build the coreset of the current rows; the first time, find an anchor too.

        Raises
        ------
        ValueError
            If there are no rows, or no more than the outliers, or the rows of two sites do not agree.
        RuntimeError
            If a site did not answer; it is named.
        """
        if self._next is None or self._full_anchor is None:
            self._find_anchor(self._first)
        assert self._next is not None
        assert self._full_anchor is not None
        try:
            merged = self._ask_all(self._next)
        except ValueError:  # such as an infinite loss, if more rows must be suspected than before
            self._next = self._replan(self._next, self._full_anchor)
            merged = self._ask_all(self._next)
        core, self._next = _finish(merged, self._full_anchor)
        while core is None:
            core, self._next = _finish(self._ask_all(self._next), self._full_anchor)
        return core

    def reanchor(self, anchor: Any = None) -> None:
        """Change the anchor to the given one, or to one found on a sample of all rows.

        Parameters
        ----------
        anchor : Anchor, Ball or array, optional

        Raises
        ------
        ValueError
            If there are no rows, or too few for an anchor; nothing is changed.
        """
        self._find_anchor(_with_settings(self._first, given=anchor))

    def set_outliers(self, n_outliers: float) -> None:
        """Change the number of outliers: a count, or a fraction."""
        n_outliers = checked_outliers(n_outliers)
        self._first = _with_settings(self._first, n_outliers=n_outliers)
        if self._next is not None:
            self._next = _with_settings(self._next, n_outliers=n_outliers)

    def _find_anchor(self, first: Plan) -> None:
        given = first.problem.given
        bare = _without_ids(given) if isinstance(given, Anchor) else given
        found = finish(self._ask_all(_with_settings(first, given=bare)))
        assert isinstance(found, Plan)
        view = found.view
        assert view is not None
        anchor = replace(view.anchor, ids=given.ids) if isinstance(given, Anchor) else view.anchor
        self._next, self._full_anchor = _plan_pass(_hide_ids(found), view.suspected, view.floor), anchor

    def _replan(self, plan: Plan, anchor: Anchor) -> Plan:
        """Ask for the total weight of all rows, and plan to collect as many suspects as it requires."""
        totals = self._ask_all(_with_settings(self._first, given=_without_ids(anchor))).body
        assert isinstance(totals, FirstPassResult)
        z = outlier_weight(plan.problem.n_outliers, totals.total)
        return _plan_pass(plan, plan.problem.by_size.suspected_of(z, totals.total))

    def _ask_all(self, plan: Plan) -> Summary:
        """Ask all sites, and merge their answers."""
        if not self.sites:
            raise ValueError("there are no sites; add some to federation.sites")
        answers = {}
        for name, site in self.sites.items():
            with _at_site(name):
                answers[name] = _ask(site, plan)
        merged, common = Summarizer(plan), FirstPass(plan.problem.loss, 0, limit=0.0)
        for name, answer in answers.items():
            with _at_site(name):
                summary = _read_answer(answer, plan)
                for points in points_in(summary):  # of one form, with labels that go together
                    common.add(points)
                merged.absorb(summary)
        return merged.summary()


def _finish(merged: Summary, anchor: Anchor) -> tuple[Coreset | None, Plan]:
    """Return the coreset, or None if the sites sent too few suspects, and the plan to ask with next."""
    plan, body = merged.plan, merged.body
    assert isinstance(body, Collected)
    assert plan.view is not None
    sent = body.suspects
    weight = body.weights.total()
    weight.add_rows(np.empty(0) if sent is None else sent.points.weights)
    totals = FirstPassResult(body.n_rows, body.n_points, weight, None, (), None)
    if not body.n_points:
        totals.sample()  # raises an error that says why
    z = outlier_weight(plan.problem.n_outliers, totals.total)
    suspected = plan.problem.by_size.suspected_of(z, totals.total)
    all_sent, sent_weight = not len(body.numbers), 0.0 if sent is None else sent.points.total_weight
    if suspected and not all_sent and sent_weight < suspected * (1 + _MARGIN):
        return None, _plan_pass(plan, suspected)
    exact = replace(plan.view, anchor=anchor, suspected=suspected, floor=-np.inf)
    core = finish(Summary(replace(plan, first_pass=totals, view=exact, fingerprint=""), body))
    assert isinstance(core, Coreset)
    floor = -np.inf if sent is None or all_sent else float(sent.losses.min())
    return core, _plan_pass(plan, suspected, floor)


def _plan_pass(plan: Plan, suspected: float, floor: float = -np.inf) -> Plan:
    """Plan to collect the rows that may be suspected, with room for a little more weight."""
    assert plan.view is not None
    view = replace(plan.view, suspected=_ROOM * suspected, floor=floor)
    return replace(plan, view=view, first_pass=None, fingerprint="")


def _hide_ids(plan: Plan) -> Plan:
    """Make a plan that does not reveal which rows of other sites its anchor was found on."""
    assert plan.view is not None
    bare, known = _without_ids(plan.view.anchor), plan.view.features
    settings = replace(plan.view.settings, given=None)
    features = None if known is None else replace(known, anchor=bare)
    view = replace(plan.view, settings=settings, anchor=bare, features=features)
    return _with_settings(replace(plan, view=view), given=None)


def _without_ids(anchor: Anchor) -> Anchor:
    return replace(anchor, ids=np.empty(0, dtype=np.int64))


def _with_settings(plan: Plan, **settings: Any) -> Plan:
    """Make a plan with some settings of its problem replaced."""
    return replace(plan, problem=replace(plan.problem, **settings), fingerprint="")


def _ask(site: Any, plan: Plan) -> Any:
    if isinstance(site, Site):
        return site.summary(plan)
    if callable(site):
        return site(plan)
    raise TypeError(f"a site is a Site, or a function that takes a plan; found {type(site).__name__}")


def _read_answer(answer: Any, plan: Plan) -> Summary:
    """Wait for an answer, and read it."""
    found = answer.result() if hasattr(answer, "result") else answer
    if isinstance(found, (bytes, bytearray, memoryview)):
        found = Summary.from_bytes(bytes(found), plan)
    if not isinstance(found, Summary):
        raise TypeError(f"return what Site.answer or Site.summary returns; found {type(found).__name__}")
    return found


@contextmanager
def _at_site(name: Any) -> Iterator[None]:
    """Name the site in an error; its type is kept if it is about the data or the plan."""
    try:
        yield
    except (ValueError, TypeError, KeyError, PermissionError) as error:
        raise prefixed(f"site {name!r}: ", error) from error
    except Exception as error:
        raise RuntimeError(f"site {name!r} did not answer: {type(error).__name__}: {error}") from error
