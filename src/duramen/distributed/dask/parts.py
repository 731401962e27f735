"""The partitions of a Dask collection, and work on the points of each: one task a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import uuid4

from duramen.chunks import on_one_thread
from duramen.distributed.dask.layout import Layout, Rows
from duramen.extras import needed
from duramen.points import WeightedPoints
from duramen.rows import refuse_nonfinite

__all__ = ["Parts", "constant", "module", "named", "said", "task"]

_TOGETHER = 16  # partitions that are made again together, to find which one cannot be

Work = Callable[[WeightedPoints | None, Any], Any]


def module(name: str) -> Any:
    """Import Dask, or a part of it."""
    return needed(name, "duramen.distributed.dask", "dask")


@dataclass(frozen=True, eq=False)
class Parts:
    """The partitions of a collection, one after the other.

    Attributes
    ----------
    layout : Layout
    blocks : sequence of tuples
        Of each partition: its rows, labels, weights and ids, as delayed values, or None.
    rows : tuple of Rows
        Which rows each has, as far as that is known.
    where : tuple of str
        What is known of where each stands; may be empty.
    counters : sequence
        Delayed values with as many rows as each has, and few columns.
    """

    layout: Layout
    blocks: Sequence[tuple[Any, ...]]
    rows: tuple[Rows, ...]
    where: tuple[str, ...]
    counters: Sequence[Any]

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def has_labels(self) -> bool:
        """Whether points have labels."""
        return self.layout.label is not None or self.blocks[0][1] is not None

    @property
    def has_weights(self) -> bool:
        """Whether weights are given."""
        return self.layout.weight is not None or self.blocks[0][2] is not None

    @property
    def has_ids(self) -> bool:
        """Whether ids are given; otherwise they are the rows' numbers."""
        return self.layout.id is not None or self.blocks[0][3] is not None

    def name(self, number: int) -> str:
        """Name a partition in a message."""
        where = f" ({self.where[number]})" if self.where[number] else ""
        return f"partition {number} of {len(self)}{where}"

    def numbered(self) -> Parts:
        """Know the number of each row, which takes a pass over one column where ids are not given."""
        if self.has_ids:
            return self
        counts = [rows.count for rows in self.rows]
        if None in counts:
            count = task("duramen-count-rows")
            counts = list(self.fetch(*(count(_length, block) for block in self.counters)))
        firsts = accumulate(counts, initial=0)
        return replace(self, rows=tuple(map(Rows, firsts, counts)))

    def fetch(self, *values: Any) -> tuple[Any, ...]:
        """Compute what depends on partitions; an error in making one of them begins with its name too."""
        try:
            return tuple(module("dask").compute(*values))
        except Exception as error:
            ours = str(error).startswith("partition")
            if ours or type(error).__module__.partition(".")[0] == "distributed":
                raise
            number = self._broken()
            if number is None:
                raise
            raise said(self.name(number), error) from error

    def _broken(self) -> int | None:
        """Find a partition that cannot be made: some at a time, then one by one."""
        look = task("duramen-look-for-error")
        ends = [look(_nothing, *(one for one in blocks if one is not None)) for blocks in self.blocks]
        for start in range(0, len(ends), _TOGETHER):
            group = ends[start : start + _TOGETHER]
            if not _can_be_made(group):
                return next((start + at for at, end in enumerate(group) if not _can_be_made([end])), None)
        return None

    def each(self, work: Work, shared: Any, name: str) -> list[Any]:
        """Do some work on the points of each partition, when it is asked for.

        Parameters
        ----------
        work : function
            Called on a worker with the points of a partition, or None where it has no rows, and with
            what is shared. An error in it begins with the partition's name.
        shared : delayed value
            As :func:`constant` makes it.
        name : str
            Of the tasks, letters and hyphens: the dashboard shows it.

        Returns
        -------
        list of delayed values
        """
        layout, begin = constant(self.layout, "duramen-layout"), task(name)
        return [
            begin(_worked, work, shared, layout, self.name(number), (rows.first, rows.count), *blocks)
            for number, (rows, blocks) in enumerate(zip(self.rows, self.blocks, strict=True))
        ]


def constant(value: Any, name: str) -> Any:
    """Make a value a task of its own, so that it goes to a worker once, and not with every task."""
    return module("dask").delayed(value, name=f"{name}-{uuid4().hex}", traverse=False)


def task(name: str) -> Callable[..., Any]:
    """Make a function that calls another one, later, as a task of a name; each call has the next number."""
    delayed, token = module("dask").delayed, uuid4().hex
    numbers = iter(range(2**63))

    def begin(function: Callable[..., Any], *arguments: Any) -> Any:
        key = (f"{name}-{token}", next(numbers))
        return delayed(function, pure=False, traverse=False)(*arguments, dask_key_name=key)

    return begin


@contextmanager
def named(name: str) -> Iterator[None]:
    """Begin the message of an error with the name of who has it; its type stays."""
    try:
        yield
    except Exception as error:
        raise said(name, error) from error


def said(name: str, error: Exception) -> Exception:
    """Make an error that begins with the name of who had it: of its type, or of one that takes a text."""
    text = f"{name}: {error.args[0] if len(error.args) == 1 else error}"
    for kind in type(error).__mro__:
        try:
            made = kind(text)
        except Exception:
            continue
        if isinstance(made, Exception) and str(made) in (text, repr(text)):
            return made
    return RuntimeError(text)


def _nothing(*blocks: Any) -> None:
    """Need blocks, and make nothing of them."""


def _can_be_made(ends: Sequence[Any]) -> bool:
    try:
        module("dask").compute(*ends)
    except Exception:
        return False
    return True


def _worked(
    work: Work, shared: Any, layout: Layout, name: str, rows: tuple[int | None, int | None], *blocks: Any
) -> Any:
    with named(name), on_one_thread():
        points = layout.points(Rows(*rows), *blocks)
        try:
            return work(points, shared)
        except ValueError:
            if points is not None and layout.columns:
                refuse_nonfinite(points.X, names=layout.columns)  # with the column's name
            raise


def _length(block: Any) -> int:
    return int(block.shape[0])
