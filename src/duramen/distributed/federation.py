"""A federation: the coreset of rows that change on many sites, merged on demand.

Once there is an anchor, one question to every site is enough. The answers tell
the total weight, hence how much weight to suspect; sites are asked to send a
quarter more suspects than were needed the last time, and are asked again only
if that is too little. Every site answers for one moment of its own, so rows may
be inserted and deleted at one site while another is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset.candidates import Candidates
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import sum_in_units
from duramen.coreset.first_pass import FirstPassResult, Form, form_of
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan
from duramen.distributed.site import Site, held_points
from duramen.trimming import checked_outliers, outlier_weight

Ask = Callable[[Plan], Any]
"""A function that sends a plan to a site and returns a Summary, its bytes, or a future of either."""

_ROOM = 1.25  # by which the weight to suspect may grow before sites must be asked twice
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
    **asked
        As for :func:`duramen.distributed.plan`.

    Attributes
    ----------
    sites : dict
        Sites may be added and removed; a coreset is of the sites that are there.

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

    def __init__(self, sites: Mapping[Any, Site | Ask] | Iterable[Site | Ask], **asked: Any) -> None:
        named = sites if isinstance(sites, Mapping) else dict(enumerate(sites))
        self.sites: dict[Any, Site | Ask] = dict(named)
        for name, site in self.sites.items():
            _ask_of(name, site)
        self._first = plan(**asked)
        self._next: Plan | None = None
        self._place: Anchor | None = None

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with what the sampler froze; None until the first coreset."""
        return self._place

    def __repr__(self) -> str:
        state = "no anchor yet" if self._next is None else "with an anchor"
        return f"Federation of {len(self.sites):,} sites: {self._first.problem.loss!r}, {state}"

    def coreset(self) -> Coreset:
        """Build the coreset of the current rows; the first time, find an anchor too.

        Raises
        ------
        ValueError
            If there are no rows, or no more than the outliers, or those of two sites do not agree.
        RuntimeError
            If a site did not answer; it is named.
        """
        if self._next is None or self._place is None:
            self._anchor(self._first)
        assert self._next is not None
        assert self._place is not None
        try:
            merged = self._asked(self._next)
        except ValueError:  # an infinite loss, say, where more are to be suspected than were before
            self._next = self._counted(self._next, self._place)
            merged = self._asked(self._next)
        core, self._next = _settled(merged, self._place)
        while core is None:
            core, self._next = _settled(self._asked(self._next), self._place)
        return core

    def reanchor(self, anchor: Any = None) -> None:
        """Change the anchor to the given one, or to one found on a sample of all rows.

        Parameters
        ----------
        anchor : Anchor, Ball or array, optional

        Raises
        ------
        ValueError
            If there are no rows, or too few for an anchor; nothing has changed.
        """
        self._anchor(_altered(self._first, given=anchor))

    def set_outliers(self, n_outliers: float) -> None:
        """Change the number of outliers: a count, or a fraction."""
        n_outliers = checked_outliers(n_outliers)
        self._first = _altered(self._first, n_outliers=n_outliers)
        if self._next is not None:
            self._next = _altered(self._next, n_outliers=n_outliers)

    def _anchor(self, first: Plan) -> None:
        given = first.problem.given
        bare = _nameless(given) if isinstance(given, Anchor) else given
        found = finish(self._asked(_altered(first, given=bare)))
        assert isinstance(found, Plan)
        outlook = found.view
        assert outlook is not None
        place = replace(outlook.anchor, ids=given.ids) if isinstance(given, Anchor) else outlook.anchor
        self._next, self._place = _looking(_unnamed(found), outlook.suspected, outlook.floor), place

    def _counted(self, made: Plan, place: Anchor) -> Plan:
        """Ask how much all rows weigh, and plan to hold as many as are to be suspected of them."""
        census = self._asked(_altered(self._first, given=_nameless(place))).body
        assert isinstance(census, FirstPassResult)
        z = outlier_weight(made.problem.n_outliers, census.total)
        return _looking(made, made.problem.by_size.suspected_of(z, census.total))

    def _asked(self, plan: Plan) -> Summary:
        """Ask all sites, and merge their answers."""
        if not self.sites:
            raise ValueError("there are no sites; add some to federation.sites")
        answers = {}
        for name, site in self.sites.items():
            ask = _ask_of(name, site)
            with _at_site(name):
                answers[name] = ask(plan)
        merged, common = Summarizer(plan), _Common(plan.problem.loss)
        for name, answer in answers.items():
            summary = _received(name, answer, plan)
            common.check(name, summary)
            merged.absorb(summary)
        return merged.summary()


