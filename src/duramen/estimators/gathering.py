"""Passes over data that no memory holds: scans and Dask collections, and what is gathered from their rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

from duramen.chunks import on_one_thread, one_blas_thread
from duramen.distributed.dask.collections import parts_of
from duramen.distributed.dask.parts import Parts, constant, task
from duramen.points import WeightedPoints
from duramen.scanning import Scan

__all__ = ["Change", "Gathering", "Partitions", "Preparation", "Scanned", "is_beyond", "source_of"]

_BATCH = 1 << 16  # rows of a partition that are looked at together
_FAN_IN = 8  # summaries that one task merges

Change = Callable[[WeightedPoints], WeightedPoints]


class Gathering(Protocol):
    """What a pass gathers, under way: from batches, and from summaries of others."""

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Take in some rows; an error counts those in ``before`` them."""

    def absorb(self, summary: Any) -> None:
        """Take in what another pass over other rows gathered."""

    def summary(self) -> Any:
        """Give all that was gathered: small, and fit to travel."""


@dataclass(frozen=True)
class Preparation:
    """What becomes of rows before anything is gathered: those without weight are as good as absent.

    Attributes
    ----------
    labelled : bool
        Whether labels are needed; else they are ignored.
    change : function or None
        What else is to be done with points.
    """

    labelled: bool
    change: Change | None = None

    def __call__(self, points: WeightedPoints) -> WeightedPoints:
        """Prepare a batch."""
        if self.labelled and points.y is None:
            raise ValueError(
                "labels are needed, and there are none; name their column in dm.scan(..., label=...), or "
                "pass a Dask array or Series as y"
            )
        if not self.labelled and points.y is not None:
            points = WeightedPoints._trusted(points.X, None, points.weights, points.ids)
        if not points.weights.all():
            points = points.take(points.weights > 0)
        return points if self.change is None or not len(points) else self.change(points)


class Scanned:
    """A scan, pass after pass.

    Parameters
    ----------
    data : Scan
    """

    def __init__(self, data: Scan) -> None:
        self._data, self._n_passes = data, 0
        self.classes = data.classes

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The names of the columns."""
        return self._data.names

    @one_blas_thread()
    def gather(self, begin: Callable[[], Gathering], prepare: Preparation, told: str) -> Any:
        """Make one pass, parts of files side by side: a gathering for each thread."""
        self._n_passes += 1

        def take(mine: Gathering, first: int, points: WeightedPoints) -> None:
            batch = prepare(points)
            if len(batch):
                mine.add(batch, before=first if len(batch) == len(points) else None)

        with self._data.shown() as shown:
            found = self._data.passed(begin, take, lambda share, n_rows: shown(self._n_passes, share, n_rows))
        return _joined(begin, [one.summary() for one in found])


class Partitions:
    """The partitions of a Dask collection, pass after pass."""

    classes = None

    def __init__(self, parts: Parts) -> None:
        self._parts = parts.numbered()

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The names of the columns."""
        return self._parts.layout.features

    def gather(self, begin: Callable[[], Gathering], prepare: Preparation, told: str) -> Any:
        """Make one pass: a task a partition, and a tree of tasks that merge what they gathered."""
        name = f"duramen-fit-{told}"
        shared = constant((begin, prepare), f"{name}-plan")
        summaries = self._parts.each(_gathered, shared, name)
        merge = task(f"{name}-merge")
        while len(summaries) > 1:
            groups = [summaries[at : at + _FAN_IN] for at in range(0, len(summaries), _FAN_IN)]
            summaries = [merge(_merged, shared, group) for group in groups]
        return self._parts.fetch(summaries[0])[0]


def is_beyond(X: Any) -> bool:
    """Tell whether data is a scan or a Dask collection."""
    if isinstance(X, Scan):
        return True
    dask = sys.modules.get("dask")  # whoever has a collection has imported it
    return dask is not None and hasattr(type(X), "__dask_graph__") and bool(dask.is_dask_collection(X))


def source_of(X: Any, y: Any, sample_weight: Any, *, labelled: bool) -> Scanned | Partitions:
    """See data as what passes can be made over; a Dask frame's rows are counted.

    Raises
    ------
    TypeError, ValueError
        If labels or weights do not go with it.
    """
    if isinstance(X, Scan):
        given = {"y": (y if labelled else None, "label"), "sample_weight": (sample_weight, "weight")}
        for name, (value, role) in given.items():
            if value is not None:
                raise TypeError(
                    f"{name} cannot be passed beside data that is scanned; name the column in "
                    f"dm.scan(..., {role}=...)"
                )
        return Scanned(X)
    return Partitions(parts_of(X, y if labelled else None, sample_weight=sample_weight))


def _gathered(points: WeightedPoints | None, shared: Any) -> Any:
    begin, prepare = shared
    mine = begin()
    for at in range(0, 0 if points is None else len(points), _BATCH):
        assert points is not None
        batch = prepare(points.take(slice(at, at + _BATCH)))
        if len(batch):
            mine.add(batch, before=at)
    return mine.summary()


def _merged(shared: Any, summaries: Sequence[Any]) -> Any:
    with on_one_thread():
        return _joined(shared[0], summaries)


def _joined(begin: Callable[[], Gathering], summaries: Sequence[Any]) -> Any:
    def together(whole: Gathering, summary: Any) -> Gathering:
        whole.absorb(summary)
        return whole

    return summaries[0] if len(summaries) == 1 else reduce(together, summaries, begin()).summary()
