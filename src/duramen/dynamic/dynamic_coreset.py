"""The live coreset of a table that changes: the paper's four operations, single and in batches."""

from __future__ import annotations

import math
import pickle
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.arrays import Array, check_count
from duramen.coreset.coreset import Coreset
from duramen.coreset.view import Settings
from duramen.dynamic.anchoring import AnchorReport, same_anchor
from duramen.dynamic.state import State
from duramen.dynamic.validation import RowValidator
from duramen.losses.base import Anchor, Loss, distance
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import RankedSampler, Sampler
from duramen.solvers.solve import SETTINGS, Solution, solve_quietly, warn_of
from duramen.solvers.starts import match_centres
from duramen.trimming import checked_outliers, outlier_weight

_NAME_BYTES = 200  # roughly: a string, its number, and their place in a dictionary
_MOVED_ON = 0.1  # of the points, or of the outliers: from then on the old solution may be a bad start


class DynamicCoreset:
    """A coreset of data that change: rows are inserted, deleted and updated.

    At any moment ``coreset()`` is what :func:`duramen.robust_coreset` would return for
    the points that are present, with the same anchor and seed: past points leave no
    trace. (A tree keeps the paper's merge-and-reduce summary instead, which
    depends on the order of the operations.)

    Parameters
    ----------
    loss : Loss
        The learning problem.
    size : int
        The number of rows of the coreset.
    n_outliers : float
        The weight to set aside: a count (1 or more), which stays, or a fraction
        (below 1), which follows the points.
    sampler : Sampler or str
        As for :func:`duramen.robust_coreset`.
    engine : "auto", "ranked" or "tree"
        "ranked" for samplers that score each point by itself; "tree" for any,
        including custom ones. "auto" is ranked where possible.
    suspects : float
        How much weight is suspected, as a multiple of ``n_outliers``.
    calibrate : bool
        Whether to adjust weights to known totals; a tree does not.
    random_state : None, int or numpy Generator
    anchor : Anchor or array, optional
        A rough solution. Otherwise one is found on the first rows: as soon as
        there are more than ``size``, and 5 per parameter. Until then the
        coreset is simply all points.
    bucket_size, height : int, optional
        For a tree: how many points a bucket holds (eight times ``size`` by default), or
        how many levels there are.

    Notes
    -----
    One insertion or deletion takes tens of microseconds, whatever the number of
    points; a batch two microseconds per row (docs/dynamic.md). Rows inserted one
    by one are scored together: a query about the points after each of them
    costs half a millisecond. Rows are copied; besides them, a point takes 80 bytes.

    Safe to use from several threads: every operation holds a lock, and coresets
    never change once returned. An operation that raises an error has changed
    nothing.

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
        settings = Settings.of(
            loss=loss,
            size=size,
            suspects=suspects,
            n_outliers=n_outliers,
            sampler=sampler,
            calibrate=calibrate,
            random_state=random_state,
            anchor=anchor,
            bucket_size=bucket_size,
            height=height,
        )
        self._settings = replace(settings, tree=_is_tree(engine, settings.chooser, bucket_size, height))
        self._lock = threading.RLock()
        self._state = State(self._settings, RowValidator(loss), checked_outliers(n_outliers))
        self._solution: Solution | None = None
        self._solved_at = (0, 0.0)  # the number of changes until then, and of outliers

    # settings and contents

    @property
    def loss(self) -> Loss:
        """The learning problem."""
        return self._settings.loss

    @property
    def size(self) -> int:
        """The number of rows of the coreset, at most, once there is an anchor."""
        return self._settings.by_size.size

    @property
    def seed(self) -> int:
        """The seed of all random choices, from ``random_state``."""
        return self._settings.seed

    @property
    def engine(self) -> str:
        """The engine that keeps the suspected inliers: "ranked" or "tree"."""
        return "tree" if self._settings.tree else "ranked"

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
            validator, candidates = self._state.validator, self._state.candidates
            width = f" x {validator.n_columns}" if validator.n_columns else ""
            weight = f"weight {self.total_weight:,.6g}"
            first = f"DynamicCoreset: {self.loss!r} on {self.n_points:,} points{width}, {weight}"
            if candidates is None:
                return f"{first}\n  no anchor yet: the coreset is all points"
            return (
                f"{first}\n  size {self.size:,}, {self.engine} by {candidates.view.sampler!r}; weight "
                f"{self.n_outliers:,.6g} may be set aside, {self.n_suspected:,} points are suspected"
            )

    @property
    def n_points(self) -> int:
        """The number of points."""
        return len(self._state.slots)

    @property
    def total_weight(self) -> float:
        """Their total weight."""
        with self._lock:
            self._state.current_candidates()
            return self._state.total.values

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, where the first rows had them."""
        return self._state.validator.columns

    @property
    def ids(self) -> Array:
        """Their ids, in ascending order: (n,) int64."""
        with self._lock:
            return self._state.slots.index.keys()

    @property
    def n_outliers(self) -> float:
        """The weight to set aside, z; for a fraction, that fraction of the total weight."""
        given = self._state.n_outliers
        return given if given >= 1 else outlier_weight(given, self.total_weight)

    @property
    def n_suspected(self) -> int:
        """The number of suspected outliers."""
        with self._lock:
            candidates = self._state.current_candidates()
            return 0 if candidates is None else candidates.n_suspected

    @property
    def threshold(self) -> float:
        """The loss at the anchor from which points are suspected; infinite if none are."""
        with self._lock:
            candidates = self._state.current_candidates()
            return math.inf if candidates is None else candidates.edge[0]

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with all that was frozen; None until there is one."""
        candidates = self._state.candidates
        return None if candidates is None else candidates.view.anchor

    @property
    def anchor_after(self) -> int | None:
        """How many points the first anchor needs; None until rows show how many columns there are."""
        needed = self._state.needed
        return needed if needed is None or self._settings.given is None else self.size + 1

    @property
    def solution(self) -> Solution | None:
        """The latest solution, from which the next starts."""
        return self._solution

    @property
    def nbytes(self) -> int:
        """The number of bytes beyond the rows, labels and weights themselves."""
        with self._lock:
            state = self._state
            names = _NAME_BYTES * len(state.ids.names)
            return state.slots.nbytes + names + (0 if state.candidates is None else state.candidates.nbytes)

    def points(self, ids: Any = None) -> WeightedPoints:
        """Copy points: those with these ids, in that order, or all in the order of their ids.

        Raises
        ------
        KeyError
            If one is not here.
        """
        with self._lock:
            slots = self._nonempty().slots
            return slots.points(slots.in_use() if ids is None else self._find(ids))

    def names_of(self, ids: Any) -> Array:
        """Return the names under which points were inserted: (n,) strings or UUIDs.

        Raises
        ------
        KeyError
            If one is not here, or has no name.
        """
        with self._lock:
            state = self._nonempty()
            return state.ids.names_of(state.slots.ids[self._find(ids)])

    # the paper's operations

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        """Insert rows: one (a vector), or many.

        Parameters
        ----------
        X : array (d,) or (n, d), or a data frame
            Dense rows. The first ones determine the columns and the data type.
        y : float or sequence, optional
            One label per row.
        sample_weight : float or sequence, optional
            One weight per row; 1 by default. A point of weight 0 counts as absent.
        ids : integers, strings or UUIDs, optional
            Distinct ids for the rows, none of which is here already. By default
            the numbers after the largest id so far.

        Returns
        -------
        array (n,) of int64
            Their ids. Those of strings and UUIDs are numbers computed from them;
            ``names_of`` translates back.

        Raises
        ------
        TypeError, ValueError
            If a row is wrong; the message says what to do, and nothing has changed.
        """
        with self._lock:
            state = self._sound()
            if not state.validator.n_columns:
                validator = RowValidator.of(self.loss, X, y)
                state = State(self._settings, validator, state.n_outliers, state.ids.next)
            new = state.validator.check(X, y, sample_weight)
            numbers, names = state.ids.new(ids, len(new.X), state.slots)
            if len(numbers):
                self._state = state.insert(new._replace(ids=numbers), names)
            return numbers

    def delete(self, ids: Any) -> None:
        """Delete points, and overwrite their data.

        Parameters
        ----------
        ids : one id, or many
            Distinct.

        Raises
        ------
        KeyError
            If one is not here; nothing has changed.
        """
        with self._lock:
            slots = self._find(ids)
            if len(slots):
                self._sound().delete(slots)

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        """Replace the rows, labels or weights of points; they keep their ids.

        Parameters
        ----------
        ids : one id, or many
        X : array (d,) or (n, d), or a data frame, optional
        y, sample_weight : optional
            What is not given stays as it was.

        Raises
        ------
        KeyError
            If an id is not here; nothing has changed.
        TypeError, ValueError
            If a row, label or weight is wrong; nothing has changed.
        """
        with self._lock:
            slots, state = self._find(ids), self._sound()
            if not state.validator.n_columns:
                return
            here = state.slots
            X = here.rows(slots) if X is None else X
            y = here.y[slots] if y is None and here.y is not None else y
            weights = here.weights[slots] if sample_weight is None else sample_weight
            new = state.validator.check(X, y, weights, len(slots))
            if len(slots):
                state.update(slots, new)

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: a count, or a fraction.

        The cost is that of the points that change sides.

        Raises
        ------
        TypeError, ValueError
            If it is not a number, or not below the total weight; nothing has changed.
        """
        with self._lock:
            checked = checked_outliers(n_outliers, self.total_weight or math.inf)
            self._sound().set_outliers(checked)

    def merge(self, other: DynamicCoreset) -> DynamicCoreset:
        """Insert all points of another, which does not change; return this one.

        With the same anchor and seed, the result is as if all points had been
        inserted here. The settings are those of this one.

        Raises
        ------
        TypeError, ValueError
            If the loss, the seed or the anchor differ, or an id is in both; nothing has changed.
        """
        with self._both_locked(other):
            self._check_mergeable(other)
            theirs, before = other._sound(), self._settings
            if len(theirs.slots):
                points = theirs.slots.points(theirs.slots.in_use())
                if self.anchor is None and other.anchor is not None:
                    self._settings = self._state.settings = replace(before, given=other.anchor)
                try:
                    ids = theirs.ids.names_of(points.ids) if theirs.ids.names else points.ids
                    self.insert(points.X, points.y, points.weights, ids)
                except BaseException:
                    self._settings = self._state.settings = before
                    raise
                validator = self._sound().validator
                validator.columns = validator.columns or theirs.validator.columns
            mine = self._state.ids
            mine.next = max(mine.next, theirs.ids.next)
            return self

    @contextmanager
    def _both_locked(self, other: Any) -> Iterator[None]:
        """Lock this one and another, in the same order if they merge each other at once."""
        if not isinstance(other, DynamicCoreset):
            raise TypeError(f"merge takes a DynamicCoreset; found {type(other).__name__}")
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            yield

    def _check_mergeable(self, other: DynamicCoreset) -> None:
        """Raise ValueError unless another can be merged into this one."""
        for what in ("loss", "seed"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise ValueError(
                    f"one with {what} {mine!r} and one with {what} {theirs!r} cannot be merged; create both "
                    "with the same loss and the same random_state, an integer"
                )
        self._state.validator.check_columns(other.columns)
        if self.anchor and other.anchor and not same_anchor(self.anchor, other.anchor):
            raise ValueError("the anchors differ; other.reanchor(this.anchor) gives both the same")

    # the anchor

    def reanchor(self, theta: Any = None) -> None:
        """Move to another anchor: all points are scored from it.

        Parameters
        ----------
        theta : Anchor, Ball, Solution or array, optional
            A rough solution; an anchor with all that is frozen in it leads to the
            same choices here as elsewhere. By default one is found on a sample of
            the points that are here.

        Raises
        ------
        ValueError
            If there are no points, or no anchor can be found on them; nothing has changed.
        """
        with self._lock:
            self._nonempty().reanchor(theta.anchor if isinstance(theta, (Coreset, DynamicCoreset)) else theta)

    def anchor_report(self) -> AnchorReport:
        """Report how well the anchor still fits the latest solution and the points."""
        with self._lock:
            state, candidates = self._state, self._state.current_candidates()
            if candidates is None:
                return AnchorReport(None, None, self.n_points, self.n_points, 0, 0, state.reason)
            anchor, far = candidates.view.anchor, None
            if self._solution is not None and self._solution.theta.shape == anchor.theta.shape:
                far = distance(anchor.theta, match_centres(self.loss, self._solution.theta, anchor.theta))
            changed = int(np.count_nonzero(state.slots.changed))
            gone = state.n_sample - len(state.sample)
            return AnchorReport(anchor.radius, far, self.n_points, changed, state.n_sample, gone)

    # the coreset and its solution

    @one_blas_thread()
    def coreset(self) -> Coreset:
        """Build the coreset of the points that are here; the same one until something changes.

        Raises
        ------
        ValueError
            If there are no points, or no more than may be set aside.
        """
        with self._lock:
            return self._nonempty().coreset()

    def fit(self, **settings: Any) -> Solution:
        """Solve on the coreset by :func:`duramen.solve`, with its settings, from the latest solution."""
        for name in settings:
            if name not in SETTINGS:
                raise TypeError(f"fit has no setting {name!r}; its settings are {', '.join(SETTINGS)}")
        solution = solve_quietly(self, **settings)
        warn_of(solution, "fit")
        self._remember(solution)
        return solution

    @property
    def _has_moved_on(self) -> bool:
        """Whether so much changed since the latest solution that another start may lead to a better one."""
        if self._solution is None:
            return self.anchor_report().advised
        (before, z), z_now = self._solved_at, self.n_outliers
        n_changes = self._state.n_changes - before
        return n_changes > _MOVED_ON * self.n_points or abs(z_now - z) > _MOVED_ON * max(z_now, z)

    def _remember(self, solution: Solution) -> None:
        """Keep a solution to start from; warn if it left the ball for which bounds hold."""
        with self._lock:
            self._solution = solution
            self._solved_at = self._state.n_changes, self.n_outliers
            report = self.anchor_report()
        if report.is_outside:
            warnings.warn(
                f"the solution is {report.distance:.4g} from the anchor, outside the radius of "
                f"{report.radius:.4g} for which bounds hold; reanchor() moves the anchor closer",
                stacklevel=3,
            )

    # checks and copies

    def check_invariants(self) -> None:
        """Check every invariant of every part; cost: several passes over all points.

        Raises
        ------
        AssertionError
            With the name of the broken one.
        """
        with self._lock:
            self._sound().check()

    def __getstate__(self) -> bytes:
        with self._lock:  # the whole time: the state must not change while it is pickled
            return pickle.dumps({**vars(self), "_lock": None}, protocol=pickle.HIGHEST_PROTOCOL)

    def __setstate__(self, state: bytes) -> None:
        vars(self).update(pickle.loads(state), _lock=threading.RLock())

    def _sound(self) -> State:
        """Return the state; raise RuntimeError if an operation on it was interrupted."""
        state = self._state
        if not state.consistent:
            raise RuntimeError(
                "an operation on this dynamic coreset was interrupted halfway, so its state is not reliable; "
                "build it again"
            )
        return state

    def _nonempty(self) -> State:
        """Return the state; raise ValueError if there are no points."""
        if not len(self._state.slots):
            raise ValueError("there are no points here; insert some first")
        return self._sound()

    def _find(self, ids: Any) -> Array:
        """Find the slots of ids, all of which must be here."""
        state = self._state
        return state.ids.find(ids, state.slots)


def _is_tree(engine: Any, sampler: Sampler | None, bucket_size: Any, height: Any) -> bool:
    """Return whether the engine is a tree; raise if the arguments contradict each other."""
    if engine not in ("auto", "ranked", "tree"):
        raise ValueError(f"engine={engine!r} is not known; take 'auto', 'ranked' or 'tree'")
    ranked = sampler is None or isinstance(sampler, RankedSampler)
    if engine == "ranked" and not ranked:
        raise TypeError(
            f"{sampler!r} does not score each point by itself, so it has no ranks; "
            "pass engine='tree', or derive it from RankedSampler"
        )
    tree = engine == "tree" or not ranked
    shape = {"bucket_size": bucket_size, "height": height}
    given = [check_count(name, value) for name, value in shape.items() if value is not None]
    if len(given) > int(tree):
        raise TypeError(
            f"{bucket_size=} and {height=}: pass engine='tree', which takes one of them, or neither"
        )
    return tree
