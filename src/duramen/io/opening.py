"""Open a file, a folder or a pattern as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

from duramen.io.archive import ArchiveTable
from duramen.io.arrow_files import ArrowFile, ArrowStream, ArrowTable, ParquetTable
from duramen.io.columns import NUMERIC, Kind, few
from duramen.io.delimited import DelimitedTable
from duramen.io.table import Batch, Shard, Table, mark_of

__all__ = ["FORMATS", "ArrowFiles", "Files", "is_table", "open_table"]


class Files(Table):
    """The rows of several tables with the same columns, one after the other.

    Parameters
    ----------
    path : Path
        What was asked for: a folder, or a pattern.
    parts : sequence of Table
        All are looked at before a row is read: one whose columns differ is refused.
    """

    def __init__(self, path: Path, parts: Sequence[Table]) -> None:
        first = parts[0]
        for part in parts[1:]:
            _refuse_other(first, part)
        self.path, self.parts = path, tuple(parts)
        self.columns, self.index = first.columns, first.index
        self.typed = all(part.typed for part in parts)
        self.kinds = {name: _kind(name, parts) for name in first.columns}
        self.nbytes = sum(part.nbytes for part in parts)
        self._counts = [part.n_rows for part in parts]  # None until the rows of a file were counted
        self.n_rows = None if None in self._counts else sum(count or 0 for count in self._counts)

    def place(self, row: int) -> str:
        for part, count in zip(self.parts, self._counts, strict=True):
            if count is None or row < count:
                return f"{part.path.name}, {part.place(row)}"
            row -= count
        return super().place(row)

    def why_text(self, name: str) -> str:
        return next((why for part in self.parts if (why := part.why_text(name))), "")

    def shards(self) -> list[Table]:
        if self.n_rows is None:
            return [self]
        shards: list[Table] = []
        start = 0
        for part in self.parts:
            shards += [Shard(self, one, start + one.offset) for one in part.shards()]
            start += part.n_rows or 0
        return shards

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first, done = 0, 0
        for place, part in enumerate(self.parts):
            count = self._counts[place]
            if count is None and skip > first:
                count = self._counts[place] = sum(map(len, part._read(1 << 16, columns[:1], 0)))
            if count is None or first + count > skip:
                end = max(skip - first, 0)
                for batch in part._read(n_rows, columns, end):
                    end = batch.first + len(batch)
                    share = (done + batch.done * part.nbytes) / max(self.nbytes, 1)
                    share = (first + end) / self.n_rows if self.n_rows else share
                    yield replace(batch, table=self, first=first + batch.first, done=share)
                    del batch  # so that the next one is read without this one in memory
                if count is None:
                    count = self._counts[place] = end
            first, done = first + (count or 0), done + part.nbytes


class ArrowFiles(Files, ArrowTable):
    """Files that pyarrow reads as record batches: a batch may begin in one file and end in the next."""

    def type_of(self, name: str) -> str:
        return self.parts[0].type_of(name)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        for part in self.parts:
            assert isinstance(part, ArrowTable)
            for piece, done in part._pieces(n_rows, columns):
                yield piece.select([*columns]), done

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        return ArrowTable._read(self, n_rows, columns, skip)


def _kind(name: str, parts: Sequence[Table]) -> Kind:
    """Tell what a column holds in all files: text, if it looks like text in one of them."""
    kinds = [part.kinds[name] for part in parts]
    return next((kind for kind in kinds if kind not in NUMERIC), kinds[0])


def _refuse_other(first: Table, other: Table) -> None:
    """Raise ValueError if a file has other columns than the first, or other types of them."""
    for name in first.columns:
        if name not in other.kinds:
            raise ValueError(f"{other.path} has no column {name!r}, which {first.path} has")
        mine, its = first.type_of(name), other.type_of(name)
        if mine != its:
            raise ValueError(f"{other.path}: column {name!r} has type {its}, in {first.path} it is {mine}")
    more = [name for name in other.columns if name not in first.kinds]
    if more:
        raise ValueError(f"{other.path} has a column {few(more)}, which {first.path} has not")


FORMATS = (
    "Parquet (.parquet, .pq), CSV or TSV (.csv, .tsv, also .gz), "
    "Arrow or Feather (.arrow, .ipc, .feather), NumPy (.npz)"
)
"""The formats, for a message."""


def _csv(path: Path) -> Table:
    return DelimitedTable(path)


def _tsv(path: Path) -> Table:
    return DelimitedTable(path, "\t")


def _arrow(path: Path) -> Table:
    begins = _beginning(path)
    if begins.startswith(b"FEA1"):
        raise ValueError(f"{path} is a Feather file of version 1; write it again (version 2), or as Parquet")
    return ArrowFile(path) if begins.startswith(b"ARROW1") else ArrowStream(path)


_SUFFIXES: dict[str, Callable[[Path], Table]] = {
    ".parquet": ParquetTable,
    ".pq": ParquetTable,
    ".parq": ParquetTable,
    ".csv": _csv,
    ".tsv": _tsv,
    ".tab": _tsv,
    ".csv.gz": _csv,
    ".tsv.gz": _tsv,
    ".tab.gz": _tsv,
    ".arrow": _arrow,
    ".arrows": _arrow,
    ".ipc": _arrow,
    ".feather": _arrow,
    ".npz": ArchiveTable,
}

_BEGINNINGS: dict[bytes, Callable[[Path], Table]] = {
    b"PAR1": ParquetTable,
    b"ARROW1": _arrow,
    b"FEA1": _arrow,
    b"\xff\xff\xff\xff": _arrow,
    b"PK\x03\x04": ArchiveTable,
    b"PK\x05\x06": ArchiveTable,
}


def open_table(path: Any) -> Table:
    """Open a file of rows and named columns, to be read in batches.

    Parquet, CSV and TSV (also compressed by gzip), Arrow IPC files and streams, Feather, and
    NumPy's .npz. The suffix says which; without a known one, the first bytes do. All but .npz
    need pyarrow (``pip install 'duramen[frames]'``). A folder is the rows of its Parquet files, a
    pattern such as ``part-*.csv`` or ``2026/**/*.parquet`` those of the files that it matches, a list
    those of its files: in the order of their names (a list: as they stand), all with the same columns.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is damaged or has none of the formats; the message names the file.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "data.npz"
    >>> np.savez(file, X=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1]))
    >>> table = open_table(file)
    >>> table
    <ArchiveTable data.npz: 3 rows, 3 columns>
    >>> [len(batch) for batch in table.batches(n_rows=2)]
    [2, 1]
    """
    if isinstance(path, (list, tuple)):
        if not path:
            raise ValueError("there are no files in the list; name at least one")
        files = [Path(file) for file in path]
        return _joined(Path(f"{files[0]} and {len(files) - 1} more"), files)
    source = Path(path)
    if source.is_dir():
        return _joined(source, sorted(source.glob("*.parquet")))
    if not source.exists() and set(str(source)) & set("*?["):
        found = sorted(Path(file) for file in glob(str(source), recursive=True))  # noqa: PTH207 (folders may have patterns too)
        hidden = ("_", ".")  # what Spark and others write beside the data, as _SUCCESS
        shown = [file for file in found if source.name.startswith(hidden) or not file.name.startswith(hidden)]
        return _joined(source, [file for file in shown if file.is_file()])
    marks = {source: mark} if (mark := mark_of(source)) else {}  # before anything is read
    table = _opened(source)
    table.marks = marks
    return table


def _joined(source: Path, files: list[Path]) -> Table:
    """Open several files as one table."""
    if not files:
        what = "Parquet files" if source.is_dir() or source.suffix == ".parquet" else "files"
        way_out = "" if source.is_dir() else "; a name that has such letters itself goes into a list"
        where = "in" if source.is_dir() else "that match"
        raise FileNotFoundError(f"there are no {what} {where} {source}{way_out}")
    marks = {file: mark for file in files if (mark := mark_of(file))}
    parts = [_opened(file) for file in files]
    several = ArrowFiles if all(isinstance(part, ArrowTable) for part in parts) else Files
    table = several(source, parts) if len(parts) > 1 else parts[0]
    table.marks = marks
    return table


def _opened(path: Path) -> Table:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name its files, or the folder alone")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    return _reader_of(path)(path)


def is_table(path: Path) -> bool:
    """Tell whether :func:`open_table` knows the format of a file."""
    return _known(path) is not None


def _reader_of(path: Path) -> Callable[[Path], Table]:
    found = _known(path)
    if found is None:
        raise ValueError(f"{path} has no suffix or content that is known; the formats are {FORMATS}")
    return found


def _known(path: Path) -> Callable[[Path], Table] | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    for suffix in ("".join(suffixes[-2:]), *suffixes[-1:]):
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
    begins = _beginning(path)
    for magic, reader in _BEGINNINGS.items():
        if begins.startswith(magic):
            return reader
    return None


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)
