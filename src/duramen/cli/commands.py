"""The commands ``build``, ``fit``, ``predict``, ``certify`` and ``report``."""

from __future__ import annotations

import csv
import io
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.certificate import certify
from duramen.cli.data import (
    KINDS,
    CoreFile,
    advance,
    build_core,
    core_facts,
    core_of,
    kind_of,
    learn_data,
    open_data,
    options_of,
    read_core,
    read_data,
    write_core,
)
from duramen.cli.model import Model, make_model, predict_rows, read_model, write_model
from duramen.cli.options import (
    BUILDING,
    COLUMNS,
    add_columns,
    add_data,
    add_loss,
    add_output,
    add_sampling,
    add_seed,
    at_least,
    check_loss,
    check_same_loss,
    check_source,
    column_settings,
    number,
    refuse_options,
)
from duramen.cli.output import Output, bar, fields_of, naming, standard_output
from duramen.cli.parser import add_command
from duramen.extras import needed
from duramen.files import replacing
from duramen.io.scan import Scan, TableSource
from duramen.points import WeightedPoints
from duramen.progress import Bar
from duramen.store.store import open_store

if TYPE_CHECKING:
    from duramen.certificate import Certificate
    from duramen.coreset.estimate import Estimate
    from duramen.solvers.solve import Solution

_LEARNING = "duramen build and fit, which learn"
_QUICK = 8_000_000  # numbers on which a certificate takes a few seconds


def add_build_fit_predict_certify(commands: Any) -> None:
    """Add the commands on coresets and models to the parser."""
    parser = add_command(commands, "build", build)
    add_data(parser)
    add_output(parser, "the coreset to write, a Parquet file", ".parquet")
    add_loss(parser, required=True)
    add_columns(parser)
    add_sampling(parser)

    parser = add_command(commands, "fit", fit)
    parser.add_argument("source", type=Path, metavar="CORE|STORE|DATA", help="what to learn from")
    add_output(parser, "the model to write, a JSON file (default: none)", ".json", required=False)
    add = parser.add_argument_group("solver").add_argument
    add("--l2", type=number, default=0.0, metavar="L", help="penalty on the coefficients (default: 0)")
    add("--starts", type=at_least(1), default=1, metavar="N", help="number of starts (default: 1)")
    add("--max-iter", type=at_least(1), default=300, metavar="N", help="iterations per start (default: 300)")
    add("--tol", type=number, metavar="SHARE", help="stop when an iteration gains less than this share")
    top = "how many of the rows set aside to list (default: 10)"
    parser.add_argument("--top", type=at_least(0), default=10, metavar="N", help=top)
    add_loss(parser, required=False)
    add_columns(parser)
    add_sampling(parser)

    parser = add_command(commands, "predict", predict)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model written by duramen fit")
    add_data(parser)
    predictions = "the file to write: .parquet, .csv, or - for CSV on standard output"
    add_output(parser, predictions, ".parquet", ".csv", "-")

    parser = add_command(commands, "certify", run_certify)
    parser.add_argument("core", type=Path, metavar="CORE", help="a coreset written by duramen build")
    add_data(parser, "the data that it was built from")
    add = parser.add_argument
    add("--radius", type=number, metavar="R", help="how far from the anchor to search (default: its radius)")
    add("--probes", type=at_least(1), default=64, metavar="N", help="random parameters to try (default: 64)")
    add("--steps", type=at_least(0), default=20, metavar="N", help="ascent steps (default: 20)")
    add_seed(parser)
    add_columns(parser)


