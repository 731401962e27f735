"""Coreset files that remember how columns became numbers.

:meth:`duramen.Coreset.save` writes the coreset; beside its metadata, under a key of
its own, goes JSON with the encoding and the names of rows whose ids are text,
and a checksum of that. ``duramen.load_coreset`` reads such a file like any other.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from duramen.cli.output import naming
from duramen.coreset import Coreset, load_coreset
from duramen.extras import needed
from duramen.files import replacing

if TYPE_CHECKING:
    from duramen.io import Encoding

__all__ = ["CoreFile", "read_core", "write_core"]

FORMAT = 1
_KEY = b"duramen-encoding"


class CoreFile(NamedTuple):
    """A coreset, the encoding of its columns, and the names of its rows; None where there are none."""

    core: Coreset
    encoding: Encoding | None = None
    names: dict[int, str] | None = None

    def name_of(self, number: int) -> int | str:
        """Give the id of a row as the data have it."""
        return number if self.names is None else self.names.get(number, number)


def write_core(path: Path, file: CoreFile) -> None:
    """Save a coreset with its encoding; an existing file is replaced when all is written."""
    parquet = needed("pyarrow.parquet", "writing a coreset", "frames")
    encoding = None if file.encoding is None else file.encoding.to_json()
    names = None if file.names is None else {str(number): name for number, name in file.names.items()}
    state = {"format": FORMAT, "encoding": encoding, "names": names}
    text = json.dumps({**state, "crc32": _checksum(state)}, allow_nan=False)
    with naming(str(path)), replacing(path) as target:
        import tempfile

        with tempfile.TemporaryDirectory(dir=path.resolve().parent, prefix=".duramen-") as folder:
            file.core.save(Path(folder) / "core.parquet")
            table = parquet.read_table(Path(folder) / "core.parquet")
        table = table.replace_schema_metadata({**table.schema.metadata, _KEY: text.encode()})
        parquet.write_table(table, target, compression="zstd", use_dictionary=False)


def read_core(path: Path) -> CoreFile:
    """Load a coreset, and its encoding where the file has one.

    Raises
    ------
    ValueError
        If either is damaged, or newer than this library.
    """
    core = load_coreset(path)
    parquet = needed("pyarrow.parquet", "reading a coreset", "frames")
    limit = max(path.stat().st_size, 1)
    text = parquet.ParquetFile(path, thrift_string_size_limit=limit).schema_arrow.metadata.get(_KEY)
    if text is None:
        return CoreFile(core)
    try:
        state = dict(json.loads(text))
        form, said = int(state["format"]), state.pop("crc32")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"its encoding cannot be read ({error})") from None
    if form > FORMAT:
        raise ValueError(
            f"{path}: its encoding has format {form}, newer than this library reads; upgrade duramen"
        )
    if said != _checksum(state):
        raise _damaged(path, "its encoding is not what was saved (the checksum differs)")
    return CoreFile(core, _encoding(state["encoding"]), _names(state["names"]))


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; copy it again, or build it again")


def _encoding(state: Any) -> Encoding | None:
    from duramen.io import Encoding

    return None if state is None else Encoding.from_json(state)


def _names(state: Any) -> dict[int, str] | None:
    return None if state is None else {int(number): str(name) for number, name in state.items()}


def _checksum(state: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True, allow_nan=False).encode())
