"""The state of a dynamic coreset: the points, and the view of them once there is an anchor.

Every operation has two parts. First all that can fail: checks, the look at new
rows, a first anchor. Then the change itself, which does not; should it be cut
short all the same (an interrupt, no memory), ``whole`` stays False.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.coreset.view import given_anchor
from duramen.dynamic.anchoring import AnchorSettings, NoAnchorError, all_with, rows_needed, sample_of
from duramen.dynamic.arrivals import RowValidator, ValidRows
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.ids import Ids
from duramen.dynamic.look import Scored, Scorer
from duramen.dynamic.ranked import Ranked
from duramen.dynamic.rows import Slots
from duramen.dynamic.sums import ExactSum
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.samplers import Sampler
from duramen.trimming import outlier_weight

__all__ = ["Settings", "State", "WeightRange", "all_of"]


_DECADES = 1e60  # between the lightest and the heaviest: beyond, sums of 107 bits lose the light ones


class WeightRange:
    """The lightest and the heaviest weight that came in.

    Examples
    --------
    >>> weights = WeightRange()
    >>> weights.check(1.0, 0.0)
    >>> weights.keep()
    >>> weights.check(1e-70, 1.0)
    Traceback (most recent call last):
    ValueError: weights from 1e-70 to 1 differ by more than 60 decades, ...
    """

    def __init__(self) -> None:
        self._kept = self._seen = (math.inf, 0.0)

    def check(self, weights: Any, total: float) -> None:
        """Look at weights, an array or one, that are to come to what weighs ``total``.

        Raises
        ------
        ValueError
            If they add up to infinity, or differ so much from those before that sums lose the light ones.
        """
        self._seen = lightest, heaviest = self._kept
        if isinstance(weights, float):
            more = weights
            if weights > 0:
                lightest, heaviest = min(lightest, weights), max(heaviest, weights)
        else:
            positive = weights[weights > 0]
            more = float(weights.sum())
            lightest = min(lightest, float(positive.min(initial=math.inf)))
            heaviest = max(heaviest, float(positive.max(initial=0.0)))
        if not math.isfinite(total + more):
            raise ValueError("weights add up to infinity; scale them down")
        if heaviest > _DECADES * lightest:
            raise ValueError(
                f"weights from {lightest:g} to {heaviest:g} differ by more than 60 decades, which sums that "
                "change cannot hold; scale them, or leave the light ones out"
            )
        self._seen = (lightest, heaviest)

    def keep(self) -> None:
        """Keep what was looked at, to a power of two: it must not tell the weight of one that left."""
        lightest, heaviest = self._seen
        if self._seen != self._kept:
            self._kept = self._seen = _power_of_two(lightest, up=True), _power_of_two(heaviest, up=False)

    @property
    def kept(self) -> tuple[float, float]:
        """The lightest and the heaviest that came in; (inf, 0) if none did."""
        return self._kept

    @kept.setter
    def kept(self, both: tuple[float, float]) -> None:
        self._kept = self._seen = both


def _power_of_two(weight: float, *, up: bool) -> float:
    """Round a weight to the next power of two.

    Examples
    --------
    >>> _power_of_two(3.0, up=True), _power_of_two(3.0, up=False), _power_of_two(2.0, up=True)
    (4.0, 2.0, 2.0)
    """
    share, exponent = math.frexp(weight)
    if share == 0.5 or not math.isfinite(weight) or weight == 0:
        return weight
    return math.ldexp(1.0, exponent if up else exponent - 1)


def all_of(
    points: WeightedPoints, loss: Loss, n_outliers: float, seed: int, columns: tuple[str, ...] | None
) -> Coreset:
    """Make a coreset of all points, none of them suspected; a count of outliers may exceed what is there."""
    n, total = len(points), points.total_weight
    return Coreset(
        points=points,
        suspected=np.zeros(n, dtype=bool),
        own_weights=points.weights,
        inclusion=np.ones(n),
        groups=np.zeros(n, dtype=np.int32),
        loss=loss,
        anchor=None,
        threshold=math.inf,
        n_points=n,
        n_suspected=0,
        n_outliers=n_outliers if n_outliers >= total else outlier_weight(n_outliers, total),
        sampler="nobody: all points are here",
        calibrated=False,
        seed=seed,
        columns=columns,
    )


_MOST_AT_FIRST = 0.1  # of the weight: more is not set aside for a first anchor, however large a count z is


_SPARSE, _SMALL = 4, 1 << 14  # slots for each point, and in all, from which on empty ones are given back


@dataclass(frozen=True)
class Settings:
    """What does not change: the recipe for anchors, an anchor that was given, and the engine."""

    recipe: AnchorSettings
    given: Any
    tree: bool
    calibrate: bool
    bucket_size: int | None = None
    height: int | None = None
    chunk: int | None = None


class _Start(NamedTuple):
    """A first anchor: how many of the new rows come before it, the look from it, and its sample.

    Or, where there is none yet: when to try again, and why.
    """

    before: int
    scorer: Scorer | None
    sample: Array
    try_at: int
    reason: str


class State:
    """Points by slot, and what is seen of them from the anchor.

    Invariants
    ----------
    1. ``heavy`` is the number of points of positive weight, and ``total`` what they weigh.
    2. There is a view if and only if there is an anchor; it has all of these points.
    3. ``sample`` are points that are here, and were not changed since the anchor was made of them.
    """

    def __init__(
        self, settings: Settings, validator: RowValidator, n_outliers: float, first_id: int = 0
    ) -> None:
        recipe = settings.recipe
        self.ids = Ids(first_id)
        self._settings, self.validator, self.n_outliers = settings, validator, n_outliers
        self.given = settings.given
        self.slots = Slots(validator.n_columns, validator.dtype, validator.labelled, settings.chunk)
        self.candidates: LiveCandidates | None = None
        self.n_weighted = 0
        self.weights = WeightRange()
        self.n_changes = 0  # rows that came, went or were changed
        self.total = ExactSum()
        self.sample: set[int] = set()
        self.n_sample = 0
        given_anchor(settings.given, recipe.loss, validator.n_columns)  # raises if it is none for such rows
        self.needed = recipe.plan.size + 1
        if settings.given is None:
            self.needed = rows_needed(recipe.loss, recipe.plan.size, validator.n_columns)
        self.try_at = self.needed
        self.reason = f"{self.needed:,} points are needed for a first one"
        self.consistent = True
        self.version = 0  # counts changes, those of the anchor too

    def _begin(self) -> None:
        """Begin a change: from here on nothing is to fail."""
        self.weights.keep()
        self.consistent = False
        self.version += 1

    @property
    def anchor(self) -> Anchor | None:
        """The anchor, once there is one."""
        return None if self.candidates is None else self.candidates.scorer.anchor

    @property
    def total_weight(self) -> float:
        """The weight of all points."""
        return self.total.value

    # one at a time, once there is a view

    def insert_one(self, new: ValidRows, name: int, named: Any = None) -> None:
        """Put one row in."""
        assert self.candidates is not None
        weight = 1.0 if new.weights is None else float(new.weights[0])
        looked = self._look_at(new, weight, name)
        self.weights.check(weight, self.total.value)
        self._begin()
        self._put(new, weight, name, looked)
        self.ids.admit_one(name, named)
        self.consistent = True

    def delete_one(self, slot: int) -> None:
        """Take one point out."""
        self._begin()
        if self.ids.names is not None:
            self.ids.forget(self.slots.ids[slot : slot + 1])
        self._take(slot)
        self._tidy()
        self.consistent = True

    def update_one(self, slot: int, new: ValidRows) -> None:
        """Put another row in the place of one."""
        assert self.candidates is not None
        name, y = int(self.slots.ids[slot]), self.slots.y
        weight = float(self.slots.weights[slot] if new.weights is None else new.weights[0])
        if new.labels is None and y is not None:
            new = new._replace(labels=y[slot : slot + 1].copy())
        looked = self._look_at(new, weight, name)
        self.weights.check(weight, self.total.value)
        self._begin()
        self._take(slot)
        self._put(new, weight, name, looked)
        self.consistent = True

    def _look_at(self, new: ValidRows, weight: float, name: int) -> Scored | None:
        """Scorer at one row, if that may raise; None if it can wait."""
        assert self.candidates is not None
        if self.candidates.scorer.never_fails and not self._settings.tree:
            return None
        point = WeightedPoints._from_parts(new.rows, new.labels, np.array([weight]), np.array([name]))
        return Scored(
            *(None if column is None else column[0] for column in self.candidates.scorer.many(point))
        )

    def _put(self, new: ValidRows, weight: float, name: int, looked: Scored | None) -> None:
        label = None if new.labels is None else float(new.labels[0])
        slot = self.slots.add(new.rows[0], label, weight, name)
        self.n_weighted += weight > 0
        self.total.add(weight)
        self.n_changes += 1
        self.validator.admit(new.labels)
        assert self.candidates is not None
        if looked is None:
            self.candidates.await_look(slot)
        else:
            self.candidates.add(slot, looked)

    def _take(self, slot: int) -> None:
        self.sample.discard(int(self.slots.ids[slot]))
        weight = float(self.slots.weights[slot])
        self.n_weighted -= weight > 0
        self.total.subtract(weight)
        self.n_changes += 1
        if self.candidates is not None:
            self.candidates.remove(slot)
        self.slots.remove(slot)

    # many at a time

    def insert(self, new: ValidRows, names: Array, named: Any = None) -> None:
        """Put rows in; the first of them may complete what a first anchor takes."""
        weights = np.ones(len(names)) if new.weights is None else new.weights
        points = WeightedPoints._from_parts(new.rows, new.labels, weights, names)
        start = (
            self._start(points)
            if self.candidates is None
            else _Start(0, self.candidates.scorer, names, 0, "")
        )
        first, rest = points.take(slice(0, start.before)), points.take(slice(start.before, None))
        looked = start.scorer.many(rest) if start.scorer is not None and len(rest) else None
        self.weights.check(weights, self.total.value)
        self._begin()
        self.try_at, self.reason = start.try_at, start.reason
        if len(first):
            self._add(first)
        if self.candidates is None and start.scorer is not None:
            self.see(start.scorer, start.sample)
        if self.candidates is not None and looked is not None:
            self.candidates.add_many(self._add(rest), looked)
        self.validator.admit(new.labels)
        self.ids.admit(names, named)
        self.consistent = True

    def delete(self, slots: Array) -> None:
        """Take points out."""
        self._begin()
        self.ids.forget(self.slots.ids[slots])
        self._drop(slots)
        self._tidy()
        self.consistent = True

    def _tidy(self) -> None:
        """Keep no memory of points that are gone: their places, and if all are, their classes and weights."""
        self._compact()
        if not len(self.slots):
            self.validator.forget_classes()
            self.weights, self.total = WeightRange(), ExactSum()
            if self.candidates is not None:
                self.candidates.total = ExactSum()

    def update(self, slots: Array, new: ValidRows) -> None:
        """Put other rows in the place of some, in the order given."""
        names, y = self.slots.ids[slots], self.slots.y
        weights = self.slots.weights[slots] if new.weights is None else new.weights
        labels = y[slots] if new.labels is None and y is not None else new.labels
        points = WeightedPoints._from_parts(new.rows, labels, weights, names)
        looked = None if self.candidates is None else self.candidates.scorer.many(points)
        self.weights.check(weights, self.total.value)
        self._begin()
        if self._settings.tree and self.candidates is not None and looked is not None:
            for row, slot in enumerate(slots.tolist()):
                here, seen = slice(row, row + 1), Scored(looked.losses[row], None, None, None)
                one = ValidRows(new.rows[here], None if labels is None else labels[here], None)
                self._take(slot)
                self._put(one, float(weights[row]), int(names[row]), seen)
        else:
            self._drop(slots)
            slots = self._add(points)
            if self.candidates is not None and looked is not None:
                self.candidates.add_many(slots, looked)
        self.validator.admit(labels)
        self.consistent = True

    def set_outliers(self, n_outliers: float) -> None:
        """Suspect for another number of outliers."""
        self._begin()
        self.n_outliers = n_outliers
        if self.candidates is not None:
            self.candidates.set_outliers(n_outliers)
        self.consistent = True

    def _add(self, points: WeightedPoints) -> Array:
        self.n_weighted += int(np.count_nonzero(points.weights))
        self.total.add_many(points.weights)
        self.n_changes += len(points)
        return self.slots.add_many(points.X, points.y, points.weights, points.ids)

    def _drop(self, slots: Array) -> None:
        if self.sample:
            self.sample.difference_update(self.slots.ids[slots].tolist())
        self.n_weighted -= int(np.count_nonzero(self.slots.weights[slots]))
        self.total.subtract_many(self.slots.weights[slots])
        self.n_changes += len(slots)
        if self.candidates is not None:
            self.candidates.remove_many(slots)
        self.slots.remove_many(slots)

    # the anchor

    def _compact(self) -> None:
        """Move the points together, once most slots are empty; not in a tree, where they have places."""
        if self._settings.tree or self.slots.extent <= max(_SPARSE * len(self.slots), _SMALL):
            return
        slots = self.slots.repacked()
        if self.candidates is not None:
            self.candidates.catch_up()
            late = self.candidates.changed_since_anchor[self.slots.in_use()]
            self.see(
                self.candidates.scorer, np.array(sorted(self.sample), dtype=np.int64), slots, self.n_sample
            )
            self.candidates.changed_since_anchor[slots.in_use()] = late
        self.slots = slots

    def reanchor(self, given: Any) -> None:
        """See all points from another anchor: one that was given, or one found among them."""
        recipe, total = self._settings.recipe, self.total_weight
        if not self.n_weighted:
            raise ValueError("all weights are zero: no anchor can be made; insert points that weigh")
        sample = sample_of(self.slots, recipe.seed)
        z = self.n_outliers / total if self.n_outliers >= 1 else self.n_outliers
        if z >= 1:
            raise ValueError(
                f"n_outliers={self.n_outliers:g} is not below the total weight {total:g}, so no anchor "
                "can be made; insert more rows, or set_outliers"
            )
        anchor, sampler = recipe.anchor(sample, given, z, self.n_weighted)
        made = given is None or set(anchor.frozen) - set(getattr(given, "frozen", ()))
        known = self.slots.index.find_many(anchor.ids) >= 0
        self.see(self._scorer(anchor, sampler, sample), sample.ids if made else anchor.ids[known])
        self.version += 1

    def see(
        self,
        look: Scorer,
        sample: Array,
        slots: Slots | None = None,
        n_sample: int | None = None,
        at_once: bool = False,
    ) -> None:
        """See all points from another anchor; the old view stays until the new one is complete."""
        settings = self._settings
        self.candidates = LiveCandidates(
            self.slots if slots is None else slots,
            look,
            settings.recipe.plan,
            self.n_outliers,
            tree=settings.tree,
            bucket_size=settings.bucket_size,
            height=settings.height,
            chunk=settings.chunk,
            at_once=at_once,
        )
        self.sample, self.n_sample = set(sample.tolist()), len(sample) if n_sample is None else n_sample

    def restore(self, anchor: Anchor, sample: Array, n_sample: int) -> None:
        """See all points from the anchor that they were seen from before; who is late is not known yet."""
        sampler = self._settings.recipe.sampler_of(anchor, self.validator.n_columns)
        probe = self.slots.points(self.slots.in_use()[:1])
        self.see(self._scorer(anchor, sampler, probe), sample, n_sample=n_sample, at_once=True)

    def _scorer(self, anchor: Anchor, sampler: Sampler, probe: WeightedPoints) -> Scorer:
        recipe = self._settings.recipe
        return Scorer(
            recipe.loss,
            anchor,
            sampler,
            recipe.seed,
            size=recipe.plan.size,
            calibrate=self._settings.calibrate and not self._settings.tree,
            probe=probe,
        )

    def _start(self, new: WeightedPoints) -> _Start:
        """Make a first anchor, if these rows complete what it takes.

        It is made of the points that are there when the last of those arrives, as
        if rows came one by one. Where they do not allow for one (all of one class,
        say), it is tried again at twice as many.
        """
        steps = self.n_weighted + np.cumsum(new.weights > 0)
        try_at, reason = self.try_at, self.reason
        if self._is_ready(new):
            try_at = 1
        while steps[-1] >= try_at:
            before = int(np.searchsorted(steps, try_at)) + 1
            sample = all_with(self.slots, new.take(slice(0, before)))
            try:
                made_of = sample.ids[:0] if try_at == 1 else sample.ids  # one that is ready is made of others
                return _Start(before, self._first_look(sample), made_of, try_at, reason)
            except NoAnchorError as error:
                reason = f"with {len(sample):,} points: {error}"
            try_at *= 2
        return _Start(len(new), None, new.ids[:0], try_at, reason)

    def _is_ready(self, new: WeightedPoints) -> bool:
        """Tell whether an anchor was given with all that is frozen in it: it needs no points."""
        heavy = np.flatnonzero(new.weights > 0)
        return bool(len(heavy)) and self._settings.recipe.is_ready(new.take(heavy[:1]), self.given)

    def _first_look(self, sample: WeightedPoints) -> Scorer:
        total, z = sample.total_weight, self.n_outliers
        share = min(z / total, _MOST_AT_FIRST) if z >= 1 else z
        anchor, sampler = self._settings.recipe.anchor(sample, self.given, share, len(sample))
        look = self._scorer(anchor, sampler, sample)
        look.many(sample)  # what is wrong with a row shows here, before anything has changed
        return look

    def coreset(self) -> Coreset:
        """Make the coreset of the points as they stand: all of them, while there is no anchor."""
        if not self.n_weighted:
            raise ValueError("all weights are zero: there is nothing to stand for; insert points that weigh")
        if self.candidates is not None:
            return self.candidates.coreset(self.validator.columns)
        slots = self.slots.in_use()
        points = self.slots.points(slots[self.slots.weights[slots] > 0])
        recipe = self._settings.recipe
        return all_of(points, recipe.loss, self.n_outliers, recipe.seed, self.validator.columns)

    def unlink(self) -> None:
        """Break reference cycles, so that memory is freed at once; the state is unusable afterwards."""
        if self.candidates is not None and isinstance(self.candidates.engine, Ranked):
            self.candidates.engine.unlink()
        self.slots.index.unlink()

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.slots.check()
        self.ids.check(self.slots.index.keys())
        used = self.slots.in_use()
        heavy = int(np.count_nonzero(self.slots.weights[used]))
        assert self.n_weighted == heavy, f"1: heavy is {self.n_weighted}, and {heavy} points have weight"
        total = float(self.slots.weights[used].sum())
        assert abs(self.total.value - total) <= 1e-12 * total, f"1: all weigh {total}, not {self.total.value}"
        assert self.sample <= set(self.slots.ids[used].tolist()), "3: a point of the sample is gone"
        if self.candidates is not None:
            self.candidates.check()
            assert len(self.candidates) == heavy, "2: the view has other points"
