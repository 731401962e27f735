"""What commands read: tables through an encoding, coreset files, and stores."""

from __future__ import annotations

import json
import zlib
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from duramen.cli.options import (
    CLASSIFIERS,
    check_source,
    column_settings,
    make_loss,
    name_of,
    sampling_settings,
)
from duramen.cli.output import Output, bar, fields_of, naming
from duramen.coreset.coreset import Coreset
from duramen.coreset.save import load_coreset, write
from duramen.errors import RowError
from duramen.extras import needed
from duramen.io.opening import is_pattern
from duramen.io.scan import Scan, TableSource
from duramen.progress import Bar

if TYPE_CHECKING:
    from duramen.io import Encoding, Table
    from duramen.losses import Loss

KINDS = {"store": "store", "core": "coreset", "model": "model"}


def kind_of(source: Path) -> str:
    """Return what a file is: a "store", a "core", a "model", or "data", as are a folder and a pattern."""
    if source.is_dir() or is_pattern(source):
        return "data"
    check_source(source)
    with source.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"SQLite format 3\0"):
        return "store"
    if head.startswith(b"{") and b'"duramen model"' in head:
        return "model"
    return "core" if head.startswith(b"PAR1") and _holds_coreset(source) else "data"


def _holds_coreset(source: Path) -> bool:
    pa = needed("pyarrow", "reading Parquet", "frames")
    parquet = needed("pyarrow.parquet", "reading Parquet", "frames")
    try:
        return b"duramen" in (parquet.read_schema(source).metadata or {})
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{source} is a damaged Parquet file: {why}; copy or write it again") from None


def open_data(path: Path) -> Table:
    """Open a table; refuse duramen's own files, which are not tables of rows."""
    from duramen.io import open_table

    kind = kind_of(path)
    if kind != "data":
        raise ValueError(f"{path} is a {KINDS[kind]}, but data are needed here; name the file with the rows")
    return open_table(path)


def learn_data(
    path: Path, settings: dict[str, Any], output: Output, loss: str = "", n_classes: int | None = None
) -> TableSource:
    """Open a table and learn how its columns become numbers; and its classes, if the loss has classes."""
    from duramen.io import learn_encoding

    table, classifies = open_data(path), loss in CLASSIFIERS
    with bar(output, "inspecting the columns") as shown:
        encoding = learn_encoding(
            table, **settings, each=lambda batch: advance(shown, batch), classes=classifies
        )
    if loss and encoding.label is not None:
        check = _check_classes if classifies else _with_numbers
        encoding = check(table, encoding, loss, n_classes)
    return TableSource(table, encoding)


def read_data(
    path: Path, encoding: Encoding | None, settings: dict[str, Any], output: Output, loss: Loss
) -> TableSource:
    """Open a table with an encoding, or learn one where there is none yet."""
    if encoding is None:
        return learn_data(path, settings, output, name_of(loss), getattr(loss, "n_classes", None))
    return TableSource(open_data(path), encoding)


def _check_classes(table: Table, encoding: Encoding, loss: str, n_classes: int | None) -> Encoding:
    """Refuse a single class, too many, or a number other than ``n_classes``.

    The losses of two classes take 0 and 1, or -1 and 1, as they are.
    """
    choice = encoding.label_choice
    assert choice is not None
    classes, label = choice.categories, f"{table.path.name}: the label {encoding.label!r}"
    if loss != "softmax":
        if choice.of == "number" and (set(classes) <= {0, 1} or set(classes) <= {-1, 1}):
            return replace(encoding, label_choice=None)
        if len(classes) > 2:
            raise ValueError(
                f"{label} has {len(classes)} classes, but --loss {loss} is for two; use --loss softmax"
            )
    if len(classes) < 2:
        raise ValueError(
            f"{label} is {', '.join(map(repr, classes))} in every row, but --loss {loss} needs at least two "
            "classes; learn from a file that has them all"
        )
    if n_classes is not None and len(classes) != n_classes:
        raise ValueError(
            f"{label} has {len(classes)} classes, but {n_classes} were expected; learn from a file that has "
            "them all, or correct --classes"
        )
    return encoding


def _with_numbers(table: Table, encoding: Encoding, loss: str, *_: Any) -> Encoding:
    """Take labels as numbers: true as 1, categories that are numbers by their values; refuse text."""
    choice = encoding.label_choice
    if choice is not None and choice.of == "text":
        where = table.why_text(choice.name) or f" ({choice.categories[0]!r})"
        raise ValueError(
            f"{table.path}: the label {encoding.label!r} holds text{where}, but --loss {loss} needs numbers; "
            "correct it (decimals take a point), or use a loss for classes, such as --loss logistic"
        )
    return replace(encoding, label_choice=None)


