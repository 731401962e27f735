"""The commands ``build``, ``fit``, ``predict``, ``certify`` and ``report``."""

from __future__ import annotations

import csv
import io
import sys
import time
from argparse import Namespace
from collections import ChainMap
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from duramen import certificate
from duramen.certificate import Certificate
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
    GROUPS,
    column_settings,
    command,
    given,
    refuse_options,
)
from duramen.cli.output import Fields, bar, fields_of, write
from duramen.coreset.coreset import Coreset, load_coreset
from duramen.extras import needed
from duramen.files import replacing
from duramen.io.scan import Scan, TableSource
from duramen.points import WeightedPoints
from duramen.progress import Bar
from duramen.solvers.solve import solve
from duramen.store.store import open_store

_LEARNING = ("learning problem", "columns", "coreset")
_NOT_SHOWN = ("format", "version", "made_by", "encoding")  # of a model, in the JSON of fit
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


@command(
    "fit", "source", "--top", "solver", *_LEARNING, required=False, writes="output", suffixes=(".json",)
)
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
    model = model_state(core, solution, core.estimate(solution.theta, share), options.l2)
    if options.output is not None:
        write_model(options.output, model)
    ids, names = solution.outliers[: options.top], core_names(core)  # the largest loss first
    losses, rows = core.loss.values(solution.theta, core.X, core.y), np.searchsorted(core.ids, ids)
    return {
        "source": options.source,
        "kind": kind,
        "model": options.output,
        **{name: value for name, value in model.items() if name not in _NOT_SHOWN},
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
        why = "where --json also prints" if options.json else "which is closed"
        raise ValueError(f"-o - writes predictions to standard output, {why}; name a file")
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


def _predictions(model: Model, data: TableSource, shown: Bar, facts: Fields) -> Batches:
    """Read and predict batch by batch; note the columns and the number of rows among the facts."""
    for batch, rows in data.encoding.read(data.table):
        end = batch.first + len(batch)
        ids = range(batch.first, end) if rows.ids is None else rows.ids
        columns = {"id": ids, **model.predict(rows.X)}
        yield {name: np.asarray(part).tolist() for name, part in columns.items()}
        facts |= {"n_rows": end, "columns": list(columns)}
        advance(shown, batch)
    if not facts["n_rows"]:
        raise ValueError(f"{data.table.path} has no rows to predict")


def _data_for(model: Model, options: Namespace) -> TableSource:
    """Open the file with the model's encoding, without what prediction does not need."""
    data = read_data(options.data, options.talk, model.encoding, {"features": model.columns})
    if model.encoding is not None:
        id = model.encoding.id if model.encoding.id in data.table.columns else None
        data = TableSource(data.table, replace(model.encoding, label=None, weight=None, id=id))
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
    facts = {"core": options.core, "data": options.data, "n_probes": len(found.errors)}
    return {**facts, **fields_of(found, *names)}


def _certify(core: Coreset, options: Namespace, points: WeightedPoints | None = None) -> Certificate:
    """Certify a coreset on points, by default all rows of ``options.data``."""
    if core.anchor is None:
        raise ValueError(
            "the coreset has no anchor to certify around; duramen build finds one, as does "
            "duramen store reanchor for a store"
        )
    if points is None:
        encoding, columns = encoding_in(core.metadata), column_settings(options)
        data = read_data(options.data, options.talk, encoding, columns, core.loss)
        with bar(options.talk, "reading") as shown:
            found = Scan(data, shown.at_pass).passed(dict[int, WeightedPoints], dict.__setitem__)
        parts = ChainMap(*found)
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
