"""Lines of a text file: the header, where a row stands, and which line is broken.

Python's csv module does it, for it knows where it is. It reads the header, and
the file only when there is an error to explain.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from duramen.tables.names import shortened

__all__ = ["broken_line", "delimiter_of", "first_line", "has_rows", "header", "is_gzip", "line_of"]

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
