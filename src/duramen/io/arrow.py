"""Arrow record batches: typed columns and text, and the tables that pyarrow reads."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
from pyarrow import types

from duramen.arrays import Array
from duramen.io.columns import (
    EXACT,
    BadCellError,
    Column,
    Kind,
    as_int64,
    check_names,
    readable,
    refuse_large,
    too_large,
)
from duramen.io.table import Batch, Files, Mark, Reader, Table, check_same_columns, mark_of
from duramen.text import shorten

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def kind_of(dtype: Any) -> Kind:
    """Return what a column of an Arrow type holds."""
    if types.is_dictionary(dtype):
        inner = kind_of(dtype.value_type)
        return Kind.CATEGORY if inner in (Kind.WHOLE, Kind.REAL, Kind.SINGLE) else inner
    tests = {
        Kind.EMPTY: types.is_null,
        Kind.FLAG: types.is_boolean,
        Kind.WHOLE: types.is_integer,
        Kind.REAL: lambda dtype: types.is_float64(dtype) or types.is_decimal(dtype),
        Kind.SINGLE: types.is_floating,
        Kind.TEXT: _is_text,
        Kind.TIME: types.is_temporal,
    }
    return next((kind for kind, test in tests.items() if test(dtype)), Kind.OTHER)


def _is_text(dtype: Any) -> bool:
    is_view = getattr(types, "is_string_view", None)  # not in pyarrow 14
    return types.is_string(dtype) or types.is_large_string(dtype) or bool(is_view and is_view(dtype))


class ArrowColumn(Column):
    """A column of the file's own type."""

    def __init__(self, values: Any, kind: Kind) -> None:
        self.kind = kind
        self.values = values.chunk(0) if values.num_chunks == 1 else _combine(values)

    def numbers(self) -> Array:
        self._check("numbers")
        values = self.values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_decimal(values.type) or types.is_null(values.type):
            values = values.cast(pa.float64())
        if types.is_boolean(values.type) and values.null_count:
            values = values.cast(pa.uint8())
        if types.is_int64(values.type) or types.is_uint64(values.type):
            refuse_large(_numpy(values.fill_null(0)))
        return _numpy(values)

    def texts(self) -> tuple[Array, list[str]]:
        self._check("text")
        values = self.values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        values = values.cast(pa.large_string()).dictionary_encode()
        return _numpy(values.indices.fill_null(-1)).astype(np.int64), values.dictionary.to_pylist()

    def whole(self) -> Array:
        self._check("whole numbers")
        self._refuse_missing()
        return as_int64(_numpy(self.values))

    def _refuse_missing(self) -> None:
        if self.values.null_count:
            raise BadCellError(_first(self.values.is_null()), "has no value")


class TextColumn(ArrowColumn):
    """A column of a text file, read as whatever type is requested."""

    def _check(self, wanted: str) -> None:
        """Accept any kind: it is only a guess from the first rows."""

    def numbers(self) -> Array:
        if self.kind is Kind.FLAG:
            return self.flags()
        values = _numpy(self._cast(pa.float64(), "a number"))
        with np.errstate(invalid="ignore"):
            over = np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values))
        if over.size:
            texts = pc.utf8_trim_whitespace(self.values.take(pa.array(over)))
            for place in np.flatnonzero(_numpy(pc.match_substring_regex(texts, _DIGITS))).tolist():
                text = texts[place].as_py()
                if abs(int(text)) > EXACT:
                    raise too_large(int(over[place]), text)
        return values

    def flags(self) -> Array:
        return _numpy(self._cast(pa.bool_(), "true or false").cast(pa.uint8()))

    def whole(self) -> Array:
        self._refuse_missing()
        plain = pc.match_substring_regex(self.values, _WHOLE)
        if not pc.all(plain).as_py():
            raise self._bad_value(_first(pc.invert(plain)), "a plain whole number")
        return _numpy(self._cast(pa.int64(), "an int64"))

    def _cast(self, dtype: Any, what: str) -> Any:
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            trimmed = pc.utf8_trim_whitespace(self.values)
        try:
            return trimmed.cast(dtype)
        except pa.ArrowInvalid:
            raise self._bad_value(_first_failing(trimmed, dtype), what) from None

    def _bad_value(self, row: int, what: str) -> BadCellError:
        return BadCellError(row, f"holds {shorten(self.values[row].as_py(), 60)!r}, which is not {what}")


