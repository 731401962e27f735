"""What travels: how large the summaries are that leave the workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array

__all__ = ["Parcel", "PassTraffic", "Traffic", "report", "together"]


class Parcel(NamedTuple):
    """A summary as bytes, and a note of all that was made on the way to it."""

    data: bytes
    rows: tuple[int, ...]  # of each partition
    sizes: tuple[int, ...]  # in bytes, of each partition's summary
    merged: int = 0  # bytes of the summaries that merging made


@dataclass(frozen=True, eq=False)
class PassTraffic:
    """What travelled in one pass, in bytes.

    Attributes
    ----------
    number : int
        Of the pass, from 1.
    rows : array of int
        How many rows each partition has.
    partitions : array of int
        How large the summary of each partition is.
    merged : int
        How large all summaries are that were merged from others.
    received : int
        How large the last of them is: all that the caller gets.
    """

    number: int
    rows: Array = field(repr=False)
    partitions: Array
    merged: int
    received: int

    @property
    def total(self) -> int:
        """All that was sent, if every summary went to another worker: an upper bound."""
        return int(self.partitions.sum()) + self.merged


class Traffic:
    """Listen to how much travels while coresets are made.

    Attributes
    ----------
    passes : list of PassTraffic

    Examples
    --------
    >>> import dask.array as da
    >>> import duramen as dm
    >>> from duramen.distributed import dask as dmd
    >>> X = da.random.default_rng(0).normal(size=(900_000, 2), chunks=(100_000, 2))
    >>> with dmd.Traffic() as traffic:
    ...     core = dmd.robust_coreset(X, loss=dm.KMeansLoss(2), size=100, random_state=0)
    >>> traffic
    pass 1: 9 partitions sent ... bytes at most, ...
    pass 2: 9 partitions sent ... bytes at most, ...
    >>> traffic.total < X.nbytes
    True
    """

    def __init__(self) -> None:
        self.passes: list[PassTraffic] = []
        self._token: Token[tuple[Traffic, ...]] | None = None

    @property
    def total(self) -> int:
        """All bytes of all passes, at most."""
        return sum(one.total for one in self.passes)

    def __enter__(self) -> Traffic:
        self._token = _listening.set((*_listening.get(), self))
        return self

    def __exit__(self, *_: Any) -> None:
        if self._token is not None:
            _listening.reset(self._token)

    def __repr__(self) -> str:
        return "\n".join(_told(one) for one in self.passes) or "Traffic: nothing yet"


_listening: ContextVar[tuple[Traffic, ...]] = ContextVar("duramen_traffic", default=())


def report(number: int, parcel: Parcel) -> None:
    """Tell whoever listens of a pass."""
    rows, sizes = (np.array(column, dtype=np.int64) for column in (parcel.rows, parcel.sizes))
    for one in _listening.get():
        one.passes.append(PassTraffic(number, rows, sizes, parcel.merged, len(parcel.data)))


def together(parcels: Sequence[Parcel], data: bytes) -> Parcel:
    """Make the parcel of what was merged from others."""
    rows = tuple(count for parcel in parcels for count in parcel.rows)
    sizes = tuple(size for parcel in parcels for size in parcel.sizes)
    return Parcel(data, rows, sizes, len(data) + sum(parcel.merged for parcel in parcels))


def _told(one: PassTraffic) -> str:
    sizes = one.partitions
    return (
        f"pass {one.number}: {len(sizes)} partitions sent {int(sizes.max()):,} bytes at most, "
        f"{int(sizes.sum()):,} together; merging them {one.merged:,} more; the caller got {one.received:,}"
    )
