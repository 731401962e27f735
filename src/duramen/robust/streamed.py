"""The robust coreset of data that does not fit in memory: two passes over batches of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from duramen.chunks import one_blas_thread
from duramen.coreset import Coreset
from duramen.points import WeightedPoints
from duramen.robust.passes import Plan, Tally, finish, plan

__all__ = ["streamed_coreset"]

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
