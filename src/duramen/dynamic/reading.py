"""What can be asked of a live coreset: who is here, how they stand, and whether the anchor still fits."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from abc import ABC
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.ball import Anchor, distance
from duramen.coreset import Coreset
from duramen.dynamic.report import AnchorReport
from duramen.dynamic.roster import Roster
from duramen.dynamic.state import Settings, State
from duramen.dynamic.view import View
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.solvers import Solution
from duramen.solvers.anchoring import matched
from duramen.solvers.problem import is_of_centres
from duramen.trimming import outlier_weight

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Reading"]


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
                return len(self._found(one)) == 1
            except (KeyError, TypeError, ValueError):
                return False

    def __repr__(self) -> str:
        with self._lock:
            width = "" if self._state is None else f" x {self._state.gate.n_columns}"
            weight = f"weight {self.total_weight:,.6g}"
            lines = [f"DynamicCoreset: {self.loss!r} on {self.n_points:,} points{width}, {weight}"]
            view = None if self._state is None else self._state.view
            if view is None:
                lines.append("no anchor yet: the coreset is all points")
            else:
                lines.append(
                    f"size {self.size:,}, {self.engine} by {view.look.sampler!r}; weight "
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
        return None if self._state is None else self._state.gate.columns

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
            view = self._seen()
            return 0 if view is None else view.table.n_suspected

    @property
    def threshold(self) -> float:
        """The loss at the anchor where suspicion starts; infinite where there is none."""
        with self._lock:
            view = self._seen()
            return math.inf if view is None else view.table.threshold

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, with all that was frozen; None until there is one."""
        return None if self._state is None else self._state.anchor

    @property
    def anchor_after(self) -> int | None:
        """How many points the first anchor is made of; None until rows show how many columns there are."""
        return None if self._state is None else self._state.needed

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
            names = 0 if self._state.roster.names is None else _A_NAME * len(self._state.slots)
            view = 0 if self._state.view is None else self._state.view.nbytes
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
            slots = state.slots.in_use() if ids is None else self._found(ids)
            return state.slots.points(slots)

    def names_of(self, ids: Any) -> Array:
        """Give the names under which points were inserted: (n,) strings or UUIDs.

        Raises
        ------
        KeyError
            If one is not here, or has no name.
        """
        with self._lock:
            numbers = self._filled().slots.ids[self._found(ids)]
            names = self._filled().roster.names
            if names is None:
                raise KeyError("these points have numbers and no names; their ids are all there is")
            return names.of(numbers)

    def anchor_report(self) -> AnchorReport:
        """Tell how well the anchor still fits: where the latest solution is, and who came and went since."""
        with self._lock:
            state = self._state
            if state is None or state.view is None:
                reason = "no points are here" if state is None else state.reason
                return AnchorReport(None, None, self.n_points, self.n_points, 0, 0, reason)
            anchor = state.view.look.anchor
            far = None
            if self._solution is not None and self._solution.theta.shape == anchor.theta.shape:
                theta = matched(
                    self._solution.theta, anchor.theta, anchor.theta.ndim == 2 and is_of_centres(self.loss)
                )
                far = distance(anchor.theta, theta)
            state.view.catch_up()
            late = int(np.count_nonzero(state.view.late))
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

    def _seen(self) -> View | None:
        """Give the view, with every point looked at; None before there is an anchor."""
        view = None if self._state is None else self._state.view
        if view is not None:
            view.catch_up()
        return view

    def _sound(self) -> State:
        """Give the state; raise RuntimeError if an operation was cut short in it."""
        assert self._state is not None
        view = self._state.view
        if not self._state.whole or (view is not None and not view.whole):
            raise RuntimeError(
                "an operation on this dynamic coreset was interrupted halfway, so it can no longer be relied "
                "on; build it again"
            )
        return self._state

    def _found(self, ids: Any) -> Array:
        """Find the slots of ids, all of which must be here."""
        return (
            Roster().find(ids, None)
            if self._state is None
            else self._state.roster.find(ids, self._state.slots)
        )

    def _filled(self) -> State:
        if self._state is None or not len(self._state.slots):
            raise ValueError("there are no points here; insert some first")
        return self._sound()
