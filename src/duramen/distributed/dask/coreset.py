"""The one call, on a Dask collection: a task a partition, and a tree that merges what they tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from duramen.coreset import Coreset
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan, summarize
from duramen.distributed.dask.partitions import Parts, constant, named, parts_of, task
from duramen.distributed.dask.traffic import Parcel, report, together
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.parallel import on_one_thread
from duramen.points import WeightedPoints
from duramen.samplers import Sampler

__all__ = ["coreset_of", "robust_coreset"]

_FAN_IN = 8  # summaries that one task merges
# Rows. Dask starts workers with malloc set to give memory back soon (MALLOC_TRIM_THRESHOLD_), so that each
# array of more than 128 KiB costs page faults: by 65,536 rows at a time a pass took up to 1.4 times as long.
_BATCH = 1 << 14
# In words, as the dashboard groups tasks by the letters at the beginning of their names.
_PASSES = ("first", "second", "third")


def robust_coreset(
    data: Any,
    y: Any = None,
    *,
    label: Any = None,
    features: Iterable[Any] | None = None,
    weight: Any = None,
    id: Any = None,
    loss: Loss,
    size: int,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    anchor: Any = None,
    sample_weight: Any = None,
    ids: Any = None,
    calibrate: bool = True,
    random_state: Any = None,
    beta: float | None = None,
) -> Coreset:
    """Choose weighted rows that stand for a Dask collection, which no machine has to hold.

    It is the coreset that :func:`duramen.robust_coreset` makes of all rows on one
    machine: the same rows, and weights that agree to nine digits. How the rows are
    cut into partitions does not matter, nor, with ids of their own, their order.

    Parameters
    ----------
    data : Dask DataFrame, or Dask array of two dimensions
        An array that is cut between columns too is rechunked.
    y : Dask array or Series, optional
        Labels, for an array; cut like the rows, or of known chunks.
    label : optional
        The column of a frame that holds the labels.
    features : iterable of names, optional
        The columns of a frame that are features, all of them numeric; by default
        all columns without another role.
    weight, id : optional
        The columns of a frame with weights, and with an integer that names each row.
        Without one, and without ``ids``, rows are known by their numbers over all partitions.
    sample_weight, ids : Dask arrays or Series, optional
        The same for an array.
    loss, size, n_outliers, sampler, suspects, anchor, calibrate, random_state, beta
        As for :func:`duramen.robust_coreset`; a sampler must score each point by itself.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out. An error on a worker begins with
        the partition's name, and numbers rows within it.

    See Also
    --------
    Traffic : how many bytes travel.

    Notes
    -----
    It runs where ``dask.compute`` would: on the cluster of the active client, or on
    a scheduler of this machine. There are two passes, and one before them that
    counts the rows of a frame by one column (not with ids). Each makes the
    partitions anew: call ``persist()`` first where that is dear and they fit in
    the cluster's memory. Only summaries travel. However large a partition is, its
    own has at most 20,000 rows in the first pass, and in the second ``size`` rows
    (of each layer, by the layered sampler) and those that may be suspected, no
    more than are suspected of all. Each task uses one thread.

    Dask has its workers give memory back to the system at once, which may take as
    long as the work itself. ``MALLOC_TRIM_THRESHOLD_=536870912`` together with
    ``MALLOC_MMAP_THRESHOLD_=536870912`` in their environment lets them keep it.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import numpy as np
    >>> import pandas as pd
    >>> import duramen as dm
    >>> from duramen.distributed import dask as dmd
    >>> rng = np.random.default_rng(0)
    >>> df = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=["a", "b", "c"])
    >>> df["ill"] = np.where(df["a"] + rng.normal(size=20_000) > 0, 1, -1)
    >>> ddf = dd.from_pandas(df, npartitions=5)
    >>> chosen = {"loss": dm.LogisticLoss(), "size": 1000, "n_outliers": 400, "random_state": 0}
    >>> core = dmd.robust_coreset(ddf, label="ill", **chosen)
    >>> len(core), round(core.total_weight), core.columns
    (1000, 20000, ('a', 'b', 'c'))
    >>> np.array_equal(core.ids, dm.robust_coreset(df[["a", "b", "c"]], df["ill"], **chosen).ids)
    True
    """
    parts = parts_of(
        data,
        y,
        label=label,
        features=features,
        weight=weight,
        id=id,
        sample_weight=sample_weight,
        ids=ids,
    )
    return coreset_of(
        parts,
        loss=loss,
        size=size,
        n_outliers=n_outliers,
        sampler=sampler,
        suspects=suspects,
        anchor=anchor,
        calibrate=calibrate,
        random_state=random_state,
        beta=beta,
    )


def coreset_of(parts: Parts, **asked: Any) -> Coreset:
    """Make the coreset of partitions; what is asked is as for :func:`duramen.distributed.plan`."""
    first = plan(columns=parts.layout.columns, **asked)
    loss = asked["loss"]
    if isinstance(loss, (LinearLoss, SoftmaxLoss)) and not parts.has_labels:
        raise ValueError(f"{loss!r} needs labels; pass label=, a frame's column, or y, one label a row")
    parts = parts.numbered()
    counts = [rows.count for rows in parts.rows if rows.count is not None]
    if len(counts) == len(parts) and not parts.has_weights:
        first = first.expecting(sum(counts))
    step: Plan | Coreset = first
    while isinstance(step, Plan):
        step = finish(_passed(parts, step))
    return step


def _passed(parts: Parts, step: Plan) -> Summary:
    """Make one pass, and fetch the summary of all rows."""
    name = f"duramen-{_PASSES[min(step.number, len(_PASSES)) - 1]}-pass"
    shared = constant(step, f"{name}-plan")
    parcels = parts.each(_summarized, shared, f"{name}-summarize")
    (parcel,) = parts.fetch(_tree(parcels, shared, f"{name}-merge"))
    report(step.number, parcel)
    return Summary.from_bytes(parcel.data, step)


def _tree(parcels: Sequence[Any], shared: Any, name: str) -> Any:
    """Merge some at a time, until there is one."""
    begin, n, span = task(name), len(parcels), _FAN_IN
    while len(parcels) > 1:
        groups = [parcels[at : at + _FAN_IN] for at in range(0, len(parcels), _FAN_IN)]
        names = [f"partitions {at} to {min(at + span, n) - 1} of {n}" for at in range(0, n, span)]
        parcels = [
            begin(_merged, shared, title, group) if len(group) > 1 else group[0]
            for title, group in zip(names, groups, strict=True)
        ]
        span *= _FAN_IN
    return parcels[0]


def _summarized(points: WeightedPoints | None, step: Plan) -> Parcel:
    n = 0 if points is None else len(points)
    batches = () if points is None else (points.take(slice(at, at + _BATCH)) for at in range(0, n, _BATCH))
    data = summarize(batches, step).to_bytes()
    return Parcel(data, (n,), (len(data),))


def _merged(step: Plan, name: str, parcels: Sequence[Parcel]) -> Parcel:
    with named(name), on_one_thread():
        tally = Summarizer(step)
        for parcel in parcels:
            tally.absorb(Summary.from_bytes(parcel.data, step))
        return together(parcels, tally.summary().to_bytes())
