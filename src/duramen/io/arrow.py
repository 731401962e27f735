"""What pyarrow reads: Parquet, Arrow, Feather, CSV and TSV files, and Arrow datasets."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
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
    Piece,
    Table,
    check_names,
    check_same_columns,
    marks_of,
    refuse_where,
)
from duramen.text import few, shorten

# columns

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
    """A column of the file's own type."""

    join = staticmethod(pa.concat_arrays)

    def numbers(self) -> Array:
        self._check("numbers")
        floats = types.is_floating(self.values.type)
        return _numpy(self.values if floats else self._cast(pa.float64(), TOO_LARGE, "large"))

    def texts(self) -> tuple[Array, list[str]]:
        self._check("text")
        values = self.values.cast(pa.large_string()).dictionary_encode()
        return _numpy(values.indices.fill_null(-1)), values.dictionary.to_pylist()

    def whole(self) -> Array:
        self._check("whole numbers")
        refuse_where(_numpy(self.values.is_null()), MISSING, hint="drop")
        return _numpy(self._cast(pa.int64(), BEYOND_INT64))

    def _cast(self, dtype: Any, problem: str, hint: str = "") -> Any:
        """Convert the values to a type; refuse the first that cannot be."""
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            refuse_where([not _castable(one, dtype) for one in self.values], problem, self.values, hint)
            raise


class TextColumn(ArrowColumn):
    """A column of a text file, read as whatever type is requested."""

    typed = False

    def numbers(self) -> Array:
        if self.kind is Kind.FLAG:
            return self.flags()
        values = _numpy(self._cast(pa.float64(), "holds {value!r}, which is not a number in {row}"))
        for row in np.flatnonzero(np.abs(values) >= EXACT).tolist():
            text = str(self.values[row])
            if text.removeprefix("-").isdecimal() and abs(int(text)) > EXACT:
                raise RowError(TOO_LARGE, row, value=text, hint="large")
        return values

    def flags(self) -> Array:
        flags = self._cast(pa.bool_(), "holds {value!r}, which is not true or false in {row}")
        return _numpy(flags.cast(pa.float64()))

    def whole(self) -> Array:
        plain = _numpy(pc.match_substring_regex(self.values, _WHOLE).fill_null(True))
        refuse_where(~plain, "holds {value!r}, which is not a plain whole number in {row}", self.values)
        return super().whole()

    def _cast(self, dtype: Any, problem: str, hint: str = "") -> Any:
        self.values = pc.utf8_trim_whitespace(self.values)
        return super()._cast(dtype, problem, hint)


def kind_of_texts(values: Any) -> Kind:
    """Return what the texts of a column look like, as :func:`kind_of` does for a typed one."""
    values = pc.utf8_trim_whitespace(values.drop_null())
    if not len(values):
        return Kind.EMPTY
    if _castable(values, pa.float64()):
        if not _all_match(values, _DIGITS):
            return Kind.REAL
        return Kind.WHOLE if _all_match(values, _WHOLE) else Kind.CODE
    if _castable(values, pa.bool_()):
        return Kind.FLAG
    if any(_castable(values, dtype) for dtype in (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))):
        return Kind.TIME
    n_numbers = pc.sum(pc.match_substring_regex(values, _NUMBER)).as_py()
    return Kind.MIXED if 2 * n_numbers > len(values) else Kind.TEXT


def parse_categories(counts: dict[Any, int]) -> tuple[str, dict[Any, int]]:
    """Read texts, and how often each occurs, as numbers or flags if all of them are; say what they are."""
    texts = pa.array(list(counts), pa.string())
    kind = kind_of_texts(texts)
    of = {Kind.WHOLE: "number", Kind.REAL: "number", Kind.FLAG: "flag"}.get(kind, "text")
    try:
        codes, values = TextColumn([texts], kind).distinct(of)
    except RowError:  # a number that is infinite, or that float64 would round
        return "text", counts
    totals = np.bincount(codes, list(counts.values()), len(values)).tolist()
    return of, dict(zip(values, totals, strict=True))


def _all_match(texts: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _numpy(values: Any) -> Array:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _castable(values: Any, dtype: Any) -> bool:
    try:
        values.cast(dtype)
    except pa.ArrowInvalid:
        return False
    return True


# files with types

_SHARD = 1 << 18  # rows: as many row groups are read together as have this many
_BUFFERS = 8 << 20  # bytes for all columns together
_ERRORS = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error)


