"""CSV and TSV files, also compressed by gzip, read block by block."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from duramen.io.columns import (
    BadCellError,
    Kind,
    TextColumn,
    arrow,
    checked_names,
    looks_like,
    readable,
    rebatched,
    shortened,
    skipping,
)
from duramen.io.table import Batch, Table

__all__ = [
    "DelimitedTable",
    "broken_line",
    "delimiter_of",
    "first_line",
    "has_rows",
    "header",
    "is_gzip",
    "line_of",
]


_BROKEN = (OSError, EOFError, zlib.error)  # what a damaged gzip file raises


def is_gzip(path: Path) -> bool:
    """Tell whether a file begins as gzip files do."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def first_line(path: Path) -> str:
    """Read the first line that is not empty."""
    with _text(path) as file:
        return next((line for line in file if line.strip("\r\n")), "").rstrip("\r\n")


def delimiter_of(path: Path) -> str:
    """Find what stands between values: the mark by which header and first row have as many, the most.

    The comma is taken first of equals, and where the header has none of the usual marks.
    """

    def fits(mark: str) -> tuple[bool, int]:
        with _text(path) as file:
            try:
                counts = [len(fields) for _, fields in islice(_Records(file, mark), 2)] or [0]
            except csv.Error:
                counts = [0]
        return counts[0] > 1 and len(set(counts)) == 1, counts[0]

    return max(",;\t|", key=fits)


def header(path: Path, delimiter: str) -> list[str]:
    """Read the names of the columns."""
    with _text(path) as file:
        try:
            return next(iter(_Records(file, delimiter)))[1]
        except csv.Error as error:
            raise ValueError(f"{path}: the header cannot be read ({error})") from None


def has_rows(path: Path) -> bool:
    """Tell whether anything follows the header."""
    with _text(path) as file:
        lines = (line for line in file if line.strip("\r\n"))
        return len(list(islice(lines, 2))) == 2


def line_of(path: Path, delimiter: str, row: int) -> int | None:
    """Find the line, from 1, on which a row (from 0, after the header) begins."""
    try:
        with _text(path) as file:
            for number, record in enumerate(_Records(file, delimiter)):
                if number == row + 1:
                    return record[0]
    except (csv.Error, *_BROKEN):
        pass
    return None


def broken_line(path: Path, delimiter: str, n_columns: int) -> tuple[int, str] | None:
    """Find the first line that is not a row, and say what is wrong with it; None if all are rows."""
    with _text(path) as file:
        records = _Records(file, delimiter)
        try:
            for line, fields in records:
                problem = _problem(fields, delimiter, n_columns)
                if problem:
                    return line, problem
        except csv.Error as error:
            return records.begins, f"cannot be read ({error}); a quote that opens there may never be closed"
        except _BROKEN:
            return None  # a damaged gzip file; no line is to blame
        if records.ends_in_quotes():
            return records.begins, f"opens a quote that is never closed: {shortened(records.lines[0])!r}"
    return None


def _problem(fields: list[str], delimiter: str, n_columns: int) -> str | None:
    shown = repr(shortened(delimiter.join(fields)))
    if len(fields) != n_columns:
        return f"has {len(fields)} value{'s' * (len(fields) != 1)}, the header has {n_columns}: {shown}"
    if any("\udc80" <= letter <= "\udcff" for letter in shown) or "\\udc" in shown:
        return f"is not UTF-8 text: {shown}; save the file as UTF-8"
    return None


def _text(path: Path) -> IO[str]:
    raw = gzip.GzipFile(path) if is_gzip(path) else path.open("rb")
    # bytes that are no UTF-8 stay visible as surrogates
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


