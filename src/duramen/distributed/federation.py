"""A federation: the coreset of rows that change on many sites, merged on demand.

Once there is an anchor, one question to every site is enough. The answers tell
how much all rows weigh together, hence how much of it to suspect; what they
were asked to hold for that is a quarter more than it took the last time. Only
where that is too little, they are asked again. So every site answers for one
moment of its own, and rows may come and go while others are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.coreset.candidates import Candidates
from duramen.coreset.exact import ExactSums
from duramen.coreset.first_pass import FirstPassResult, Form, form_of
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan
from duramen.distributed.site import Site, held_points
from duramen.dynamic.dynamic_coreset import checked_outliers
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.trimming import outlier_weight

__all__ = ["Ask", "Federation", "Site", "at_site"]


Ask = Callable[[Plan], Any]
"""How a site is asked: takes a plan, and gives a Summary, its bytes, or a future of either."""

_ROOM = 1.25  # times the weight to suspect: so much may it grow before sites must be asked twice
_MARGIN = 1e-6  # as in the passes: more than what rounding makes of sums of weights


@final
class Federation:
    """The coreset of the rows of all sites: at any moment what one machine would make of them.

    At any moment ``coreset()`` is what :func:`duramen.robust_coreset` would make of
    all rows that are there, with the same anchor and seed.

    Parameters
    ----------
    sites : mapping of names to sites, or a sequence of sites
        Each a :class:`Site`, or a function that takes a plan to one and brings back what ``Site.summary`` or
        ``Site.answer`` gives. It may bring back a future (whatever has ``result()``), so that all sites work
        at the same time.
    **asked
        As for :func:`duramen.distributed.plan`.

    Attributes
    ----------
    sites : dict
        Sites may be put in and taken out; a coreset is of those that are there.

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.

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
        """The anchor, with all that was frozen; None until there is one."""
        return self._place

    def __repr__(self) -> str:
        state = "no anchor yet" if self._next is None else "with an anchor"
        return f"Federation of {len(self.sites):,} sites: {self._first.problem.loss!r}, {state}"

    def coreset(self) -> Coreset:
        """Make the coreset of the rows that are there now; the first time an anchor is sought, too.

        Raises
        ------
        ValueError
            If there are no rows, or no more than may be set aside, or those of two sites do not go together.
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
        """Look from another anchor: one that is given, or one sought on a sample of all rows.

        Parameters
        ----------
        anchor : Anchor, Ball or array, optional

        Raises
        ------
        ValueError
            If there are no rows, or they do not allow for one; nothing has changed.
        """
        self._anchor(_altered(self._first, anchor=anchor))

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: a count, or a fraction."""
        n_outliers = checked_outliers(n_outliers, np.inf)
        self._first = _altered(self._first, n_outliers=n_outliers)
        if self._next is not None:
            self._next = _altered(self._next, n_outliers=n_outliers)

    def _anchor(self, first: Plan) -> None:
        given = first.problem.anchor
        bare = _nameless(given) if isinstance(given, Anchor) else given
        found = finish(self._asked(_altered(first, anchor=bare)))
        assert isinstance(found, Plan)
        outlook = found.view
        assert outlook is not None
        place = replace(outlook.anchor, ids=given.ids) if isinstance(given, Anchor) else outlook.anchor
        self._next, self._place = _looking(_unnamed(found), outlook.suspected, outlook.floor), place

    def _counted(self, made: Plan, place: Anchor) -> Plan:
        """Ask how much all rows weigh, and plan to hold as many as are to be suspected of them."""
        census = self._asked(_altered(self._first, anchor=_nameless(place))).body
        assert isinstance(census, FirstPassResult)
        z = outlier_weight(made.problem.n_outliers, census.total)
        return _looking(made, made.problem.plan.suspected_of(z, census.total))

    def _asked(self, plan: Plan) -> Summary:
        """Ask all sites, and merge what they say."""
        if not self.sites:
            raise ValueError("there are no sites; put some into federation.sites")
        under_way = {name: _started(name, _ask_of(name, site), plan) for name, site in self.sites.items()}
        tally, common = Summarizer(plan), _Common(plan.problem.loss)
        for name, answer in under_way.items():
            summary = _arrived(name, answer, plan)
            common.check(name, summary)
            tally.absorb(summary)
        return tally.summary()


