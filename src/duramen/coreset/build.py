"""Build a robust coreset: in memory, or in two passes over data that does not fit in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import column_names, is_frame, refuse_nonfinite
from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.coreset.choose import assemble, black_box_rows, ranked_rows, split_at, suspected_rows
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, merge, plan
from duramen.coreset.settings import ByDeltaSample, BySize, SizeRule, plan_of
from duramen.coreset.view import (
    anchor_sample,
    anchored_points,
    are_few,
    best_sampler,
    check_plan,
    find_anchor_and_sampler,
    given_anchor,
    is_bare,
    is_built_in,
    refuse_infinite,
    sampler_of,
)
from duramen.io.scan import Scan
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers import AnchoredPoints, RankedSampler, Sampler
from duramen.samplers.base import NOWHERE, freeze, has_frozen
from duramen.seeds import generator
from duramen.trimming import check_points_and_loss, outlier_weight

__all__ = ["robust_coreset", "scanned_coreset", "streamed_coreset"]


Batches = Callable[[], Iterable[WeightedPoints]]
Each = Callable[[WeightedPoints], Any]


@one_blas_thread()
def streamed_coreset(batches: Batches, *, each: Each | None = None, **asked: Any) -> Coreset:
    """Choose weighted rows that stand for data that comes in batches, and is never held as a whole.

    It is the coreset that :func:`duramen.robust_coreset` makes of all the data at
    once: the same rows, and weights that agree to nine digits. In which batches
    the rows come, and in what order, does not matter.

    Parameters
    ----------
    batches : function
        Called without arguments, twice. Each time it gives the same points, as
        :class:`duramen.WeightedPoints` with ids that are distinct over all
        batches.
    each : function, optional
        Called with every batch once it has been looked at, in both passes.
    **asked
        As for :func:`duramen.distributed.plan`.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.

    Notes
    -----
    Memory: one batch; twice the sample for the anchor; twice the suspected points; and
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
    if not callable(batches):
        raise TypeError(
            f"batches must be a function that gives all batches each time it is called; found "
            f"{type(batches).__name__}; for a list, pass lambda: the_list"
        )
    step: Plan | Coreset = plan(**asked)
    while isinstance(step, Plan):
        tally = Summarizer(step)
        for points in batches():
            tally.add(points)
            if each is not None:
                each(points)
        step = finish(tally.summary())
    return step


@one_blas_thread()
def scanned_coreset(data: Scan, **asked: Any) -> Coreset:
    """Choose weighted rows that stand for data that is scanned: files are read on all cores.

    As :func:`streamed_coreset` is, it is the coreset of all the data at once.
    """
    step: Plan | Coreset = plan(**asked)
    with data.shown() as shown:
        while isinstance(step, Plan):
            step = finish(_passed(data, step, shown))
    return step if data.names is None else replace(step, columns=data.names)


def _passed(data: Scan, step: Plan, shown: Callable[[int, float, int], Any]) -> Summary:
    """Make one pass over the data: a tally for each thread."""
    tallies = data.passed(
        lambda: Summarizer(step),
        lambda tally, first, points: tally.add(points, before=first),
        lambda share, n_rows: shown(step.number, share, n_rows),
    )
    return reduce(merge, [tally.summary() for tally in tallies])


