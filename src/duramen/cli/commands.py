"""The commands ``build``, ``fit``, ``predict``, ``certify`` and ``report``, and what they read and write."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from argparse import Namespace
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from duramen import Coreset, Estimate, Solution, certificate, load_coreset, open_store, robust_coreset, solve
from duramen.arrays import Array, Rows
from duramen.certificate import Certificate
from duramen.cli.options import (
    COLUMNS,
    FIXED,
    GROUPS,
    LOSSES,
    check_loss,
    column_settings,
    command,
    coreset_settings,
    given,
    make_loss,
    refuse_options,
)
from duramen.cli.output import Fields, Output, bar, fields_of, plain, write
from duramen.coreset.save import loss_of, state_of
from duramen.extras import needed
from duramen.files import checksum, reading, replacing
from duramen.io import Encoding, Table, learn_encoding, open_table
from duramen.io.encoding import category_text
from duramen.io.formats import is_pattern
from duramen.io.scan import TableScan
from duramen.losses import Loss
from duramen.points import WeightedPoints
from duramen.progress import Bar
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
            if b"duramen" in (parquet.read_schema(source).metadata or ()):
                return "core"
    return "data"


def open_data(path: Path) -> Table:
    """Open a table; refuse duramen's own files, which are not tables of rows."""
    kind = kind_of(path)
    if kind != "data":
        raise ValueError(f"{path} is a {KINDS[kind]}, but data are needed here; name the file with the rows")
    return open_table(path)


def read_data(
    path: Path, talk: Output, encoding: Encoding | None, columns: Fields, classes: bool = False
) -> TableScan:
    """Open a table with an encoding; without one, learn it, and the ``classes`` if the loss has them."""
    table = open_data(path)
    if encoding is None:
        with bar(talk, "inspecting the columns") as shown:
            encoding = learn_encoding(table, **columns, each=partial(advance, shown), classes=classes)
    return TableScan(table, encoding)


def open_rows(options: Namespace, loss: Loss, encoding: Encoding | None, columns: Fields) -> TableScan:
    """Open ``options.data``, with labels as the loss needs them."""
    return with_labels(read_data(options.data, options.talk, encoding, columns, loss.has_classes), loss)


def learn_problem(path: Path, options: Namespace) -> tuple[TableScan, Loss]:
    """Open a table, learn how to encode it, and make the loss, as the options specify."""
    check_loss(options)
    has_classes = LOSSES[options.loss].has_classes
    data = read_data(path, options.talk, None, column_settings(options), has_classes)
    loss = make_loss(options, data.classes)
    return with_labels(data, loss), loss


def with_labels(data: TableScan, loss: Loss) -> TableScan:
    """Take labels as the loss needs them: numbers, or the right number of classes; refuse others."""
    table, encoding, choice = data.table, data.encoding, data.encoding.label_choice
    if choice is None:
        return data
    label, classes = f"{table.path.name}: the label {encoding.label!r}", choice.categories
    if not loss.has_classes and choice.of == "text":
        raise ValueError(
            f"{label} holds text{table.why_text(choice.name) or f' ({classes[0]!r})'}, but "
            f"{type(loss).__name__} needs numbers; correct it (decimals take a point), or use a loss for "
            "classes, such as --loss logistic"
        )
    signs = choice.of == "number" and (set(classes) <= {0, 1} or set(classes) <= {-1, 1})
    if not loss.has_classes or (loss.classifies and signs):  # as they are
        return TableScan(table, replace(encoding, label_choice=None))
    if len(classes) != loss.n_classes:
        raise ValueError(
            f"{label} has {len(classes)} classes ({few(classes, 3)}), but {loss.n_classes} were expected; "
            "learn from a file that has them all, or correct --classes (with --loss softmax)"
        )
    return data


def advance(shown: Bar, batch: Any) -> None:
    """Move a bar to the end of a batch."""
    shown.at(batch.done, batch.first + len(batch))


def build_core(path: Path, options: Namespace) -> Coreset:
    """Build the coreset of a file as the options specify."""
    data, loss = learn_problem(path, options)
    with bar(options.talk, "building") as shown:
        rows = TableScan(data.table, data.encoding, shown.at_pass)
        core = robust_coreset(rows, loss=loss, **coreset_settings(options))
        names = rows.names_of(core.ids) if data.encoding.ids == "text" else None
    return _with_metadata(core, data.encoding, names)


def core_of(store: Any) -> Coreset:
    """Return the coreset of an open store, with its encoding and the names of its rows."""
    core = store.coreset()
    return _with_metadata(core, encoding_in(store.notes), names_in(store, core.ids))


