"""What pyarrow reads: typed columns and text, Parquet, Arrow and Feather files, and Arrow datasets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from copy import copy
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
from pyarrow import types

from duramen.arrays import Array
from duramen.errors import RowError
from duramen.io.tables import (
    EXACT,
    TOO_LARGE,
    Column,
    File,
    Kind,
    Pieces,
    Table,
    check_names,
    check_same_columns,
    exact_numbers,
    mark_of,
    readable,
    refuse_where,
)
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

    @staticmethod
    def join(pieces: Sequence[Any]) -> Any:
        """Copy the pieces into one array; their categories may be numbered differently."""
        if types.is_dictionary(pieces[0].type):
            pieces = [piece.dictionary_decode() for piece in pieces]
        return pa.concat_arrays(pieces)

    def _decoded(self) -> Any:
        values = self.values
        return values.dictionary_decode() if types.is_dictionary(values.type) else values

    def numbers(self) -> Array:
        self._check("numbers")
        values = self._decoded()
        if types.is_decimal(values.type) or types.is_null(values.type):
            values = values.cast(pa.float64())
        if types.is_boolean(values.type) and values.null_count:
            values = values.cast(pa.uint8())
        if types.is_int64(values.type) or types.is_uint64(values.type):
            exact_numbers(_numpy(values.fill_null(0)))
        return _numpy(values)

    def texts(self) -> tuple[Array, list[str]]:
        self._check("text")
        values = self._decoded().cast(pa.large_string()).dictionary_encode()
        return _numpy(values.indices.fill_null(-1)).astype(np.int64), values.dictionary.to_pylist()

    def whole(self) -> Array:
        self._check("whole numbers")
        self._refuse_missing()
        return Column([_numpy(self.values)], self.kind).whole()

    def _refuse_missing(self) -> None:
        if self.values.null_count:
            refuse_where(_numpy(self.values.is_null()), "has no value in {row}")


class TextColumn(ArrowColumn):
    """A column of a text file, read as whatever type is requested."""

    def _check(self, wanted: str) -> None:
        """Accept any kind: it is only a guess from the first rows."""

    def numbers(self) -> Array:
        if self.kind is Kind.FLAG:
            return self.flags()
        values = _numpy(self._cast(pa.float64(), "a number"))
        for row in np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values)).tolist():
            text = self.values[row].as_py().strip()
            if text.removeprefix("-").isdecimal() and abs(int(text)) > EXACT:
                raise RowError(TOO_LARGE, row, value=text, hint="large")
        return values

    def flags(self) -> Array:
        return _numpy(self._cast(pa.bool_(), "true or false").cast(pa.uint8()))

    def whole(self) -> Array:
        self._refuse_missing()
        plain = _numpy(pc.match_substring_regex(self.values, _WHOLE))
        if not plain.all():
            self._refuse(int(np.argmin(plain)), "a plain whole number")
        return _numpy(self._cast(pa.int64(), "an int64"))

    def _cast(self, dtype: Any, what: str) -> Any:
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            trimmed = pc.utf8_trim_whitespace(self.values)
        if not _castable(trimmed, dtype):
            self._refuse(next(row for row, one in enumerate(trimmed) if not _castable(one, dtype)), what)
        return trimmed.cast(dtype)

    def _refuse(self, row: int, what: str) -> NoReturn:
        shown = shorten(self.values[row].as_py(), 60)
        raise RowError("holds {value!r}, which is not {what} in {row}", row, value=shown, what=what)


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


def _numpy(values: Any) -> Array:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _castable(values: Any, dtype: Any) -> bool:
    try:
        values.cast(dtype)
    except pa.ArrowInvalid:
        return False
    return True


_SHARD = 1 << 18  # rows: row groups that end within one span of this many are read together
_BUFFERS = 8 << 20  # bytes for all columns together
_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error)  # of a damaged file


class PyarrowFile(File):
    """A file that pyarrow reads as record batches."""

    what: ClassVar[str]
    column_type = ArrowColumn

    def _set_schema(self, path: Path, schema: Any) -> None:
        self.path, self.schema = path, schema
        check_names(path, schema.names)
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        self.index = _index_of(schema)

    def types(self) -> dict[str, str]:
        return _types(self.schema)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        """Read record batches, each with the share of the file read so far."""
        raise NotImplementedError

    def pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        pieces = self._pieces(n_rows, columns)
        while True:
            with readable(self.path, self.what, *_ERRORS):
                piece, done = next(pieces, (None, 1.0))
                if piece is None:
                    return
                if self.typed:
                    piece.validate(full=True)  # refuses damaged offsets and invalid UTF-8
            yield piece, done
            del piece


def _index_of(schema: Any) -> tuple[str, ...]:
    """Return the columns that were the index of a pandas frame, unless that was a range."""
    try:
        columns = list(schema.pandas_metadata["index_columns"])
    except (ValueError, TypeError, KeyError):  # not written by pandas, or damaged
        return ()
    return tuple(name for name in columns if isinstance(name, str) and name in schema.names)


class ParquetFile(PyarrowFile):
    """A Parquet file, or some of its row groups."""

    what = "a Parquet file"
    _groups: list[int] | None = None  # all of them

    def __init__(self, path: Path) -> None:
        with readable(path, self.what, *_ERRORS), _open_parquet(path) as file:
            self._set_schema(path, file.schema_arrow)
            self.n_rows = file.metadata.num_rows
            self._counts = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]

    def shards(self) -> Sequence[File]:
        ends = list(accumulate(self._counts))
        groups = groupby(range(len(ends)), key=lambda group: (ends[group] - 1) // _SHARD)
        shards = [self._shard(list(some)) for _, some in groups]
        return shards if len(shards) > 1 else [self]

    def _shard(self, groups: list[int]) -> ParquetFile:
        part = copy(self)
        part._groups, part.n_rows = groups, sum(self._counts[group] for group in groups)
        return part

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
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


class ArrowFile(PyarrowFile):
    """An Arrow IPC file (Feather, ``.arrow``), or an Arrow IPC stream."""

    what = "an Arrow IPC or Feather file"

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._stream, self.nbytes = file.read(6) != b"ARROW1", path.stat().st_size
        with readable(path, self.what, *_ERRORS), pa.OSFile(str(path)) as raw:
            self._set_schema(path, self._open(raw).schema)

    def _open(self, raw: Any, options: Any = None) -> Any:
        return (pa.ipc.open_stream if self._stream else pa.ipc.open_file)(raw, options=options)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        places = sorted(self.schema.names.index(name) for name in columns)
        with pa.OSFile(str(self.path)) as raw:
            reader = self._open(raw, pa.ipc.IpcReadOptions(included_fields=places))
            if self._stream:
                for piece in reader:
                    yield piece, min(1.0, raw.tell() / self.nbytes)
            else:
                n = reader.num_record_batches
                for number in range(n):
                    yield reader.get_batch(number), (number + 1) / n


class _Dataset(PyarrowFile):
    """An Arrow dataset, as one file."""

    what = "readable by pyarrow"

    def __init__(self, path: Path, source: Any) -> None:
        self._source = source
        self._set_schema(path, source.schema)
        self.index, self.n_rows = (), source.count_rows()

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        pieces = self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )
        for piece in pieces:
            yield piece, 1.0
            del piece


def dataset_table(source: Any) -> Table:
    """Open an Arrow dataset, or an Arrow table in memory.

    Files whose columns or types differ are refused here, before a row is read:
    pyarrow itself would fill in missing values.
    """
    from pyarrow.dataset import dataset  # slow to import

    data = dataset(source) if isinstance(source, pa.Table) else source
    try:
        fragments = list(data.get_fragments())
    except ValueError:  # of a filtered dataset pyarrow does not list the files
        fragments = []
    files = [Path(one.path) for one in fragments if getattr(one, "path", None)]
    parts = [(getattr(one, "path", "a part of the dataset"), one.physical_schema) for one in fragments]
    check_same_columns([(part, _types(schema)) for part, schema in parts])
    path = files[0].parent if files else Path("the Arrow data")
    return Table(path, [_Dataset(path, data)], {file: mark for file in files if (mark := mark_of(file))})


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}