def _settled(merged: Summary, place: Anchor) -> tuple[Coreset | None, Plan]:
    """Return the coreset, or None if the sites sent too few suspects, and the plan to ask with next."""
    asked, body = merged.plan, merged.body
    assert isinstance(body, Candidates)
    assert asked.view is not None
    held, inner = body.suspects, body.inliers
    weight = sum(inner.weights) + (0 if held is None else sum_in_units(held.points.weights))
    census = FirstPassResult(body.n_rows, body.n_points, weight, None, (), None)
    if not body.n_points:
        census.sample()  # raises, and says why
    z = outlier_weight(asked.problem.n_outliers, census.total)
    suspected = asked.problem.by_size.suspected_of(z, census.total)
    all_held, heavy = not len(inner.numbers), 0.0 if held is None else held.points.total_weight
    if suspected and not all_held and heavy < suspected * (1 + _MARGIN):
        return None, _looking(asked, suspected)
    exact = replace(asked.view, anchor=place, suspected=suspected, floor=-np.inf)
    core = finish(Summary(replace(asked, first_pass=census, view=exact, fingerprint=""), body))
    assert isinstance(core, Coreset)
    floor = -np.inf if held is None or all_held else float(held.losses.min())
    return core, _looking(asked, suspected, floor)


def _looking(made: Plan, suspected: float, floor: float = -np.inf) -> Plan:
    """Plan to hold those who may be suspected, if little more than so much weight is."""
    assert made.view is not None
    outlook = replace(made.view, suspected=_ROOM * suspected, floor=floor)
    return replace(made, view=outlook, first_pass=None, fingerprint="")


def _unnamed(made: Plan) -> Plan:
    """Make a plan that tells no site which rows of others its anchor was made of."""
    assert made.view is not None
    bare, known = _nameless(made.view.anchor), made.view.features
    outlook = replace(made.view, anchor=bare, features=None if known is None else replace(known, anchor=bare))
    return _altered(replace(made, view=outlook), given=None)


def _nameless(anchor: Anchor) -> Anchor:
    return replace(anchor, ids=np.empty(0, dtype=np.int64))


def _altered(made: Plan, **facts: Any) -> Plan:
    """Make a plan of another problem."""
    return replace(made, problem=replace(made.problem, **facts), fingerprint="")


def _ask_of(name: Any, site: Any) -> Ask:
    """Return the function that asks a site."""
    if isinstance(site, Site):
        return site.summary
    if callable(site):
        return site
    raise TypeError(
        f"site {name!r} must be a Site, or a function that takes a plan; found {type(site).__name__}"
    )


def _received(name: Any, answer: Any, plan: Plan) -> Summary:
    """Wait for an answer, and read it."""
    with _at_site(name):
        found = answer.result() if hasattr(answer, "result") else answer
        if isinstance(found, (bytes, bytearray, memoryview)):
            found = Summary.from_bytes(bytes(found), plan)
    if not isinstance(found, Summary):
        raise TypeError(
            f"site {name!r} answered with {type(found).__name__}; return what Site.answer or "
            "Site.summary returns"
        )
    if found.plan.fingerprint != plan.fingerprint:
        raise ValueError(f"site {name!r} answered another plan; pass on the plan of each question")
    return found


@contextmanager
def _at_site(name: Any) -> Iterator[None]:
    """Name the site in an error: of the same type, if it is about the data or the question."""
    try:
        yield
    except Exception as error:
        for kind in (ValueError, TypeError, KeyError, PermissionError):
            if isinstance(error, kind):
                text = error.args[0] if kind is KeyError and error.args else error
                raise kind(f"site {name!r}: {text}") from error
        raise RuntimeError(f"site {name!r} did not answer: {type(error).__name__}: {error}") from error


class _Common:
    """What the rows of all sites must have in common, as far as the rows that were sent show."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._first: tuple[Any, Form] | None = None
        self._classes = np.empty(0)

    def check(self, name: Any, summary: Summary) -> None:
        """Raise ValueError if the rows of a site are not like those of the others."""
        body = summary.body
        if isinstance(body, FirstPassResult) and body.form is not None:
            self._check(name, body.form, np.array(body.classes))
        for points in held_points(summary):
            classes = np.empty(0) if points.y is None or not self._loss.has_classes else np.unique(points.y)
            self._check(name, form_of(points), classes)

    def _check(self, name: Any, form: Form, classes: Array) -> None:
        self._first = first, its = self._first or (name, form)
        if form != its:
            both = f"site {first!r} has {its}, site {name!r} has {form}"
            raise ValueError(f"the sites do not agree: {both}; make their rows alike")
        if not classes.size:
            return
        try:
            self._loss.check_labels(np.append(self._classes, classes))
        except ValueError:
            raise ValueError(
                f"the labels of the sites do not agree: site {name!r} has {classes.tolist()}, others have "
                f"{self._classes.tolist()}; use the same labels everywhere"
            ) from None
        self._classes = np.union1d(self._classes, classes)
