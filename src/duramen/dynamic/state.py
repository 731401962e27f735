"""The state of a dynamic coreset: the points, and the candidates among them once there is an anchor.

Every operation has two parts. First all that can fail: checks, the scores of new
rows, a first anchor. Then the change itself, which does not; if it is
interrupted nevertheless (no memory, say), ``consistent`` stays False.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import choose, keep_all
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import (
    Settings,
    View,
    anchor_sample,
    find_view,
    given_anchor,
    is_complete,
    view_from,
)
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.ids import Ids
from duramen.dynamic.rows import Slots
from duramen.dynamic.tree import Tree
from duramen.dynamic.validation import RowValidator, ValidRows
from duramen.losses.base import Anchor
from duramen.points import WeightedPoints
from duramen.trimming import outlier_weight

_ROWS_PER_PARAMETER = 5  # with fewer, a fit follows the rows so closely that it says nothing about others
_MOST_AT_FIRST = 0.1  # of the weight: more is not set aside for a first anchor, however large a count z is
_SPARSE, _SMALL = 4, 1 << 14  # slots per point, and in all, beyond which empty ones are released
_WAITING = 128  # points inserted one by one are scored together, which halves the time


class State:
    """Points by slot, and their scores as seen from the anchor.

    Invariants
    ----------
    1. ``total`` is the weight of all points, except those that were inserted by themselves and wait
       to be scored: with candidates it is theirs.
    2. There are candidates if and only if there is an anchor: all of these points of positive weight.
    3. ``sample`` are points that are here, and were not changed since the anchor was found on them.
    """

    def __init__(
        self, settings: Settings, validator: RowValidator, n_outliers: float, first_id: int = 0
    ) -> None:
        self.settings, self.validator, self.n_outliers = settings, validator, n_outliers
        self.ids = Ids(first_id)
        self.slots = Slots(validator.n_columns, validator.dtype, validator.labelled)
        self.candidates: LiveCandidates | None = None
        self.waiting: dict[int, None] = {}
        self.total = ExactSums()
        self.n_changes = 0  # rows inserted, deleted or updated
        self.sample: set[int] = set()
        self.n_sample = 0
        self.needed: int | None = None  # for a first anchor
        self.try_at, self.reason = settings.by_size.size + 1, "there are no points"
        if validator.n_columns:
            shape = settings.loss.parameter_shape(validator.n_columns) or (1,)
            if given_anchor(settings.given, settings.loss, validator.n_columns) is None:
                self.try_at = max(self.try_at, _ROWS_PER_PARAMETER * int(np.prod(shape)))
            self.needed, self.reason = self.try_at, f"{self.try_at:,} points are needed for a first one"
        self.consistent = True
        self.version = 0  # counts changes, including those of the anchor
        self.core: Coreset | None = None  # the latest coreset, until something changes

    @property
    def tree(self) -> Tree | None:
        """The tree, where that is the engine and there is an anchor."""
        engine = None if self.candidates is None else self.candidates.engine
        return engine if isinstance(engine, Tree) else None

    def current_candidates(self) -> LiveCandidates | None:
        """Return the candidates, with every point scored; None before there is an anchor."""
        if self.waiting and self.candidates is not None:
            slots = np.array(list(self.waiting))
            scored = self.candidates.scores.score(self.slots.points(slots))
            consistent, self.consistent, self.waiting = self.consistent, False, {}
            self.candidates.add(slots, scored)
            self.consistent = consistent
        return self.candidates

    def _begin(self, weights: Array | None = None) -> None:
        """Begin a change, if the new weights allow it: from here on nothing may fail."""
        if weights is not None:
            more = weights.item() if len(weights) == 1 else float(weights.sum())
            if not math.isfinite(self.total.values + more):
                raise ValueError("weights add up to infinity; scale them down")
        self.consistent = False
        self.version += 1
        self.core = None  # it may hold what is deleted

    # the paper's operations

    def insert(self, new: ValidRows, names: Any = None) -> State:
        """Insert rows; return the state with them, another one where a first anchor may fail."""
        state = self
        if self.candidates is not None:
            scored = self._score(new)
            self._begin(new.weights)
            self._add(new, scored)
        else:
            points, given = new.points(), self.settings.given
            complete = isinstance(given, Anchor) and is_complete(self.settings, points.n_columns)
            try_at = 1 if complete else self.try_at
            if self._n_weighted + np.count_nonzero(new.weights) >= try_at:
                shared = {id(one): one for one in (self.settings, self.settings.loss, self.core)}
                state = copy.deepcopy(self, shared)
            state._begin(new.weights)
            state._insert_first(points, try_at)
        state.validator.admit(new.y)
        state.ids.admit(new.ids, names)
        state.consistent = True
        return state

    def delete(self, slots: Array) -> None:
        """Delete points."""
        self._begin()
        self.ids.forget(self.slots.ids[slots])
        self._drop(slots)
        n = len(self.slots)
        if not n:  # no trace of them is left
            self.validator.classes = frozenset()
        if self.slots.extent > max(_SPARSE * n, _SMALL) and not self.settings.tree:  # which refers to slots
            old, self.slots = self.current_candidates(), self.slots.repacked()
            if old is not None:
                self._score_all(old.view)
        self.consistent = True

    def update(self, slots: Array, new: ValidRows) -> None:
        """Replace points, in the order given."""
        new = new._replace(ids=self.slots.ids[slots])
        scored, points = self._score(new), new.points()
        self._begin(new.weights)
        tree = self.settings.tree
        for step in [slice(row, row + 1) for row in range(len(slots))] if tree else [slice(None)]:
            self._drop(slots[step])
            self._add(points.take(step), {name: column[step] for name, column in scored.items()})
        self.validator.admit(new.y)
        self.consistent = True

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers."""
        candidates = self.current_candidates()
        self._begin()
        self.n_outliers = n_outliers
        if candidates is not None:
            candidates.n_outliers = n_outliers
            candidates.settle()
        self.consistent = True

    def _score(self, new: ValidRows) -> dict[str, Array]:
        """Score points before they are inserted, unless there is no anchor, or they can wait."""
        if self.candidates is None:
            return {}
        scores = self.candidates.scores
        if new.moderate and scores.never_fails and not self.settings.tree:
            return {}
        return scores.score(new.points())

    def _add(self, points: WeightedPoints | ValidRows, scored: dict[str, Array]) -> None:
        """Add points, with their scores unless there is no anchor, or they wait to be scored."""
        slots = self.slots.add(points, self.candidates is not None)
        self.n_changes += len(slots)
        if self.candidates is None:
            self.total.add_rows(points.weights)
            return
        if scored:
            self.candidates.add(slots, scored)
            return
        self.waiting.update(dict.fromkeys(slots.tolist()))
        if len(self.waiting) >= _WAITING:
            self.current_candidates()

    def _drop(self, slots: Array) -> None:
        if self.waiting and not self.waiting.keys().isdisjoint(slots.tolist()):
            self.current_candidates()
        self.sample.difference_update(self.slots.ids[slots].tolist())
        self.n_changes += len(slots)
        if self.candidates is None:
            self.total.add_rows(self.slots.weights[slots], -1)
        else:
            self.candidates.remove(slots)
        self.slots.remove(slots)

    # the anchor

    def reanchor(self, given: Any) -> None:
        """Score all points from another anchor: one that was given, or one found on them."""
        self.current_candidates()
        n, total = self._n_weighted, self.total.values
        if not n:
            raise ValueError(
                "all weights are zero, so no anchor can be found; insert points with positive weight"
            )
        z, sample = outlier_weight(self.n_outliers, total), self._sample()
        view = find_view(replace(self.settings, given=given), sample, z, total, n)
        uses_sample = given is None or view.anchor.frozen.keys() - getattr(given, "frozen", {}).keys()
        known = view.anchor.ids[self.slots.find(view.anchor.ids) >= 0]
        self._move_to(view, sample.ids if uses_sample else known)
        self.version += 1

    def _sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight: a function of the points that are present."""
        slots, there = self.slots, self.slots.in_use()
        none = np.empty((len(there), 0))  # rows are copied once they are chosen
        bare = WeightedPoints._from_parts(none, None, slots.weights[there], slots.ids[there])
        chosen = anchor_sample(bare, self.settings.seed)
        return slots.points(slots.find(chosen.ids)).with_parts(weights=chosen.weights)

    def restore(self, anchor: Anchor | None, sample: Array) -> None:
        """Score all points from the anchor that they were scored from before, in a tree in any order."""
        self.sample = set(sample.tolist())
        if anchor is None:
            self.total.add_rows(self.slots.weights)
            return
        probe = self.slots.points(self.slots.in_use()[:1])
        self._score_all(view_from(self.settings, anchor, probe), at_once=True)

    def _move_to(self, view: View, sample: Array) -> None:
        """Score all points from an anchor that was found on a sample."""
        self._score_all(view)
        self.slots.changed[:] = False
        self.sample, self.n_sample = set(sample.tolist()), len(sample)

    def _score_all(self, view: View, *, at_once: bool = False) -> None:
        """Score all points in a view; the old candidates stay until the new ones are complete."""
        self.candidates = found = LiveCandidates(self.slots, view, self.n_outliers, at_once=at_once)
        self.total, self.core = found.total, None

    @property
    def _n_weighted(self) -> int:
        """The number of points of positive weight, which are counted."""
        return int(np.count_nonzero(self.slots.weights))

    def _insert_first(self, new: WeightedPoints, try_at: int) -> None:
        """Insert points; a first anchor is found on the first ``try_at``, as if they came one by one."""
        while len(new) and self.candidates is None:
            steps = self._n_weighted + np.cumsum(new.weights > 0)
            n = int(np.searchsorted(steps, try_at)) + 1
            self._add(new.take(slice(0, n)), {})
            if steps[-1] >= try_at:
                self._find_first(uses_sample=try_at > 1)
                try_at = self.try_at
            new = new.take(slice(n, None))
        if self.candidates is not None and len(new):
            self._add(new, self.candidates.scores.score(new))

    def _find_first(self, *, uses_sample: bool) -> None:
        """Find a first anchor on all points of positive weight; if there is none, plan another try."""
        there = self.slots.in_use()
        sample = self.slots.points(there[self.slots.weights[there] > 0])
        total, z = sample.total_weight, self.n_outliers
        fraction = min(z / total, _MOST_AT_FIRST) if z >= 1 else z
        try:
            view = find_view(self.settings, sample, fraction * total, total, len(sample))
        except ValueError as error:
            if self.settings.given is not None:
                raise
            self.try_at, self.reason = 2 * self.try_at, f"with {len(sample):,} points: {error}"
        else:
            self._move_to(view, sample.ids if uses_sample else sample.ids[:0])

    def coreset(self) -> Coreset:
        """Build the coreset of the points, unless it is there: all of them, while there is no anchor."""
        if self.core is not None:
            return self.core
        candidates, columns = self.current_candidates(), self.validator.columns
        slots, total, z = self.slots, self.total.values, self.n_outliers
        if not total:
            raise ValueError("all weights are zero; insert points with positive weight")
        if candidates is not None:
            z = outlier_weight(z, total)
            self.core = choose(candidates, candidates.view, n_outliers=z, columns=columns)
        else:
            z = z if z >= total else outlier_weight(z, total)  # a count may exceed what is there
            points = slots.points(np.flatnonzero(slots.weights))
            self.core = keep_all(points, self.settings, n_outliers=z, columns=columns)
        return self.core

    def check(self) -> None:
        candidates, ids = self.current_candidates(), self.slots.index.keys()
        self.slots.check()
        self.ids.check(ids)
        total = math.fsum(self.slots.weights)
        assert self.total.values == total, f"1: total is {self.total.values}, not {total}"
        assert self.sample <= set(ids.tolist()), "3: a point of the sample is gone"
        if candidates is not None:
            candidates.check(self.n_outliers)
