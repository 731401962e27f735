"""CSV and TSV files, also compressed by gzip, read block by block."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv

from duramen.io.arrow import PyarrowFile, TextColumn, kind_of_texts
from duramen.io.tables import File, Kind, check_names, readable
from duramen.text import shorten

_BLOCK = 4 << 20  # bytes read at a time; a row must fit
_BROKEN = (OSError, EOFError, zlib.error)  # what a damaged gzip file raises


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


def _delimiter_of(path: Path) -> str:
    """Find the delimiter: the one that splits header and first row into the same, largest number of values.

    A comma wins ties, and is assumed if the header has none of the usual delimiters.
    """

    def fits(mark: str) -> tuple[bool, int]:
        counts = [len(fields) for fields in _first_records(path, mark)] or [0]
        return counts[0] > 1 and len(set(counts)) == 1, counts[0]

    return max(",;\t|", key=fits)


def _broken_line(path: Path, delimiter: str, n_columns: int) -> str:
    """Describe the first line that is not a row; "" if all are, or a damaged gzip file hides it."""
    try:
        for line, fields in _records(path, delimiter, strict=True):
            shown = repr(shorten(delimiter.join(fields), 60))
            if len(fields) != n_columns:
                many = f"{len(fields)} value{'s' * (len(fields) != 1)}"
                return f"line {line}, has {many}, the header has {n_columns}: {shown}"
            if not _is_utf8("".join(fields)):
                return f"line {line}, is not UTF-8 text: {shown}; save the file as UTF-8"
    except csv.Error as error:
        line, why = error.args
        return f"line {line}, cannot be read ({why}); a quote that opens there may never be closed"
    except _BROKEN:
        pass
    return ""


def _is_utf8(text: str) -> bool:
    """Return whether all bytes of a text were UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


class DelimitedFile(PyarrowFile):
    """A text file with a header and one row per line.

    What its columns hold is guessed from the first block (4 MB).
    """

    what = "a CSV or TSV file"
    typed: ClassVar[bool] = False
    column_type = TextColumn

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self.path = path
        with readable(path, self.what, *_BROKEN):
            self.delimiter = delimiter or _delimiter_of(path)
            names, *rows = _first_records(path, self.delimiter) or [[]]
        self.columns = self._check_header(names)
        self.kinds = dict.fromkeys(self.columns, Kind.EMPTY)
        self.n_rows = None if rows else 0
        for piece, _ in islice(self.pieces(0, self.columns), 1):
            self.kinds = {name: kind_of_texts(values) for name, values in piece.items()}

    def _check_header(self, names: list[str]) -> tuple[str, ...]:
        """Return the names of the columns; refuse a file that does not begin with them."""
        if not names:
            raise ValueError(f"{self.path} is empty or not text; the first line must name the columns")
        text = "".join(names)
        if "\0" in text or not _is_utf8(text):
            raise ValueError(
                f"{self.path} is not UTF-8 text; save it as UTF-8, or check that it is {self.what}"
            )
        unnamed = [place for place, name in enumerate(names, 1) if not name.strip()]
        if unnamed:
            raise ValueError(
                f"{self.path}, line 1: column {unnamed[0]} of {len(names)} has no name; name it or leave it "
                "out (a pandas index: to_csv(..., index=False))"
            )
        return check_names(self.path, names)

    def types(self) -> dict[str, str]:
        return File.types(self)

    def place(self, row: int) -> str:
        """Describe the line on which a row begins."""
        try:
            line, _ = next(islice(_records(self.path, self.delimiter), row + 1, None))
        except (StopIteration, csv.Error, *_BROKEN):
            return super().place(row)
        return f"line {line} (row {row}, counting from 0)"

    def _batches(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Read the blocks of the file as record batches of text."""
        if self.n_rows == 0:
            return
        with pa.OSFile(str(self.path)) as raw:
            source = pa.CompressedInputStream(raw, "gzip") if _is_gzip(self.path) else raw
            reader = None
            try:
                reader = self._reader(source, columns)
                for batch in reader:
                    if not batch.num_rows:
                        continue
                    last = batch.column(self.columns[-1])[-1].as_py() or ""
                    if raw.tell() >= raw.size() and {"\r", "\n"} & {*last} and not self._closes_quote():
                        self._refuse_broken_line()  # pyarrow accepts a quote that is never closed
                    yield batch, min(1.0, raw.tell() / raw.size())
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

    def _closes_quote(self) -> bool:
        """Return whether the file surely ends with the quote that closes its last value."""
        with self.path.open("rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - 64))
            return file.read().rstrip().endswith(b'"') and not _is_gzip(self.path)

    def _refuse_broken_line(self) -> None:
        """Raise ValueError that names the broken line, if one can be found."""
        broken = _broken_line(self.path, self.delimiter, len(self.columns))
        if broken:
            raise ValueError(f"{self.path}, {broken}") from None