class PyarrowFile(File):
    """A file that pyarrow reads as record batches."""

    errors = _ERRORS
    column_type = ArrowColumn

    def _set_schema(self, schema: Any) -> None:
        self.schema = schema
        check_names(self.path, schema.names)
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        self.index = _index_of(schema)

    def types(self) -> dict[str, str]:
        return _types(self.schema)

    @abstractmethod
    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[Any]:
        """Read record batches."""

    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        for batch in self._batches(n_rows, columns):
            batch.validate(full=True)  # refuses damaged offsets and invalid UTF-8
            yield {name: _decoded(batch.column(name)) for name in columns}
            del batch


def _decoded(values: Any) -> Any:
    """Decode a dictionary, as pieces may number its values differently."""
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def _types(schema: Any) -> dict[str, str]:
    return dict(zip(schema.names, map(str, schema.types), strict=True))


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
    _groups: Sequence[int] | None = None  # all of them

    def _open(self) -> None:
        with _open_parquet(self.path) as file:
            self._set_schema(file.schema_arrow)
            self.n_rows = file.metadata.num_rows
            self._counts = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]

    def shards(self) -> Sequence[File]:
        n = len(self._counts)
        step = max(1, _SHARD * n // max(1, sum(self._counts)))
        shards = [self._shard(slice(start, start + step)) for start in range(0, n, step)]
        return shards if len(shards) > 1 else [self]

    def _shard(self, groups: slice) -> ParquetFile:
        part = copy(self)
        part._groups, part.n_rows = range(len(self._counts))[groups], sum(self._counts[groups])
        return part

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[Any]:
        with _open_parquet(self.path, len(columns)) as file:
            yield from file.iter_batches(
                batch_size=n_rows,
                columns=[*columns],
                row_groups=self._groups,
                use_threads=self._groups is None,  # shards are read in parallel
            )
        pa.default_memory_pool().release_unused()


def _open_parquet(path: Path, n_columns: int = 1) -> Any:
    # Without a buffer size a whole column of a row group is read at once.
    buffer = max(16 << 10, min(128 << 10, _BUFFERS // max(1, n_columns)))
    return pa.parquet.ParquetFile(str(path), buffer_size=buffer, pre_buffer=False)


class ArrowFile(PyarrowFile):
    """An Arrow IPC file (Feather, ``.arrow``), or an Arrow IPC stream."""

    what = "an Arrow IPC or Feather file"

    def _open(self) -> None:
        with pa.OSFile(str(self.path)) as raw:
            self._set_schema(_open_ipc(raw).schema)

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[Any]:
        places = sorted(map(self.schema.names.index, columns))
        with pa.OSFile(str(self.path)) as raw:
            reader = _open_ipc(raw, pa.ipc.IpcReadOptions(included_fields=places))
            n = getattr(reader, "num_record_batches", None)  # None of a stream
            for number, batch in enumerate(reader if n is None else map(reader.get_batch, range(n)), 1):
                self.done = number / n if n else min(1.0, raw.tell() / raw.size())
                yield batch
                del batch


def _open_ipc(raw: Any, options: Any = None) -> Any:
    is_file = raw.read(6) == b"ARROW1"
    raw.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(raw, options=options)


class _Dataset(PyarrowFile):
    """An Arrow dataset, as one file."""

    what = "readable by pyarrow"

    def __init__(self, path: Path, source: Any, files: Sequence[Path]) -> None:
        self.path, self._source, self._marks = path, source, marks_of(files)
        self._open()

    def _open(self) -> None:
        self._set_schema(self._source.schema)
        self.index, self.n_rows = (), self._source.count_rows()

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[Any]:
        return self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )


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
    check_same_columns(
        [(getattr(one, "path", "a part of the dataset"), _types(one.physical_schema)) for one in fragments]
    )
    files = [Path(one.path) for one in fragments if hasattr(one, "path")]
    path = files[0].parent if files else Path("the Arrow data")
    return Table(path, [_Dataset(path, data, files)])


# text files

_BLOCK = 4 << 20  # bytes read at a time; a row must fit


def _is_gzip(path: Path) -> bool:
    """Return whether a file begins like a gzip file."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _records(path: Path, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Read the records that are not empty, each with the line it begins on; an error holds that, too."""
    begins = 1
    raw = gzip.GzipFile(path) if _is_gzip(path) else path.open("rb")
    # bytes that are not UTF-8 stay visible as surrogates
    with io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=strict)
        try:
            for fields in reader:
                if fields:
                    yield begins, fields
                begins = reader.line_num + 1
        except csv.Error as error:
            raise csv.Error(begins, error) from None


def _first_records(path: Path, delimiter: str) -> list[list[str]]:
    """Read the header and the first row; one that cannot be read is empty."""
    found = []
    try:
        for _, fields in islice(_records(path, delimiter), 2):
            found.append(fields)
    except csv.Error:
        found.append([])
    return found


def _delimiter_of(path: Path, marks: str) -> str:
    """Find the delimiter: the one that splits header and first row into the same, largest number of values.

    The first mark wins ties, and is assumed if the header has none of them.
    """

    def fits(mark: str) -> tuple[bool, int]:
        counts = [len(fields) for fields in _first_records(path, mark)] or [0]
        return counts[0] > 1 and len(set(counts)) == 1, counts[0]

    return max(marks, key=fits)


def _is_utf8(text: str) -> bool:
    """Return whether all bytes of a text were UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


class DelimitedFile(File):
    """A text file with a header and one row per line, compressed by gzip or not.

    What its columns hold is guessed from the first block (4 MB).
    """

    what = "a CSV or TSV file"
    errors = _ERRORS
    column_type = TextColumn
    delimiters = ",;\t|"  # those that are tried

    def _open(self) -> None:
        self._delimiter = _delimiter_of(self.path, self.delimiters)
        names, *rows = _first_records(self.path, self._delimiter) or [[]]
        self._check_header(names)
        self.kinds = dict.fromkeys(names, Kind.EMPTY)
        self.n_rows = None if rows else 0
        for piece in islice(self._read(0, names), 1):
            self.kinds = {name: kind_of_texts(values) for name, values in piece.items()}

    def _check_header(self, names: list[str]) -> None:
        """Refuse a file that does not begin with the names of its columns."""
        text = "".join(names)
        if not text or "\0" in text or not _is_utf8(text):
            raise ValueError(
                f"{self.path} does not begin with names of columns in UTF-8; save it as UTF-8 with such a "
                f"line, or check that it is {self.what}"
            )
        if not all(map(str.strip, names)):
            raise ValueError(
                f"{self.path}, line 1: a column has no name: {few(names)}; name it or leave it out (a pandas "
                "index: to_csv(..., index=False))"
            )
        check_names(self.path, names)

    def place(self, row: int) -> str:
        """Describe the line on which a row begins."""
        try:
            line, _ = next(islice(_records(self.path, self._delimiter), row + 1, None))
        except (StopIteration, *_ERRORS):
            return super().place(row)
        return f"line {line} (row {row}, counting from 0)"

    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Read the blocks of the file as text."""
        if self.n_rows == 0:
            return
        last = list(self.kinds)[-1]
        with pa.OSFile(str(self.path)) as raw:
            try:
                with self._reader(raw, [*columns, last]) as reader:  # closed before the file: it reads ahead
                    for batch in filter(len, reader):
                        self.done = min(1.0, raw.tell() / raw.size())
                        if self.done == 1 and {"\r", "\n"} & {*str(batch.column(last)[-1])}:
                            self._refuse_broken_line()  # pyarrow accepts a quote that is never closed
                        yield {name: batch.column(name) for name in columns}
            except (pa.ArrowException, OSError):
                self._refuse_broken_line()
                raise

    def _reader(self, raw: Any, columns: Sequence[str]) -> Any:
        return pa.csv.open_csv(
            pa.CompressedInputStream(raw, "gzip") if _is_gzip(self.path) else raw,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK),
            parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self.kinds, pa.string()),
                include_columns=[*dict.fromkeys(columns)],
                strings_can_be_null=True,
            ),
        )

    def _refuse_broken_line(self) -> None:
        """Raise ValueError about the first line that is not a row, if one can be found."""
        begin = f"{self.path}, line"
        try:
            for line, fields in _records(self.path, self._delimiter, strict=True):
                problem = self._problem_of(fields)
                if problem:
                    raise ValueError(f"{begin} {line}, {problem}") from None
        except csv.Error as error:
            line, why = error.args
            problem = f"cannot be read ({why}); a quote that opens there may never be closed"
            raise ValueError(f"{begin} {line}, {problem}") from None
        except _ERRORS:  # a damaged gzip file hides the line
            pass

    def _problem_of(self, fields: list[str]) -> str:
        """Describe why the values of a line are not a row; "" if they are."""
        n, shown = len(fields), repr(shorten(self._delimiter.join(fields), 60))
        if n != len(self.kinds):
            return f"has {n} value{'s' * (n != 1)}, the header has {len(self.kinds)}: {shown}"
        return "" if _is_utf8("".join(fields)) else f"is not UTF-8 text: {shown}; save the file as UTF-8"


class TabFile(DelimitedFile):
    """A text file with tabs between the values."""

    delimiters = "\t"
