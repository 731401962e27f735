"""Files written completely or not at all, and JSON with a checksum in them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class MismatchError(ValueError):
    """What was passed does not fit a file, or is missing beside it; the file itself is intact."""


def check_place(path: Path) -> Path:
    """Return where a file will be written; refuse a folder, and a file in a folder that does not exist."""
    target = path.resolve()  # the target of a link is replaced, not the link
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it, such as {path / 'core.parquet'}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {target.parent}; create it first")
    return target


@contextmanager
def naming(target: str) -> Iterator[None]:
    """Name the target in an error of writing that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = target
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` at the end, and is removed after an error."""
    target = check_place(path)
    temporary = target.parent / f".duramen-{secrets.token_hex(8)}.tmp"
    try:
        with naming(str(path)), temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reading(path: Path, way_out: str, why: str = "") -> Iterator[None]:
    """Say that a file is damaged after any error but a mismatch, for a reason or that of the error."""
    try:
        yield
    except MismatchError as error:
        raise ValueError(f"{path} {error}") from None
    except Exception as error:  # a damaged file may fail in any way
        missing = f"{error} is missing in its metadata" if isinstance(error, KeyError) else str(error)
        why = why or missing.partition("\n")[0]
        raise ValueError(f"{path} is damaged: {why}; copy it again, or {way_out}") from None


def checksum(state: Mapping[str, Any], arrays: Iterable[Any] = ()) -> int:
    """Compute the CRC-32 of JSON types, apart from a checksum among them, and of arrays."""
    content = {name: part for name, part in state.items() if name != "crc32"}
    total = zlib.crc32(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for array in arrays:
        total = zlib.crc32(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(), total)
    return total


def json_types(value: Any, what: str) -> Any:
    """Return a value as JSON will return it; raise TypeError or ValueError if JSON cannot hold it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"JSON cannot hold {what} ({error}); pass finite numbers, strings, lists and dicts of them"
        ) from None
