"""The summary of changing points for a second pass, out of what a dynamic coreset keeps in order anyhow.

Table L has the largest losses, the ranked engine the smallest ranks of each
stratum, its weight and the totals. So the summary of a million points is read
off, and none but those in it is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.look import Look
from duramen.dynamic.ranked import Ranked
from duramen.dynamic.slots import Slots
from duramen.dynamic.table import Table
from duramen.dynamic.totals import Totals
from duramen.robust.passes.exact import ExactSums
from duramen.robust.passes.inliers import Inliers, InlierState
from duramen.robust.passes.lowest import Held
from duramen.robust.passes.selection import Outlook, Selection
from duramen.rows import Array
from duramen.sampling import Seen

__all__ = ["are_alike", "selection_of"]

_MARGIN = 1e-5  # more than what a summary holds beyond the weight to suspect; merging cuts it
_A_MOVE = 2.0**-103  # of the largest sum there was, by which a move may err: see duramen.dynamic.sums
_SHARE = 1e-11  # of a total, by which it may be off


def selection_of(rows: DynamicCoreset, outlook: Outlook) -> Selection | None:
    """Tell what a second pass asks of the points that are there, without looking at them all.

    Parameters
    ----------
    rows : DynamicCoreset
    outlook : Outlook
        Of the pass.

    Returns
    -------
    Selection or None
        None where they are not seen from the same anchor, with the same seed, loss and sampler; where a loss
        is infinite; or where points came that are so large that the totals without them have no digits left.

    Notes
    -----
    Cost: O(m d + s (size + m)), for m points that may be suspected and s strata.
    """
    with rows._lock:
        view = rows._seen()
        if view is None or not isinstance(view.engine, Ranked) or not _sees_alike(view.look, outlook):
            return None
        slots, table, engine = rows._sound().slots, view.table, view.engine
        worst, n = _largest(table, slots, outlook)
        if engine.odd or not np.isfinite(table.losses[worst]).all():
            return None
        inliers = _inliers(engine, slots, worst[table.n_suspected : n], outlook)
        if inliers is None:
            return None
        if n < table.n_suspected:
            inliers = _with(inliers, _seen(slots, table, worst[n:], outlook), outlook)
        suspects = _seen(slots, table, worst[:n], outlook) if n else None
        return Selection(len(slots), len(table), suspects, inliers)


def _sees_alike(look: Look, outlook: Outlook) -> bool:
    """Tell whether points look the same, and as much is known of each as the pass asks for."""
    known = outlook.known is None or (
        look.known is not None and look.known.n_columns >= outlook.known.n_columns
    )
    return (
        known
        and look.seed == outlook.seed
        and are_alike(look.loss, outlook.loss)
        and are_alike(look.sampler, outlook.sampler)
        and same_anchor(look.anchor, outlook.anchor)
    )


def are_alike(one: Any, other: Any) -> bool:
    """Tell whether two losses or samplers are the same; those of a user's own may not know how to compare."""
    if one is other or one == other:
        return True
    try:
        return type(one) is type(other) and bool(vars(one) == vars(other))
    except (TypeError, ValueError):  # it has no such parts, or arrays among them
        return False


def _largest(table: Table, slots: Slots, outlook: Outlook) -> tuple[Array, int]:
    """Give the slots of the largest losses, going down; and how many of them the pass may suspect.

    They are all whom it may suspect, and all who are suspected here.
    """
    enough = outlook.suspected * (1 + _MARGIN)
    parts: list[Array] = []
    heavy, count, n = 0.0, 0, 0
    for chunk in table.order.parts():
        part = chunk[::-1]
        weights = slots.weights[part]
        above = heavy + np.cumsum(weights) - weights
        takes = (above <= enough) & (table.losses[part] >= outlook.floor) & (outlook.suspected > 0)
        n += int(np.count_nonzero(takes))  # from the first on, as none comes back
        parts.append(part)
        heavy, count = float(above[-1] + weights[-1]), count + len(part)
        if count > max(n, table.n_suspected):
            break
    worst = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)
    return worst[: max(n, table.n_suspected)], n


def _seen(slots: Slots, table: Table, which: Array, outlook: Outlook) -> Seen:
    """Show points as the pass sees them, in the order of their ids."""
    which = which[np.argsort(slots.ids[which])]
    return Seen(slots.points(which), outlook.loss, outlook.anchor, table.losses[which])


def _with(state: InlierState, seen: Seen, outlook: Outlook) -> InlierState:
    """Take points for inliers that are suspected here, and not by the pass."""
    inner = Inliers(outlook.sampler, outlook.seed, outlook.plan.size, outlook.known)
    inner.absorb(state)
    inner.add_few(seen)
    return inner.state()


def _inliers(engine: Ranked, slots: Slots, without: Array, outlook: Outlook) -> InlierState | None:
    """Tell of all that the engine has, less some; None if too few digits of the totals would be left."""
    lists, most = engine._lists, outlook.plan.size + 1
    gone = engine._numbers(without)
    gone = np.zeros(len(without), dtype=np.int64) if gone is None else gone.astype(np.int64)
    strata = lists.strata()
    counts = strata.counts - np.bincount(np.searchsorted(strata.numbers, gone), minlength=len(strata.counts))
    numbers = strata.numbers[counts > 0]
    weights, parts = ExactSums(len(numbers)), []
    for place, number in enumerate(numbers.tolist()):
        mine, exact = without[gone == number], lists._weights[number]
        first = lists._lists[number].first(most + len(mine))
        parts.append(first[~np.isin(first, mine)][:most])
        weights.add_column(place, np.concatenate([[exact.high, exact.low], -slots.weights[mine]]))
    totals = None
    if outlook.known is not None:
        totals = _totals(engine, without, outlook.known.n_columns)
        if totals is None:
            return None
    held = _held(engine, slots, parts, numbers)
    stratified = held is not None and engine._look.strata_type is not None
    return InlierState(numbers, counts[counts > 0], weights, totals, stratified, held)


def _held(engine: Ranked, slots: Slots, parts: list[Array], numbers: Array) -> Held | None:
    """Put points in the order of their ids, each with its rank and the number of its stratum."""
    if not parts:
        return None
    chosen = np.concatenate(parts).astype(np.int64)
    places = np.repeat(numbers, [len(part) for part in parts])
    order = np.argsort(slots.ids[chosen])
    chosen = chosen[order]
    return Held(slots.points(chosen), engine._ranks[chosen], places[order])


def _totals(engine: Ranked, without: Array, n: int) -> ExactSums | None:
    """Sum over all that the engine has, less some."""
    kept: Totals | None = engine._totals
    if kept is None or not np.isfinite(kept.values).all():
        return None
    sums, exact = ExactSums(n), kept._exact
    sums.add(exact.high[:n])
    sums.add(exact.low[:n])
    if len(without):
        sums.add_rows(-engine.contributions(without)[:, :n])
        left, error = np.abs(sums.values), kept._peak[:n] * (kept._moves * _A_MOVE)
        if not np.isfinite(left).all() or (error[left > 0] > _SHARE * left[left > 0]).any():
            return None
    return sums
