"""Parquet files, Arrow IPC files and streams, and Arrow datasets, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from duramen.io.columns import ArrowColumn, arrow, checked_names, few, kind_of, readable, rebatched, skipping
from duramen.io.table import Batch, Mark, Shard, Table, mark_of

__all__ = ["ArrowFile", "ArrowStream", "ArrowTable", "DatasetTable", "ParquetTable", "is_dataset"]


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


class ArrowFile(ArrowTable):
    """An Arrow IPC file: Feather, ``.arrow``."""

    what = "an Arrow IPC or Feather file"

    def __init__(self, path: Path) -> None:
        ipc = arrow("ipc")
        with readable(path, self.what), arrow("").OSFile(str(path)) as raw:
            self._know(path, self._open(ipc, raw, None).schema)

    def _open(self, ipc: Any, raw: Any, options: Any) -> Any:
        return ipc.open_file(raw, options=options)

    def _count(self, reader: Any) -> int | None:
        return reader.num_record_batches

    def _next(self, reader: Any, number: int) -> Any:
        return reader.get_batch(number)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        pa, ipc = arrow(""), arrow("ipc")
        wanted = sorted(self.columns.index(name) for name in columns)
        options = ipc.IpcReadOptions(included_fields=wanted)
        with pa.OSFile(str(self.path)) as raw:
            with readable(self.path, self.what):
                reader = self._open(ipc, raw, options)
                count = self._count(reader)
            number = 0
            while count is None or number < count:
                with readable(self.path, self.what):
                    try:
                        piece = self._next(reader, number)
                    except StopIteration:
                        return
                    piece.validate(full=True)  # a damaged offset must not be followed
                    share = (number + 1) / count if count else min(1.0, raw.tell() / self.nbytes)
                number += 1
                yield piece, share


class ArrowStream(ArrowFile):
    """An Arrow IPC stream."""

    what = "an Arrow IPC stream"

    def _open(self, ipc: Any, raw: Any, options: Any) -> Any:
        return ipc.open_stream(raw, options=options)

    def _count(self, reader: Any) -> int | None:
        return None

    def _next(self, reader: Any, number: int) -> Any:
        return reader.read_next_batch()


_WHAT_dataset = "readable by pyarrow"


def is_dataset(source: Any) -> bool:
    """Tell whether something is an Arrow dataset or an Arrow table, without importing pyarrow."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(source).__mro__}
    return bool(names & {"pyarrow._dataset.Dataset", "pyarrow.lib.Table"})


class DatasetTable(ArrowTable):
    """An Arrow dataset, or an Arrow table in memory.

    Files whose columns or types differ are refused here, before a row is read:
    pyarrow itself would fill in missing values.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        schema = source.schema
        self._here = not hasattr(source, "get_fragments")  # a table in memory
        fragments = [] if self._here else _fragments(source)
        files = [Path(one.path) for one in fragments if getattr(one, "path", None)]
        self.path = files[0].parent if files else Path(f"the Arrow {'table' if self._here else 'dataset'}")
        self.columns, self.schema = checked_names(self.path, schema.names), schema
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        for fragment in fragments[1:]:
            _refuse_other(fragments[0], fragment)
        self.n_rows = source.num_rows if self._here else source.count_rows()
        self.nbytes = sum(file.stat().st_size for file in files if file.exists()) or 1
        self.marks: dict[Path, Mark] = {file: mark for file in files if (mark := mark_of(file))}

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        if self._here:
            for piece in self._source.select([*columns]).to_batches(max_chunksize=n_rows):
                yield piece, 1.0
            return
        pieces = self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )
        while True:
            with readable(self.path, _WHAT_dataset):
                piece = next(pieces, None)
                if piece is None:
                    return
                piece.validate(full=True)
            if piece.num_rows:
                yield piece, 1.0


def _fragments(source: Any) -> list[Any]:
    """List the files of a dataset; none where it was filtered, which pyarrow does not tell."""
    try:
        return list(source.get_fragments())
    except ValueError:  # as its ArrowInvalid is
        return []


def _refuse_other(first: Any, other: Any) -> None:
    """Raise ValueError if two files have different columns, or columns of different types."""
    mine, its = ({field.name: str(field.type) for field in one.physical_schema} for one in (first, other))
    for one, there, other_path in ((mine, its, _path(other)), (its, mine, _path(first))):
        lacking = [name for name in one if name not in there]
        if lacking:
            raise ValueError(f"{other_path} has no column {few(lacking)}, which another file has")
    for name, kind in mine.items():
        if its[name] != kind:
            raise ValueError(
                f"{_path(other)}: column {name!r} has type {its[name]}, in {_path(first)} it is {kind}"
            )


def _path(fragment: Any) -> str:
    return str(getattr(fragment, "path", "a part of the dataset"))
