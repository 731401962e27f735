"""Coresets in Parquet files: written whole or not at all, checked when read.

The rows are columns that any Parquet reader shows (:mod:`duramen.coreset.arrow`).
All else is JSON in the file's metadata under the key "duramen"
(:mod:`duramen.coreset.state`), with the number of this format in it.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.coreset.arrow import checksum, row_fields, row_state, table_of
from duramen.coreset.state import LossMismatchError, anchor_of, check_loss, known_fields, known_state, loss_of
from duramen.extras import needed
from duramen.files import replacing

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = ["FORMAT", "read", "write"]

FORMAT = 1
_KEY = b"duramen"
_MAGIC = b"PAR1"  # how a Parquet file begins and ends


def write(core: Coreset, path: Any) -> None:
    """Save a coreset; an existing file is replaced only when all is written."""
    parquet = needed("pyarrow.parquet", "Coreset.save", "frames")
    state = {
        "format": FORMAT,
        "version": version("duramen"),
        **row_state(core),
        **known_state(core),
    }
    beside = [core.suspected, core.own_weights, core.inclusion, core.groups]
    state["crc32"] = checksum(core.points, beside, _text(state))
    table = table_of(core, state).replace_schema_metadata({_KEY: _text(state).encode()})
    with replacing(Path(path)) as file:
        # numbers that hardly repeat gain nothing by a dictionary
        parquet.write_table(table, file, compression="zstd", use_dictionary=False)


def read(path: Any, loss: Any) -> dict[str, Any]:
    """Read the fields of a coreset, or say in one ValueError what is wrong with the file."""
    check_loss(loss)
    source = Path(path)
    table = _read_table(source)
    state = _read_state(source, table)
    try:
        rows = row_fields(table, state)
        _check_sum(state, rows)
        anchor = anchor_of(state["anchor"])
        problem = loss_of(state["loss"], loss, anchor, rows["points"].n_columns)
        return {**rows, **known_fields(state), "anchor": anchor, "loss": problem}
    except LossMismatchError as error:
        raise ValueError(f"{source} {error}") from None
    except KeyError as error:
        raise _damaged(source, f"it does not say {error}") from None
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise _damaged(source, str(error)) from None


def _read_table(source: Path) -> Any:
    pa = needed("pyarrow", "load_coreset", "frames")
    parquet = needed("pyarrow.parquet", "load_coreset", "frames")
    raw = source.read_bytes()  # what the file system has to say comes first, and as it is
    if not raw.startswith(_MAGIC):
        raise ValueError(f"{source} is not a Parquet file; load_coreset reads what Coreset.save wrote")
    if not raw.endswith(_MAGIC) or len(raw) < 12:
        raise ValueError(
            f"{source} was cut short: it begins as a Parquet file and does not end as one; "
            "copy it again, or save the coreset again"
        )
    try:
        # an anchor may be large, but no text in a file is larger than the file
        return parquet.ParquetFile(pa.BufferReader(raw), thrift_string_size_limit=len(raw)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(source, str(error).partition("\n")[0]) from None


def _read_state(source: Path, table: Any) -> dict[str, Any]:
    """Read the metadata, and refuse what this library does not know."""
    text = (table.schema.metadata or {}).get(_KEY)
    if text is None:
        raise ValueError(
            f"{source} is a Parquet file, but holds no coreset; load_coreset reads what Coreset.save wrote, "
            "and dm.robust_coreset makes a coreset of data"
        )
    try:
        state = json.loads(text)
        form = int(state["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(source, f"its metadata cannot be read ({type(error).__name__})") from None
    if form > FORMAT:
        raise ValueError(
            f"{source}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    return dict(state)


def _check_sum(state: dict[str, Any], rows: dict[str, Any]) -> None:
    beside = [rows[name] for name in ("suspected", "own_weights", "inclusion", "groups")]
    said = {name: part for name, part in state.items() if name != "crc32"}
    if checksum(rows["points"], beside, _text(said)) != state["crc32"]:
        raise ValueError("its content is not what was saved (the checksum differs)")


def _damaged(source: Path, why: str) -> ValueError:
    return ValueError(f"{source} is damaged: {why}; copy it again, or save the coreset again")


def _text(state: dict[str, Any]) -> str:
    return json.dumps(state, sort_keys=True, allow_nan=False)
