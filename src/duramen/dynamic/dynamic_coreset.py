"""The live coreset of a table that changes: the paper's four operations, single and in batches."""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.chunks import one_blas_thread
from duramen.coreset import Coreset
from duramen.dynamic.anchoring import Recipe
from duramen.dynamic.arrivals import Gate
from duramen.dynamic.checks import check_alike, checked_outliers, is_tree
from duramen.dynamic.reading import Reading
from duramen.dynamic.state import Settings, State
from duramen.losses.base import Loss
from duramen.robust.outlook import as_anchor, check_plan, is_bare, sampler_of
from duramen.robust.plan import BySize, plan_of
from duramen.rows import Array
from duramen.sampling import Sampler
from duramen.seeds import generator
from duramen.solvers import Solution
from duramen.solvers.solve import SETTINGS, WAYS_OUT, solved, warn_of

__all__ = ["DynamicCoreset"]

_MOVED_ON = 0.1  # of the points, or of the outliers: a solution that was misled then leads into the same trap


class DynamicCoreset(Reading):
    """A coreset of data that change: rows come, go and are corrected, and so does the number of outliers.

    At any moment ``coreset()`` is what :func:`duramen.robust_coreset` would make of
    the points that are there, with the same anchor and seed: which points were
    there before leaves no trace. (A tree keeps the paper's merge-and-reduce
    summary instead, which depends on how the points came.)

    Parameters
    ----------
    loss : Loss
        The learning problem.
    size : int
        How many rows the coreset has.
    n_outliers : float
        The weight to set aside: a count (1 or more), which stays, or a fraction
        (below 1), which follows the points.
    sampler : Sampler or str
        As for :func:`duramen.robust_coreset`.
    engine : "auto", "ranked" or "tree"
        "ranked" for samplers that score each point by itself; "tree" for any, a
        user's own too. "auto" is ranked where it can be.
    suspects : float
        How much weight is suspected, over ``n_outliers``.
    calibrate : bool
        Whether to adjust weights to known totals; a tree does not.
    random_state : None, int or numpy Generator
    anchor : Anchor or array, optional
        A rough solution. Otherwise one is found from the first rows: as soon as
        there are more than ``size``, and 5 for each parameter. Until then the
        coreset is simply all points.
    bucket_size, height : int, optional
        Of a tree: how many points a bucket holds (eight times ``size`` by default), or
        how many levels there are.

    Notes
    -----
    One insertion or deletion takes tens of microseconds, whatever the number of
    points; a batch two microseconds a row (docs/dynamic.md). Rows that come one
    by one are looked at together: whoever asks after each how points stand pays
    half a millisecond. Rows are copied; beyond them it takes 80 bytes a point.

    Safe to use from several threads: every operation holds a lock, and coresets
    that were handed out never change. An operation that raises an error has
    changed nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 2))
    >>> dyn = dm.DynamicCoreset(dm.KMeansLoss(1), size=200, n_outliers=0.02, random_state=0)
    >>> ids = dyn.insert(X)
    >>> dyn.delete(ids[:1000])
    >>> dyn.update(4999, [0.5, 0.5])
    >>> len(dyn), len(dyn.coreset()), round(dyn.coreset().total_weight)
    (4000, 200, 4000)
    >>> alike = dm.robust_coreset(
    ...     np.vstack([X[1000:4999], [[0.5, 0.5]]]),
    ...     loss=dm.KMeansLoss(1),
    ...     size=200,
    ...     n_outliers=0.02,
    ...     ids=np.arange(1000, 5000),
    ...     anchor=dyn.anchor,
    ...     random_state=0,
    ... )
    >>> bool((alike.ids == dyn.coreset().ids).all())
    True
    """

    def __init__(
        self,
        loss: Loss,
        size: int = 4000,
        n_outliers: float = 0,
        sampler: Sampler | str = "auto",
        engine: str = "auto",
        suspects: float | str = "auto",
        calibrate: bool = True,
        random_state: Any = None,
        *,
        anchor: Any = None,
        bucket_size: int | None = None,
        height: int | None = None,
    ) -> None:
        if not isinstance(loss, Loss):
            found = f"the class {loss.__name__}; call it" if isinstance(loss, type) else repr(loss)
            raise TypeError(f"loss must be a Loss, such as dm.LogisticLoss(); found {found}")
        if not isinstance(calibrate, (bool, np.bool_)):
            raise TypeError(f"calibrate={calibrate!r} must be True or False")
        plan = plan_of(size, None, None, 0.1, suspects)
        assert isinstance(plan, BySize)
        self._first_outliers = checked_outliers(n_outliers, math.inf)
        seed = int(generator(random_state).integers(2**63))
        if anchor is not None:
            as_anchor(anchor)
            check_plan(plan, 0.0, is_bare(anchor), sampler_of(sampler, plan))
        tree = is_tree(engine, sampler_of(sampler, plan), bucket_size, height)
        recipe = Recipe(loss, plan, sampler, seed)
        self._settings = Settings(recipe, anchor, tree, bool(calibrate), bucket_size, height)
        self._lock = threading.RLock()
        self._state: State | None = None
        self._first_id = 0
        self._core: tuple[int, Coreset] | None = None
        self._solution: Solution | None = None
        self._solved_at = (0, 0.0)

    # the paper's operations

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        """Put rows in: one (a vector), or many.

        Parameters
        ----------
        X : array (d,) or (n, d), or a data frame
            Dense rows. The first ones decide how many columns there are, and of
            which type.
        y : float or sequence, optional
            One label a row.
        sample_weight : float or sequence, optional
            One weight a row; 1 by default. Weight 0 is as good as absent.
        ids : integers, strings or UUIDs, optional
            What names the rows: each once, and none that is here already. By
            default the numbers after the largest that there was.

        Returns
        -------
        array (n,) of int64
            Their ids. Those of strings and UUIDs are numbers made from them;
            ``names_of`` translates back.

        Raises
        ------
        TypeError, ValueError
            Naming the row and the way out; nothing has changed.
        """
        with self._lock:
            state = self._state
            if state is not None and state.view is not None:
                one = state.gate.check_one(X, y, sample_weight)
                name = None if one is None else state.roster.one(ids, state.slots)
                if one is not None and name is not None:
                    self._sound().insert_one(one, *name)
                    self._core = None
                    return np.array([name[0]])
            gate = Gate(self.loss, X, y) if state is None else self._sound().gate
            new = gate.check(X, y, sample_weight)
            state = state or State(self._settings, gate, self._n_outliers, self._first_id)
            numbers, named = state.roster.new(ids, len(new.rows), state.slots)
            if len(numbers):
                state.insert(new, numbers, named)
                self._state, self._core = state, None
            return numbers

    def delete(self, ids: Any) -> None:
        """Take points out, and overwrite what was kept of them.

        Parameters
        ----------
        ids : one id, or many
            Each once.

        Raises
        ------
        KeyError
            If one is not here; nothing has changed.
        """
        with self._lock:
            slots = self._found(ids)
            if not len(slots):
                return
            state = self._sound()
            if len(slots) == 1:
                state.delete_one(int(slots[0]))
            else:
                state.delete(slots)
            self._core = None  # it may hold what was deleted

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        """Put other rows, labels or weights in the place of points that are here; they keep their ids.

        Parameters
        ----------
        ids : one id, or many
        X : array (d,) or (n, d), or a data frame, optional
        y, sample_weight : optional
            What is not given stays what it was.

        Raises
        ------
        KeyError
            If an id is not here; nothing has changed.
        TypeError, ValueError
            If a row, label or weight is wrong; nothing has changed.
        """
        with self._lock:
            slots = self._found(ids)
            if self._state is None:
                return
            state = self._sound()
            X = state.slots.rows(slots) if X is None else X
            one = None
            if len(slots) == 1 and state.view is not None:
                one = state.gate.check_one(X, y, sample_weight, keeping=True)
            if one is not None:
                state.update_one(int(slots[0]), one)
                self._core = None
                return
            new = state.gate.check(X, y, sample_weight, keeping=True)
            if len(new.rows) != len(slots):
                raise ValueError(f"X has {len(new.rows)} rows for {len(slots)} ids; pass one row an id")
            if len(slots):
                state.update(slots, new)
                self._core = None

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: a count, or a fraction.

        The cost is that of the points that change sides.

        Raises
        ------
        TypeError, ValueError
            If it is no number, or not below the total weight; nothing has changed.
        """
        with self._lock:
            checked = checked_outliers(n_outliers, self.total_weight or math.inf)
            if self._state is None:
                self._first_outliers = checked
            else:
                self._sound().set_outliers(checked)

    def merge(self, other: DynamicCoreset) -> DynamicCoreset:
        """Take in all points of another, which stays as it is; returns this one.

        With the same anchor and seed, the result is what one that had seen all
        the points would be. The settings are those of this one.

        Raises
        ------
        TypeError, ValueError
            If the loss, the seed or the anchor differ, or an id is in both; nothing has changed.
        """
        if not isinstance(other, DynamicCoreset):
            raise TypeError(f"merge takes a DynamicCoreset; found {type(other).__name__}")
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            check_alike(self, other)
            theirs = None if other._state is None else other._sound()
            if theirs is None or not len(theirs.slots):
                self._skip_ids(0 if theirs is None else theirs.roster.next)
                return self
            points, named = theirs.slots.points(theirs.slots.in_use()), theirs.roster.names
            ids, before = points.ids if named is None else named.of(points.ids), self._settings.given
            self._refuse_common(points.ids)
            if self.anchor is None and other.anchor is not None:
                self._adopt(other.anchor)
            try:
                self.insert(points.X, points.y, points.weights, ids)
            except BaseException:
                self._adopt(before)
                raise
            self._skip_ids(theirs.roster.next)
            gate = self._sound().gate
            gate.columns = gate.columns or theirs.gate.columns
            return self

    def _refuse_common(self, ids: Array) -> None:
        """Raise ValueError if one of these ids is here, too."""
        if self._state is not None:
            both = ids[self._state.slots.index.find_many(ids) >= 0]
            if both.size:
                names = self._state.roster.names
                one = both[0] if names is None else repr(names[int(both[0])])
                raise ValueError(f"id {one} is in both; give the rows of one of them other ids")

    def _skip_ids(self, after: int) -> None:
        """See that no id below ``after`` is given to a new row."""
        if self._state is None:
            self._first_id = max(self._first_id, after)
        else:
            self._state.roster.next = max(self._state.roster.next, after)

    def _adopt(self, anchor: Any) -> None:
        """Take an anchor from elsewhere, in place of a first one."""
        self._settings = replace(self._settings, given=anchor)
        if self._state is not None:
            self._state.given = anchor

    # the anchor

    def reanchor(self, theta: Any = None) -> None:
        """See everything from another anchor.

        Parameters
        ----------
        theta : Anchor, Ball, Solution or array, optional
            A rough solution; an anchor with all that is frozen in it makes the
            choices it made elsewhere. By default one is found on a sample of the
            points that are here.

        Raises
        ------
        ValueError
            If there are no points, or they do not allow for one; nothing has changed.
        """
        with self._lock:
            self._filled().reanchor(theta.anchor if isinstance(theta, (Coreset, Reading)) else theta)

    # the coreset and its solution

    @one_blas_thread()
    def coreset(self) -> Coreset:
        """Make the coreset of the points that are here; the same one until something changes.

        Raises
        ------
        ValueError
            If there are no points, or no more than may be set aside.
        """
        with self._lock:
            state = self._filled()
            if self._core is None or self._core[0] != state.version:
                self._core = (state.version, state.coreset())
            return self._core[1]

    def fit(self, **settings: Any) -> Solution:
        """Solve on the coreset, from the latest solution on: :func:`duramen.solve`, with its settings."""
        for name in settings:
            if name not in SETTINGS:
                raise TypeError(f"fit takes no {name!r}; its settings are {', '.join(SETTINGS)}")
        solution = solved(self, settings.pop("loss", None), settings.pop("n_outliers", None), **settings)
        warn_of(solution, "fit", **WAYS_OUT)
        self._remember(solution)
        return solution

    def _now(self) -> tuple[int, float]:
        """Say when it is, in changes, and how many outliers there are."""
        return 0 if self._state is None else self._state.n_changes, self.n_outliers

    @property
    def _has_moved_on(self) -> bool:
        """Whether so much changed since the latest solution that a search from elsewhere may end better."""
        if self._solution is None:
            return self.anchor_report().advised
        (before, z), (now, z_now) = self._solved_at, self._now()
        return now - before > _MOVED_ON * self.n_points or abs(z_now - z) > _MOVED_ON * max(z_now, z)

    def _remember(self, solution: Solution) -> None:
        """Keep a solution to start from; say so, if it left the ball that bounds were made for."""
        with self._lock:
            self._solution = solution
            self._solved_at = self._now()
            report = self.anchor_report()
        if report.is_outside:
            warnings.warn(
                f"the solution is {report.distance:.4g} from the anchor, outside the radius of "
                f"{report.radius:.4g} that bounds were made for; reanchor() looks from closer by",
                stacklevel=3,
            )