def kind_of_texts(values: Any) -> Kind:
    """Return what the texts of a column look like, as :func:`kind_of` does for a typed one."""
    values = values.drop_null()
    if not len(values):
        return Kind.EMPTY
    trimmed = pc.utf8_trim_whitespace(values)
    if _castable(trimmed, pa.float64()):
        if not pc.all(pc.match_substring_regex(trimmed, _DIGITS)).as_py():
            return Kind.REAL
        return Kind.WHOLE if pc.all(pc.match_substring_regex(trimmed, _WHOLE)).as_py() else Kind.CODE
    if _castable(trimmed, pa.bool_()):
        return Kind.FLAG
    if any(_castable(trimmed, dtype) for dtype in (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))):
        return Kind.TIME
    n_numbers = pc.sum(pc.match_substring_regex(trimmed, _NUMBER)).as_py()
    return Kind.MIXED if 2 * n_numbers > len(trimmed) else Kind.TEXT


def _combine(values: Any) -> Any:
    """Copy the chunks of a column into one array."""
    if types.is_dictionary(values.type):  # the chunks may number their values differently
        values = pa.chunked_array(
            [chunk.dictionary_decode() for chunk in values.chunks], type=values.type.value_type
        )
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)


def _numpy(values: Any) -> Array:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _first(mask: Any) -> int:
    """Return the first place where an Arrow mask is true."""
    return int(pc.index(mask, True).as_py())


def _castable(values: Any, dtype: Any) -> bool:
    try:
        values.cast(dtype)
    except pa.ArrowInvalid:
        return False
    return True


def _first_failing(values: Any, dtype: Any) -> int:
    """Find the first value that cannot be cast."""
    return next(row for row, value in enumerate(values) if not _castable(value, dtype))


_SHARD = 1 << 18  # rows: row groups that end within one span of this many are read together
_BUFFERS = 8 << 20  # bytes for all columns together
_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error)  # of a damaged file


class ArrowTable(Table):
    """A file, or several, that pyarrow reads as record batches."""

    what = "readable by pyarrow"
    column_type: type[ArrowColumn] = ArrowColumn

    def _set_schema(self, path: Path, schema: Any) -> None:
        self.path, self.schema = path, schema
        self.columns = check_names(path, schema.names)
        self.kinds = {field.name: kind_of(field.type) for field in schema}

    def types(self) -> dict[str, str]:
        return _types(self.schema) if self.typed else super().types()

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read record batches, each with the share of the file read so far."""
        raise NotImplementedError

    def pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read record batches; a damaged file raises a ValueError that names it."""
        pieces = self._pieces(n_rows, columns)
        while True:
            with readable(self.path, self.what, *_ERRORS):
                piece, done = next(pieces, (None, 1.0))
                if piece is None:
                    return
                if self.typed:
                    piece.validate(full=True)  # refuses damaged offsets and invalid UTF-8
            yield piece, done

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first = skip
        for piece, done in rebatch(self.pieces(n_rows, columns), n_rows, skip):
            read = {name: partial(self.column_type, piece.column(name), self.kinds[name]) for name in columns}
            share = (first + piece.num_rows) / self.n_rows if self.n_rows else done
            yield Batch(self, first, share, piece.num_rows, read)
            first += piece.num_rows
            del piece, read  # so that the next batch is read without this one in memory


def rebatch(pieces: Iterable[tuple[Any, float]], n_rows: int, skip: int = 0) -> Iterator[tuple[Any, float]]:
    """Regroup record batches into Arrow tables of ``n_rows`` rows, without the first ``skip`` rows.

    Nothing is copied; the last table may be shorter.
    """
    waiting: list[Any] = []
    count = 0
    for piece, done in pieces:
        rest = piece.slice(min(skip, piece.num_rows))
        skip -= piece.num_rows - rest.num_rows
        del piece
        while count + rest.num_rows >= n_rows:
            waiting.append(rest.slice(0, n_rows - count))
            rest = rest.slice(n_rows - count)
            full, waiting, count = waiting, [], 0
            yield pa.Table.from_batches(full), done
            del full
        if rest.num_rows:
            waiting.append(rest)
            count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting), 1.0


def _index_of(schema: Any) -> tuple[str, ...]:
    """Return the columns that were the index of a pandas frame, unless that was a range."""
    try:
        columns = list(schema.pandas_metadata["index_columns"])
    except (ValueError, TypeError, KeyError):  # not written by pandas, or damaged
        return ()
    return tuple(name for name in columns if isinstance(name, str) and name in schema.names)


