"""The live coreset of a table that changes: the paper's four operations, single and in batches."""

from __future__ import annotations

import copy
import math
import pickle
import threading
import warnings
from abc import ABC
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor, distance
from duramen.coreset import Coreset
from duramen.coreset.settings import BySize, plan_of
from duramen.coreset.view import as_anchor, check_plan, is_bare, sampler_of
from duramen.dynamic.anchoring import AnchorReport, AnchorSettings, same_anchor
from duramen.dynamic.arrivals import RowValidator
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.ids import Ids
from duramen.dynamic.state import Settings, State
from duramen.dynamic.tree import check_shape
from duramen.losses.base import Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers import RankedSampler, Sampler
from duramen.seeds import generator
from duramen.solvers import Solution
from duramen.solvers.anchor import match_centres
from duramen.solvers.problem import is_number
from duramen.solvers.solve import SETTINGS, WAYS_OUT, solve_quietly, warn_of
from duramen.trimming import outlier_weight

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DynamicCoreset", "Reading", "check_alike", "checked_outliers", "is_tree"]


_A_NAME = 200  # bytes, about: a string, its number, and their place in a dictionary


class Reading(ABC):
    """The questions that a dynamic coreset answers; nothing here changes it."""

    _settings: Settings
    _first_outliers: float
    _lock: threading.RLock
    _state: State | None
    _core: tuple[int, Coreset] | None
    _solution: Solution | None

    @property
    def loss(self) -> Loss:
        """The learning problem."""
        return self._settings.recipe.loss

    @property
    def size(self) -> int:
        """How many rows the coreset has, at most, once there is an anchor."""
        return self._settings.recipe.plan.size

    @property
    def seed(self) -> int:
        """What chance is made of; ``random_state`` gave it."""
        return self._settings.recipe.seed

    @property
    def _n_outliers(self) -> float:
        return self._first_outliers if self._state is None else self._state.n_outliers

    def __len__(self) -> int:
        return self.n_points

    def __contains__(self, one: Any) -> bool:
        with self._lock:
            try:
                return len(self._find(one)) == 1
            except (KeyError, TypeError, ValueError):
                return False

    def __repr__(self) -> str:
        with self._lock:
            width = "" if self._state is None else f" x {self._state.validator.n_columns}"
            weight = f"weight {self.total_weight:,.6g}"
            lines = [f"DynamicCoreset: {self.loss!r} on {self.n_points:,} points{width}, {weight}"]
            view = None if self._state is None else self._state.candidates
            if view is None:
                lines.append("no anchor yet: the coreset is all points")
            else:
                lines.append(
                    f"size {self.size:,}, {self.engine} by {view.scorer.sampler!r}; weight "
                    f"{self.n_outliers:,.6g} may be set aside, {self.n_suspected:,} points are suspected"
                )
            return "\n  ".join(lines)

    @property
    def engine(self) -> str:
        """What keeps the suspected inliers: "ranked" or "tree"."""
        return "tree" if self._settings.tree else "ranked"

    @property
    def n_points(self) -> int:
        """How many points are there."""
        return 0 if self._state is None else len(self._state.slots)

    @property
    def total_weight(self) -> float:
        """What they weigh together."""
        with self._lock:
            return 0.0 if self._state is None else self._state.total_weight

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, where the first rows had them."""
        return None if self._state is None else self._state.validator.columns

    @property
    def ids(self) -> Array:
        """Their ids, going up: (n,) int64."""
        with self._lock:
            return np.empty(0, dtype=np.int64) if self._state is None else self._state.slots.index.keys()

    @property
    def n_outliers(self) -> float:
        """The weight to set aside, z: of a fraction, what it comes to now."""
        given = self._n_outliers
        return given if given >= 1 else outlier_weight(given, self.total_weight)

    @property
    def n_suspected(self) -> int:
        """How many points are suspected outliers."""
        with self._lock:
            view = self._current_candidates()
            return 0 if view is None else view.table.n_suspected

    @property
    def threshold(self) -> float:
        """The loss at the anchor where suspicion starts; infinite where there is none."""
        with self._lock:
            view = self._current_candidates()
            return math.inf if view is None else view.table.threshold

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with all that was frozen; None until there is one."""
        return None if self._state is None else self._state.anchor

    @property
    def anchor_after(self) -> int | None:
        """How many points the first anchor is made of; None until rows show how many columns there are."""
        if self._state is None:
            return None
        return self._state.needed if self._settings.given is None else self.size + 1

    @property
    def solution(self) -> Solution | None:
        """The latest solution, from which the next starts."""
        return self._solution

    @property
    def nbytes(self) -> int:
        """How many bytes it takes beyond the rows, labels and weights themselves."""
        with self._lock:
            if self._state is None:
                return 0
            names = 0 if self._state.ids.names is None else _A_NAME * len(self._state.slots)
            view = 0 if self._state.candidates is None else self._state.candidates.nbytes
            return self._state.slots.nbytes + view + names

    def points(self, ids: Any = None) -> WeightedPoints:
        """Copy points: those of the ids, in that order, or all in the order of their ids.

        Raises
        ------
        KeyError
            If one is not here.
        """
        with self._lock:
            state = self._filled()
            slots = state.slots.in_use() if ids is None else self._find(ids)
            return state.slots.points(slots)

    def names_of(self, ids: Any) -> Array:
        """Give the names under which points were inserted: (n,) strings or UUIDs.

        Raises
        ------
        KeyError
            If one is not here, or has no name.
        """
        with self._lock:
            numbers = self._filled().slots.ids[self._find(ids)]
            names = self._filled().ids.names
            if names is None:
                raise KeyError("these points have numbers and no names; their ids are all there is")
            return names.of(numbers)

    def anchor_report(self) -> AnchorReport:
        """Tell how well the anchor still fits: where the latest solution is, and who came and went since."""
        with self._lock:
            state = self._state
            if state is None or state.candidates is None:
                reason = "no points are here" if state is None else state.reason
                return AnchorReport(None, None, self.n_points, self.n_points, 0, 0, reason)
            anchor = state.candidates.scorer.anchor
            far = None
            if self._solution is not None and self._solution.theta.shape == anchor.theta.shape:
                theta = match_centres(self.loss, self._solution.theta, anchor.theta)
                far = distance(anchor.theta, theta)
            state.candidates.catch_up()
            late = int(np.count_nonzero(state.candidates.changed_since_anchor))
            gone = state.n_sample - len(state.sample)
            return AnchorReport(anchor.radius, far, self.n_points, late, state.n_sample, gone)

    def check_invariants(self) -> None:
        """Check every invariant of every part; cost: several passes over all points.

        Raises
        ------
        AssertionError
            Naming the one that is broken.
        """
        with self._lock:
            if self._state is None:
                return
            state = self._sound()
            state.check()

    def __getstate__(self) -> bytes:
        with self._lock:  # all of it: what is pickled must not change meanwhile
            return pickle.dumps(self._parts(), protocol=pickle.HIGHEST_PROTOCOL)

    def __setstate__(self, state: bytes) -> None:
        self.__dict__.update(pickle.loads(state))
        self._lock = threading.RLock()

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two that share their points would change under each other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        with self._lock:
            made.__dict__.update(copy.deepcopy(self._parts(), memo))
        made._lock = threading.RLock()
        return made

    def _parts(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name != "_lock"}

    def _current_candidates(self) -> LiveCandidates | None:
        """Give the view, with every point looked at; None before there is an anchor."""
        view = None if self._state is None else self._state.candidates
        if view is not None:
            view.catch_up()
        return view

    def _sound(self) -> State:
        """Give the state; raise RuntimeError if an operation was cut short in it."""
        assert self._state is not None
        view = self._state.candidates
        if not self._state.consistent or (view is not None and not view.consistent):
            raise RuntimeError(
                "an operation on this dynamic coreset was interrupted halfway, so it can no longer be relied "
                "on; build it again"
            )
        return self._state

    def _find(self, ids: Any) -> Array:
        """Find the slots of ids, all of which must be here."""
        return Ids().find(ids, None) if self._state is None else self._state.ids.find(ids, self._state.slots)

    def _filled(self) -> State:
        if self._state is None or not len(self._state.slots):
            raise ValueError("there are no points here; insert some first")
        return self._sound()


