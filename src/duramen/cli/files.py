"""What commands read and write: tables through an encoding, coresets of files and stores, and models.

A model is JSON with all that is needed to predict from a file; its fields are listed in
docs/command-line.md. A checksum detects damage; remove it to edit a model by hand.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import Array, Rows
from duramen.cli.options import LOSSES, check_loss, column_settings, coreset_settings, make_loss
from duramen.cli.output import Fields, Output, bar, fields_of, plain
from duramen.coreset.build import robust_coreset
from duramen.coreset.coreset import Coreset
from duramen.coreset.estimate import Estimate
from duramen.coreset.save import loss_of, loss_state
from duramen.extras import needed
from duramen.files import checksum, replacing
from duramen.io import Encoding, Table, learn_encoding, open_table
from duramen.io.encoding import category_text
from duramen.io.formats import is_pattern
from duramen.io.scan import Scan, TableSource
from duramen.losses import Loss
from duramen.progress import Bar
from duramen.solvers.solve import Solution
from duramen.text import few

KINDS = {"store": "store", "core": "coreset", "model": "model"}
_FORMAT, _VERSION = "duramen model", 1


def kind_of(source: Path) -> str:
    """Return what a file is: a "store", a "core", a "model", or "data", as are a folder and a pattern."""
    if source.is_dir() or is_pattern(source):
        return "data"
    with source.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"SQLite format 3\0"):
        return "store"
    if head.startswith(b"{") and _FORMAT.encode() in head:
        return "model"
    if head.startswith(b"PAR1"):
        parquet = needed("pyarrow.parquet", "reading Parquet", "frames")
        with suppress(ValueError, OSError):  # damage is reported where the table is opened
            return "core" if b"duramen" in (parquet.read_schema(source).metadata or {}) else "data"
    return "data"


def open_data(path: Path) -> Table:
    """Open a table; refuse duramen's own files, which are not tables of rows."""
    kind = kind_of(path)
    if kind != "data":
        raise ValueError(f"{path} is a {KINDS[kind]}, but data are needed here; name the file with the rows")
    return open_table(path)


def read_data(
    path: Path, talk: Output, encoding: Encoding | None, columns: Fields, loss: Loss | None = None
) -> TableSource:
    """Open a table with an encoding; without one, learn it, and the classes if the loss has classes."""
    table = open_data(path)
    if encoding is None:
        encoding = _learn(table, talk, columns, loss is not None and loss.has_classes)
        if loss is not None:
            encoding = _with_labels(table, encoding, loss)
    return TableSource(table, encoding)


def learn_problem(path: Path, options: Namespace) -> tuple[TableSource, Loss]:
    """Open a table, learn how to encode it, and make the loss, as the options specify."""
    check_loss(options)
    table = open_data(path)
    encoding = _learn(table, options.talk, column_settings(options), LOSSES[options.loss].has_classes)
    loss = make_loss(options, encoding.classes)
    return TableSource(table, _with_labels(table, encoding, loss)), loss


def _learn(table: Table, talk: Output, columns: Fields, classes: bool) -> Encoding:
    with bar(talk, "inspecting the columns") as shown:
        return learn_encoding(table, **columns, each=partial(advance, shown), classes=classes)


def _with_labels(table: Table, encoding: Encoding, loss: Loss) -> Encoding:
    """Take labels as the loss needs them: numbers, or the right number of classes; refuse others."""
    choice = encoding.label_choice
    if choice is None:
        return encoding
    label, classes = f"{table.path.name}: the label {encoding.label!r}", choice.categories
    if not loss.has_classes and choice.of == "text":
        raise ValueError(
            f"{label} holds text{table.why_text(choice.name) or f' ({classes[0]!r})'}, but "
            f"{type(loss).__name__} needs numbers; correct it (decimals take a point), or use a loss for "
            "classes, such as --loss logistic"
        )
    signs = choice.of == "number" and any(set(classes) <= {one, 1} for one in (0, -1))
    if not loss.has_classes or (loss.classifies and signs):  # as they are
        return replace(encoding, label_choice=None)
    if len(classes) != loss.n_classes:
        raise ValueError(
            f"{label} has {len(classes)} classes ({few(classes, 3)}), but {loss.n_classes} were expected; "
            "learn from a file that has them all, or correct --classes (with --loss softmax)"
        )
    return encoding


def advance(shown: Bar, batch: Any) -> None:
    """Move a bar to the end of a batch."""
    shown.at(batch.done, batch.first + len(batch))


def build_core(path: Path, options: Namespace) -> Coreset:
    """Build the coreset of a file as the options specify."""
    data, loss = learn_problem(path, options)
    with bar(options.talk, "building") as shown:
        rows = Scan(data, shown.at_pass)
        core = robust_coreset(rows, loss=loss, **coreset_settings(options))
        names = rows.names_of(core.ids) if data.encoding.text_ids else None
    return _with_metadata(core, data.encoding.to_json(), names)