def _with_metadata(core: Coreset, encoding: Encoding | None, names: Sequence[str] | None) -> Coreset:
    named = names and dict(zip(map(str, core.ids), names, strict=True))
    if encoding is None:
        return replace(core, metadata={"encoding": None, "names": named})
    return replace(core, columns=encoding.names, metadata={"encoding": encoding.to_json(), "names": named})


def encoding_in(notes: Mapping[str, Any] | None) -> Encoding | None:
    """Return the encoding in the metadata of a coreset, or in the notes of a store."""
    state = (notes or {}).get("encoding")
    return None if state is None else Encoding.from_json(state)


def core_names(core: Coreset) -> dict[int, str]:
    """Return the ids of rows as in the data, where these are text."""
    return {int(number): name for number, name in ((core.metadata or {}).get("names") or {}).items()}


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
        self.classes, self.columns = state["classes"], state["columns"]
        self.loss, self.encoding = loss_of(state["loss"]), encoding_in(state)
        theta: Any = np.array(state["theta"], dtype=np.float64)
        shape: Any = self.loss.parameter_shape(0)
        self.n_columns = theta.shape[-1] - shape[-1]
        self.theta = self.loss.check_parameters(theta, len(self.columns or range(self.n_columns)))
        n_classes = self.loss.n_classes if self.loss.has_classes else 0
        if len(self.classes or ()) != n_classes or not self.loss.measured:
            raise ValueError(
                f"its theta {theta.shape}, columns, classes and encoding do not fit {self.loss!r}"
            )

    def predict(self, X: Rows) -> dict[str, Array]:
        """Predict as :meth:`duramen.Loss.predictions`, with the classes themselves in place of numbers."""
        found = self.loss.predictions(self.theta, np.asarray(X, dtype=np.float64))
        if self.classes is not None:
            found["class"] = np.array(self.classes, dtype=object)[found["class"]]
            for name, shares in zip(self.classes, found.pop("probability", np.empty((0, 0))).T, strict=False):
                found[f"probability={category_text(name)}"] = shares
        return found


def model_fields(core: Coreset, solution: Solution, estimate: Estimate, l2: float) -> Fields:
    """Describe the solution on a coreset in JSON types: the fields of its model, except what frames them."""
    encoding = encoding_in(core.metadata)
    classes = None if encoding is None else encoding.classes
    if classes is None and core.loss.has_classes:  # the numbers that the labels are
        y: Any = core.y
        classes = [-1, 1] if core.loss.classifies and y.min() < 0 else list(range(core.loss.n_classes))
    found = fields_of(solution, "theta", "total_weight", "n_outliers", "objective", "converged", "n_iter")
    return {
        "loss": state_of(solution.loss),
        "columns": core.columns,
        "classes": classes,
        "l2": l2,
        "noise_share": _noise_share(core, solution),
        "n_points": core.n_points,
        "status": solution.status.value,
        **plain({**found, **fields_of(estimate, "std_error", "low", "high")}),
    }


def _noise_share(core: Coreset, solution: Solution) -> float | None:
    """Average the share of labels that the model does not explain; None where none is learned."""
    loss: Any = solution.loss
    if loss.base is None:
        return None
    return float(np.average(loss.shares(solution.theta, core.X).sum(axis=1), weights=core.weights))


