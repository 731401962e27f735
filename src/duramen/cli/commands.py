"""The commands ``build``, ``fit``, ``predict``, ``certify`` and ``report``."""

from __future__ import annotations

import csv
import io
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen import certificate
from duramen.cli.files import (
    KINDS,
    Model,
    advance,
    build_core,
    core_facts,
    core_names,
    core_of,
    encoding_in,
    kind_of,
    model_state,
    read_data,
    read_model,
    write_model,
)
from duramen.cli.options import (
    COLUMNS,
    FIXED,
    Result,
    add_command,
    check_loss,
    check_source,
    column_settings,
    refuse_options,
)
from duramen.cli.output import Output, bar, fields_of, naming, standard_output
from duramen.coreset.coreset import load_coreset
from duramen.extras import needed
from duramen.files import replacing
from duramen.io.scan import Scan, TableSource
from duramen.points import WeightedPoints
from duramen.progress import Bar
from duramen.store.store import open_store

if TYPE_CHECKING:
    from duramen.certificate import Certificate
    from duramen.coreset.coreset import Coreset
    from duramen.solvers.solve import Solution

_NOT_SHOWN = ("format", "version", "made_by", "encoding")  # of a model, in the JSON of fit
_QUICK = 8_000_000  # numbers on which a certificate takes a few seconds


def add_commands(below: Any) -> None:
    """Add the commands to the parser."""
    learning = ("learning problem", "columns", "coreset")
    add_command(below, build, "data", *learning, needs=("--loss", "--output"), writes=(".parquet",))
    add_command(below, fit, "source", "--top", "solver", *learning, writes=(".json",))
    add_command(below, predict, "model", "data", needs=("--output",), writes=(".parquet", ".csv", "-"))
    searching = ("--radius", "--probes", "--steps", "--seed", "columns")
    add_command(below, certify, "core", "data", *searching)
    shown = ("--data", "--certify", "--title", "--seed")
    add_command(below, report, "subject", *shown, needs=("--output",), writes=(".html", ".htm"))


def build(options: Namespace) -> Result:
    """Build a coreset of data.

    The data are read in batches, twice. The coreset is a small set of weighted rows that
    represents all of them; its file also stores how columns became numbers.

    example: duramen build rows.parquet -o core.parquet --loss logistic --label y --outliers 2%
             duramen build 'parts/*.csv' -o core.parquet --loss kmeans --k 8
    """
    check_loss(options)
    start = time.perf_counter()
    core = build_core(options.data, options)
    with naming(str(options.output)):
        core.save(options.output)
    return "", {"core": options.output, "seconds": time.perf_counter() - start, **core_facts(core)}


def fit(options: Namespace) -> Result:
    """Fit a model to a coreset, a store or data.

    The outliers are set aside and listed. From data, a coreset is built first, as by duramen
    build. The model is a JSON file for duramen predict.

    example: duramen fit core.parquet -o model.json
    """
    from duramen.solvers.solve import solve

    start = time.perf_counter()
    kind, core = _load_core(options.source, options)
    solution = solve(
        core,
        n_outliers=None if kind == "data" else options.outliers,
        l2=options.l2,
        n_starts=options.starts,
        random_state=options.seed,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    share = solution.n_outliers / solution.total_weight  # a weight below 1 would be taken for a share
    estimate = core.estimate(solution.theta, share)
    model = model_state(core, solution, estimate, options.l2)
    if options.output is not None:
        write_model(options.output, model)
    return "", {
        "source": options.source,
        "kind": kind,
        "model": options.output,
        **{name: value for name, value in model.items() if name not in _NOT_SHOWN},
        "loss": repr(solution.loss),
        "n_set_aside": len(solution.outliers),
        "set_aside": _set_aside(core, solution, options.top),
        "seconds": time.perf_counter() - start,
    }


def _load_core(path: Path, options: Namespace) -> tuple[str, Coreset]:
    """Load a coreset from its file or a store, or build it from data; return the kind of source, too."""
    kind = kind_of(path)
    if kind == "model":
        raise ValueError(f"{path} is an already fitted model; use it with duramen predict")
    if kind == "data":
        if options.loss is None:
            raise ValueError(f"{path} is data, so a loss is needed; pass --loss, such as --loss logistic")
        check_loss(options)
        return kind, build_core(path, options)
    refuse_options(options, FIXED, f"{path} is a {KINDS[kind]}, whose loss, columns and size are fixed")
    if kind == "core":
        return kind, load_coreset(path)
    with open_store(path, read_only=True) as store:
        return kind, core_of(store)


def _set_aside(core: Coreset, solution: Solution, top: int) -> list[dict[str, Any]]:
    """List the rows that were set aside, largest loss first: id, weight and loss."""
    rows, names = np.searchsorted(core.ids, solution.outliers[:top]), core_names(core)  # sorted by id
    losses = core.loss.values(solution.theta, core.X, core.y)[rows]
    parts = core.ids[rows].tolist(), solution.aside.tolist(), losses.tolist()
    return [
        {"id": names.get(one, one), "weight": weight, "loss": loss}
        for one, weight, loss in zip(*parts, strict=False)
    ]


def predict(options: Namespace) -> Result:
    """Predict every row of a file with a model.

    The file is read in batches, and one line is written per row: its id, and a class with
    probabilities, a value, or a cluster with the distance to its centre. Labels are not needed.
    -o - writes CSV to standard output.

    example: duramen predict model.json new.parquet -o predictions.parquet
    """
    check_source(options.model)
    to_stdout = str(options.output) == "-"
    if to_stdout and (sys.stdout is None or options.json):
        why = "where --json also prints" if options.json else "which is closed"
        raise ValueError(f"-o - writes predictions to standard output, {why}; name a file")
    options.talk.aside = to_stdout
    model = read_model(options.model)
    data = _data_for(model, options.data, options.talk)
    facts = {"predictions": options.output, "model": options.model, "n_rows": 0, "columns": []}
    with bar(options.talk, "predicting") as shown:
        _write(options.output, _predictions(model, data, shown, facts), model.classes)
    to_file = "" if to_stdout else f", written to {options.output}"
    return f"{facts['n_rows']:,} rows predicted{to_file}", facts


Batches = Iterator[dict[str, list[Any]]]


def _predictions(model: Model, data: TableSource, shown: Bar, facts: dict[str, Any]) -> Batches:
    """Read and predict batch by batch; note the columns and the number of rows among the facts."""
    for batch, rows in data.encoding.read(data.table):
        ids = range(batch.first, batch.first + len(batch)) if rows.ids is None else rows.ids
        columns = {"id": ids, **model.predict(rows.X)}
        yield {name: np.asarray(part).tolist() for name, part in columns.items()}
        facts |= {"n_rows": batch.first + len(batch), "columns": list(columns)}
        advance(shown, batch)
    if not facts["n_rows"]:
        raise ValueError(f"{data.table.path} has no rows to predict")


def _data_for(model: Model, path: Path, talk: Output) -> TableSource:
    """Open the file with the model's encoding, without what prediction does not need."""
    data = read_data(path, talk, model.encoding, {"features": model.columns})
    if model.encoding is not None:
        id = model.encoding.id if model.encoding.id in data.table.columns else None
        data = TableSource(data.table, replace(model.encoding, label=None, weight=None, id=id))
    if len(data.names) != model.n_columns:
        raise ValueError(f"{path} has {len(data.names)} columns, but the model has {model.n_columns}")
    return data


def _write(output: Path, batches: Batches, classes: list[Any] | None) -> None:
    """Write predictions batch by batch; a file appears only once it is complete."""
    if str(output) == "-":
        with standard_output():
            _write_csv(sys.stdout, batches)
        return
    with naming(str(output)), replacing(output) as file:
        if output.suffix.lower() == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            _write_csv(text, batches)
            text.detach()
        else:
            _write_parquet(file, batches, classes)


def _write_csv(stream: Any, batches: Batches) -> None:
    """Write CSV: a header, then one line per row."""
    lines = csv.writer(stream, lineterminator="\n")
    for place, columns in enumerate(batches):
        if not place:
            lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))


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


