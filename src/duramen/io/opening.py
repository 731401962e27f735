"""Open a file, a folder or a pattern as one table."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any

from duramen.extras import needed
from duramen.io.archive import ArchiveTable
from duramen.io.table import Files, Table, mark_of

FORMATS = (
    "Parquet (.parquet, .pq), CSV or TSV (.csv, .tsv, also .gz), "
    "Arrow or Feather (.arrow, .ipc, .feather), NumPy (.npz)"
)
"""The formats, for a message."""


_SUFFIXES = {
    **dict.fromkeys((".parquet", ".pq", ".parq"), "parquet"),
    **dict.fromkeys((".csv", ".csv.gz"), "csv"),
    **dict.fromkeys((".tsv", ".tab", ".tsv.gz", ".tab.gz"), "tsv"),
    **dict.fromkeys((".arrow", ".arrows", ".ipc", ".feather"), "arrow"),
    ".npz": "npz",
}

_BEGINNINGS = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"FEA1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
}


def open_table(path: Any) -> Table:
    """Open a file of rows and named columns, to be read in batches.

    Parquet, CSV and TSV (also compressed by gzip), Arrow IPC files and streams, Feather, and
    NumPy's .npz. The format follows from the suffix or, if that is unknown, from the first bytes. All
    but .npz need pyarrow (``pip install 'duramen[frames]'``). A folder stands for its Parquet files, a
    pattern such as ``part-*.csv`` or ``2026/**/*.parquet`` for the files that match it; both are read in
    order of their names, a list in its own order. All files must have the same columns.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file is damaged or of an unknown format; the message names it.

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
            raise ValueError("the list of files is empty; name at least one")
        files = [Path(file) for file in path]
        return _open_all(Path(f"{files[0]} and {len(files) - 1} more"), files)
    source = Path(path)
    if source.is_dir():
        files = sorted(source.glob("*.parquet"))
        if not files:
            raise FileNotFoundError(f"there are no Parquet files in {source}")
        return _open_all(source, files)
    if is_pattern(source):
        return _open_all(source, _matching(source))
    return _open_all(source, [source])


def is_pattern(source: Path) -> bool:
    """Return whether a path is not a file, but a pattern for several."""
    return bool(set(str(source)) & set("*?[")) and not source.exists()


def _matching(pattern: Path) -> list[Path]:
    """List the files that match a pattern, without what Spark writes beside the data, such as _SUCCESS."""
    found = sorted(Path(file) for file in glob(str(pattern), recursive=True))  # noqa: PTH207 (folders may have patterns too)
    hidden = () if pattern.name.startswith(("_", ".")) else ("_", ".")
    files = [file for file in found if file.is_file() and not file.name.startswith(hidden)]
    if not files:
        what = "Parquet files" if pattern.suffix == ".parquet" else "files"
        raise FileNotFoundError(
            f"there are no {what} that match {pattern}; put a name that contains *, ? or [ into a list"
        )
    return files


def _open_all(source: Path, files: Sequence[Path]) -> Table:
    """Open files as one table."""
    marks = {file: mark for file in files if (mark := mark_of(file))}  # before anything is read
    parts = [_open_file(file) for file in files]
    table = parts[0] if len(parts) == 1 else _join(source, parts)
    table.marks = marks
    return table


def _join(source: Path, parts: Sequence[Table]) -> Table:
    if all(isinstance(part, ArchiveTable) for part in parts):
        return Files(source, parts)
    from duramen.io.arrow import ArrowFiles, ArrowTable

    arrow = [part for part in parts if isinstance(part, ArrowTable)]
    if len(arrow) < len(parts):
        raise ValueError(f"{source}: .npz files cannot be read together with files of other formats")
    return ArrowFiles(source, arrow)


def _open_file(path: Path) -> Table:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name its files, or the folder alone")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    kind = _format_of(path)
    if kind is None:
        raise ValueError(f"{path} has no known suffix or content; the formats are {FORMATS}")
    if kind == "npz":
        return ArchiveTable(path)
    needed("pyarrow", "reading this file", "frames")
    if kind in ("csv", "tsv"):
        from duramen.io.delimited import DelimitedTable

        return DelimitedTable(path, "\t" if kind == "tsv" else None)
    from duramen.io.arrow import ArrowFile, ParquetTable

    if kind == "parquet":
        return ParquetTable(path)
    begins = _beginning(path)
    if begins.startswith(b"FEA1"):
        raise ValueError(f"{path} is a Feather file of version 1; write it again (version 2), or as Parquet")
    return ArrowFile(path, stream=not begins.startswith(b"ARROW1"))


def is_table(path: Path) -> bool:
    """Return whether :func:`open_table` knows the format of a file."""
    return _format_of(path) is not None


def _format_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    for suffix in ("".join(suffixes[-2:]), *suffixes[-1:]):
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
    begins = _beginning(path)
    return next((kind for magic, kind in _BEGINNINGS.items() if begins.startswith(magic)), None)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)
