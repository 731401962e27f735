"""A federation: the coreset of rows that change on many sites, which share only summaries, merged on demand.

Once there is an anchor, one question to every site is enough. The answers give the total weight, and thus
how much weight to suspect; sites are asked to send a quarter more suspects than were needed last time, and
are asked again only if that is too little. Every site answers for a single moment.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array, check_count
from duramen.coreset.candidates import MARGIN, KeyedPoints, Plan, Summarizer, Summary
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.passes import finish, plan, summarize
from duramen.coreset.view import View, is_complete
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.rows import Slots
from duramen.errors import prefixed
from duramen.losses.base import Anchor
from duramen.trimming import checked_outliers, outlier_weight

Ask = Callable[[Plan], Any]
"""A function that sends a plan to a site and returns a Summary, its bytes, or a future of either."""

_ROOM = 1.25  # factor by which the weight to suspect may grow before sites must be asked twice
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

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        """Insert rows, as :meth:`duramen.DynamicCoreset.insert` does, with ids that no other site has."""
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
        """Summarize the current rows, all at one moment, for the first or the second pass.

        The first pass reads all rows; it sends no sample if the anchor given is complete. The second
        one reads all rows if its anchor is new: the rows are then scored again, as by
        ``rows.reanchor(anchor)``, and later summaries are read off the sorted lists.

        Raises
        ------
        PermissionError
            If the summary would contain more than ``max_rows`` rows.
        TypeError, ValueError
            If the loss does not accept a row.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"a site takes a Plan, or the pickle of one; found {type(plan).__name__}")
        rows, view = self.rows, plan.view
        with rows._lock:
            current = rows.anchor is not None and same_anchor(rows.anchor, view.anchor)
            if not (current or view.blind) and _solves_same(rows, view):
                with suppress(ValueError, PermissionError):  # too little weight, or read-only
                    rows.reanchor(view.anchor)
            found = read_off(rows, plan) or self._summarize(plan)
        kept = found.kept
        if view.blind and len(kept.keys) and is_complete(plan.problem, kept.points.n_columns):
            found = replace(found, kept=kept.take(np.array([0])))  # one row shows the form of all
        n_rows = len(found.kept.keys) + len(found.suspects.keys)
        if self.max_rows is not None and n_rows > self.max_rows:
            raise PermissionError(
                f"the summary would have {n_rows:,} rows, but max_rows={self.max_rows:,}; use a "
                "smaller size, fewer outliers, or an anchor that has all that the sampler freezes"
            )
        return found

    def answer(self, plan: Plan | bytes) -> bytes:
        """Return the bytes of the summary for a plan, or for its pickle.

        Unpickling runs code: accept pickles only from those who may run code here.
        """
        return self.summary(pickle.loads(plan) if isinstance(plan, bytes) else plan).to_bytes()

    def _summarize(self, plan: Plan) -> Summary:
        """Make a pass over all rows, in parts small enough to copy."""
        ids = self.rows.ids
        starts = range(0, len(ids), _TOGETHER)
        return summarize((self.rows.points(ids[start : start + _TOGETHER]) for start in starts), plan)


def read_off(rows: DynamicCoreset, plan: Plan) -> Summary | None:
    """Return the summary of a second pass over the points, read off the sorted lists of a dynamic coreset.

    It is None if anchor, seed, loss or sampler differ, if a loss is infinite, or if no point has weight. For
    m points that may be suspected and s strata it costs O(m d + s size).
    """
    view = plan.view
    with rows._lock:
        here = rows._state.current_candidates()
        if here is None or not (_solves_same(rows, view) and _score_alike(here.view, view)):
            return None
        engine, slots, own = here.engine, rows._sound().slots, here.suspects().rows
        largest = _largest(here, slots, plan.suspected * (1 + MARGIN))
        losses = here.scores.losses[np.append(own, largest)]
        if not (len(largest) and engine.is_finite and np.isfinite(losses).all()):
            return None
        summarizer = Summarizer(plan)
        summarizer.add(slots.points(largest))
        found = summarizer.summary()
        suspected = slots.find(found.suspects.points.ids)
        former, later = np.setdiff1d(own, suspected), np.setdiff1d(suspected, own)
        engine.remove(later)  # for a moment: the pass may suspect other points
        engine.add(former)
        try:
            return _read(rows, here, found)
        finally:
            engine.add(later)
            engine.remove(former)


def _solves_same(rows: DynamicCoreset, view: View) -> bool:
    """Return whether the rows are kept for the problem of a view, in the order of their ranks."""
    return rows.engine == "ranked" and rows.seed == view.seed and _alike(rows.loss, view.loss)


def _score_alike(one: View, view: View) -> bool:
    """Return whether points score the same in one view as in another, with all the features it asks for."""
    n_known, n_asked = (0 if found is None else found.n_columns for found in (one.features, view.features))
    return n_known >= n_asked and _alike(one.sampler, view.sampler) and same_anchor(one.anchor, view.anchor)


def _alike(one: Any, other: Any) -> bool:
    """Return whether two losses or samplers are equal; custom ones may not define equality."""
    try:
        return one == other or (type(one) is type(other) and bool(vars(one) == vars(other)))
    except (TypeError, ValueError):  # it has no such attributes, or arrays among them
        return False


def _largest(here: LiveCandidates, slots: Slots, weight: float) -> Array:
    """Return the slots of points of the largest losses, with at least so much weight, or of all points."""
    parts, found = [np.empty(0, np.int64)], 0.0
    for part in here.order.from_place(np.inf, 2**63, up=False):
        parts.append(part)
        found += slots.weights[part].sum()
        if found >= weight:
            break
    return np.concatenate(parts)


