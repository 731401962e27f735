"""Parquet files, read a few rows of a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from duramen.tables.arrow import arrow, readable, rebatched, skipping
from duramen.tables.arrow_column import ArrowColumn, kind_of
from duramen.tables.names import checked_names
from duramen.tables.table import Batch, Shard, Table

__all__ = ["ArrowTable", "ParquetTable"]

_WHAT = "a Parquet file"
_SHARD = 1 << 18  # rows: row groups are put together up to so many
_BUFFERS = 8 << 20  # bytes for all columns together


class ArrowTable(Table):
    """A file of typed columns that pyarrow reads as record batches."""

    def _know(self, path: Path, schema: Any) -> None:
        self.path, self.nbytes = path, path.stat().st_size
        self.columns = checked_names(path, schema.names)
        self.schema = schema
        self.index = _index_of(schema)
        self.kinds = {field.name: kind_of(field.type) for field in schema}

    def type_of(self, name: str) -> str:
        return str(self.schema.field(name).type)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read record batches, with the share of the file read."""
        raise NotImplementedError

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first = skip
        for piece, done in rebatched(skipping(self._pieces(n_rows, columns), skip), n_rows):
            held = {name: partial(ArrowColumn, piece.column(name), self.kinds[name]) for name in columns}
            share = done if self.n_rows is None else (first + piece.num_rows) / self.n_rows
            yield Batch(self, first, share, piece.num_rows, held)
            first += piece.num_rows
            del piece, held  # so that the next batch is read without this one in memory


def _index_of(schema: Any) -> tuple[str, ...]:
    """Name the columns that were the index of a pandas frame; a range is none."""
    try:
        said = list(schema.pandas_metadata["index_columns"])
    except (ValueError, TypeError, KeyError):  # not of pandas, or scribbled over
        return ()
    return tuple(name for name in said if isinstance(name, str) and name in schema.names)


class ParquetTable(ArrowTable):
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        with self._opened(path) as file, readable(path, _WHAT):
            self._know(path, file.schema_arrow)
            self.n_rows = file.metadata.num_rows
            self._counts = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
            self._groups: list[int] | None = None  # all of them

    def shards(self) -> list[Table]:
        shards: list[Table] = []
        start, group = 0, 0
        while group < len(self._counts):
            part = copy(self)
            part._groups, part.n_rows = [], 0
            while group < len(self._counts) and (
                not part.n_rows or part.n_rows + self._counts[group] <= _SHARD
            ):
                part._groups.append(group)
                part.n_rows += self._counts[group]
                group += 1
            part.nbytes = self.nbytes * part.n_rows // max(1, self.n_rows or 0)
            shards.append(Shard(self, part, start))
            start += part.n_rows
        return shards if len(shards) > 1 else [self]

    def _opened(self, path: Path, n_columns: int = 1) -> Any:
        module = arrow("parquet")
        # Without a buffer size a whole column of a row group is read at once.
        buffer = max(16 << 10, min(128 << 10, _BUFFERS // n_columns))
        with readable(path, _WHAT):
            return module.ParquetFile(str(path), buffer_size=buffer, pre_buffer=False)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        with self._opened(self.path, max(1, len(columns))) as file:
            with readable(self.path, _WHAT):
                pieces = file.iter_batches(
                    batch_size=n_rows,
                    columns=[*columns],
                    row_groups=self._groups,
                    use_threads=self._groups is None,  # shards are read side by side
                )
            while True:
                with readable(self.path, _WHAT):
                    piece = next(pieces, None)
                    if piece is None:
                        break
                    piece.validate(full=True)  # text that is no UTF-8
                yield piece, 1.0
        arrow("").default_memory_pool().release_unused()
