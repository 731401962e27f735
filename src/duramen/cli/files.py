"""Files on the command line: where results may be written, and what a given file is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["check_data", "check_source", "check_target", "kind_of"]

NAMES = {"store": "store", "core": "coreset", "model": "model", "data": "data"}
_SQLITE = b"SQLite format 3\0"
_PARQUET = b"PAR1"
_MODEL = b'"duramen model"'


def check_target(
    target: Path, *, force: bool | None, inputs: Iterable[Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Refuse an output that cannot be written, before anything takes time.

    Raises
    ------
    ValueError, OSError
        If there is no such folder, nothing can be written there, the file
        exists (unless ``force``; None where nothing is ever replaced), or is one of the inputs.
    """
    folder = target.absolute().parent
    if suffixes and target.suffix.lower() not in suffixes:
        raise ValueError(f"-o {target} must end in {' or '.join(suffixes)}, which is what is written")
    if target.is_dir():
        raise IsADirectoryError(f"-o {target} is a folder; name a file in it")
    if not folder.is_dir():
        raise FileNotFoundError(f"-o {target}: there is no folder {target.parent}; make it first")
    if target.exists():
        for one in inputs:
            if one.exists() and one.samefile(target):
                raise ValueError(f"-o {target} is a file that is read; name another")
        if not force:
            way_out = "name another" if force is None else "pass --force to replace it, or name another"
            raise FileExistsError(f"-o {target} exists; {way_out}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"-o {target}: nothing can be written to that folder; name another")


def check_source(source: Path) -> None:
    """Refuse an input that is not there, or is a folder."""
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder; name a file in it")
    if not source.exists():
        raise FileNotFoundError(f"{source}: there is no such file")


def check_data(source: Path) -> None:
    """Refuse what is no data: one of our own files, as a table, would be read as nonsense."""
    kind = kind_of(source)
    if kind != "data":
        raise ValueError(f"{source} is a {NAMES[kind]}, where data are needed; name the file with the rows")


def kind_of(source: Path) -> str:
    """Tell what a file is: a "store", a "core", a "model", or "data"."""
    check_source(source)
    with source.open("rb") as file:
        head = file.read(64)
    if head.startswith(_SQLITE):
        return "store"
    if head.startswith(b"{") and _MODEL in head:
        return "model"
    return "core" if head.startswith(_PARQUET) and _holds_core(source) else "data"


def _holds_core(source: Path) -> bool:
    from duramen.extras import needed

    pa = needed("pyarrow", "reading Parquet", "frames")
    parquet = needed("pyarrow.parquet", "reading Parquet", "frames")
    try:
        return b"duramen" in (parquet.read_schema(source).metadata or {})
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"{source} is a damaged Parquet file: {why}; copy or write it again") from None
