"""The second pass: who may be suspected, and the smallest ranks of all others, with totals over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.robust.choice import Chosen, assembled, suspected_rows
from duramen.robust.outlook import refuse_infinite, seen_from
from duramen.robust.passes.inliers import Inliers, InlierState
from duramen.robust.passes.lowest import joined
from duramen.robust.passes.suspects import Suspects, picked
from duramen.robust.plan import BySize
from duramen.robust.split import Split, split_at
from duramen.sampling import RankedSampler, Seen
from duramen.sampling.calibration import Known

__all__ = ["Outlook", "Selecting", "Selection", "selected"]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What the second pass must know: the problem, from where to look, and how many to choose.

    Attributes
    ----------
    loss : Loss
    anchor : Anchor
        With all that the sampler freezes.
    sampler : RankedSampler
    seed : int
    plan : BySize
    suspected : float
        How much weight is suspected.
    floor : float
        A loss below which nobody is; minus infinity where that is not known.
    known : Known or None
        What the weights are calibrated to.
    """

    loss: Loss
    anchor: Anchor
    sampler: RankedSampler
    seed: int
    plan: BySize
    suspected: float
    floor: float
    known: Known | None


@dataclass(frozen=True, eq=False)
class Selection:
    """What the second pass tells of the points that came.

    Attributes
    ----------
    n_rows, n_points : int
        How many rows came, and how many of them weigh anything.
    suspects : Seen or None
        Those who may be suspected, in the order of their ids.
    inliers : InlierState
        Of all others.
    """

    n_rows: int
    n_points: int
    suspects: Seen | None
    inliers: InlierState


@final
class Selecting:
    """The second pass, under way.

    Parameters
    ----------
    outlook : Outlook
    """

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._outer = Suspects(outlook.suspected, outlook.floor)
        self._inner = Inliers(outlook.sampler, outlook.seed, outlook.plan.size, outlook.known)
        self.n_rows, self._n_points = 0, 0

    def add(self, points: WeightedPoints) -> None:
        """Take in a batch: hold those that may be suspected, and all others are inliers."""
        look = self._outlook
        seen, marks = seen_from(look.anchor, points, look.loss, marked=look.known is not None)
        if np.isnan(seen.losses).any():
            lost = np.flatnonzero(np.isnan(seen.losses) & (points.weights > 0))
            if lost.size:
                refuse_infinite(points.ids[lost[0]], seen.losses[lost[0]])
        rows = self._outer.among(seen)
        if len(rows):
            rest = np.array(points.weights)
            rest[rows] = 0.0
            self._inner.add(replace(seen, points=points.weighing(rest)), marks)
            self._hold(picked(seen, rows))
        else:
            self._inner.add(seen, marks)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: Selection) -> None:
        """Take in all that another has."""
        self._inner.absorb(other.inliers)
        if other.suspects is not None:
            self._hold(other.suspects)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> Selection:
        """Give what is known, in one order whatever the order in which it came."""
        dropped = self._outer.cut()
        if dropped is not None:
            self._inner.add_few(dropped)
        return Selection(self.n_rows, self._n_points, self._outer.held(), self._inner.state())

    def _hold(self, seen: Seen) -> None:
        dropped = self._outer.add(seen)
        if dropped is not None:
            self._inner.add_few(dropped)


def selected(found: Selection, outlook: Outlook, **known: Any) -> Coreset | None:
    """Choose the coreset of all points that came; None if the floor was too high to tell who is suspected."""
    plan, seed = outlook.plan, outlook.seed
    held = found.suspects
    weight = 0.0 if held is None else held.points.total_weight
    if outlook.floor > -np.inf and weight < outlook.suspected:
        return None
    inner = Inliers(outlook.sampler, seed, plan.size, outlook.known)
    inner.absorb(found.inliers)
    suspected = _settled(held, outlook, inner)
    n_outer = 0 if suspected is None else len(suspected)
    sizes = plan.shares(n_outer, inner.n_points)
    calibrated = False
    sides = []
    if suspected is not None:
        everyone = Split(np.arange(n_outer), np.zeros(n_outer), 0, outlook.suspected, np.inf)
        sides.append((suspected.points, suspected_rows(suspected, everyone, sizes[0], seed)))
    if inner.n_points:
        points, chosen, calibrated = inner.choose(min(sizes[1], inner.n_points))
        sides.append((points, chosen))
    return assembled(
        *_together(sides),
        loss=outlook.loss,
        anchor=outlook.anchor,
        threshold=np.inf if suspected is None else float(suspected.losses.min()),
        n_points=found.n_points,
        n_suspected=n_outer,
        sampler=repr(outlook.sampler),
        calibrated=calibrated,
        seed=seed,
        **known,
    )


def _settled(held: Seen | None, outlook: Outlook, inner: Inliers) -> Seen | None:
    """Tell who is suspected, now that all have come; whoever else was held is an inlier."""
    if held is None:
        return None
    split = split_at(held.points, held.losses, outlook.suspected)
    others = np.flatnonzero(split.inner > 0)
    if len(others):
        inner.add_few(picked(held, others))
    return picked(held, split.rows) if len(split.rows) else None


def _together(sides: list[tuple[WeightedPoints, Chosen]]) -> tuple[WeightedPoints, list[Chosen]]:
    """Put the chosen points of all sides beside each other, and let go of all others."""
    parts, chosen, start = [], [], 0
    for points, side in sides:
        parts.append(points.pick(side.rows, points.weights[side.rows]))
        chosen.append(side._replace(rows=np.arange(start, start + len(side.rows))))
        start += len(side.rows)
    return joined(parts), chosen