@one_blas_thread()  # BLAS's own threads would keep a core busy after every small product
def robust_coreset(
    X: Any,
    y: Any = None,
    *,
    loss: Loss,
    size: int | None = None,
    epsilon: float | None = None,
    beta: float | None = None,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    anchor: Any = None,
    sample_weight: Any = None,
    ids: Any = None,
    calibrate: bool = True,
    random_state: Any = None,
    eta: float = 0.1,
) -> Coreset:
    """Choose weighted rows that stand for all the data, with an adversary's outliers in it.

    The points of the largest losses at an anchor are suspected outliers; they are
    kept or sampled uniformly. A sampler reduces the others. The weights of each
    side add up to exactly what that side weighs.

    Parameters
    ----------
    X, y : as for :func:`duramen.points`
        X is never copied. Data that does not fit in memory: X is what
        :func:`duramen.scan` returns, and the coreset is the same.
    loss : Loss
        The learning problem.
    size : int, optional
        How many rows to choose. It is shared between the two sides.
    epsilon : float, optional
        Instead of a size: the relative error that Theorem 2 allows with
        probability 1 - ``eta`` for every theta in the anchor's ball. Its sizes
        are large; where they exceed the data, a warning says so and all points
        are kept.
    beta : float, optional
        With ``epsilon``: the relative error in the number of outliers; 0, the
        default, keeps all that are suspected. With ``size``, beta=0 does so too.
        Alone: a uniform sample by Theorem 1, for a loss without any continuity.
    n_outliers : float
        The weight to set aside: a count (1 or more), or a fraction (below 1).
    sampler : Sampler or str
        "uniform", "layered", "leverage", "sensitivity", or one of your own;
        "auto" is leverage for losses that classify, unless ``size`` is below 50
        rows a parameter; then, and for the other losses of a linear predictor,
        sensitivity; and layered for all others.
    suspects : float
        How much weight is suspected, over ``n_outliers``; "auto" is 1.5. With 0
        nobody is: the ordinary coreset.
    anchor : Anchor or array, optional
        A rough solution; found by :func:`duramen.find_anchor` if not given.
        With the anchor of a coreset (``core.anchor``), the same seed and the same
        points in any order make the same coreset.
    sample_weight, ids : optional
        One weight, and one integer that names it, for each row.
    calibrate : bool
        Whether to adjust the weights so that the coreset has the data's loss and
        gradient at the anchor. (Not with ``epsilon``: theorems speak of weights
        as drawn.)
    random_state : None, int or numpy Generator
    eta : float
        With which probability a theorem's promise may fail.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.

    Notes
    -----
    Cost: as much as three to eight products ``X @ theta``, after the anchor
    (fifty for the sensitivity sampler): docs/speed.md has the figures. Extra
    memory is at most 64 bytes a row, for outliers that are a few percent.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=20_000) > 0, 1, -1)
    >>> X[:400] += 50
    >>> core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=1000, n_outliers=400, random_state=0)
    >>> len(core), round(core.total_weight)
    (1000, 20000)
    >>> dm.solve(core).theta.round(1)
    array([1.9, 0. , 0. , 0. ])
    """
    if isinstance(X, Scan):
        _refuse_beside(y=y, sample_weight=sample_weight, ids=ids, epsilon=epsilon)
        asked: dict[str, Any] = {"loss": loss, "size": size, "beta": beta, "n_outliers": n_outliers}
        asked |= {"sampler": sampler, "suspects": suspects, "anchor": anchor, "calibrate": calibrate}
        return scanned_coreset(X, **asked, random_state=random_state)
    plan = plan_of(size, epsilon, beta, eta, suspects)
    if not isinstance(calibrate, (bool, np.bool_)):
        raise TypeError(f"calibrate={calibrate!r} must be True or False")
    seed = int(generator(random_state).integers(2**63))
    # the pass at the anchor finds NaN by itself, but cannot name a frame's column
    checked = anchor is None and (is_frame(X) or isinstance(plan, ByDeltaSample))
    points = _points_of(X, y, sample_weight, ids, loss, checked=checked)
    z = outlier_weight(n_outliers, points.total_weight)
    named = sampler_of(sampler, plan)
    if named is not None:
        named.check(loss, points)
    check_plan(plan, z, is_bare(anchor), named)
    blind = anchor is None and isinstance(plan, ByDeltaSample)  # Theorem 1 needs to know nothing
    if blind:
        seen, cache = AnchoredPoints(points, loss, NOWHERE, np.zeros(len(points))), None
    else:
        place, named = _anchored(anchor, points, loss, plan, named, z, seed)
        seen, cache = anchored_points(place, points, loss, cached=calibrate and plan.calibrates)
    chooser = named
    assert chooser is not None
    split = split_at(points, seen.losses, plan.suspected_weight(seen, z))
    inner = replace(seen, points=points.with_weights(split.inner))
    _refuse_infinite(inner)
    if isinstance(chooser, RankedSampler) and split.weight < points.total_weight:
        inner = freeze(chooser, inner)
    sizes = plan.sizes(inner, split, z, chooser)
    _say_if_all(plan, sizes, len(split.rows), split.n_inner)
    outer = suspected_rows(seen, split, sizes[0], seed)
    if isinstance(chooser, RankedSampler):
        others, calibrated = ranked_rows(
            chooser, inner, split.n_inner, cache, sizes[1], seed, calibrate and plan.calibrates
        )
    else:
        others, calibrated = black_box_rows(chooser, inner, sizes[1], seed), False
    return assemble(
        points,
        [outer, others],
        loss=loss,
        anchor=None if blind else inner.anchor,
        threshold=split.threshold,
        n_points=split.n_inner + len(split.rows),
        n_suspected=len(split.rows),
        n_outliers=z,
        sampler=repr(chooser),
        calibrated=calibrated,
        seed=seed,
        columns=tuple(column_names(X)) if is_frame(X) else None,
    )


