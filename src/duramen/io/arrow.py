"""What pyarrow reads: typed columns and text, Parquet, Arrow and Feather files, and Arrow datasets."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate, groupby, repeat
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
    BEYOND_INT64,
    EXACT,
    MISSING,
    TOO_LARGE,
    Column,
    File,
    Kind,
    Pieces,
    Table,
    check_names,
    check_same_columns,
    marks_of,
    readable,
    refuse_where,
)
from duramen.text import shorten

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


_TESTS = (  # what a column of an Arrow type holds: the first that applies
    (Kind.EMPTY, types.is_null),
    (Kind.FLAG, types.is_boolean),
    (Kind.WHOLE, types.is_integer),
    (Kind.REAL, types.is_float64),
    (Kind.REAL, types.is_decimal),
    (Kind.SINGLE, types.is_floating),
    (Kind.TEXT, types.is_string),
    (Kind.TEXT, types.is_large_string),
    (Kind.TEXT, getattr(types, "is_string_view", types.is_string)),  # not in pyarrow 14
    (Kind.TIME, types.is_temporal),
)


def kind_of(dtype: Any) -> Kind:
    """Return what a column of an Arrow type holds."""
    if types.is_dictionary(dtype):
        inner = kind_of(dtype.value_type)
        return Kind.CATEGORY if inner in (Kind.WHOLE, Kind.REAL, Kind.SINGLE) else inner
    return next((kind for kind, test in _TESTS if test(dtype)), Kind.OTHER)


class ArrowColumn(Column):
    """A column of the file's own type; dictionaries are decoded, as pieces may number them differently."""

    join = staticmethod(pa.concat_arrays)

    def __init__(self, pieces: Sequence[Any], kind: Kind) -> None:
        plain = [one.dictionary_decode() if types.is_dictionary(one.type) else one for one in pieces]
        super().__init__(plain, kind)

    def numbers(self) -> Array:
        self._check("numbers")
        floats = types.is_floating(self.values.type)
        return _numpy(self.values if floats else self._cast(pa.float64(), TOO_LARGE, "large"))

    def texts(self) -> tuple[Array, list[str]]:
        self._check("text")
        values = self.values.cast(pa.large_string()).dictionary_encode()
        return _numpy(values.indices.fill_null(-1)).astype(np.int64), values.dictionary.to_pylist()

    def whole(self) -> Array:
        self._check("whole numbers")
        refuse_where(_numpy(self.values.is_null()), MISSING)
        return _numpy(self._cast(pa.int64(), BEYOND_INT64))

    def _cast(self, dtype: Any, problem: str, hint: str = "") -> Any:
        """Convert the values to a type; refuse the first that cannot be."""
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            row = next(row for row, one in enumerate(self.values) if not _castable(one, dtype))
            self._refuse(row, problem, hint)

    def _refuse(self, row: int, problem: str, hint: str = "") -> NoReturn:
        raise RowError(problem, row, value=shorten(self.values[row].as_py(), 60), hint=hint)


class TextColumn(ArrowColumn):
    """A column of a text file, read as whatever type is requested."""

    def _check(self, wanted: str) -> None:
        """Accept any kind: it is only a guess from the first rows."""

    def numbers(self) -> Array:
        if self.kind is Kind.FLAG:
            return self.flags()
        values = _numpy(self._cast(pa.float64(), "holds {value!r}, which is not a number in {row}"))
        for row in np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values)).tolist():
            text = self.values[row].as_py().strip().removeprefix("-")
            if text.isdecimal() and int(text) > EXACT:
                self._refuse(row, TOO_LARGE, "large")
        return values

    def flags(self) -> Array:
        flags = self._cast(pa.bool_(), "holds {value!r}, which is not true or false in {row}")
        return _numpy(flags.cast(pa.float64()))

    def whole(self) -> Array:
        plain = _numpy(pc.match_substring_regex(self.values, _WHOLE).fill_null(True))
        if not plain.all():
            self._refuse(int(np.argmin(plain)), "holds {value!r}, which is not a plain whole number in {row}")
        return super().whole()

    def _cast(self, dtype: Any, problem: str, hint: str = "") -> Any:
        if not _castable(self.values, dtype):
            self.values = pc.utf8_trim_whitespace(self.values)
        return super()._cast(dtype, problem, hint)


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

    @abstractmethod
    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read record batches, each with the share of the file read so far."""

    def pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        with readable(self.path, self.what, *_ERRORS):
            for batch, done in self._batches(n_rows, columns):
                if self.typed:
                    batch.validate(full=True)  # refuses damaged offsets and invalid UTF-8
                yield {name: batch.column(name) for name in columns}, done
                del batch


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

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        with _open_parquet(self.path, len(columns)) as file:
            batches = file.iter_batches(
                batch_size=n_rows,
                columns=[*columns],
                row_groups=self._groups,
                use_threads=self._groups is None,  # shards are read in parallel
            )
            yield from zip(batches, repeat(1.0))
        pa.default_memory_pool().release_unused()


def _open_parquet(path: Path, n_columns: int = 1) -> Any:
    # Without a buffer size a whole column of a row group is read at once.
    buffer = max(16 << 10, min(128 << 10, _BUFFERS // max(1, n_columns)))
    return pa.parquet.ParquetFile(str(path), buffer_size=buffer, pre_buffer=False)


class ArrowFile(PyarrowFile):
    """An Arrow IPC file (Feather, ``.arrow``), or an Arrow IPC stream."""

    what = "an Arrow IPC or Feather file"

    def __init__(self, path: Path) -> None:
        with readable(path, self.what, *_ERRORS), pa.OSFile(str(path)) as raw:
            self._set_schema(path, _open_ipc(raw).schema)

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        places = sorted(self.schema.names.index(name) for name in columns)
        with pa.OSFile(str(self.path)) as raw:
            reader = _open_ipc(raw, pa.ipc.IpcReadOptions(included_fields=places))
            n = getattr(reader, "num_record_batches", None)  # None of a stream
            for number, batch in enumerate(reader if n is None else map(reader.get_batch, range(n)), 1):
                yield batch, number / n if n else min(1.0, raw.tell() / raw.size())
                del batch


def _open_ipc(raw: Any, options: Any = None) -> Any:
    is_file = raw.read(6) == b"ARROW1"
    raw.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(raw, options=options)


class _Dataset(PyarrowFile):
    """An Arrow dataset, as one file."""

    what = "readable by pyarrow"

    def __init__(self, path: Path, source: Any) -> None:
        self._source = source
        self._set_schema(path, source.schema)
        self.index, self.n_rows = (), source.count_rows()

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        batches = self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )
        return zip(batches, repeat(1.0))


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
    files = [Path(one.path) for one in fragments if hasattr(one, "path")]
    parts = [(getattr(one, "path", "a part of the dataset"), one.physical_schema) for one in fragments]
    check_same_columns([(part, _types(schema)) for part, schema in parts])
    path = files[0].parent if files else Path("the Arrow data")
    return Table(path, [_Dataset(path, data)], marks_of(files))


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}
