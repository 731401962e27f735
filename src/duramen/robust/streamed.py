"""The robust coreset of data that does not fit in memory: two passes over batches of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

from duramen.chunks import one_blas_thread
from duramen.coreset import Coreset
from duramen.points import WeightedPoints
from duramen.robust.passes import Plan, Summary, Tally, finish, merge, plan
from duramen.scanning import Scan

__all__ = ["scanned_coreset", "streamed_coreset"]

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
        tally = Tally(step)
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
        lambda: Tally(step),
        lambda tally, first, points: tally.add(points, before=first),
        lambda share, n_rows: shown(step.number, share, n_rows),
    )
    return reduce(merge, [tally.summary() for tally in tallies])