def advance(shown: Bar, batch: Any) -> None:
    """Move a bar to the end of a batch."""
    shown.at(batch.done, batch.first + len(batch))


@contextmanager
def options_of(command: str) -> Iterator[None]:
    """Append the command that takes them to advice about options."""
    try:
        yield
    except ValueError as error:
        if type(error) not in (ValueError, RowError) or " (--" not in str(error):
            raise
        raise ValueError(f"{error}; these are options of {command}") from error


class CoreFile(NamedTuple):
    """A coreset, the encoding of its columns, and the ids of its rows if these are text."""

    core: Coreset
    encoding: Encoding | None = None
    names: dict[int, str] | None = None

    def name_of(self, number: int) -> int | str:
        """Return the id of a row as in the data."""
        return number if self.names is None else self.names.get(number, number)


_FORMAT = 1
_KEY = "duramen-encoding"


def write_core(path: Path, file: CoreFile) -> None:
    """Save a coreset; a further metadata key holds its encoding and names as JSON, with a checksum."""
    encoding = None if file.encoding is None else file.encoding.to_json()
    names = None if file.names is None else {str(number): name for number, name in file.names.items()}
    state = {"format": _FORMAT, "encoding": encoding, "names": names}
    text = json.dumps({**state, "crc32": checksum(state)}, allow_nan=False)
    with naming(str(path)):
        write(file.core, path, **{_KEY: text.encode()})


def read_core(path: Path) -> CoreFile:
    """Load a coreset, and its encoding where the file has one; refuse damage and newer formats."""
    core = load_coreset(path)
    parquet = needed("pyarrow.parquet", "reading a coreset", "frames")
    limit = max(path.stat().st_size, 1)
    text = parquet.ParquetFile(path, thrift_string_size_limit=limit).schema_arrow.metadata.get(_KEY.encode())
    if text is None:
        return CoreFile(core)
    try:
        state = dict(json.loads(text))
        form, crc32 = int(state["format"]), state.pop("crc32")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"its encoding cannot be read ({error})") from None
    if form > _FORMAT:
        raise ValueError(
            f"{path}: its encoding has format {form}, newer than this library reads; upgrade duramen"
        )
    if crc32 != checksum(state):
        raise _damaged(path, "its encoding differs from what was saved (checksum mismatch)")
    names = state["names"]
    named = None if names is None else {int(number): str(name) for number, name in names.items()}
    return CoreFile(core, read_encoding(state["encoding"]), named)


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; copy it again, or build it again")


def read_encoding(state: dict[str, Any] | None) -> Encoding | None:
    """Read an encoding from JSON types, if there is one."""
    from duramen.io import Encoding

    return None if state is None else Encoding.from_json(state)


def checksum(state: dict[str, Any]) -> int:
    """Compute the CRC-32 of JSON types."""
    return zlib.crc32(json.dumps(state, sort_keys=True, allow_nan=False).encode())


def build_core(path: Path, options: Namespace) -> CoreFile:
    """Build the coreset of a file as the options specify."""
    from duramen.coreset.build import robust_coreset

    data = learn_data(path, column_settings(options), options.talk, options.loss, options.classes)
    loss = make_loss(options, data.classes)
    with bar(options.talk, "building") as shown:
        rows = Scan(data, shown.at_pass)
        core = robust_coreset(rows, loss=loss, **sampling_settings(options))
        named = zip(core.ids.tolist(), rows.names_of(core.ids), strict=True) if data.encoding.text_ids else ()
    return CoreFile(core, data.encoding, dict(named) or None)


def core_of(store: Any) -> CoreFile:
    """Return the coreset of an open store, with its encoding and the names of its rows."""
    core, encoding = store.coreset(), read_encoding(store.notes.get("encoding"))
    names = names_in(store, core.ids)
    if encoding is not None:
        core = replace(core, columns=tuple(encoding.names))
    return CoreFile(core, encoding, names)


def names_in(store: Any, ids: Iterable[int]) -> dict[int, str] | None:
    """Return the names of points of a store; None where ids are numbers."""
    numbers = [int(one) for one in ids]
    try:
        return dict(zip(numbers, map(str, store.names_of(numbers)), strict=True))
    except KeyError:
        return None


def core_facts(core: Coreset) -> dict[str, Any]:
    """Return the JSON fields about a coreset."""
    names = ("n_points", "total_weight", "n_outliers", "n_suspected", "threshold", "sampler", "calibrated")
    facts = fields_of(core, *names)
    return {"loss": repr(core.loss), "n_rows": len(core), "n_columns": core.points.n_columns, **facts}
