"""CSV and TSV files, also compressed by gzip, read block by block."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar

import pyarrow as pa
import pyarrow.csv

from duramen.errors import RowError
from duramen.io.arrow import PyarrowFile, TextColumn, kind_of_texts
from duramen.io.tables import File, Kind, Pieces, check_names, readable
from duramen.text import shorten

_BLOCK = 4 << 20  # bytes read at a time; a row must fit
_BROKEN = (OSError, EOFError, zlib.error)  # what a damaged gzip file raises


def _is_gzip(path: Path) -> bool:
    """Return whether a file begins like a gzip file."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _text(path: Path) -> IO[str]:
    raw = gzip.GzipFile(path) if _is_gzip(path) else path.open("rb")
    # bytes that are not UTF-8 stay visible as surrogates
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Read the records that are not empty, each with the line it begins on; an error holds that, too."""
    begins = 1
    with _text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for fields in reader:
                if fields:
                    yield begins, fields
                begins = reader.line_num + 1
        except csv.Error as error:
            raise csv.Error(begins, error) from None


def _delimiter_of(path: Path) -> str:
    """Find the delimiter: the one that splits header and first row into the same, largest number of values.

    A comma wins ties, and is assumed if the header has none of the usual delimiters.
    """

    def fits(mark: str) -> tuple[bool, int]:
        try:
            counts = [len(fields) for _, fields in islice(_records(path, mark), 2)] or [0]
        except csv.Error:
            counts = [0]
        return counts[0] > 1 and len(set(counts)) == 1, counts[0]

    return max(",;\t|", key=fits)


def _broken_line(path: Path, delimiter: str, n_columns: int) -> tuple[int, str] | None:
    """Find the first line that is not a row, and what is wrong with it; None if all are rows."""
    line = 1
    try:
        for line, fields in _records(path, delimiter):
            shown = repr(shorten(delimiter.join(fields), 60))
            if len(fields) != n_columns:
                many = f"{len(fields)} value{'s' * (len(fields) != 1)}"
                return line, f"has {many}, the header has {n_columns}: {shown}"
            if _has_surrogates("".join(fields)):
                return line, f"is not UTF-8 text: {shown}; save the file as UTF-8"
    except csv.Error as error:
        line, why = error.args
        return line, f"cannot be read ({why}); a quote that opens there may never be closed"
    except _BROKEN:
        return None  # a damaged gzip file: no line is to blame
    with _text(path) as file:
        rest = list(islice(file, line - 1, None))
    if list(csv.reader([*rest, '"\n', "end"], delimiter=delimiter))[-1] == ["end"]:  # a quote was open
        return line, f"opens a quote that is never closed: {shorten(rest[0], 60)!r}"
    return None


def _has_surrogates(text: str) -> bool:
    """Return whether some bytes of a text were not UTF-8."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


class DelimitedFile(PyarrowFile):
    """A text file with a header and one row per line.

    What its columns hold is guessed from the first block (4 MB).
    """

    what = "a CSV or TSV file"
    typed: ClassVar[bool] = False
    column_type = TextColumn

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self.path, self.nbytes = path, path.stat().st_size
        with readable(path, self.what, *_BROKEN):
            with _text(path) as file:
                lines = list(islice((line for line in file if line.strip("\r\n")), 2))
            self.delimiter = delimiter or _delimiter_of(path)
            self.columns = self._header(lines)
        self.kinds = dict.fromkeys(self.columns, Kind.EMPTY)
        piece, _ = (None, 0) if len(lines) < 2 else next(self.pieces(0, self.columns), (None, 0))
        if piece is None:
            self.n_rows = 0
        else:
            self.kinds = {name: kind_of_texts(piece.column(name)) for name in self.columns}

    def _header(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Read the names of the columns; refuse a file that does not begin with them."""
        path = self.path
        if not lines:
            raise ValueError(f"{path} is empty; the first line must name the columns")
        if "\0" in lines[0] or _has_surrogates(lines[0]):
            raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8, or check that it is {self.what}")
        try:
            _, names = next(_records(path, self.delimiter))
        except csv.Error as error:
            raise ValueError(f"{path}: the header cannot be read ({error.args[1]})") from None
        unnamed = [place for place, name in enumerate(names, 1) if not name.strip()]
        if unnamed:
            raise ValueError(
                f"{path}, line 1: column {unnamed[0]} of {len(names)} has no name; name it or leave it out "
                "(a pandas index: to_csv(..., index=False))"
            )
        return check_names(path, names)

    def types(self) -> dict[str, str]:
        return File.types(self)

    def place(self, row: int) -> str:
        """Describe the line on which a row begins."""
        try:
            line, _ = next(islice(_records(self.path, self.delimiter), row + 1, None))
        except (StopIteration, csv.Error, *_BROKEN):
            return super().place(row)
        return f"line {line} (row {row}, counting from 0)"

    def why_text(self, name: str) -> str:
        first = 0
        for piece, _ in self.pieces(0, [name]):
            try:
                TextColumn([piece.column(name)], Kind.REAL).numbers()
            except RowError as error:
                row = error.row or 0
                shown = shorten(piece.column(name)[row].as_py(), 40)
                return f" ({shown!r} in {self.place(first + row)})"
            first += piece.num_rows
        return ""

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Pieces:
        """Read the blocks of the file as record batches of text."""
        if self.n_rows == 0:
            return
        with pa.OSFile(str(self.path)) as raw:
            source = pa.CompressedInputStream(raw, "gzip") if _is_gzip(self.path) else raw
            reader = None
            try:
                reader = self._reader(source, columns)
                for piece in reader:
                    if raw.tell() >= self.nbytes and piece.num_rows:
                        self._refuse_open_quote(piece.column(self.columns[-1])[-1].as_py() or "")
                    if piece.num_rows:
                        yield piece, min(1.0, raw.tell() / self.nbytes)
            except (pa.ArrowException, OSError):
                self._refuse_broken_line()
                raise
            finally:
                if reader is not None:
                    reader.close()  # before the file: it reads ahead

    def _reader(self, source: Any, columns: Sequence[str]) -> Any:
        return pa.csv.open_csv(
            source,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK),
            parse_options=pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self.columns, pa.string()),
                include_columns=list(dict.fromkeys([*columns, self.columns[-1]])),
                strings_can_be_null=True,
            ),
        )

    def _refuse_open_quote(self, last: str) -> None:
        """Refuse a file whose last value is a quote that was never closed.

        It swallows the rest of the file, and pyarrow accepts it. A closing quote
        would be at the end of the file, as the value is the last one.
        """
        if "\n" not in last and "\r" not in last:
            return
        if not _is_gzip(self.path):
            with self.path.open("rb") as file:
                file.seek(max(0, self.nbytes - 64))
                if file.read().rstrip().endswith(b'"'):
                    return
        self._refuse_broken_line()

    def _refuse_broken_line(self) -> None:
        """Raise ValueError that names the broken line, if one can be found."""
        found = _broken_line(self.path, self.delimiter, len(self.columns))
        if found:
            raise ValueError(f"{self.path}, line {found[0]}, {found[1]}") from None
