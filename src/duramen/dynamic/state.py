"""The state of a dynamic coreset: the points, and the candidates among them once there is an anchor.

Every operation has two parts. First all that can fail: checks, the scores of new
rows, a first anchor. Then the change itself, which does not; if it is
interrupted nevertheless (no memory, say), ``consistent`` stays False.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import choose, keep_all
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import View, anchor_sample, complete_view, find_view, given_anchor, view_from
from duramen.dynamic.anchoring import LiveSettings
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.ids import Ids
from duramen.dynamic.ranked import RowScores
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
_BLOCK = 1 << 17  # rows scored together at first, so that they need not be copied all at once


class State:
    """Points by slot, and their scores as seen from the anchor.

    Invariants
    ----------
    1. ``n_weighted`` is the number of points of positive weight, and ``total`` their weight.
    2. There are candidates if and only if there is an anchor: all of these points, except those that
       were inserted by themselves and wait to be scored.
    3. ``sample`` are points that are here, and were not changed since the anchor was found on them.
    """

    def __init__(
        self, settings: LiveSettings, validator: RowValidator, n_outliers: float, first_id: int = 0
    ) -> None:
        self.settings, self.validator, self.n_outliers = settings, validator, n_outliers
        self.ids = Ids(first_id)
        self.slots = Slots(validator.n_columns, validator.dtype, validator.labelled)
        self.candidates: LiveCandidates | None = None
        self.waiting: dict[int, None] = {}
        self.n_weighted = 0
        self.total = ExactSums()
        self.n_changes = 0  # rows inserted, deleted or updated
        self.sample: set[int] = set()
        self.n_sample = 0
        self.needed = settings.by_size.size + 1
        self.reason = "there are no points"
        if validator.n_columns:
            shape = settings.loss.parameter_shape(validator.n_columns) or (1,)
            if given_anchor(settings.given, settings.loss, validator.n_columns) is None:
                self.needed = max(self.needed, _ROWS_PER_PARAMETER * int(np.prod(shape)))
            self.reason = f"{self.needed:,} points are needed for a first one"
        self.try_at = self.needed
        self.consistent = True
        self.version = 0  # counts changes, including those of the anchor

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, once there is one."""
        return None if self.candidates is None else self.candidates.view.anchor

    @property
    def tree(self) -> Tree | None:
        """The tree, where that is the engine and there is an anchor."""
        engine = None if self.candidates is None else self.candidates.engine
        return engine if isinstance(engine, Tree) else None

    def current_candidates(self) -> LiveCandidates | None:
        """Return the candidates, with every point scored; None before there is an anchor."""
        if self.waiting and self.candidates is not None:
            slots, consistent = np.array(list(self.waiting)), self.consistent
            scored = self.candidates.scores.score(self.slots.points(slots))
            self.consistent = False
            self.waiting = {}
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

    # the paper's operations

    def insert(self, new: ValidRows, numbers: Array, names: Any = None) -> None:
        """Insert rows; the first of them may complete what a first anchor needs."""
        new = new._replace(ids=numbers)
        if self.candidates is None:
            self._insert_first(new.points())
        else:
            scored = self._score(new)
            self._begin(new.weights)
            self._add(new, scored)
        self.validator.admit(new.y)
        self.ids.admit(numbers, names)
        self.consistent = True

    def delete(self, slots: Array) -> None:
        """Delete points."""
        self._begin()
        self.ids.forget(self.slots.ids[slots])
        self._drop(slots)
        self._compact()
        if not len(self.slots):  # no trace of them is left
            self.validator.classes = frozenset()
        self.consistent = True

    def update(self, slots: Array, new: ValidRows) -> None:
        """Replace points, in the order given."""
        new = new._replace(ids=self.slots.ids[slots])
        scored, points = None if self.candidates is None else self._score(new), new.points()
        self._begin(new.weights)
        n = len(slots)
        for step in [slice(row, row + 1) for row in range(n)] if self.settings.tree else [slice(0, n)]:
            self._drop(slots[step])
            self._add(points.take(step), None if scored is None else scored.take(step))
        self.validator.admit(new.y)
        self.consistent = True

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers."""
        candidates = self.current_candidates()
        self._begin()
        self.n_outliers = n_outliers
        if candidates is not None:
            candidates.set_outliers(n_outliers)
        self.consistent = True

    def _score(self, new: ValidRows) -> RowScores | None:
        """Score points before they are inserted; None if they can wait to be scored with others.

        That is where their order does not matter and scoring never fails, so that the result is the same.
        """
        assert self.candidates is not None
        scores = self.candidates.scores
        waits = new.moderate and scores.never_fails and not self.settings.tree
        return None if waits else scores.score(new.points())

    def _add(self, points: WeightedPoints | ValidRows, scored: RowScores | None) -> None:
        """Add points: with their scores, where there are candidates, unless they wait to be scored."""
        slots = self.slots.add(points)
        self.n_weighted += int(np.count_nonzero(points.weights))
        self.total.add_rows(points.weights)
        self.n_changes += len(slots)
        if self.candidates is None:
            return
        self.slots.changed[slots] = True
        if scored is not None:
            self.candidates.add(slots, scored)
            return
        self.waiting.update(dict.fromkeys(slots.tolist()))
        if len(self.waiting) >= _WAITING:
            self.current_candidates()

    def _drop(self, slots: Array) -> None:
        if self.sample:
            self.sample.difference_update(self.slots.ids[slots].tolist())
        weights = self.slots.weights[slots]
        self.n_weighted -= int(np.count_nonzero(weights))
        self.total.add_rows(weights, -1)
        self.n_changes += len(slots)
        if self.candidates is not None:
            scored = slots
            if self.waiting:
                scored = np.array(
                    [one for one in slots.tolist() if self.waiting.pop(one, one) is not None], dtype=np.int64
                )
            self.candidates.remove(scored)
        self.slots.remove(slots)

    def _compact(self) -> None:
        """Move the points together once most slots are empty; not in a tree, which refers to their slots."""
        if self.settings.tree or self.slots.extent <= max(_SPARSE * len(self.slots), _SMALL):
            return
        old = self.current_candidates()
        slots = self.slots.repacked()
        if old is not None:
            probe = slots.points(slots.in_use()[:1])
            self.candidates = LiveCandidates(slots, old.view, self.settings, self.n_outliers, probe)
            _score_all(slots, self.candidates)
        self.slots = slots

    # the anchor

    def reanchor(self, given: Any) -> None:
        """Score all points from another anchor: one that was given, or one found on them."""
        total, settings = self.total.values, replace(self.settings, given=given)
        if not self.n_weighted:
            raise ValueError(
                "all weights are zero, so no anchor can be found; insert points with positive weight"
            )
        z = self.n_outliers if self.n_outliers >= 1 else self.n_outliers * total
        if z >= total:
            raise ValueError(
                f"n_outliers={self.n_outliers:g} is not below the total weight {total:g}, so no anchor "
                "can be found; insert more rows, or set_outliers"
            )
        sample = self._sample()
        view = find_view(settings, sample, z, total, self.n_weighted)
        uses_sample = given is None or set(view.anchor.frozen) - set(getattr(given, "frozen", ()))
        known = view.anchor.ids[self.slots.find(view.anchor.ids) >= 0]
        self._move_to(self._candidates(view, sample), sample.ids if uses_sample else known)
        self.version += 1

    def _sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight, in the order of their ids.

        It depends only on the points present: those whose ids have the smallest random numbers.
        """
        there = self.slots.in_use()
        ids, weights = self.slots.ids[there], self.slots.weights[there]
        bare = WeightedPoints._from_parts(np.empty((len(there), 0)), None, weights, ids)
        chosen = anchor_sample(bare, self.settings.seed)  # rows are copied once they are chosen
        return self.slots.points(self.slots.find(chosen.ids)).with_weights(chosen.weights)

    def restore(self, anchor: Anchor, sample: Array, n_sample: int) -> None:
        """Score all points from the anchor that they were scored from before, in a tree in any order."""
        sampler = self.settings.sampler_at(anchor, self.validator.n_columns)
        probe = self.slots.points(self.slots.in_use()[:1])
        view = view_from(self.settings, anchor, sampler, probe)
        self._move_to(self._candidates(view, probe), sample, at_once=True)
        self.n_sample = n_sample

    def _candidates(self, view: View, probe: WeightedPoints) -> LiveCandidates:
        return LiveCandidates(self.slots, view, self.settings, self.n_outliers, probe)

    def _move_to(self, candidates: LiveCandidates, sample: Array, *, at_once: bool = False) -> None:
        """Score all points; the old candidates stay until the new ones are complete."""
        _score_all(self.slots, candidates, at_once=at_once)
        self.candidates, self.waiting = candidates, {}
        self.slots.changed[:] = False
        self.sample, self.n_sample = set(sample.tolist()), len(sample)

    def _insert_first(self, new: WeightedPoints) -> None:
        """Insert points while there is no anchor, and find a first one if they complete what it needs.

        It is found on the points present when the last of those arrives, as
        if rows came one by one. If none can be found on them (all of one class,
        say), the next try is at twice as many.
        """
        steps = self.n_weighted + np.cumsum(new.weights > 0)
        before, view, try_at, reason = len(new), None, self.try_at, self.reason
        if isinstance(self.settings.given, Anchor) and complete_view(self.settings, new) is not None:
            try_at = 1  # nothing has to be found
        while view is None and steps[-1] >= try_at:
            before = int(np.searchsorted(steps, try_at)) + 1
            sample = self._all_with(new.take(slice(0, before)))
            try:
                view = self._first_view(sample)
            except ValueError as error:
                if self.settings.given is not None:
                    raise
                before, try_at = len(new), 2 * try_at
                reason = f"with {len(sample):,} points: {error}"
        rest, found, scored = new.take(slice(before, None)), None, None
        if view is not None:
            found = self._candidates(view, sample)
            found.scores.score(sample)  # an invalid row shows here, before anything has changed
            scored = found.scores.score(rest)
        self._begin(new.weights)
        self.try_at, self.reason = try_at, reason
        self._add(new.take(slice(0, before)), None)
        if found is not None:
            self._move_to(found, sample.ids[:0] if try_at == 1 else sample.ids)
            self._add(rest, scored)

    def _first_view(self, sample: WeightedPoints) -> View:
        total, z = sample.total_weight, self.n_outliers
        fraction = min(z / total, _MOST_AT_FIRST) if z >= 1 else z
        return find_view(self.settings, sample, fraction * total, total, len(sample))

    def _all_with(self, new: WeightedPoints) -> WeightedPoints:
        """Return the present points and new ones, of positive weight, in the order of their ids."""
        there = self.slots.in_use()
        both = WeightedPoints.concat([self.slots.points(there), new]) if len(there) else new
        weighted = np.flatnonzero(both.weights > 0)
        return both.take(weighted[np.argsort(both.ids[weighted])])

    def coreset(self) -> Coreset:
        """Build the coreset of the points: all of them, while there is no anchor."""
        if not self.n_weighted:
            raise ValueError("all weights are zero; insert points with positive weight")
        candidates = self.current_candidates()
        if candidates is not None:
            z = outlier_weight(candidates.n_outliers, candidates.total.values)
            return choose(candidates, candidates.view, n_outliers=z, columns=self.validator.columns)
        slots, total, z = self.slots.in_use(), self.total.values, self.n_outliers
        return keep_all(
            self.slots.points(slots[self.slots.weights[slots] > 0]),
            self.settings,
            n_outliers=z if z >= total else outlier_weight(z, total),  # a count may exceed what is there
            columns=self.validator.columns,
        )

    def unlink(self) -> None:
        """Break reference cycles, so that memory is freed at once; the state is unusable afterwards."""
        self.slots.index.unlink()

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        candidates = self.current_candidates()
        self.slots.check()
        self.ids.check(self.slots.index.keys())
        weights = self.slots.weights[self.slots.in_use()]
        n, total = int(np.count_nonzero(weights)), math.fsum(weights)
        assert self.n_weighted == n, f"1: n_weighted is {self.n_weighted}, but {n} points have weight"
        assert self.total.values == total, f"1: total is {self.total.values}, not {total}"
        assert self.sample <= set(self.slots.index.keys().tolist()), "3: a point of the sample is gone"
        if candidates is not None:
            candidates.check()
            assert candidates.n_points == n, "2: the candidates are other points"


def _score_all(slots: Slots, candidates: LiveCandidates, *, at_once: bool = False) -> None:
    """Score all points in their slots, for candidates that have none."""
    there = slots.in_use()
    starts = range(0, len(there), _BLOCK)
    parts = [candidates.scores.score(slots.points(there[start : start + _BLOCK])) for start in starts]
    if parts:
        columns = zip(*parts, strict=True)
        scored = RowScores(*(None if column[0] is None else np.concatenate(column) for column in columns))
        candidates.add(there, scored, at_once=at_once)