def _read(rows: DynamicCoreset, here: LiveCandidates, found: Summary) -> Summary:
    """Summarize all points by the engine, which holds those that are not suspects in what was found."""
    view, slots, strata, engine = found.plan.view, rows._sound().slots, here.strata(), here.engine
    labels = sorted(rows._state.validator.classes) if view.loss.classifies else ()
    n, kept, totals = len(strata.numbers), found.kept, found.totals
    weights = ExactSums(n)
    for at, (_, weight) in enumerate(engine.by_number.values()):
        weights.absorb(weight, at=[at])
    if n:
        lowest = here.smallest(np.arange(n), np.full(n, view.settings.by_size.size))
        kept = KeyedPoints(slots.points(lowest.rows), lowest.ranks, strata.numbers[lowest.groups])
    if view.features is not None:
        totals = engine.exact_totals.take(np.arange(len(totals)))
    every = replace(
        found,
        n_rows=len(slots),
        classes=tuple(labels),
        numbers=strata.numbers,
        counts=strata.counts,
        weights=weights,
        totals=totals,
        kept=kept.take(np.argsort(kept.points.ids)),
    )
    if not view.by_class:
        return every
    fewest = Summarizer(found.plan)
    fewest.absorb(every)
    return fewest.summary()


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
    anchor : Anchor or None
        With what the sampler froze; None until the first coreset.

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
        self.anchor: Anchor | None = None

    def coreset(self) -> Coreset:
        """Build the coreset of the current rows; the first time, find an anchor too.

        Raises
        ------
        ValueError
            If there are no rows, or no more than the outliers, or the rows of two sites do not agree.
        RuntimeError
            If a site did not answer; it is named.
        """
        if self._next is None:
            self.reanchor(self._first.problem.given)
        try:
            return self._choose()
        except ValueError:  # such as an infinite loss, if more rows must be suspected than before
            self.reanchor(self.anchor)
            return self._choose()

    def reanchor(self, anchor: Any = None) -> None:
        """Change the anchor to an Anchor, Ball or array, or to one found on a sample of all rows.

        If there are too few rows for an anchor, that is a ValueError, and nothing is changed.
        """
        # no plan reveals which rows an anchor was found on: those of other sites
        bare = _without_ids(anchor) if isinstance(anchor, Anchor) else anchor
        found = finish(self._ask_all(_with_settings(self._first, given=bare)))
        assert isinstance(found, Plan)
        view, self.anchor = replace(found.view, anchor=_without_ids(found.view.anchor)), found.view.anchor
        self._next = replace(found, expected=None, view=view, suspected=_ROOM * found.suspected)
        if isinstance(anchor, Anchor):
            self.anchor = replace(self.anchor, ids=anchor.ids)

    def set_outliers(self, n_outliers: float) -> None:
        """Change the number of outliers: a count, or a fraction."""
        n_outliers = checked_outliers(n_outliers)
        self._first = _with_settings(self._first, n_outliers=n_outliers)
        if self._next is not None:
            self._next = _with_settings(self._next, n_outliers=n_outliers)

    def _choose(self) -> Coreset:
        """Ask all sites, again if they sent too few suspects, and plan the next question."""
        assert self._next is not None
        plan, found = self._next, self._ask_all(self._next)
        if not found.n_points:
            found.sample()  # raises an error that says why
        total = found.total
        suspected = plan.problem.by_size.suspected_of(outlier_weight(plan.problem.n_outliers, total), total)
        if suspected and len(found.numbers) and found.suspects.points.total_weight < suspected * (1 + MARGIN):
            self._next = replace(plan, suspected=_ROOM * suspected, floor=-np.inf)
            return self._choose()
        core = finish(replace(found, plan=replace(plan, suspected=suspected, floor=-np.inf)))
        assert isinstance(core, Coreset)
        floor = float(found.suspects.keys.min(initial=np.inf))
        self._next = replace(plan, suspected=_ROOM * suspected, floor=floor)
        return replace(core, anchor=self.anchor)

    def _ask_all(self, plan: Plan) -> Summary:
        """Ask all sites, and merge their answers."""
        if not self.sites:
            raise ValueError("there are no sites; add some to federation.sites")
        answers, merged = {}, Summarizer(plan)
        for name, site in self.sites.items():
            with _at_site(name):
                ask: Any = site.summary if isinstance(site, Site) else site
                if not callable(ask):
                    raise TypeError(
                        f"a site is a Site, or a function that takes a plan; found {type(site).__name__}"
                    )
                answers[name] = ask(plan)
        for name, answer in answers.items():
            with _at_site(name):
                found = answer.result() if hasattr(answer, "result") else answer
                if isinstance(found, bytes):
                    found = Summary.from_bytes(found, plan)
                if not isinstance(found, Summary):
                    raise TypeError(
                        f"return what Site.answer or Site.summary returns; found {type(found).__name__}"
                    )
                merged.absorb(found)
        return merged.summary()


def _without_ids(anchor: Anchor) -> Anchor:
    return replace(anchor, ids=anchor.ids[:0])


def _with_settings(plan: Plan, **settings: Any) -> Plan:
    """Make a plan with some settings of its problem replaced."""
    return replace(plan, problem=replace(plan.problem, **settings))


@contextmanager
def _at_site(name: Any) -> Iterator[None]:
    """Name the site in an error; its type is kept if it is about the data or the plan."""
    try:
        yield
    except (ValueError, TypeError, KeyError, PermissionError) as error:
        raise prefixed(f"site {name!r}: ", error) from error
    except Exception as error:
        raise RuntimeError(f"site {name!r} did not answer: {type(error).__name__}: {error}") from error
