"""``duramen predict``: what a model says of every row of a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from duramen.cli.files import check_source, check_target
from duramen.cli.options import add_output
from duramen.cli.output import naming, standard_output
from duramen.cli.parser import add_command

if TYPE_CHECKING:
    from duramen.arrays import Array
    from duramen.cli.data import DataFile
    from duramen.cli.model import Model

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "predict",
        run,
        help="what a model says of every row of a file",
        text="Reads a file in batches and writes one line a row: its id, and a class with probabilities, a "
        "value, or a cluster with the distance to its centre. Labels are not needed.",
        example="duramen predict model.json new.parquet -o predictions.parquet",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, as duramen fit writes it")
    parser.add_argument("data", type=Path, metavar="DATA", help="a Parquet, CSV, TSV, Arrow or .npz file")
    add_output(parser, "where to write: .parquet, .csv, or - for CSV on standard output")


def run(options: argparse.Namespace) -> None:
    """Read, predict and write, batch by batch."""
    from duramen.cli.data import options_of
    from duramen.cli.model import read_model
    from duramen.cli.prediction import predictions
    from duramen.cli.progress import bar

    check_source(options.model)
    check_source(options.data)
    to_stdout = str(options.output) == "-"
    if to_stdout:
        if sys.stdout is None:
            raise ValueError("-o - writes predictions to standard output, which is closed; name a file")
        if options.json:
            raise ValueError(
                "-o - writes predictions to standard output, where --json writes too; name a file"
            )
        options.talk.aside = True
    else:
        inputs = [options.model, options.data]
        check_target(options.output, force=options.force, inputs=inputs, suffixes=(".parquet", ".csv"))
    model = read_model(options.model)
    data = _data(model, options.data, options.talk)
    n_rows, names = 0, []
    with (
        _writer(options.output, model.classes) as writer,
        bar(options.talk, "predicting") as shown,
        options_of("duramen build and fit, which learn"),
    ):
        for batch, rows in data.encoding.read(data.table):
            ids = rows.ids if rows.ids is not None else np.arange(batch.first, batch.first + len(batch))
            columns = {"id": ids, **predictions(model, rows.X)}
            names = list(columns)
            writer.write(columns)
            n_rows += len(batch)
            shown.at(batch.done, n_rows)
        if not n_rows:
            raise ValueError(f"{options.data} has no rows to predict")
    options.talk.say(f"{n_rows:,} rows predicted{'' if to_stdout else f', written to {options.output}'}")
    options.talk.emit(
        "predict", predictions=options.output, model=options.model, n_rows=n_rows, columns=names
    )


def _data(model: Model, path: Path, talk: Any) -> DataFile:
    """Open the file, with the model's encoding less what prediction does not need."""
    from duramen.cli.data import DataFile, learned, open_data

    if model.encoding is None:
        wanted = {} if model.columns is None else {"features": list(model.columns)}
        data = learned(path, wanted, talk)
    else:
        table = open_data(path)
        unnamed = () if model.encoding.id in table.columns else ("id",)
        data = DataFile(table, model.encoding.without("label", "weight", *unnamed))
    width = model.theta.shape[-1] - bool(getattr(model.loss, "fit_intercept", False))
    if len(data.encoding.names) != width:
        raise ValueError(
            f"{path} has {len(data.encoding.names)} columns and the model {width}; pass a file like it"
        )
    return data


class _Writer(Protocol):
    """Whatever takes columns, batch by batch."""

    def write(self, columns: dict[str, Any]) -> None: ...


@contextmanager
def _writer(output: Path, classes: list[Any] | None) -> Iterator[_Writer]:
    """Open what writes predictions; a file is in its place only when all is written."""
    from duramen.files import replacing

    if str(output) == "-":
        yield _Csv(sys.stdout, standard_output)
    elif output.suffix.lower() == ".csv":
        import io

        with naming(str(output)), replacing(output) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            yield _Csv(text, nullcontext)
            text.flush()
            text.detach()
    else:
        with naming(str(output)), replacing(output) as file:
            made = _Parquet(file, classes)
            try:
                yield made
            finally:
                made.close()  # before the file; after an error it is thrown away


class _Csv:
    """Predictions as CSV: a header, then one line a row."""

    def __init__(self, stream: Any, guard: Callable[[], AbstractContextManager[None]]) -> None:
        import csv

        self._guard = guard
        self._lines = csv.writer(stream, lineterminator="\n")
        self._begun = False

    def write(self, columns: dict[str, Any]) -> None:
        with self._guard():
            if not self._begun:
                self._lines.writerow(columns)
                self._begun = True
            self._lines.writerows(zip(*map(_listed, columns.values()), strict=True))


class _Parquet:
    """Predictions as Parquet: one row group a batch. All classes decide the type of a class."""

    def __init__(self, file: Any, classes: list[Any] | None) -> None:
        self._file, self._classes = file, classes
        self._open: Any = None

    def write(self, columns: dict[str, Any]) -> None:
        from duramen.extras import needed

        pa = needed("pyarrow", "writing Parquet", "frames")
        parquet = needed("pyarrow.parquet", "writing Parquet", "frames")
        kinds = {} if self._classes is None else {"class": pa.array(self._classes).type}
        table = pa.table(
            {name: pa.array(_listed(part), type=kinds.get(name)) for name, part in columns.items()}
        )
        if self._open is None:
            self._open = parquet.ParquetWriter(self._file, table.schema, compression="zstd")
        self._open.write_table(table.cast(self._open.schema))

    def close(self) -> None:
        """Write the end of the file."""
        if self._open is not None:
            self._open.close()


def _listed(column: Array | list[Any]) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