def core_of(store: Any) -> Coreset:
    """Return the coreset of an open store, with its encoding and the names of its rows."""
    core, encoding = store.coreset(), encoding_in(store.notes)
    if encoding is not None:
        core = replace(core, columns=encoding.names)
    return _with_metadata(core, store.notes.get("encoding"), names_in(store, core.ids))


def _with_metadata(core: Coreset, encoding: Any, names: Sequence[str] | None) -> Coreset:
    named = names and dict(zip(map(str, core.ids), names, strict=True))
    return replace(core, metadata={"encoding": encoding, "names": named})


def encoding_in(notes: Mapping[str, Any] | None) -> Encoding | None:
    """Return the encoding in the metadata of a coreset, or in the notes of a store."""
    state = (notes or {}).get("encoding")
    return None if state is None else Encoding.from_json(state)


def core_names(core: Coreset) -> dict[int, str]:
    """Return the ids of rows as in the data, where these are text."""
    named = (core.metadata or {}).get("names") or {}
    return {int(number): name for number, name in named.items()}


def names_in(store: Any, ids: Array) -> list[str] | None:
    """Return the names of points of a store; None where ids are numbers."""
    try:
        return [str(name) for name in store.names_of(ids)]
    except KeyError:
        return None


def core_facts(core: Coreset) -> Fields:
    """Return the JSON fields about a coreset."""
    names = ("n_points", "total_weight", "n_outliers", "n_suspected", "threshold", "sampler", "calibrated")
    facts = fields_of(core, *names)
    return {"loss": repr(core.loss), "n_rows": len(core), "n_columns": core.points.n_columns, **facts}


class Model:
    """A fitted model, from its JSON types; ValueError or KeyError if a field is missing or wrong."""

    def __init__(self, state: Fields) -> None:
        if state["version"] != _VERSION:
            raise ValueError(f"its version is {state['version']!r}, newer than this library reads")
        if state.get("crc32") not in (None, checksum(state)):  # raises if a number is not finite
            raise ValueError("its checksum differs; if you edited it, remove crc32")
        self.state, self.classes, self.columns = state, state["classes"], state["columns"]
        self.loss, self.encoding = loss_of(state["loss"]), encoding_in(state)
        self.theta = theta = np.array(state["theta"], dtype=np.float64)
        without = bool(getattr(self.loss, "fit_intercept", False))
        self.n_columns = theta.shape[-1] - without if self.columns is None else len(self.columns)
        n_classes = self.loss.n_classes if self.loss.has_classes else 0
        fits = self.loss.parameter_shape(self.n_columns) in (None, theta.shape)
        if not (fits and len(self.classes or ()) == n_classes and np.isfinite(theta).all()):
            shape = f"its theta {theta.shape}"
            raise ValueError(f"{shape}, columns, classes and encoding do not fit {self.loss!r}")

    def predict(self, X: Rows) -> dict[str, Array]:
        """Predict as :meth:`duramen.Loss.predictions`, with the classes themselves in place of numbers."""
        found = self.loss.predictions(self.theta, np.asarray(X, dtype=np.float64))
        if self.classes is not None:
            found["class"] = np.array(self.classes, dtype=object)[found["class"]]
            for name, shares in zip(self.classes, found.pop("probability", np.empty((0, 0))).T, strict=False):
                found[f"probability={category_text(name)}"] = shares
        return found


def model_state(core: Coreset, solution: Solution, estimate: Estimate, l2: float) -> Fields:
    """Describe the model of a solution on a coreset in JSON types."""
    encoding = encoding_in(core.metadata)
    classes = None if encoding is None else encoding.classes
    if classes is None and core.loss.has_classes:  # the numbers that the labels are
        y: Any = core.y
        classes = [-1, 1] if core.loss.classifies and y.min() < 0 else list(range(core.loss.n_classes))
    found = fields_of(solution, "theta", "total_weight", "n_outliers", "objective", "converged", "n_iter")
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "made_by": f"duramen {version('duramen')}",
        "loss": loss_state(solution.loss),
        "columns": core.columns,
        "classes": classes,
        "l2": l2,
        "n_points": core.n_points,
        "status": solution.status.value,
        **plain({**found, **fields_of(estimate, "std_error", "low", "high")}),
        "encoding": (core.metadata or {}).get("encoding"),
    }


def write_model(path: Path, state: Fields) -> None:
    """Write a model; an existing file is replaced once all is written."""
    text = json.dumps({**state, "crc32": checksum(state)}, indent=1, allow_nan=False, ensure_ascii=False)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def read_model(path: Path) -> Model:
    """Read and validate a model; refuse damage and newer versions."""
    raw = path.read_bytes()
    if _FORMAT.encode() not in raw[:40]:
        raise ValueError(f"{path} is not a model; duramen fit writes models")
    try:
        return Model(json.loads(raw.decode()))
    except KeyError as error:
        why = f"it has no {error}"
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        why = str(error)
    raise ValueError(f"{path} is damaged or from a newer version: {why}; copy it again, or fit again")
