"""Open a file, a folder or a pattern as one table; NumPy's archives are read here, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.extras import needed
from duramen.io.tables import File, Piece, Table, check_names, kind_named
from duramen.text import shorten

FORMATS = (
    "Parquet (.parquet, .pq), CSV or TSV (.csv, .tsv, also .gz), "
    "Arrow or Feather (.arrow, .ipc, .feather), NumPy (.npz)"
)
"""The formats, for a message."""

_FORMATS: dict[str, Any] = {  # the ends of files' names, and the bytes that files begin with
    "csv": ((".csv", ".csv.gz"), ()),
    "tsv": ((".tsv", ".tab", ".tsv.gz", ".tab.gz"), ()),
    "parquet": ((".parquet", ".pq", ".parq"), b"PAR1"),
    "arrow": ((".arrow", ".arrows", ".ipc", ".feather"), (b"ARROW1", b"\xff\xff\xff\xff")),
    "npz": (".npz", (b"PK\x03\x04", b"PK\x05\x06")),
}


def open_table(path: Any) -> Table:
    """Open a file of rows and named columns, to be read in batches.

    Parquet, CSV and TSV (also compressed by gzip), Arrow IPC files and streams, Feather, and
    NumPy's .npz. The format follows from the suffix, or from the first bytes. All
    but .npz need pyarrow (``pip install 'duramen[frames]'``). A folder stands for its Parquet files, or
    else for those of the first other format that it has, a pattern such as ``part-*.csv`` or
    ``2026/**/*.parquet`` for the files that match it; both are read in order of their names, a list in its
    own order. All files must have the same columns.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "data.npz"
    >>> np.savez(file, X=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1]))
    >>> table = open_table(file)
    >>> table
    <Table data.npz: 3 rows, 3 columns>
    >>> [len(batch) for batch in table.batches(n_rows=2)]
    [2, 1]
    """
    if isinstance(path, (list, tuple)):
        if not path:
            raise ValueError("the list of files is empty; name at least one")
        source, files = Path(f"{path[0]} and {len(path) - 1} more"), [*map(Path, path)]
    else:
        source = Path(path)
        files = [source]
        if source.is_dir():
            files = _files_in(source)
        elif is_pattern(source):
            files = _matching(source)
        if not files:
            raise FileNotFoundError(f"no files match {source}; put names that contain *, ? or [ into a list")
    parts = [_open_file(file) for file in files]
    if len({part.column_type for part in parts}) > 1:
        raise ValueError(f"{source}: text files, .npz files and files of other formats cannot be one table")
    return Table(files[0] if len(files) == 1 else source, parts)


def is_pattern(source: Path) -> bool:
    """Return whether a path is not a file, but a pattern for several."""
    return bool(set(str(source)) & set("*?[")) and not source.exists()


def _files_in(folder: Path) -> list[Path]:
    """List the Parquet files in a folder, or else those of the first other format that it has."""
    files = _matching(Path(escape(str(folder))) / "*")
    for kind in ("parquet", *_FORMATS):
        found = [file for file in files if file.name.lower().endswith(_FORMATS[kind][0])]
        if found:
            return found
    raise FileNotFoundError(f"the folder {folder} has no files of a known format; these are {FORMATS}")


def _matching(pattern: Path) -> list[Path]:
    """List the files that match a pattern, without what Spark writes beside the data, such as _SUCCESS."""
    found = sorted(map(Path, glob(str(pattern), recursive=True)))  # noqa: PTH207 (folders may have patterns too)
    named = pattern.name.startswith("_")  # names that begin with a dot are left out by glob
    return [file for file in found if file.is_file() and (named or not file.name.startswith("_"))]


def _open_file(path: Path) -> File:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name its files, or the folder alone")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    kind = format_of(path)
    if kind is None:
        raise ValueError(f"{path} has no known suffix or content; the formats are {FORMATS}")
    if kind == "npz":
        return Archive(path)
    needed("pyarrow", "reading this file", "frames")
    from duramen.io.arrow import READERS

    return READERS[kind](path)


def format_of(path: Path) -> str | None:
    """Return which of the formats of :func:`open_table` a file has, if any."""
    with path.open("rb") as file:
        begin = file.read(8)
    for kind, (suffixes, beginnings) in _FORMATS.items():
        if path.name.lower().endswith(suffixes) or begin.startswith(beginnings):
            return kind
    return None


class Archive(File):
    """An archive of arrays, which are loaded when it is opened; nothing is unpickled.

    The columns of a two-dimensional array are called x0, x1, ...; a one-dimensional array is a column.
    """

    what = "a .npz file of numbers and text (objects are not unpickled)"

    def _open(self) -> None:
        with self._readable(Exception), self.path.open("rb") as file:
            arrays: dict[str, Array] = dict(np.load(file, allow_pickle=False))
        columns: list[tuple[str, Array]] = []
        for name, array in arrays.items():
            if array.ndim == 1:
                columns.append((name, array))
            elif array.ndim:
                columns += ((f"x{place}", column) for place, column in enumerate(array.T))
        check_names(self.path, [name for name, _ in columns])
        self._columns, self.n_rows = dict(columns), len(columns[0][1])
        if {column.shape for _, column in columns} != {(self.n_rows,)}:
            shapes = shorten({name: array.shape for name, array in arrays.items()})
            raise ValueError(
                f"{self.path}: arrays need one or two dimensions, and the same number of rows; found {shapes}"
            )
        self.kinds = {name: kind_named(column.dtype.name) for name, column in columns}

    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        yield {name: self._columns[name] for name in columns}