def _refuse_beside(**given: Any) -> None:
    """Raise TypeError for what cannot be passed beside a scan."""
    for name, value in given.items():
        if value is not None:
            way_out = {"y": "label=", "sample_weight": "weight=", "ids": "id="}.get(name)
            advice = f"name the column in dm.scan(..., {way_out}...)" if way_out else "pass size="
            raise TypeError(f"{name} cannot be passed beside data that is scanned; {advice}")


def _refuse_unread(X: Any) -> None:
    """Raise TypeError for data that is not here, before it is all read into memory."""
    if hasattr(X, "__dask_graph__"):
        raise TypeError(
            "X is a Dask collection; call duramen.distributed.dask.robust_coreset, which leaves its rows "
            "where they are, or pass X.compute() if they fit in memory"
        )
    if isinstance(X, (str, Path)) or callable(X) or type(X).__name__.endswith("Dataset"):
        shown = repr(X) if isinstance(X, (str, Path)) else f"a {type(X).__name__}"
        raise TypeError(f"X is {shown}; say how to read it, with dm.scan(X, label=...), and pass that as X")


def _points_of(X: Any, y: Any, weights: Any, ids: Any, loss: Any, *, checked: bool) -> WeightedPoints:
    """Make points; a built-in loss finds NaN and infinity by itself, in the pass it makes anyhow."""
    if isinstance(X, WeightedPoints):
        raise TypeError("robust_coreset takes X and y, not points; pass points.X, points.y and sample_weight")
    _refuse_unread(X)
    make = WeightedPoints if checked or not is_built_in(loss) else WeightedPoints._unvalidated
    points = make(X, y, weights, ids)
    check_points_and_loss(points, loss)
    if isinstance(loss, LinearLoss) and points.y is None:
        raise ValueError(f"{loss!r} needs labels; pass y, one label a row")
    if not points.total_weight > 0:
        raise ValueError("all weights are zero: there is nothing to stand for; pass some positive weights")
    return points


def _anchored(
    given: Any, points: WeightedPoints, loss: Loss, plan: SizeRule, named: Sampler | None, z: float, seed: int
) -> tuple[Anchor, Sampler]:
    """Find the anchor on a sample, with all that the sampler freezes, unless a whole one was given."""
    place = given_anchor(given, loss, points.n_columns)
    if place is not None:
        chooser = named or best_sampler(loss, place.radius > 0, are_few(plan, loss, points.n_columns))
        if not isinstance(chooser, RankedSampler) or has_frozen(chooser, place):
            return place, chooser
    n_points, total = int(np.count_nonzero(points.weights)), points.total_weight
    sample = anchor_sample(points, seed)
    try:
        return find_anchor_and_sampler(
            given, sample, loss, plan, named, z=z, total=total, n_points=n_points, seed=seed
        )
    except ValueError:
        refuse_nonfinite(points.X)  # with the number of the row here, not in the sample
        raise


def _refuse_infinite(inner: AnchoredPoints) -> None:
    """Raise ValueError if a point that is not suspected costs infinitely much, or nobody knows how much."""
    if np.isfinite(inner.losses).all():
        return
    odd = np.flatnonzero(~np.isfinite(inner.losses) & (inner.points.weights > 0))
    if odd.size:
        refuse_infinite(inner.points.ids[odd[0]], inner.losses[odd[0]])


def _say_if_all(plan: SizeRule, sizes: tuple[float, float], n_outer: int, n_inner: int) -> None:
    """Warn where theorems ask for no fewer points than there are."""
    if isinstance(plan, BySize) or sizes[0] < n_outer or sizes[1] < n_inner:
        return
    asked = f"{sum(sizes):,.0f}" if np.isfinite(sum(sizes)) else "infinitely many"
    warnings.warn(
        f"the theorem asks for {asked} points and there are {n_outer + n_inner:,}, so all are kept; pass a "
        "larger epsilon or beta, an anchor with a smaller radius, or a size",
        stacklevel=3,
    )