def add_report(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(commands, "report", report)
    parser.add_argument("source", type=Path, metavar="STORE|CORE", help="a store, or a coreset's file")
    add_output(parser, "the page to write, an HTML file", ".html", ".htm")
    parser.add_argument(
        "--data", type=Path, help="the data of the coreset, to certify it; must fit in memory"
    )
    parser.add_argument("--certify", action="store_true", help="certify a store even if it has many points")
    parser.add_argument("--title", help="the title of the page (default: the name of the file)")
    add_seed(parser)


def build(options: Namespace) -> None:
    """Build a coreset of a file.

    The file is read in batches, twice. The coreset is a small set of weighted rows that
    represents all of them; its file also stores how columns became numbers.

    example: duramen build rows.parquet -o core.parquet --loss logistic --label y --outliers 2%
    """
    check_loss(options)
    start = time.perf_counter()
    file = build_core(options.data, options)
    write_core(options.output, file)
    seconds = time.perf_counter() - start
    options.talk.result(
        "build",
        f"{file.core!r}\nwritten to {options.output} in {seconds:.1f} seconds",
        core=options.output,
        seconds=seconds,
        **core_facts(file.core),
    )


def fit(options: Namespace) -> None:
    """Fit a model to a coreset, a store or data.

    The outliers are set aside and listed. From data, a coreset is built first, as by duramen
    build. The model is a JSON file for duramen predict.

    example: duramen fit core.parquet -o model.json
    """
    from duramen.solvers.solve import solve

    start = time.perf_counter()
    kind, file = _load_core(options.source, options)
    solution = solve(
        file.core,
        n_outliers=None if kind == "data" else options.outliers,
        l2=options.l2,
        n_starts=options.starts,
        random_state=options.seed,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    share = solution.n_outliers / solution.total_weight  # a weight below 1 would be taken for a share
    estimate = file.core.estimate(solution.theta, share)
    model = make_model(file, solution, estimate, options.l2)
    if options.output is not None:
        write_model(options.output, model)
    aside = _set_aside(file, solution, options.top)
    options.talk.result(
        "fit",
        _describe_fit(options, solution, estimate, aside),
        source=options.source,
        kind=kind,
        model=options.output,
        loss=repr(solution.loss),
        theta=solution.theta,
        columns=model.columns,
        classes=model.classes,
        n_set_aside=len(solution.outliers),
        set_aside=aside,
        seconds=time.perf_counter() - start,
        **{name: value for name, value in model.facts.items() if name != "made_by"},
    )


def _load_core(path: Path, options: Namespace) -> tuple[str, CoreFile]:
    """Load a coreset from its file or a store, or build it from data; return the kind of source, too."""
    kind = kind_of(path)
    if kind == "model":
        raise ValueError(f"{path} is an already fitted model; use it with duramen predict")
    if kind == "data":
        if options.loss is None:
            raise ValueError(f"{path} is data, so a loss is needed; pass --loss, such as --loss logistic")
        check_loss(options)
        return kind, build_core(path, options)
    refuse_options(options, BUILDING, f"{path} is a {KINDS[kind]}, whose columns and size are fixed")
    if kind == "core":
        file = read_core(path)
    else:
        with open_store(path, read_only=True) as store:
            file = core_of(store)
    check_same_loss(options, file.core.loss, path)
    return kind, file


def _set_aside(file: CoreFile, solution: Solution, top: int) -> list[dict[str, Any]]:
    """List the rows that were set aside, largest loss first: id, weight and loss."""
    core, ids = file.core, solution.outliers[:top]
    if not len(ids):
        return []
    place = {int(one): row for row, one in enumerate(core.ids)}
    points = core.points.take([place[int(one)] for one in ids])
    losses = core.loss.values(solution.theta, points.X, points.y)
    return [
        {"id": file.name_of(int(one)), "weight": float(weight), "loss": float(loss)}
        for one, weight, loss in zip(ids, solution.aside, losses, strict=False)
    ]


def _describe_fit(
    options: Namespace, solution: Solution, estimate: Estimate, aside: list[dict[str, Any]]
) -> str:
    from duramen.coreset.display import interval

    about = (
        f"  f_z on all the data: {interval(estimate, ' +- ')}, estimated from the coreset (standard error)"
    )
    lines = [repr(solution), about]
    if aside:
        lines += ["set aside, largest loss first:", f"  {'id':<24}{'weight':>12}{'loss':>14}"]
        lines += [f"  {one['id']!s:<24}{one['weight']:>12.6g}{one['loss']:>14.6g}" for one in aside]
        if len(aside) < len(solution.outliers):
            lines.append(f"  ... and {len(solution.outliers) - len(aside):,} more (see --top)")
    if options.output is not None:
        lines.append(f"written to {options.output}")
    return "\n".join(lines)


def predict(options: Namespace) -> None:
    """Predict every row of a file with a model.

    The file is read in batches, and one line is written per row: its id, and a class with
    probabilities, a value, or a cluster with the distance to its centre. Labels are not needed.

    example: duramen predict model.json new.parquet -o predictions.parquet
    """
    check_source(options.model)
    to_stdout = str(options.output) == "-"
    if to_stdout:
        if sys.stdout is None or options.json:
            why = "where --json also prints" if options.json else "which is closed"
            raise ValueError(f"-o - writes predictions to standard output, {why}; name a file")
        options.talk.aside = True
    model = read_model(options.model)
    data = _data_for(model, options.data, options.talk)
    n_rows = 0
    columns: dict[str, Any] = {}

    def predictions(shown: Bar) -> Iterator[dict[str, list[Any]]]:
        nonlocal n_rows, columns
        for batch, rows in data.encoding.read(data.table):
            ids = range(batch.first, batch.first + len(batch)) if rows.ids is None else rows.ids
            columns = {"id": ids, **predict_rows(model, rows.X)}
            yield {
                name: part.tolist() if isinstance(part, np.ndarray) else list(part)
                for name, part in columns.items()
            }
            n_rows += len(batch)
            advance(shown, batch)
        if not n_rows:
            raise ValueError(f"{options.data} has no rows to predict")

    with bar(options.talk, "predicting") as shown, options_of(_LEARNING):
        _write(options.output, predictions(shown), model.classes)
    options.talk.result(
        "predict",
        f"{n_rows:,} rows predicted{'' if to_stdout else f', written to {options.output}'}",
        predictions=options.output,
        model=options.model,
        n_rows=n_rows,
        columns=list(columns),
    )


def _data_for(model: Model, path: Path, talk: Output) -> TableSource:
    """Open the file with the model's encoding, without what prediction does not need."""
    if model.encoding is None:
        data = learn_data(path, {} if model.columns is None else {"features": list(model.columns)}, talk)
    else:
        table = open_data(path)
        id = model.encoding.id if model.encoding.id in table.columns else None
        data = TableSource(table, replace(model.encoding, label=None, weight=None, id=id))
    width = len(data.names)
    if width != model.n_columns:
        raise ValueError(f"{path} has {width} columns, but the model has {model.n_columns}")
    return data


Batches = Iterator[dict[str, list[Any]]]


def _write(output: Path, batches: Batches, classes: list[Any] | None) -> None:
    """Write predictions batch by batch; the file appears only once it is complete."""
    if str(output) == "-":
        _write_csv(sys.stdout, batches, standard_output)
        return
    with naming(str(output)), replacing(output) as file:
        if output.suffix.lower() == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            _write_csv(text, batches, nullcontext)
            text.detach()
        else:
            _write_parquet(file, batches, classes)


def _write_csv(stream: Any, batches: Batches, guard: Callable[[], AbstractContextManager[None]]) -> None:
    """Write CSV: a header, then one line per row."""
    lines = csv.writer(stream, lineterminator="\n")
    for place, columns in enumerate(batches):
        with guard():
            if not place:
                lines.writerow(columns)
            lines.writerows(zip(*columns.values(), strict=True))


def _write_parquet(file: Any, batches: Batches, classes: list[Any] | None) -> None:
    """Write Parquet, one row group per batch; all classes decide the type of a class."""
    pa = needed("pyarrow", "writing Parquet", "frames")
    parquet = needed("pyarrow.parquet", "writing Parquet", "frames")
    types = {} if classes is None else {"class": pa.array(classes).type}
    writer: Any = None
    with ExitStack() as stack:
        for columns in batches:
            table = pa.table({name: pa.array(part, type=types.get(name)) for name, part in columns.items()})
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema, compression="zstd"))
            writer.write_table(table.cast(writer.schema))