def is_tree(engine: Any, sampler: Sampler | None, bucket_size: Any, height: Any) -> bool:
    """Tell which engine is meant; raise where it cannot be."""
    if engine not in ("auto", "ranked", "tree"):
        raise ValueError(f"engine={engine!r} is not known; take 'auto', 'ranked' or 'tree'")
    ranked = sampler is None or isinstance(sampler, RankedSampler)
    if engine == "ranked" and not ranked:
        raise TypeError(
            f"{sampler!r} does not score points by themselves, so it has no ranks; "
            "take engine='tree', or make it a RankedSampler"
        )
    tree = engine == "tree" or (engine == "auto" and not ranked)
    if not tree and not (bucket_size is None and height is None):
        raise TypeError(
            f"bucket_size={bucket_size!r} and height={height!r} are of a tree; pass engine='tree' with them"
        )
    if tree:
        check_shape(bucket_size, height)
    return tree


def checked_outliers(n_outliers: Any, total: float) -> float:
    """Check a number of outliers, and take a fraction in single precision for what it was meant to be."""
    if not math.isfinite(total):  # nobody is here yet, who could be too few
        total = 2 * float(n_outliers) if is_number(n_outliers) and n_outliers >= 1 else 1.0
    outlier_weight(n_outliers, total)
    if isinstance(n_outliers, np.floating) and n_outliers.itemsize < 8:
        return float(str(n_outliers))
    return float(n_outliers)


