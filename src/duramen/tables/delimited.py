"""CSV and TSV files, also compressed by gzip, read block by block.

Every value is read as text, and becomes what the encoding asks for when it is
used. So a column that begins with whole numbers may go on with fractions, an id
keeps every digit, and a value that is not a number is found with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from duramen.tables.arrow import arrow, readable, rebatched, skipping
from duramen.tables.arrow_column import TextColumn, looks_like
from duramen.tables.kinds import BadCellError, Kind
from duramen.tables.lines import broken_line, delimiter_of, first_line, has_rows, header, is_gzip, line_of
from duramen.tables.names import checked_names, shortened
from duramen.tables.table import Batch, Table

__all__ = ["DelimitedTable"]

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
