"""The robust coreset of data that does not fit in memory: two passes over batches of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.ball import Anchor
from duramen.chunks import one_blas_thread
from duramen.coreset import Coreset
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.robust.choice import Chosen, assembled, suspected_rows
from duramen.robust.outlook import (
    anchor_of,
    are_few,
    best_sampler,
    check_plan,
    is_bare,
    refuse_infinite,
    sampler_of,
    seen_from,
)
from duramen.robust.plan import BySize, plan_of
from duramen.robust.split import Split, split_at
from duramen.robust.stream_census import Batches, Census, Each, Pass, census
from duramen.robust.stream_inliers import Inliers
from duramen.robust.stream_lowest import joined
from duramen.robust.stream_suspects import Suspects, picked
from duramen.sampling import RankedSampler, Sampler, Seen
from duramen.sampling.base import frozen
from duramen.sampling.calibration import known_of
from duramen.seeds import generator
from duramen.trimming import outlier_weight

__all__ = ["streamed_coreset"]


@one_blas_thread()
def streamed_coreset(
    batches: Batches,
    *,
    loss: Loss,
    size: int,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    calibrate: bool = True,
    random_state: Any = None,
    anchor: Any = None,
    columns: Sequence[str] | None = None,
    each: Each | None = None,
) -> Coreset:
    """Choose weighted rows that stand for data that comes in batches, and is never held as a whole.

    With the anchor that it used, :func:`duramen.robust_coreset` of all the data
    at once makes the same coreset: the same rows, and weights that agree to nine
    digits. In which batches the rows come, and in what order, does not matter.

    Parameters
    ----------
    batches : function
        Called without arguments, twice. Each time it gives the same points, as
        :class:`duramen.WeightedPoints` with ids that are distinct over all
        batches.
    loss, size, n_outliers, sampler, suspects, calibrate, random_state
        As for :func:`duramen.robust_coreset`; a sampler must score each point by
        itself.
    anchor : Anchor or array, optional
        A rough solution; found on a sample of 20,000 points if not given, as is
        all that the sampler derives from data and the anchor does not hold.
    columns : sequence of str, optional
        The names of the columns, for the coreset to keep.
    each : function, optional
        Called with every batch once it has been looked at, in both passes.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.

    Notes
    -----
    Memory: one batch; the sample for the anchor; twice the suspected points; and
    twice ``size`` points for each stratum that the sampler makes (one, but for the
    layered sampler, which makes one for each doubling of the loss).

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> def batches():
    ...     for number in range(10):
    ...         rng = np.random.default_rng(number)
    ...         ids = 1000 * number + np.arange(1000)
    ...         yield dm.points(rng.normal(size=(1000, 2)), ids=ids)
    >>> core = streamed_coreset(batches, loss=dm.KMeansLoss(1), size=100, n_outliers=50, random_state=0)
    >>> len(core), core.n_points, round(core.total_weight)
    (100, 10000, 10000)
    """
    plan = plan_of(size, None, None, 0.1, suspects)
    assert isinstance(plan, BySize)
    if not isinstance(calibrate, (bool, np.bool_)):
        raise TypeError(f"calibrate={calibrate!r} must be True or False")
    if not callable(batches):
        raise TypeError(
            f"batches must be a function that gives all batches each time it is called; found "
            f"{type(batches).__name__}; for a list, pass lambda: the_list"
        )
    named = sampler_of(sampler, plan)
    if named is not None:
        _ranked(named)
    seed = int(generator(random_state).integers(2**63))
    found = census(batches, loss, seed, each)
    z = outlier_weight(n_outliers, found.total)
    place, chooser = _anchored(anchor, found, loss, plan, named, z, seed)
    known = known_of(loss, place, plan.size, found.sample) if calibrate else None
    inner = Inliers(chooser, seed, plan.size, known)
    outer = Suspects(plan.suspected_of(z, found.total))
    passing = Pass(batches, each)
    for points in passing:
        with passing.numbered():
            seen, marks = seen_from(place, points, loss, marked=known is not None)
        _sort_out(seen, marks, outer, inner)
    _refuse_change(passing, found)
    suspected = _settled(outer, inner)
    n_outer = 0 if suspected is None else len(suspected)
    sizes = plan.shares(n_outer, inner.n_points)
    calibrated = False
    sides = []
    if suspected is not None:
        everyone = Split(np.arange(n_outer), np.zeros(n_outer), 0, outer.weight, np.inf)
        sides.append((suspected.points, suspected_rows(suspected, everyone, sizes[0], seed)))
    if inner.n_points:
        points, chosen, calibrated = inner.choose(min(sizes[1], inner.n_points))
        sides.append((points, chosen))
    return assembled(
        *_together(sides),
        loss=loss,
        anchor=place,
        threshold=np.inf if suspected is None else float(suspected.losses.min()),
        n_points=found.n_points,
        n_suspected=n_outer,
        n_outliers=z,
        sampler=repr(chooser),
        calibrated=calibrated,
        seed=seed,
        columns=None if columns is None else tuple(columns),
    )


def _ranked(sampler: Sampler) -> RankedSampler:
    """Raise TypeError unless a sampler scores each point by itself."""
    if isinstance(sampler, RankedSampler):
        return sampler
    raise TypeError(
        f"{sampler!r} must be handed all points at once; streaming needs a sampler that scores each point by "
        "itself: take 'uniform', 'layered', 'leverage' or 'sensitivity', or a dm.RankedSampler of your own"
    )


def _anchored(
    given: Any, found: Census, loss: Loss, plan: BySize, named: Sampler | None, z: float, seed: int
) -> tuple[Anchor, RankedSampler]:
    """Take the anchor given, or find one on the sample; and freeze on it what the sampler misses."""
    sample = found.sample
    if named is not None:
        named.check(loss, sample)
    check_plan(plan, z, is_bare(given), named)
    fraction = z / found.total
    place = anchor_of(given, sample, loss, fraction, np.random.default_rng(seed), found.n_points)
    chooser = _ranked(named or best_sampler(loss, place.radius > 0, are_few(plan, loss, sample.n_columns)))
    seen, _ = seen_from(place, sample, loss, marked=False)
    total = sample.total_weight
    split = split_at(sample, seen.losses, plan.suspected_of(fraction * total, total))
    inner = np.where(np.isfinite(seen.losses), split.inner, 0.0)  # of all points, such may well be suspected
    if inner.any():
        seen = replace(seen, points=sample.weighing(inner))
    return frozen(chooser, seen).anchor, chooser


def _sort_out(seen: Seen, marks: Any, outer: Suspects, inner: Inliers) -> None:
    """Take in a batch: hold those that may be suspected, and all others are inliers."""
    points = seen.points
    lost = np.flatnonzero(np.isnan(seen.losses) & (points.weights > 0))
    if lost.size:
        refuse_infinite(points.ids[lost[0]], seen.losses[lost[0]])
    rows = outer.among(seen)
    if not len(rows):
        inner.add(seen, marks)
        return
    rest = np.array(points.weights)
    rest[rows] = 0.0
    inner.add(replace(seen, points=points.weighing(rest)), marks)
    dropped = outer.add(picked(seen, rows))
    if dropped is not None:
        inner.add(dropped)


def _settled(outer: Suspects, inner: Inliers) -> Seen | None:
    """Tell who is suspected, now that all have come; whoever else was held is an inlier."""
    held = outer.held()
    if held is None:
        return None
    split = split_at(held.points, held.losses, outer.weight)
    others = np.flatnonzero(split.inner > 0)
    if len(others):
        inner.add(picked(held, others))
    return picked(held, split.rows) if len(split.rows) else None


def _refuse_change(passing: Pass, found: Census) -> None:
    """Raise ValueError if the second pass did not meet the points of the first."""
    if (passing.n_rows, passing.n_points) != (found.n_rows, found.n_points):
        raise ValueError(
            f"batches() gave {found.n_rows:,} rows the first time, {found.n_points:,} of them with a weight, "
            f"and {passing.n_rows:,} and {passing.n_points:,} the second; it must give the same points each "
            "time it is called"
        )


def _together(sides: list[tuple[WeightedPoints, Chosen]]) -> tuple[WeightedPoints, list[Chosen]]:
    """Put the chosen points of all sides beside each other, and let go of all others."""
    parts, chosen, start = [], [], 0
    for points, side in sides:
        parts.append(points.pick(side.rows, points.weights[side.rows]))
        chosen.append(side._replace(rows=np.arange(start, start + len(side.rows))))
        start += len(side.rows)
    return joined(parts), chosen