def check_alike(one: Reading, other: Reading) -> None:
    """Raise unless two can be merged."""
    if one is other:
        raise ValueError("a dynamic coreset cannot be merged with itself")
    if one.loss != other.loss:
        raise ValueError(f"this is for {one.loss!r}, the other for {other.loss!r}; they cannot be merged")
    if one.seed != other.seed:
        raise ValueError(
            f"the seeds {one.seed} and {other.seed} differ, so that chance chose differently; make both with "
            "the same random_state, an integer"
        )
    mine, theirs = one.columns, other.columns
    if mine is not None and theirs is not None and mine != theirs:
        raise ValueError(
            f"the other has the columns {', '.join(theirs)}; the rows here have {', '.join(mine)}"
        )
    if one.anchor is not None and other.anchor is not None and not same_anchor(one.anchor, other.anchor):
        raise ValueError("the anchors differ; other.reanchor(this.anchor) gives both the same")


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
        recipe = AnchorSettings(loss, plan, sampler, seed)
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
            if state is not None and state.candidates is not None:
                one = state.validator.check_one(X, y, sample_weight)
                name = None if one is None else state.ids.one(ids, state.slots)
                if one is not None and name is not None:
                    self._sound().insert_one(one, *name)
                    self._core = None
                    return np.array([name[0]])
            validator = RowValidator(self.loss, X, y) if state is None else self._sound().validator
            new = validator.check(X, y, sample_weight)
            state = state or State(self._settings, validator, self._n_outliers, self._first_id)
            numbers, named = state.ids.new(ids, len(new.rows), state.slots)
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
            slots = self._find(ids)
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
            slots = self._find(ids)
            if self._state is None:
                return
            state = self._sound()
            X = state.slots.rows(slots) if X is None else X
            one = None
            if len(slots) == 1 and state.candidates is not None:
                one = state.validator.check_one(X, y, sample_weight, keeping=True)
            if one is not None:
                state.update_one(int(slots[0]), one)
                self._core = None
                return
            new = state.validator.check(X, y, sample_weight, keeping=True)
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
                self._skip_ids(0 if theirs is None else theirs.ids.next)
                return self
            points, named = theirs.slots.points(theirs.slots.in_use()), theirs.ids.names
            ids, before = points.ids if named is None else named.of(points.ids), self._settings.given
            self._refuse_common(points.ids)
            if self.anchor is None and other.anchor is not None:
                self._adopt(other.anchor)
            try:
                self.insert(points.X, points.y, points.weights, ids)
            except BaseException:
                self._adopt(before)
                raise
            self._skip_ids(theirs.ids.next)
            validator = self._sound().validator
            validator.columns = validator.columns or theirs.validator.columns
            return self

    def _refuse_common(self, ids: Array) -> None:
        """Raise ValueError if one of these ids is here, too."""
        if self._state is not None:
            both = ids[self._state.slots.index.find_many(ids) >= 0]
            if both.size:
                names = self._state.ids.names
                one = both[0] if names is None else repr(names[int(both[0])])
                raise ValueError(f"id {one} is in both; give the rows of one of them other ids")

    def _skip_ids(self, after: int) -> None:
        """See that no id below ``after`` is given to a new row."""
        if self._state is None:
            self._first_id = max(self._first_id, after)
        else:
            self._state.ids.next = max(self._state.ids.next, after)

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
        solution = solve_quietly(self, **settings)
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
