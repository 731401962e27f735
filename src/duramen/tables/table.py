"""A table in a file, read in batches: what all formats share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from duramen.tables.column import Column
from duramen.tables.kinds import Kind
from duramen.tables.names import absent

__all__ = ["Batch", "Table"]


@dataclass(frozen=True)
class Batch:
    """Some rows of a table that follow each other.

    Attributes
    ----------
    table : Table
        Where they are from.
    first : int
        The number of the first of them in the table, from 0.
    done : float
        The share of the file that is read once this batch is here, from 0 to 1.
    """

    table: Table
    first: int
    done: float
    n_rows: int = field(repr=False)
    held: Mapping[str, Callable[[], Column]] = field(repr=False)

    def __len__(self) -> int:
        return self.n_rows

    def column(self, name: str) -> Column:
        """Return one column; ValueError with what is there if it is not."""
        if name not in self.held:
            raise ValueError(absent(name, tuple(self.held), self.table.path))
        return self.held[name]()

    def place(self, row: int) -> str:
        """Say where a row of this batch is in the file."""
        return self.table.place(self.first + row)


class Table(ABC):
    """A file (or several) of rows and named columns.

    Attributes
    ----------
    path : Path
    columns : tuple of str
    kinds : dict of str to Kind
        What each column holds.
    n_rows : int or None
        None where only a pass over the file tells.
    nbytes : int
        The size of the file.
    typed : bool
        Whether the file says what its columns hold. In a text file it is what the first rows look like.
    """

    path: Path
    columns: tuple[str, ...]
    kinds: Mapping[str, Kind]
    n_rows: int | None = None
    nbytes: int
    typed: bool = True

    def batches(self, n_rows: int = 65536, columns: Iterable[str] | None = None) -> Iterator[Batch]:
        """Read the table from its start, ``n_rows`` rows at a time; the last batch may be shorter.

        Parameters
        ----------
        n_rows : int
            At most so many rows are in memory as one batch. Some formats also hold a
            piece of the file: a block of a text file, a record batch of an Arrow file.
        columns : iterable of str, optional
            Only these are read; all by default.
        """
        if isinstance(n_rows, bool) or not isinstance(n_rows, int) or n_rows < 1:
            raise ValueError(f"n_rows={n_rows!r}: a batch has at least one row")
        wanted = self.columns if columns is None else tuple(dict.fromkeys(columns))
        for name in wanted:
            if name not in self.kinds:
                raise ValueError(absent(name, self.columns, self.path))
        return self._read(n_rows, wanted)

    @abstractmethod
    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Batch]:
        """Read the batches; the arguments are checked."""

    def place(self, row: int) -> str:
        """Say where a row is in the file, for a message."""
        return f"row {row} (counting from 0)"

    def why_text(self, name: str) -> str:
        """Say where the first text of a column is, for a message; "" if the file says its type."""
        return ""

    def __repr__(self) -> str:
        rows = "rows not counted" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<{type(self).__name__} {self.path.name}: {rows}, {len(self.columns)} columns>"