def certify(options: Namespace) -> Result:
    """Measure how far a coreset is from its data.

    The objective on the coreset is compared with that on the data, at random parameters around
    the anchor and along ascent steps that increase the error. All rows of the data must fit in memory.

    example: duramen certify core.parquet rows.parquet
    """
    check_source(options.core)
    core = load_coreset(options.core)
    if encoding_in(core.metadata) is not None:
        refuse_options(options, COLUMNS, f"{options.core} is a coreset, whose columns are fixed")
    settings = {"radius": options.radius, "n_probes": options.probes, "ascent_steps": options.steps}
    found = _certify(options, core, _read_points(options, core, column_settings(options)), **settings)
    names = ("max_error", "mean_error", "covered", "radius", "n_refused", "n_points", "worst", "search")
    facts = {"core": options.core, "data": options.data, "n_probes": len(found.errors)}
    return repr(found), {**facts, **fields_of(found, *names)}


def _read_points(options: Namespace, core: Coreset, columns: dict[str, Any]) -> WeightedPoints:
    """Read all rows of the data, encoded like the coreset's."""
    data = read_data(options.data, options.talk, encoding_in(core.metadata), columns, type(core.loss))
    with bar(options.talk, "reading") as shown:
        found = Scan(data, shown.at_pass).passed(dict[int, WeightedPoints], dict.__setitem__)
    parts = sorted(part for one in found for part in one.items())
    if not parts:
        raise ValueError(f"{options.data} has no rows")
    return WeightedPoints.concat([part for _, part in parts])


def _certify(options: Namespace, core: Coreset, points: WeightedPoints, **settings: Any) -> Certificate:
    if core.anchor is None:
        raise ValueError(
            "the coreset has no anchor to certify around; duramen build finds one, as does "
            "duramen store reanchor for a store"
        )
    X, y, weights = points.X, points.y, points.weights
    return certificate.certify(core, X, y, weights, random_state=options.seed, **settings)


def report(options: Namespace) -> Result:
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
    opened = open_store(source, read_only=True) if kind == "store" else nullcontext()
    with opened as store:
        core = load_coreset(source) if store is None else core_of(store)
        html = report_html(
            core,
            live=store,
            title=options.title or source.name,
            certificate=_certificate(options, core, store),
            encoding=encoding_in(core.metadata),
            names=core_names(core),
        ).encode()
    with naming(str(options.output)), replacing(options.output) as file:
        file.write(html)
    facts = {"report": options.output, "source": source, "kind": kind, "n_bytes": len(html)}
    return f"written to {options.output}", facts


def _certificate(options: Namespace, core: Coreset, store: Any) -> Certificate | None:
    """Certify on --data, or a store on its own points if that is quick or requested."""
    if options.data is not None:
        return _certify(options, core, _read_points(options, core, {}))
    if core.anchor is None or store is None:
        return None
    if len(store) * core.points.n_columns > _QUICK and not options.certify:
        options.talk.warn(f"certifying on {len(store):,} points takes long and was skipped; pass --certify")
        return None
    return _certify(options, core, store.points())
