"""What commands read and write: tables through an encoding, coresets of files and stores, and models.

A model is JSON with all that is needed to predict from a file; its fields are listed in
docs/command-line.md. A checksum detects damage; remove it to edit a model by hand.
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.cli.options import LOSSES, check_source, column_settings, make_loss, sampling_settings
from duramen.cli.output import Output, bar, fields_of, naming, plain
from duramen.coreset.coreset import Coreset
from duramen.coreset.save import load_coreset, loss_of, loss_state
from duramen.extras import needed
from duramen.files import checksum, replacing
from duramen.io.opening import is_pattern
from duramen.io.scan import Scan, TableSource
from duramen.progress import Bar

if TYPE_CHECKING:
    from duramen.arrays import Array, Rows
    from duramen.coreset.estimate import Estimate
    from duramen.io import Encoding, Table
    from duramen.losses import Loss
    from duramen.solvers.problem import Solution

KINDS = {"store": "store", "core": "coreset", "model": "model"}
_FORMAT, _VERSION = "duramen model", 1


def kind_of(source: Path) -> str:
    """Return what a file is: a "store", a "core", a "model", or "data", as are a folder and a pattern."""
    if source.is_dir() or is_pattern(source):
        return "data"
    check_source(source)
    with source.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"SQLite format 3\0"):
        return "store"
    if head.startswith(b"{") and _FORMAT.encode() in head:
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


# data


def open_data(path: Path) -> Table:
    """Open a table; refuse duramen's own files, which are not tables of rows."""
    from duramen.io import open_table

    kind = kind_of(path)
    if kind != "data":
        raise ValueError(f"{path} is a {KINDS[kind]}, but data are needed here; name the file with the rows")
    return open_table(path)


def learn_data(
    path: Path,
    settings: dict[str, Any],
    output: Output,
    loss: type[Loss] | None = None,
    n_classes: int | None = None,
) -> TableSource:
    """Open a table and learn how its columns become numbers; and its classes, if the loss has classes."""
    from duramen.io import learn_encoding

    table, has_classes = open_data(path), loss is not None and loss.has_classes
    with bar(output, "inspecting the columns") as shown:
        encoding = learn_encoding(
            table, **settings, each=lambda batch: advance(shown, batch), classes=has_classes
        )
    if loss is not None and encoding.label is not None:
        name = next((name for name, known in LOSSES.items() if known is loss), "")
        encoding = (
            _with_classes(table, encoding, name, getattr(loss, "n_classes", n_classes))
            if has_classes
            else _with_numbers(table, encoding, name)
        )
    return TableSource(table, encoding)


def read_data(
    path: Path, encoding: Encoding | None, settings: dict[str, Any], output: Output, loss: Loss
) -> TableSource:
    """Open a table with an encoding, or learn one where there is none yet."""
    if encoding is None:
        return learn_data(path, settings, output, type(loss), getattr(loss, "n_classes", None))
    return TableSource(open_data(path), encoding)


def _with_classes(table: Table, encoding: Encoding, loss: str, n_classes: int | None) -> Encoding:
    """Refuse a single class, or a number other than ``n_classes``; take 0 and 1, or -1 and 1, as they are."""
    choice = encoding.label_choice
    assert choice is not None
    classes, label = choice.categories, f"{table.path.name}: the label {encoding.label!r}"
    if loss != "softmax" and choice.of == "number" and any(set(classes) <= {one, 1} for one in (0, -1)):
        return replace(encoding, label_choice=None)
    if len(classes) < 2:
        raise ValueError(
            f"{label} is {', '.join(map(repr, classes))} in every row, but --loss {loss} needs at least two "
            "classes; learn from a file that has them all"
        )
    if n_classes not in (None, len(classes)):
        raise ValueError(
            f"{label} has {len(classes)} classes, but {n_classes} were expected; learn from a file that has "
            "them all, or correct --classes (with --loss softmax)"
        )
    return encoding


def _with_numbers(table: Table, encoding: Encoding, loss: str) -> Encoding:
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


# coresets


def build_core(path: Path, options: Namespace) -> Coreset:
    """Build the coreset of a file as the options specify."""
    from duramen.coreset.build import robust_coreset

    data = learn_data(path, column_settings(options), options.talk, LOSSES[options.loss], options.classes)
    loss = make_loss(options, data.classes)
    with bar(options.talk, "building") as shown:
        rows = Scan(data, shown.at_pass)
        core = robust_coreset(rows, loss=loss, **sampling_settings(options))
        names = rows.names_of(core.ids) if data.encoding.text_ids else None
    return _with_metadata(core, data.encoding.to_json(), names)


def read_core(path: Path) -> Coreset:
    """Load a coreset; an error about its encoding names the file."""
    core = load_coreset(path)
    try:
        encoding_in(core.metadata)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; copy it again, or build it again") from None
    return core


def core_of(store: Any) -> Coreset:
    """Return the coreset of an open store, with its encoding and the names of its rows."""
    core, encoding = store.coreset(), encoding_in(store.notes)
    if encoding is not None:
        core = replace(core, columns=tuple(encoding.names))
    return _with_metadata(core, store.notes.get("encoding"), names_in(store, core.ids))


def _with_metadata(core: Coreset, encoding: Any, names: Iterable[str] | None) -> Coreset:
    named = None if names is None else dict(zip(map(str, core.ids.tolist()), names, strict=True))
    return replace(core, metadata={"encoding": encoding, "names": named})


def encoding_in(notes: Mapping[str, Any] | None) -> Encoding | None:
    """Return the encoding in the metadata of a coreset, or in the notes of a store."""
    from duramen.io import Encoding

    state = (notes or {}).get("encoding")
    return None if state is None else Encoding.from_json(state)


