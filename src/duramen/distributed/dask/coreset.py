"""The coreset of a Dask collection: one task per partition summarizes it, and a tree of tasks merges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from duramen.coreset.coreset import Coreset
from duramen.coreset.passes import Plan, Summarizer, Summary, finish, plan, summarize
from duramen.distributed.dask.partitions import Parts, constant, naming, parts_of, task
from duramen.losses.base import Loss
from duramen.parallel import on_one_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import Sampler

_FAN_IN = 8  # summaries that one task merges
# Rows. Dask starts workers with malloc set to return memory soon (MALLOC_TRIM_THRESHOLD_), so that each array
# of more than 128 KiB costs page faults: with 65,536 rows at a time a pass took up to 1.4 times as long.
_BATCH = 1 << 14
# Spelled out: the dashboard groups tasks by the letters at the beginning of their names.
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
    """Build the robust coreset of a Dask collection, which no single machine has to hold.

    The result is the coreset that :func:`duramen.robust_coreset` builds from all rows on one
    machine: the same rows, and weights that agree to nine digits. It does not depend on how the
    rows are partitioned, nor, if ids are given, on their order.

    Parameters
    ----------
    data : Dask DataFrame, or Dask array of two dimensions
        An array that is chunked along its columns as well is rechunked.
    y : Dask array or Series, optional
        Labels, for an array; chunked like the rows, or of known chunks.
    label : optional
        The column of a frame that holds the labels.
    features : iterable of names, optional
        The columns of a frame that are features, all of them numeric; by default
        all columns without another role.
    weight, id : optional
        The columns of a frame with weights, and with an integer id for each row. Without
        ``id`` and ``ids``, rows are identified by their numbers over all partitions.
    sample_weight, ids : Dask arrays or Series, optional
        The same for an array.
    loss, size, n_outliers, sampler, suspects, anchor, calibrate, random_state, beta
        As for :func:`duramen.robust_coreset`; the sampler must score each point by itself.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong and what to do. An error on a worker begins with
        the partition's name, and numbers rows within it.

    Notes
    -----
    It runs where ``dask.compute`` would: on the cluster of the active client, or on
    a scheduler of this machine. There are two passes, and one before them that
    counts the rows of a frame by one column (not if ids are given). Each pass computes the
    partitions again: call ``persist()`` first where that is expensive and they fit in
    the cluster's memory. Only summaries travel. However large a partition is, its
    summary has at most 20,000 rows in the first pass, and in the second ``size`` rows
    (per layer, with the layered sampler) and the rows that may be suspected, no
    more than are suspected in total. Each task uses one thread.

    Dask configures its workers to return memory to the system at once, which may take as
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
    first = plan(
        columns=parts.layout.columns,
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
    if loss.needs_labels and not parts.has_labels:
        raise ValueError(f"{loss!r} needs labels; pass label= for a frame, or y, one label per row")
    parts = parts.with_row_numbers()
    counts = [count for count in parts.counts if count is not None]
    if len(counts) == len(parts) and not parts.has_weights:
        first = first.expecting(sum(counts))
    step: Plan | Coreset = first
    while isinstance(step, Plan):
        step = finish(_run_pass(parts, step))
    return step


def _run_pass(parts: Parts, step: Plan) -> Summary:
    """Make one pass, and fetch the summary of all rows."""
    name = f"duramen-{_PASSES[min(step.number, len(_PASSES)) - 1]}-pass"
    shared = constant(step, f"{name}-plan")
    summaries = parts.each(_summarize, shared, f"{name}-summarize")
    (data,) = parts.fetch(merge_tree(_merge, summaries, shared, f"{name}-merge"))
    return Summary.from_bytes(data, step)


def merge_tree(merge: Any, summaries: Sequence[Any], shared: Any, name: str) -> Any:
    """Merge a few summaries at a time by ``merge(shared, title, summaries)``, until one is left."""
    begin, n, span = task(name), len(summaries), _FAN_IN
    while len(summaries) > 1:
        groups = [summaries[at : at + _FAN_IN] for at in range(0, len(summaries), _FAN_IN)]
        names = [f"partitions {at} to {min(at + span, n) - 1} of {n}" for at in range(0, n, span)]
        summaries = [
            begin(merge, shared, title, group) if len(group) > 1 else group[0]
            for title, group in zip(names, groups, strict=True)
        ]
        span *= _FAN_IN
    return summaries[0]


def _summarize(points: WeightedPoints | None, step: Plan) -> bytes:
    n = 0 if points is None else len(points)
    batches = () if points is None else (points.take(slice(at, at + _BATCH)) for at in range(0, n, _BATCH))
    return summarize(batches, step).to_bytes()


def _merge(step: Plan, name: str, summaries: Sequence[bytes]) -> bytes:
    with naming(name), on_one_thread():
        merged = Summarizer(step)
        for data in summaries:
            merged.absorb(Summary.from_bytes(data, step))
        return merged.summary().to_bytes()