class ParquetTable(ArrowTable):
    """One Parquet file."""

    what = "a Parquet file"

    def __init__(self, path: Path) -> None:
        with readable(path, self.what, *_ERRORS), _open_parquet(path) as file:
            self._set_schema(path, file.schema_arrow)
            self.index = _index_of(file.schema_arrow)
            self.n_rows = file.metadata.num_rows
            self._counts = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        self._groups: list[int] | None = None  # all of them

    def shards(self) -> list[Reader]:
        starts = list(accumulate(self._counts, initial=0))
        groups = groupby(range(len(self._counts)), key=lambda group: (starts[group + 1] - 1) // _SHARD)
        shards = [self._shard(list(some), starts) for _, some in groups]
        return shards if len(shards) > 1 else [self.batches]

    def _shard(self, groups: list[int], starts: Sequence[int]) -> Reader:
        part, start = copy(self), starts[groups[0]]
        part._groups, part.n_rows = groups, starts[groups[-1] + 1] - start
        return partial(self._read_shard, part.batches, start)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        with _open_parquet(self.path, len(columns)) as file:
            pieces = file.iter_batches(
                batch_size=n_rows,
                columns=[*columns],
                row_groups=self._groups,
                use_threads=self._groups is None,  # shards are read in parallel
            )
            for piece in pieces:
                yield piece, 1.0
                del piece
        pa.default_memory_pool().release_unused()


def _open_parquet(path: Path, n_columns: int = 1) -> Any:
    # Without a buffer size a whole column of a row group is read at once.
    buffer = max(16 << 10, min(128 << 10, _BUFFERS // max(1, n_columns)))
    return pa.parquet.ParquetFile(str(path), buffer_size=buffer, pre_buffer=False)


class ArrowFile(ArrowTable):
    """An Arrow IPC file (Feather, ``.arrow``), or an Arrow IPC stream."""

    def __init__(self, path: Path, *, stream: bool) -> None:
        self._stream, self.nbytes = stream, path.stat().st_size
        self.what = "an Arrow IPC stream" if stream else "an Arrow IPC or Feather file"
        with readable(path, self.what, *_ERRORS), pa.OSFile(str(path)) as raw:
            self._set_schema(path, self._open(raw).schema)
        self.index = _index_of(self.schema)

    def _open(self, raw: Any, options: Any = None) -> Any:
        return (pa.ipc.open_stream if self._stream else pa.ipc.open_file)(raw, options=options)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        places = sorted(self.columns.index(name) for name in columns)
        with pa.OSFile(str(self.path)) as raw:
            reader = self._open(raw, pa.ipc.IpcReadOptions(included_fields=places))
            if self._stream:
                for piece in reader:
                    yield piece, min(1.0, raw.tell() / self.nbytes)
            else:
                n = reader.num_record_batches
                for number in range(n):
                    yield reader.get_batch(number), (number + 1) / n


class DatasetTable(ArrowTable):
    """An Arrow dataset, or an Arrow table in memory.

    Files whose columns or types differ are refused here, before a row is read:
    pyarrow itself would fill in missing values.
    """

    def __init__(self, source: Any) -> None:
        from pyarrow.dataset import dataset  # slow to import

        self._source = dataset(source) if isinstance(source, pa.Table) else source
        fragments = _fragments(self._source)
        files = [Path(one.path) for one in fragments if getattr(one, "path", None)]
        self._set_schema(files[0].parent if files else Path("the Arrow data"), source.schema)
        parts = [(getattr(one, "path", "a part of the dataset"), one.physical_schema) for one in fragments]
        check_same_columns([(part, _types(schema)) for part, schema in parts])
        self.n_rows = self._source.count_rows()
        self.marks: dict[Path, Mark] = {file: mark for file in files if (mark := mark_of(file))}

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        pieces = self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )
        for piece in pieces:
            yield piece, 1.0
            del piece


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _fragments(source: Any) -> list[Any]:
    """List the files of a dataset; none if it was filtered, as pyarrow then does not list them."""
    try:
        return list(source.get_fragments())
    except ValueError:  # ArrowInvalid is one
        return []


class ArrowFiles(ArrowTable, Files):
    """Several files that pyarrow reads: a batch may begin in one file and end in the next."""

    def __init__(self, path: Path, parts: Sequence[ArrowTable]) -> None:
        super().__init__(path, parts)
        self.column_type = parts[0].column_type

    def pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        for place, part in enumerate(self.parts):
            assert isinstance(part, ArrowTable)
            count = 0
            for piece, done in part.pieces(n_rows, columns):
                count += piece.num_rows
                yield piece.select([*columns]), (place + done) / len(self.parts)
                del piece
            self._counts[place] = count
