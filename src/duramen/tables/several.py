"""Several files as one table: their rows, one file after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from duramen.tables.kinds import NUMERIC, Kind
from duramen.tables.names import few
from duramen.tables.parquet import ArrowTable
from duramen.tables.table import Batch, Shard, Table

__all__ = ["ArrowFiles", "Files"]


class Files(Table):
    """The rows of several tables with the same columns, one after the other.

    Parameters
    ----------
    path : Path
        What was asked for: a folder, or a pattern.
    parts : sequence of Table
        All are looked at before a row is read: one whose columns differ is refused.
    """

    def __init__(self, path: Path, parts: Sequence[Table]) -> None:
        first = parts[0]
        for part in parts[1:]:
            _refuse_other(first, part)
        self.path, self.parts = path, tuple(parts)
        self.columns, self.index = first.columns, first.index
        self.typed = all(part.typed for part in parts)
        self.kinds = {name: _kind(name, parts) for name in first.columns}
        self.nbytes = sum(part.nbytes for part in parts)
        self._counts = [part.n_rows for part in parts]  # None until the rows of a file were counted
        self.n_rows = None if None in self._counts else sum(count or 0 for count in self._counts)

    def place(self, row: int) -> str:
        for part, count in zip(self.parts, self._counts, strict=True):
            if count is None or row < count:
                return f"{part.path.name}, {part.place(row)}"
            row -= count
        return super().place(row)

    def why_text(self, name: str) -> str:
        return next((why for part in self.parts if (why := part.why_text(name))), "")

    def shards(self) -> list[Table]:
        if self.n_rows is None:
            return [self]
        shards: list[Table] = []
        start = 0
        for part in self.parts:
            shards += [Shard(self, one, start + one.offset) for one in part.shards()]
            start += part.n_rows or 0
        return shards

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first, done = 0, 0
        for place, part in enumerate(self.parts):
            count = self._counts[place]
            if count is None and skip > first:
                count = self._counts[place] = sum(map(len, part._read(1 << 16, columns[:1], 0)))
            if count is None or first + count > skip:
                end = max(skip - first, 0)
                for batch in part._read(n_rows, columns, end):
                    end = batch.first + len(batch)
                    share = (done + batch.done * part.nbytes) / max(self.nbytes, 1)
                    share = (first + end) / self.n_rows if self.n_rows else share
                    yield replace(batch, table=self, first=first + batch.first, done=share)
                    del batch  # so that the next one is read without this one in memory
                if count is None:
                    count = self._counts[place] = end
            first, done = first + (count or 0), done + part.nbytes


class ArrowFiles(Files, ArrowTable):
    """Files that pyarrow reads as record batches: a batch may begin in one file and end in the next."""

    def type_of(self, name: str) -> str:
        return self.parts[0].type_of(name)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        for part in self.parts:
            assert isinstance(part, ArrowTable)
            for piece, done in part._pieces(n_rows, columns):
                yield piece.select([*columns]), done

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        return ArrowTable._read(self, n_rows, columns, skip)


def _kind(name: str, parts: Sequence[Table]) -> Kind:
    """Tell what a column holds in all files: text, if it looks like text in one of them."""
    kinds = [part.kinds[name] for part in parts]
    return next((kind for kind in kinds if kind not in NUMERIC), kinds[0])


def _refuse_other(first: Table, other: Table) -> None:
    """Raise ValueError if a file has other columns than the first, or other types of them."""
    for name in first.columns:
        if name not in other.kinds:
            raise ValueError(f"{other.path} has no column {name!r}, which {first.path} has")
        mine, its = first.type_of(name), other.type_of(name)
        if mine != its:
            raise ValueError(f"{other.path}: column {name!r} has type {its}, in {first.path} it is {mine}")
    more = [name for name in other.columns if name not in first.kinds]
    if more:
        raise ValueError(f"{other.path} has a column {few(more)}, which {first.path} has not")