def _settled(merged: Summary, place: Anchor) -> tuple[Coreset | None, Plan]:
    """Make the coreset, now that all have told; None if too few who may be suspected. And the next plan."""
    asked, body = merged.plan, merged.body
    assert isinstance(body, Candidates)
    assert asked.view is not None
    held, inner = body.suspects, body.inliers
    weight = ExactSums(1)
    weight.absorb(inner.weights, [0] * len(inner.weights))
    if held is not None:
        weight.add_column(0, held.points.weights)
    census = FirstPassResult(body.n_rows, body.n_points, weight, None, (), None)
    if not body.n_points:
        census.sample()  # raises, and says why
    z = outlier_weight(asked.problem.n_outliers, census.total)
    suspected = asked.problem.plan.suspected_of(z, census.total)
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
    return _altered(replace(made, view=outlook), anchor=None)


def _nameless(anchor: Anchor) -> Anchor:
    return replace(anchor, ids=np.empty(0, dtype=np.int64))


def _altered(made: Plan, **facts: Any) -> Plan:
    """Make a plan of another problem."""
    return replace(made, problem=replace(made.problem, **facts), fingerprint="")


def _ask_of(name: Any, site: Any) -> Ask:
    """Find how to ask a site."""
    if isinstance(site, Site):
        return site.summary
    if callable(site):
        return site
    raise TypeError(
        f"site {name!r} must be a Site, or a function that takes a plan to one; found {type(site).__name__}"
    )


def _started(name: Any, ask: Ask, plan: Plan) -> Any:
    try:
        return ask(plan)
    except Exception as error:
        raise at_site(name, error) from error


def _arrived(name: Any, answer: Any, plan: Plan) -> Summary:
    """Wait for an answer, and read it."""
    try:
        found = answer.result() if hasattr(answer, "result") else answer
        if isinstance(found, (bytes, bytearray, memoryview)):
            found = Summary.from_bytes(bytes(found), plan)
    except Exception as error:
        raise at_site(name, error) from error
    if not isinstance(found, Summary):
        raise TypeError(
            f"site {name!r} answered with {type(found).__name__}; bring back what Site.answer or "
            "Site.summary gives"
        )
    if found.plan.fingerprint != plan.fingerprint:
        raise ValueError(f"site {name!r} answered another plan; take each plan to it anew")
    return found


def at_site(name: Any, error: Exception, more: str = "") -> Exception:
    """Make an error that says at which site it was: of the same kind, where it is about what was asked."""
    for kind in (ValueError, TypeError, KeyError, PermissionError):
        if isinstance(error, kind):
            text = error.args[0] if kind is KeyError and error.args else error
            return kind(f"site {name!r}: {text}{more}")
    return RuntimeError(f"site {name!r} did not answer: {type(error).__name__}: {error}{more}")


class _Common:
    """What the rows of all sites must have in common, as far as those show that came along."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._classifies = isinstance(loss, SoftmaxLoss) or (isinstance(loss, LinearLoss) and loss.classifies)
        self._first: tuple[Any, Form] | None = None
        self._classes = np.empty(0)

    def check(self, name: Any, summary: Summary) -> None:
        """Raise ValueError if the rows of a site are not like those of the others."""
        body = summary.body
        if isinstance(body, FirstPassResult) and body.form is not None:
            self._agree(name, body.form, np.array(body.classes))
        for points in held_points(summary):
            classes = np.empty(0) if points.y is None or not self._classifies else np.unique(points.y)
            self._agree(name, form_of(points), classes)

    def _agree(self, name: Any, form: Form, classes: Array) -> None:
        self._first = who, its = self._first or (name, form)
        if form != its:
            both = f"site {who!r} has {_told(its)}, site {name!r} has {_told(form)}"
            raise ValueError(f"sites do not go together: {both}; make their rows alike")
        if classes.size:
            self._name_classes(name, classes)

    def _name_classes(self, name: Any, classes: Array) -> None:
        try:
            self._loss.check_labels(np.append(self._classes, classes))
        except ValueError:
            raise ValueError(
                f"the labels of the sites do not go together: site {name!r} has {classes.tolist()}, others "
                f"{self._classes.tolist()}; name the classes in one way"
            ) from None
        self._classes = np.union1d(self._classes, classes)


def _told(form: Form) -> str:
    return f"{form.n_columns} columns of {form.dtype}, {'with' if form.labelled else 'without'} labels"
