"""What commands read: tables through an encoding, coreset files, and stores."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.cli.options import (
    BUILDING,
    CLASSIFIERS,
    check_loss,
    check_same_loss,
    check_source,
    column_settings,
    make_loss,
    name_of,
    refuse_options,
    sampling_settings,
)
from duramen.cli.output import Output, bar, fields_of, naming
from duramen.coreset.coreset import Coreset
from duramen.coreset.save import load_coreset, write
from duramen.extras import needed
from duramen.points import WeightedPoints, is_names, numbers_of
from duramen.progress import Bar
from duramen.store.store import open_store

if TYPE_CHECKING:
    from duramen.io import Encoding
    from duramen.losses import Loss

_KINDS = {"store": "store", "core": "coreset", "model": "model"}
_MOST_IDS = 20_000_000  # ids that are compared over batches: 160 MB; further ones are not checked
_MOST_CLASSES = 1000  # labels with more values are measurements


def kind_of(source: Path) -> str:
    """Return what a file is: a "store", a "core", a "model", or "data"."""
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


def open_data(path: Path) -> Any:
    """Open a table; refuse our own files, which as tables would be read as nonsense."""
    from duramen.io import open_table

    kind = kind_of(path)
    if kind != "data":
        raise ValueError(f"{path} is a {_KINDS[kind]}, but data are needed here; name the file with the rows")
    return open_table(path)


class DataFile(NamedTuple):
    """A table, how its columns become numbers, and where progress is shown."""

    table: Any
    encoding: Encoding
    output: Output

    def passes(self, shown: Bar, what: str) -> Callable[[], Iterator[WeightedPoints]]:
        """Return what starts a pass over all points and moves the bar; the first refuses duplicate ids."""
        numbers = itertools.count(1)

        def begin() -> Iterator[WeightedPoints]:
            number, n = next(numbers), 0
            checked = number == 1 and self.encoding.id is not None
            ids = np.empty(_MOST_IDS if checked else 0, dtype=np.int64)  # takes memory where it is written
            shown.begin(f"{what}, pass {number}")
            for batch, rows in self.encoding.read(self.table):
                its = id_numbers(rows.ids, batch)
                some = its[: len(ids) - n]
                ids[n : n + len(some)] = some
                n += len(some)
                try:
                    points = WeightedPoints(rows.X, rows.y, rows.weights, its)
                except ValueError:
                    self._refuse_duplicates(np.sort(its))  # with their places in the file
                    raise
                yield points
                advance(shown, batch)
            ids[:n].sort()
            self._refuse_duplicates(ids[:n])

        return begin

    def all_points(self) -> WeightedPoints:
        """Read the whole table into memory."""
        with bar(self.output, "reading") as shown:
            parts = list(self.passes(shown, "reading")())
        if not parts:
            raise ValueError(f"{self.table.path} has no rows")
        return WeightedPoints.concat(parts)

    def names_of(self, numbers: Any) -> dict[int, str] | None:
        """Look up ids that are text by their numbers, in one more pass; None where ids are numbers."""
        if self.encoding.id is None or not self.encoding.text_ids:
            return None
        return {number: name for number, name, _, _ in self._find(numbers)}

    def _find(self, wanted: Any) -> Iterator[tuple[int, Any, Any, int]]:
        """Find rows by the numbers of their ids: yield number, id, batch and row."""
        with bar(self.output, "looking up ids") as shown:
            for batch in self.table.batches(columns=[self.encoding.id]):
                column = batch.column(self.encoding.id)
                ids = column.words() if self.encoding.text_ids else column.whole().tolist()
                numbers = id_numbers(ids, batch)
                for row in np.flatnonzero(np.isin(numbers, wanted)).tolist():
                    yield int(numbers[row]), ids[row], batch, row
                advance(shown, batch)

    def _refuse_duplicates(self, ids: Array) -> None:
        """Refuse sorted ids of which one occurs twice; the message names both rows."""
        again = np.flatnonzero(ids[1:] == ids[:-1])
        if again.size:
            found = list(itertools.islice(self._find(ids[again[0]]), 2))
            places = " and in ".join(batch.place(row) for _, _, batch, row in found)
            raise ValueError(
                f"{self.table.path}: id {found[0][1]!r} (column {self.encoding.id!r}) is in {places}; "
                "ids must be distinct: correct them, or leave --id out"
            )


def learn_data(
    path: Path, settings: dict[str, Any], output: Output, loss: str = "", n_classes: int | None = None
) -> DataFile:
    """Open a table and learn how its columns become numbers; and its classes, if the loss has classes."""
    from duramen.io import learn_encoding

    table = open_data(path)
    with bar(output, "looking at the columns") as shown:
        encoding = learn_encoding(table, **settings, each=lambda batch: advance(shown, batch))
    if loss and encoding.label is not None:
        learn = _with_classes if loss in CLASSIFIERS else _with_numbers
        encoding = learn(table, encoding, loss, n_classes, output)
    return DataFile(table, encoding, output)


def read_data(
    path: Path, encoding: Encoding | None, settings: dict[str, Any], output: Output, loss: Loss
) -> DataFile:
    """Open a table with an encoding, or learn one where there is none yet."""
    if encoding is None:
        return learn_data(path, settings, output, name_of(loss), getattr(loss, "n_classes", None))
    return DataFile(open_data(path), encoding, output)


def _with_classes(table: Any, encoding: Any, loss: str, n_classes: int | None, output: Output) -> Encoding:
    """Learn the classes of labels that are numbers; refuse one class only, too many, and not ``n_classes``.

    The losses of two classes take 0 and 1, or -1 and 1, as they are.
    """
    if encoding.classes is None:
        found = _distinct_labels(table, encoding.label, output)
        if loss != "softmax" and (set(found) <= {0, 1} or set(found) <= {-1, 1}):
            return encoding
        from duramen.io.encoding import Choice

        encoding = replace(encoding, label_choice=Choice(encoding.label, "number", tuple(found)))
    label, classes = f"{table.path.name}: the label {encoding.label!r}", encoding.classes
    if loss != "softmax" and len(classes) > 2:
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


def _with_numbers(table: Any, encoding: Any, loss: str, *_: Any) -> Encoding:
    """Take labels as numbers: true as 1, categories that are numbers by their values; refuse text."""
    choice = encoding.label_choice
    if choice is not None and choice.of == "text":
        where = table.why_text(encoding.label) or f" ({choice.categories[0]!r})"
        raise ValueError(
            f"{table.path}: the label {encoding.label!r} holds text{where}, but --loss {loss} needs numbers; "
            "correct it (decimals take a point), or use a loss for classes, such as --loss logistic"
        )
    return replace(encoding, label_choice=None)


def _distinct_labels(table: Any, label: str, output: Output) -> list[Any]:
    """Find the distinct labels, in one pass over their column."""
    found: set[float] = set()
    with bar(output, "looking at the labels") as shown:
        for batch in table.batches(columns=[label]):
            values = np.asarray(batch.column(label).numbers(), dtype=np.float64)
            found |= set(np.unique(values[np.isfinite(values)]).tolist())  # others are refused later, by row
            if len(found) > _MOST_CLASSES:
                raise ValueError(
                    f"{table.path.name}: the label {label!r} has more than {_MOST_CLASSES:,} values, too "
                    "many for classes; use a loss for numbers, such as --loss huber"
                )
            advance(shown, batch)
    return [int(one) if one.is_integer() else one for one in sorted(found)]


def advance(shown: Bar, batch: Any) -> None:
    """Move a bar to the end of a batch."""
    shown.at(batch.done, batch.first + len(batch))


def id_numbers(ids: Any, batch: Any) -> Array:
    """Return ids as numbers: text by its hash, and where there are none, row numbers."""
    if ids is None:
        return np.arange(batch.first, batch.first + len(batch), dtype=np.int64)
    return numbers_of(ids) if is_names(ids) else np.asarray(ids)


def place_in_file(text: str, batch: Any) -> str:
    """Turn the number of a row in a batch, in an error message, into its place in the file."""
    return re.sub(r"\brow (\d+)", lambda found: str(batch.place(int(found[1]))), text)


@contextmanager
def options_of(command: str) -> Iterator[None]:
    """Add to advice that names options which command takes them."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError or " (--" not in str(error):
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
    """Save a coreset; JSON with its encoding and names, and a checksum, is a further key of the metadata."""
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
        raise _damaged(path, "its encoding is not what was saved (the checksum differs)")
    names = state["names"]
    named = None if names is None else {int(number): str(name) for number, name in names.items()}
    return CoreFile(core, read_encoding(state["encoding"]), named)


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; copy it again, or build it again")


def read_encoding(state: dict[str, Any] | None) -> Encoding | None:
    """Read an encoding from JSON's types, if there is one."""
    from duramen.io import Encoding

    return None if state is None else Encoding.from_json(state)


def checksum(state: dict[str, Any]) -> int:
    """Compute the CRC-32 of JSON's types."""
    return zlib.crc32(json.dumps(state, sort_keys=True, allow_nan=False).encode())


def build_core(path: Path, options: Namespace) -> CoreFile:
    """Build the coreset of a file, as the options say."""
    from duramen.coreset.build import streamed_coreset

    data = learn_data(path, column_settings(options), options.talk, options.loss, options.classes)
    loss = make_loss(options, data.encoding.classes)
    with bar(options.talk, "building") as shown:
        core = streamed_coreset(
            data.passes(shown, "building"),
            loss=loss,
            columns=data.encoding.names,
            **sampling_settings(options),
        )
    return CoreFile(core, data.encoding, data.names_of(core.ids))


def load_core(path: Path, options: Namespace) -> tuple[str, CoreFile]:
    """Load the coreset of a file or of a store, or build that of data; return which kind it was, too."""
    kind = kind_of(path)
    if kind == "model":
        raise ValueError(f"{path} is a model, fitted already; use it with duramen predict")
    if kind == "data":
        if options.loss is None:
            raise ValueError(f"{path} is data, which needs a loss; pass --loss, such as --loss logistic")
        check_loss(options)
        return kind, build_core(path, options)
    refuse_options(options, BUILDING, f"{path} is a {_KINDS[kind]}, which has its columns and size")
    if kind == "core":
        file = read_core(path)
    else:
        with open_store(path, read_only=True) as store:
            file = core_of(store)
    check_same_loss(options, file.core.loss, path)
    return kind, file


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