def core_names(core: Coreset) -> dict[int, str]:
    """Return the ids of rows as in the data, where these are text."""
    named = (core.metadata or {}).get("names") or {}
    return {int(number): str(name) for number, name in named.items()}


def names_in(store: Any, ids: Iterable[int]) -> list[str] | None:
    """Return the names of points of a store; None where ids are numbers."""
    try:
        return [str(name) for name in store.names_of([int(one) for one in ids])]
    except KeyError:
        return None


def core_facts(core: Coreset) -> dict[str, Any]:
    """Return the JSON fields about a coreset."""
    names = ("n_points", "total_weight", "n_outliers", "n_suspected", "threshold", "sampler", "calibrated")
    facts = fields_of(core, *names)
    return {"loss": repr(core.loss), "n_rows": len(core), "n_columns": core.points.n_columns, **facts}


# models


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model."""

    loss: Loss
    theta: Array
    columns: tuple[str, ...] | None  # the columns of numbers that theta is for
    classes: list[Any] | None  # the labels, in the order of their numbers
    encoding: Encoding | None  # how columns of a file become numbers
    facts: dict[str, Any]  # how it was fitted

    @property
    def n_columns(self) -> int:
        """The number of columns that theta is for."""
        return int(self.theta.shape[-1]) - bool(getattr(self.loss, "fit_intercept", False))

    def predict(self, X: Rows) -> dict[str, Array]:
        """Predict rows; return columns by name.

        As :meth:`duramen.Loss.predictions`, with the classes themselves as ``class``, and
        ``probability=NAME`` for each of them.
        """
        from duramen.io.encoding import category_text

        found = self.loss.predictions(self.theta, np.asarray(X, dtype=np.float64))
        if self.classes is not None:
            found["class"] = np.array(self.classes, dtype=object)[found["class"]]
            for place, shares in enumerate(found.pop("probability", np.empty((0, 0))).T):
                found[f"probability={category_text(self.classes[place])}"] = shares
        return found


def make_model(core: Coreset, solution: Solution, estimate: Estimate, l2: float) -> Model:
    """Make the model of a solution on a coreset."""
    from duramen import __version__

    facts = {
        "made_by": f"duramen {__version__}",
        "n_points": core.n_points,
        "l2": l2,
        "status": solution.status.value,
        **fields_of(solution, "total_weight", "n_outliers", "objective", "converged", "n_iter"),
        **fields_of(estimate, "std_error", "low", "high"),
    }
    encoding = encoding_in(core.metadata)
    classes = None if encoding is None else encoding.classes
    if classes is None and core.loss.has_classes:  # the numbers that the labels are
        y: Any = core.y
        classes = [-1, 1] if core.loss.classifies and y.min() < 0 else list(range(core.loss.n_classes))
    return Model(solution.loss, solution.theta, core.columns, classes, encoding, facts)


def write_model(path: Path, model: Model) -> None:
    """Write a model; an existing file is replaced once all is written."""
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "loss": loss_state(model.loss),
        "theta": model.theta.tolist(),
        "columns": model.columns,
        "classes": model.classes,
        **plain(model.facts),
        "encoding": None if model.encoding is None else model.encoding.to_json(),
    }
    text = json.dumps({**state, "crc32": checksum(state)}, indent=1, allow_nan=False, ensure_ascii=False)
    with naming(str(path)), replacing(path) as file:
        file.write(text.encode() + b"\n")


def read_model(path: Path) -> Model:
    """Read and validate a model; refuse damage and newer versions."""
    raw = path.read_bytes()
    try:
        state = json.loads(raw.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        state = {"format": _FORMAT, "problem": error} if _FORMAT.encode() in raw[:40] else None
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a model; duramen fit writes models")
    if state.get("version", _VERSION) != _VERSION:
        raise ValueError(
            f"{path}: version {state['version']!r} of the format is newer than this library reads "
            f"({_VERSION}); upgrade duramen"
        )
    try:
        return _parse_model(state)
    except KeyError as error:
        why = f"it has no {error}"
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        why = str(error)
    raise ValueError(f"{path} is damaged: {why}; copy it again, or fit again")


def _parse_model(state: dict[str, Any]) -> Model:
    """Make the model; raise ValueError or KeyError if a field is missing or wrong."""
    if "problem" in state:
        raise ValueError(f"it is not JSON ({state['problem']})")
    if state.get("crc32") not in (None, checksum(state)):
        raise ValueError("its checksum differs; if you edited it, remove crc32")
    beside = ("format", "version", "loss", "theta", "columns", "classes", "encoding", "crc32")
    loss, columns, classes = loss_of(state["loss"]), state["columns"], state["classes"]
    model = Model(
        loss,
        np.array(state["theta"], dtype=np.float64),
        None if columns is None else tuple(columns),
        classes,
        encoding_in(state),
        {name: value for name, value in state.items() if name not in beside},
    )
    if model.encoding is not None and list(model.encoding.names) != columns:
        raise ValueError("its encoding does not produce its columns")
    width = model.n_columns if columns is None else len(columns)
    shape = loss.parameter_shape(width)
    if shape is not None and model.theta.shape != tuple(shape):
        raise ValueError(
            f"its theta has shape {model.theta.shape}; {loss!r} on {width} columns needs {tuple(shape)}"
        )
    n_classes = loss.n_classes if loss.has_classes else None
    if n_classes != (None if classes is None else len(classes)):
        raise ValueError(f"its classes are {classes}, but {loss!r} has {n_classes}")
    return model


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a number in JSON")
    return value