def run_certify(options: Namespace) -> None:
    """Measure how far a coreset is from its data.

    The objective on the coreset is compared with that on the data, at random parameters around
    the anchor and along ascent steps that increase the error. All rows of the data must fit in memory.

    example: duramen certify core.parquet rows.parquet
    """
    check_source(options.core)
    file = read_core(options.core)
    if file.encoding is not None:
        refuse_options(options, COLUMNS, f"{options.core} is a coreset, whose columns are fixed")
    certificate = _certify_on_data(
        options,
        file,
        column_settings(options),
        radius=options.radius,
        n_probes=options.probes,
        ascent_steps=options.steps,
    )
    names = ("max_error", "mean_error", "covered", "radius", "n_refused", "n_points", "worst", "search")
    facts = fields_of(certificate, *names)
    options.talk.result(
        "certify",
        repr(certificate),
        core=options.core,
        data=options.data,
        n_probes=len(certificate.errors),
        **facts,
    )


def _certify_on_data(
    options: Namespace, file: CoreFile, columns: dict[str, Any], **settings: Any
) -> Certificate:
    """Certify a coreset on the data of a file, which are encoded like the coreset's."""
    core = file.core
    if core.anchor is None:
        raise ValueError(
            "the coreset has no anchor to certify around; duramen build finds one, as does "
            "duramen store reanchor for a store"
        )
    data = read_data(options.data, file.encoding, columns, options.talk, core.loss)
    with options_of(_LEARNING) if file.encoding else nullcontext(), bar(options.talk, "reading") as shown:
        found = Scan(data, shown.at_pass).passed(dict[int, WeightedPoints], dict.__setitem__)
    parts = sorted(part for one in found for part in one.items())
    if not parts:
        raise ValueError(f"{options.data} has no rows")
    points = WeightedPoints.concat([part for _, part in parts])
    return certify(core, points.X, points.y, points.weights, random_state=options.seed, **settings)


