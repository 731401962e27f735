"""What pyarrow reads: Parquet, Arrow, Feather, CSV and TSV files, and Arrow datasets."""

from __future__ import annotations

import csv
import io
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
    kind_named,
    marks_of,
    refuse_where,
)
from duramen.text import few, plural, shorten

# columns

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def kind_of(dtype: Any) -> Kind:
    """Return what a column of an Arrow type holds."""
    if types.is_dictionary(dtype):
        inner = kind_of(dtype.value_type)
        return Kind.CATEGORY if inner in (Kind.WHOLE, Kind.REAL, Kind.SINGLE) else inner
    return kind_named(str(dtype))


class ArrowColumn(Column):
    """A column of the file's own type."""

    join = staticmethod(pa.concat_arrays)

    def numbers(self, *, flags: bool = False) -> Array:
        self._check("numbers")
        single = self.kind is Kind.SINGLE
        return _numpy(self.values if single else self._cast(pa.float64(), TOO_LARGE, "large"))

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

    def numbers(self, *, flags: bool = False) -> Array:
        self.values = pc.utf8_trim_whitespace(self.values)
        if flags or self.kind is Kind.FLAG:
            truths = self._cast(pa.bool_(), "holds {value!r}, which is not true or false in {row}")
            return _numpy(truths.cast(pa.float64()))
        values = _numpy(self._cast(pa.float64(), "holds {value!r}, which is not a number in {row}"))
        for row in np.flatnonzero(np.abs(values) >= EXACT).tolist():
            text = str(self.values[row])
            if text.removeprefix("-").isdecimal() and abs(int(text)) > EXACT:
                raise RowError(TOO_LARGE, row, value=text, hint="large")
        return values

    def whole(self) -> Array:
        plain = _numpy(pc.match_substring_regex(self.values, _WHOLE).fill_null(True))
        refuse_where(~plain, "holds {value!r}, which is not a plain whole number in {row}", self.values)
        return super().whole()


def kind_of_texts(values: Any) -> Kind:
    """Return what the texts of a column look like, as :func:`kind_of` does for a typed one."""
    values = pc.utf8_trim_whitespace(values.drop_null())
    if not len(values):
        return Kind.EMPTY
    if _castable(values, pa.float64()):
        if _share(values, _DIGITS) < 1:
            return Kind.REAL
        return Kind.WHOLE if _share(values, _WHOLE) == 1 else Kind.CODE
    if _castable(values, pa.bool_()):
        return Kind.FLAG
    if _castable(values, pa.timestamp("ns")) or _castable(values, pa.timestamp("ns", "UTC")):
        return Kind.TIME
    return Kind.MIXED if _share(values, _NUMBER) > 0.5 else Kind.TEXT


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


def _share(texts: Any, pattern: str) -> float:
    """Return the share of texts that match a pattern."""
    return _numpy(pc.match_substring_regex(texts, pattern)).mean()


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
_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


class PyarrowFile(File):
    """A file that pyarrow reads as record batches."""

    errors = _ERRORS
    column_type = ArrowColumn

    def _set_schema(self, schema: Any) -> None:
        self.schema = schema
        check_names(self.path, schema.names)
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        with suppress(ValueError, TypeError, KeyError):  # not written by pandas, or damaged
            index = list(schema.pandas_metadata["index_columns"])  # dictionaries stand for ranges
            self.index = tuple(name for name in schema.names if name in index)

    def types(self) -> dict[str, Any]:
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


def _types(schema: Any) -> dict[str, Any]:
    return dict(zip(schema.names, schema.types, strict=True))