class _Records:
    """The records of a file that are not empty, each with the line it begins on."""

    def __init__(self, file: IO[str], delimiter: str) -> None:
        self.file, self.delimiter = file, delimiter
        self.begins, self.number = 1, 0
        self.lines: list[str] = []

    def _watched(self) -> Iterator[str]:
        for line in self.file:
            self.number += 1
            self.lines.append(line)
            yield line

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._watched(), delimiter=self.delimiter)
        while True:
            before = self.begins, self.lines
            self.begins, self.lines = self.number + 1, []
            try:
                fields = next(reader)
            except StopIteration:
                self.begins, self.lines = before
                return
            if fields:
                yield self.begins, fields

    def ends_in_quotes(self) -> bool:
        """Tell whether the last record's last quote is open."""
        try:
            list(csv.reader(self.lines, delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            return "end of data" in str(error)
        return False


_BLOCK = 4 << 20  # bytes read at a time; a row must fit
_WHAT = "a CSV or TSV file"


class DelimitedTable(Table):
    """A text file with a header and one row a line.

    What its columns hold is what the first block (4 MB) looks like.
    """

    typed = False

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        arrow("csv")
        self.path, self.nbytes = path, path.stat().st_size
        with readable(path, _WHAT):
            line, any_row = first_line(path), has_rows(path)
            self.delimiter = delimiter or delimiter_of(path)
            self.columns = _names(path, line, self.delimiter)
        self.kinds = dict.fromkeys(self.columns, Kind.EMPTY)
        if not any_row:
            self.n_rows = 0
            return
        for piece, _ in self._pieces(self.columns):
            self.kinds = {name: looks_like(piece.column(name)) for name in self.columns}
            return
        self.n_rows = 0

    def place(self, row: int) -> str:
        line = line_of(self.path, self.delimiter, row)
        return f"line {line} (row {row}, counting from 0)" if line else super().place(row)

    def why_text(self, name: str) -> str:
        first = 0
        for piece, _ in rebatched(self._pieces([name]), 65536):
            try:
                TextColumn(piece.column(name), Kind.REAL).numbers()
            except BadCellError as error:
                shown = shortened(piece.column(name)[error.row or 0].as_py(), 40)
                return f" ({shown!r} in {self.place(first + (error.row or 0))})"
            first += piece.num_rows
        return ""

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first = skip
        for piece, done in rebatched(skipping(self._pieces(columns), skip), n_rows):
            held = {name: partial(TextColumn, piece.column(name), self.kinds[name]) for name in columns}
            yield Batch(self, first, done, piece.num_rows, held)
            first += piece.num_rows
            del piece, held

    def _pieces(self, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read the blocks as record batches of text."""
        pa = arrow("")
        if self.n_rows == 0:
            return
        with pa.OSFile(str(self.path)) as raw:
            source = pa.CompressedInputStream(raw, "gzip") if is_gzip(self.path) else raw
            reader = None
            try:
                reader = self._reader(source, columns)
                while True:
                    try:
                        piece = reader.read_next_batch()
                    except StopIteration:
                        break
                    if raw.tell() >= self.nbytes and piece.num_rows:
                        self._refuse_open_quote(piece.column(self.columns[-1])[-1].as_py() or "")
                    if piece.num_rows:
                        yield piece, min(1.0, raw.tell() / self.nbytes)
            except (pa.ArrowException, OSError) as error:
                self._explain(error)
            finally:
                if reader is not None:
                    reader.close()  # before the file: it reads ahead

    def _reader(self, source: Any, columns: Sequence[str]) -> Any:
        module = arrow("csv")
        wanted = list(dict.fromkeys([*columns, self.columns[-1]]))
        return module.open_csv(
            source,
            read_options=module.ReadOptions(block_size=_BLOCK),
            parse_options=module.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=module.ConvertOptions(
                column_types=dict.fromkeys(self.columns, arrow("").string()),
                include_columns=wanted,
                strings_can_be_null=True,
            ),
        )

    def _refuse_open_quote(self, last: str) -> None:
        """Refuse a file whose last value is a quote that was never closed.

        It swallows the rest of the file, and pyarrow does not mind. A quote that is
        closed stands at the end of the file, for the value is the last one.
        """
        if "\n" not in last and "\r" not in last:
            return
        if not is_gzip(self.path):
            with self.path.open("rb") as file:
                file.seek(max(0, self.nbytes - 64))
                if file.read().rstrip().endswith(b'"'):
                    return
        self._explain(None)

    def _explain(self, error: Exception | None) -> None:
        """Raise an error that names the broken line, if one is to be found."""
        found = broken_line(self.path, self.delimiter, len(self.columns))
        if found:
            raise ValueError(f"{self.path}, line {found[0]}, {found[1]}") from None
        if error:
            with readable(self.path, _WHAT):
                raise error


def _names(path: Path, line: str, delimiter: str) -> tuple[str, ...]:
    """Read the names of the columns, and refuse a header that is not one."""
    if not line:
        raise ValueError(f"{path} is empty; a header line with the columns' names is needed")
    if "\0" in line or any("\udc80" <= letter <= "\udcff" for letter in line):
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8, or check that it is {_WHAT}")
    names = header(path, delimiter)
    unnamed = [place for place, name in enumerate(names, 1) if not name.strip()]
    if unnamed:
        raise ValueError(
            f"{path}, line 1: column {unnamed[0]} of {len(names)} has no name; name it or leave it out "
            "(a pandas index: to_csv(..., index=False))"
        )
    return checked_names(path, names)