def report(options: Namespace) -> None:
    """Write an HTML page about a coreset or a store.

    The page needs no network. It shows contents, layers, threshold, weights, a picture, which
    rows are suspected and why, and the history of the anchor; and a certificate if the data
    are available: those of a store, or --data.

    example: duramen report customers.duramen -o report.html
    """
    kind = kind_of(options.source)
    if kind not in ("store", "core"):
        raise ValueError(
            f"{options.source} is neither a store nor a coreset; duramen build makes a coreset of data"
        )
    html = _page(options, kind).encode()
    with naming(str(options.output)), replacing(options.output) as file:
        file.write(html)
    options.talk.result(
        "report",
        f"written to {options.output}",
        report=options.output,
        source=options.source,
        kind=kind,
        n_bytes=len(html),
    )


def _page(options: Namespace, kind: str) -> str:
    from duramen.report import report_html

    opened = open_store(options.source, read_only=True) if kind == "store" else nullcontext()
    with opened as store:
        file = read_core(options.source) if store is None else core_of(store)
        return report_html(
            file.core if store is None else store,
            title=options.title or options.source.name,
            certificate=_certificate(options, file, store),
            encoding=file.encoding,
            names=file.names,
        )


def _certificate(options: Namespace, file: CoreFile, store: Any) -> Certificate | None:
    """Certify on --data, or a store on its own points if that is quick or requested."""
    if options.data is not None:
        if file.core.anchor is not None:
            return _certify_on_data(options, file, {})
        options.talk.warn(f"{options.source} has no anchor yet to certify around; no certificate")
    if file.core.anchor is None or store is None:
        return None
    if len(store) * file.core.points.n_columns > _QUICK and not options.certify:
        options.talk.warn(f"certifying on {len(store):,} points takes long and was skipped; pass --certify")
        return None
    points = store.points()
    return certify(file.core, points.X, points.y, points.weights, random_state=options.seed)