class ParquetFile(PyarrowFile):
    """A Parquet file, or some of its row groups."""

    what = "a Parquet file"
    _groups: Sequence[int] | None = None  # all of them

    def _open(self) -> None:
        with _open_parquet(self.path) as file:
            self._set_schema(file.schema_arrow)
            about = file.metadata
        self._counts = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        self.n_rows = sum(self._counts)

    def shards(self) -> Sequence[File]:
        n = len(self._counts)
        step = max(1, _SHARD * n // (self.n_rows or 1))
        shards = []
        for start in range(0, n, step):
            shard, groups = copy(self), slice(start, start + step)
            shard._groups, shard.n_rows = range(n)[groups], sum(self._counts[groups])
            shards.append(shard)
        return shards if len(shards) > 1 else [self]

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[Any]:
        with _open_parquet(self.path) as file:
            yield from file.iter_batches(
                batch_size=n_rows,
                columns=[*columns],
                row_groups=self._groups,
                use_threads=self._groups is None,  # shards are read in parallel
            )
        pa.default_memory_pool().release_unused()


def _open_parquet(path: Path) -> Any:
    # Without a buffer size a whole column of a row group is read at once; larger ones are not faster.
    return pa.parquet.ParquetFile(str(path), buffer_size=32 << 10, pre_buffer=False)


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
    fragments = []
    with suppress(ValueError):  # of a filtered dataset pyarrow does not list the files
        fragments = [one for one in data.get_fragments() if hasattr(one, "path")]  # none in memory
    check_same_columns([(one.path, _types(one.physical_schema)) for one in fragments])
    files = [Path(one.path) for one in fragments]
    path = files[0].parent if files else Path("the Arrow data")
    return Table(path, [_Dataset(path, data, files)])


# text files

_BLOCK = 4 << 20  # bytes read at a time; a row must fit


def _unpacked(raw: Any) -> Any:
    """Return the bytes of an open file, decompressed if it begins like a gzip file."""
    is_gzip = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return pa.CompressedInputStream(raw, "gzip") if is_gzip else raw


_NOT_UTF8 = re.compile("[\0\udc80-\udcff]")  # NUL, and surrogates


def _agreement(records: list[list[str]]) -> tuple[bool, int]:
    """Return how good a delimiter is that splits header and first row so: into the same, largest number."""
    n, *rest = map(len, records)
    return n > 1 and rest in ([], [n]), n


class DelimitedFile(File):
    """A text file with a header and one row per line, compressed by gzip or not.

    What its columns hold is guessed from the first block (4 MB).
    """

    what = "a CSV or TSV file"
    errors = _ERRORS
    column_type = TextColumn
    delimiters = ",;\t|"  # those that are tried

    def _open(self) -> None:
        found = {mark: self._first_records(mark) for mark in self.delimiters}
        self._delimiter = max(found, key=lambda mark: _agreement(found[mark]))
        names, *rows = found[self._delimiter]
        if _NOT_UTF8.search("".join(names)) or not all(map(str.strip, names)):
            raise ValueError(
                f"{self.path}, line 1: every column needs a name, in UTF-8; found {few(names)}; add the "
                "names, save the file as UTF-8, or leave the column out (a pandas index: index=False)"
            )
        check_names(self.path, names)
        self.kinds = dict.fromkeys(names, Kind.EMPTY)
        self.n_rows = None if rows else 0
        for piece in islice(self._read(0, names), 1):
            self.kinds = {name: kind_of_texts(values) for name, values in piece.items()}

    def _records(self, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Read the records that are not empty, each with the line it begins on."""
        begins = 1
        # bytes that are not UTF-8 stay visible as surrogates
        with (
            pa.OSFile(str(self.path)) as raw,
            io.TextIOWrapper(_unpacked(raw), "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            reader = csv.reader(file, delimiter=delimiter, strict=strict)
            try:
                for fields in reader:
                    if fields:
                        yield begins, fields
                    begins = reader.line_num + 1
            except csv.Error as error:
                why = f"cannot be read ({error}); a quote that opens there may never be closed"
                raise ValueError(f"{self.path}, line {begins}, {why}") from None

    def _first_records(self, delimiter: str) -> list[list[str]]:
        """Read the header and the first row, as far as they can be read."""
        found: list[list[str]] = []
        with suppress(ValueError):
            found.extend(fields for _, fields in islice(self._records(delimiter), 2))
        return found or [[""]]

    def place(self, row: int) -> str:
        """Describe the line on which a row begins."""
        with suppress(StopIteration, ValueError, OSError):
            line, _ = next(islice(self._records(self._delimiter), row + 1, None))
            return f"line {line} (row {row}, counting from 0)"
        return super().place(row)

    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Read the blocks of the file as text."""
        if self.n_rows == 0:
            return
        last = [*self.kinds][-1]
        read = pa.csv.ReadOptions(block_size=_BLOCK)
        parse = pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(self.kinds, pa.string()),
            include_columns=[*{*columns, last}],
            strings_can_be_null=True,
        )
        with pa.OSFile(str(self.path)) as raw:
            try:  # the reader is closed before the file: it reads ahead
                with pa.csv.open_csv(_unpacked(raw), read, parse, convert) as reader:
                    for batch in filter(len, reader):
                        self.done = min(1.0, raw.tell() / raw.size())
                        if self.done == 1 and {"\r", "\n"} & {*str(batch.column(last)[-1])}:
                            self._refuse_broken_line()  # pyarrow accepts a quote that is never closed
                        yield {name: batch.column(name) for name in columns}
            except (pa.ArrowException, OSError):
                self._refuse_broken_line()
                raise

    def _refuse_broken_line(self) -> None:
        """Raise ValueError about the first line that is not a row, if one can be found."""
        with suppress(*_ERRORS):  # a damaged gzip file hides the line
            for line, fields in self._records(self._delimiter, strict=True):
                text = self._delimiter.join(fields)
                if len(fields) != len(self.kinds):
                    problem = f"has {plural(len(fields), 'value')}, the header has {len(self.kinds)}"
                elif _NOT_UTF8.search(text):
                    problem = "is not UTF-8 text (save the file as UTF-8)"
                else:
                    continue
                raise ValueError(f"{self.path}, line {line}, {problem}: {shorten(text, 60)!r}") from None


class TabFile(DelimitedFile):
    """A text file with tabs between the values."""

    delimiters = "\t"


READERS: dict[str, type[File]] = {
    "csv": DelimitedFile,
    "tsv": TabFile,
    "parquet": ParquetFile,
    "arrow": ArrowFile,
}
"""The classes for the files of each format."""
