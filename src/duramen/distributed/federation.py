"""A federation: the coreset of rows that change on many sites, merged on demand.

Once there is an anchor, one question to every site is enough. The answers give
the total weight, and thus how much weight to suspect; sites are asked to send a
quarter more suspects than were needed last time, and are asked again only if
that is too little. Every site answers for a single moment, so rows may be
inserted and deleted at one site while another is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.coreset.candidates import Collected
from duramen.coreset.coreset import Coreset
from duramen.coreset.first_pass import FirstPass, FirstPassResult
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan
from duramen.distributed.site import Site, points_in
from duramen.errors import prefixed
from duramen.losses.base import Anchor
from duramen.trimming import checked_outliers, outlier_weight

Ask = Callable[[Plan], Any]
"""A function that sends a plan to a site and returns a Summary, its bytes, or a future of either."""

_ROOM = 1.25  # factor by which the weight to suspect may grow before sites must be asked twice
_MARGIN = 1e-6  # as in the passes: more than the rounding of sums of weights


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
