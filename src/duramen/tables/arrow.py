"""pyarrow, where it is needed: its import, its errors, its batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duramen.extras import needed
from duramen.tables.names import shortened

__all__ = ["arrow", "readable", "rebatched", "skipping"]


def arrow(part: str) -> Any:
    """Import a part of pyarrow, or say what to install."""
    return needed(f"pyarrow.{part}" if part else "pyarrow", "reading this file", "frames")


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into one ValueError that names the file."""
    pa = arrow("")
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
            raise
        raise ValueError(
            f"{path} is damaged, cut short, or not {what}: {shortened(str(error), 160)}"
        ) from error


def skipping(pieces: Iterable[tuple[Any, float]], n_rows: int) -> Iterator[tuple[Any, float]]:
    """Leave out the first ``n_rows`` rows of record batches."""
    for piece, done in pieces:
        if piece.num_rows > n_rows:
            yield piece.slice(n_rows), done
        n_rows = max(0, n_rows - piece.num_rows)


def rebatched(pieces: Iterable[tuple[Any, float]], n_rows: int) -> Iterator[tuple[Any, float]]:
    """Regroup record batches, each with the share of the file read, into Arrow tables of ``n_rows`` rows.

    Nothing is copied; what is left at the end comes as one shorter table.
    """
    pa = arrow("")
    waiting: list[Any] = []
    count = 0
    for rest, done in pieces:
        while count + rest.num_rows >= n_rows:
            waiting.append(rest.slice(0, n_rows - count))
            rest = rest.slice(n_rows - count)
            full, waiting, count = waiting, [], 0
            yield pa.Table.from_batches(full), done
            del full
        if rest.num_rows:
            waiting.append(rest)
            count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting), 1.0