def write_model(path: Path, core: Coreset, fields: Fields) -> None:
    """Write a model; an existing file is replaced once all is written."""
    made_by, encoding = f"duramen {version('duramen')}", (core.metadata or {}).get("encoding")
    state = {"format": _FORMAT, "version": _VERSION, "made_by": made_by, **fields, "encoding": encoding}
    state["crc32"] = checksum(state)
    with replacing(path) as file:
        file.write(json.dumps(state, indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n")


def read_model(path: Path) -> Model:
    """Read and validate a model; refuse damage and newer versions."""
    raw = path.read_bytes()
    if _FORMAT.encode() not in raw[:40]:
        raise ValueError(f"{path} is not a model; duramen fit writes models")
    with reading(path, "fit again"):
        return Model(json.loads(raw))


# the commands

_LEARNING = ("learning problem", "columns", "coreset")
_QUICK = 8_000_000  # numbers on which a certificate takes a few seconds


@command("build", "data", *_LEARNING, writes="output", suffixes=(".parquet",))
def build(options: Namespace) -> Fields:
    """Build a coreset of data.

    The data are read in batches, twice. The coreset is a small set of weighted rows that
    represents all of them; its file also stores how columns became numbers.

    example: duramen build rows.parquet -o core.parquet --loss logistic --label y --outliers 2%
             duramen build 'parts/*.csv' -o core.parquet --loss kmeans --k 8
    """
    start = time.perf_counter()
    core = build_core(options.data, options)
    core.save(options.output)
    return {"core": options.output, "seconds": time.perf_counter() - start, **core_facts(core)}


@command("fit", "source", "--top", "solver", *_LEARNING, required=False, writes="output", suffixes=(".json",))
def fit(options: Namespace) -> Fields:
    """Fit a model to a coreset, a store or data.

    The outliers are set aside and listed. From data, a coreset is built first, as by duramen
    build. The model is a JSON file for duramen predict.

    example: duramen fit core.parquet -o model.json
    """
    start, kind = time.perf_counter(), kind_of(options.source)
    core = _load_core(kind, options)
    solution = solve(
        core,
        n_outliers=None if kind == "data" else options.n_outliers,
        random_state=options.random_state,
        **given(options, GROUPS["solver"]),
    )
    share = solution.n_outliers / solution.total_weight  # a weight below 1 would be taken for a share
    fields = model_fields(core, solution, core.estimate(solution.theta, share), options.l2)
    if options.output is not None:
        write_model(options.output, core, fields)
    ids, names = solution.outliers[: options.top], core_names(core)  # the largest loss first
    losses, rows = core.loss.values(solution.theta, core.X, core.y), np.searchsorted(core.ids, ids)
    return {
        "source": options.source,
        "kind": kind,
        "model": options.output,
        **fields,
        "loss": repr(solution.loss),
        "n_set_aside": len(solution.outliers),
        "set_aside": [
            {"id": names.get(one, one), "weight": weight, "loss": loss}
            for one, weight, loss in zip(ids.tolist(), solution.aside, losses[rows], strict=False)
        ],
        "seconds": time.perf_counter() - start,
    }


def _load_core(kind: str, options: Namespace) -> Coreset:
    """Load a coreset from its file or a store, or build it from data."""
    path = options.source
    if kind == "model":
        raise ValueError(f"{path} is an already fitted model; use it with duramen predict")
    if kind == "data":
        if options.loss is None:
            raise ValueError(f"{path} is data, so a loss is needed; pass --loss, such as --loss logistic")
        return build_core(path, options)
    refuse_options(options, FIXED, f"{path} is a {KINDS[kind]}, whose loss, columns and size are fixed")
    if kind == "core":
        return load_coreset(path)
    with open_store(path, read_only=True) as store:
        return core_of(store)


@command("predict", "model", "data", writes="output", suffixes=(".parquet", ".csv", "-"))
def predict(options: Namespace) -> Fields:
    """Predict every row of a file with a model.

    The file is read in batches, and one line is written per row: its id, and a class with
    probabilities, a value, or a cluster with the distance to its centre. Labels are not needed.
    -o - writes CSV to standard output.

    example: duramen predict model.json new.parquet -o predictions.parquet
    """
    output = options.output
    options.talk.aside = to_stdout = str(output) == "-"
    if to_stdout and (sys.stdout is None or options.json):
        raise ValueError(
            "-o - writes predictions to standard output, which is closed, or where --json also prints; name "
            "a file"
        )
    model = read_model(options.model)
    data = _data_for(model, options)
    facts: Fields = {"predictions": output, "model": options.model, "n_rows": 0, "columns": []}
    with bar(options.talk, "predicting") as shown, nullcontext() if to_stdout else replacing(output) as file:
        batches = _predictions(model, data, shown, facts)
        if file is None:
            for text in _csv(batches):
                write(text)
        elif output.suffix.lower() == ".csv":
            file.writelines(text.encode() for text in _csv(batches))
        else:
            _write_parquet(file, batches, model.classes)
    options.talk.say(f"{facts['n_rows']:,} rows predicted{'' if to_stdout else f', written to {output}'}")
    return facts


Batches = Iterator[dict[str, list[Any]]]


def _predictions(model: Model, data: TableScan, shown: Bar, facts: Fields) -> Batches:
    """Read and predict batch by batch; note the columns and the number of rows among the facts."""
    for batch, rows in data.encoding.read(data.table):
        end = batch.first + len(batch)
        columns = {"id": range(batch.first, end) if rows.ids is None else rows.ids, **model.predict(rows.X)}
        yield {name: np.asarray(part).tolist() for name, part in columns.items()}
        facts |= {"n_rows": end, "columns": list(columns)}
        advance(shown, batch)
    if not facts["n_rows"]:
        raise ValueError(f"{data.table.path} has no rows to predict")


def _data_for(model: Model, options: Namespace) -> TableScan:
    """Open the file with the model's encoding, without what prediction does not need."""
    data = read_data(options.data, options.talk, model.encoding, {"features": model.columns})
    id = data.encoding.id if data.encoding.id in data.table.columns else None
    data = TableScan(data.table, replace(data.encoding, label=None, weight=None, id=id))
    if len(data.names) != model.n_columns:
        raise ValueError(f"{options.data} has {len(data.names)} columns, but the model has {model.n_columns}")
    return data


def _csv(batches: Batches) -> Iterator[str]:
    """Format batches as CSV, with a header before the first."""
    for number, columns in enumerate(batches):
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        if not number:
            lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
        yield text.getvalue()


def _write_parquet(file: Any, batches: Batches, classes: list[Any] | None) -> None:
    """Write Parquet, one row group per batch; all classes decide the type of a class."""
    pa = needed("pyarrow", "writing Parquet", "frames")
    parquet = needed("pyarrow.parquet", "writing Parquet", "frames")
    first = next(batches)
    examples = first if classes is None else {**first, "class": classes}
    schema = pa.schema({name: pa.array(part).type for name, part in examples.items()})
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for columns in chain([first], batches):
            writer.write_table(pa.table(columns, schema=schema))


@command("certify", "core", "data", "search", "--seed", "columns")
def certify(options: Namespace) -> Fields:
    """Measure how far a coreset is from its data.

    The objective on the coreset is compared with that on the data, at random parameters around
    the anchor and along ascent steps that increase the error. All rows of the data must fit in memory.

    example: duramen certify core.parquet rows.parquet
    """
    core = load_coreset(options.core)
    if encoding_in(core.metadata) is not None:
        refuse_options(options, COLUMNS, f"{options.core} is a coreset, whose columns are fixed")
    found = _certify(core, options)
    names = ("max_error", "mean_error", "covered", "radius", "n_refused", "n_points", "worst", "search")
    options.talk.say(repr(found))
    facts = fields_of(found, *names)
    return {"core": options.core, "data": options.data, "n_probes": len(found.errors), **facts}


def _certify(core: Coreset, options: Namespace, points: WeightedPoints | None = None) -> Certificate:
    """Certify a coreset on points, by default all rows of ``options.data``."""
    if core.anchor is None:
        raise ValueError(
            "the coreset has no anchor to certify around; duramen build finds one, as does "
            "duramen store reanchor for a store"
        )
    if points is None:
        data = open_rows(options, core.loss, encoding_in(core.metadata), column_settings(options))
        with bar(options.talk, "reading") as shown:
            scan = TableScan(data.table, data.encoding, shown.at_pass)
            parts = ChainMap(*scan.passed(dict[int, WeightedPoints], dict.__setitem__))
        if not parts:
            raise ValueError(f"{options.data} has no rows")
        points = WeightedPoints.concat([parts[first] for first in sorted(parts)])
    settings = given(options, (*GROUPS["search"], "--seed"))
    return certificate.certify(core, points.X, points.y, points.weights, **settings)


_REPORT = ("subject", "--data", "--certify", "--title", "--seed")


@command("report", *_REPORT, writes="output", suffixes=(".html", ".htm"))
def report(options: Namespace) -> Fields:
    """Write an HTML page about a coreset or a store.

    The page needs no network. It shows contents, layers, threshold, weights, a picture, which
    rows are suspected and why, and the history of the anchor; and a certificate if the data
    are available: those of a store, or --data.

    example: duramen report customers.duramen -o report.html
    """
    from duramen.report.page import report_html

    source, kind = options.subject, kind_of(options.subject)
    if kind not in ("store", "core"):
        raise ValueError(f"{source} is neither a store nor a coreset; duramen build makes a coreset of data")
    with open_store(source, read_only=True) if kind == "store" else nullcontext() as store:
        core = load_coreset(source) if store is None else core_of(store)
        html = report_html(
            core,
            live=store,
            title=options.title or source.name,
            certificate=_certificate(core, store, options),
            encoding=encoding_in(core.metadata),
            names=core_names(core),
        ).encode()
    with replacing(options.output) as file:
        file.write(html)
    options.talk.say(f"written to {options.output}")
    return {"report": options.output, "source": source, "kind": kind, "n_bytes": len(html)}


def _certificate(core: Coreset, store: Any, options: Namespace) -> Certificate | None:
    """Certify on --data, or a store on its own points if that is quick or requested."""
    if options.data is not None:
        return _certify(core, options)
    if core.anchor is None or store is None:
        return None
    if len(store) * core.points.n_columns > _QUICK and not options.certify:
        options.talk.warn(f"certifying on {len(store):,} points takes long and was skipped; pass --certify")
        return None
    return _certify(core, options, store.points())
