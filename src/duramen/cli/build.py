"""``duramen build``: a coreset of a file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.cli.files import check_target
from duramen.cli.losses import add_loss, check_label, loss_of
from duramen.cli.options import add_columns, add_output, add_sampling, column_options
from duramen.cli.parser import add_command

if TYPE_CHECKING:
    from duramen.cli.cores import CoreFile
    from duramen.coreset import Coreset

__all__ = ["add_parser", "built", "facts"]

SIZE = 4000


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "build",
        run,
        help="a coreset of a file",
        text="Reads a file in batches, twice, and writes a coreset of it: few weighted rows that stand for "
        "all. How columns became numbers is kept in the coreset's file.",
        example="duramen build rows.parquet -o core.parquet --loss logistic --label y --outliers 2%",
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="a Parquet, CSV, TSV, Arrow or .npz file")
    add_output(parser, "where to write the coreset, a Parquet file")
    add_loss(parser, required=True)
    add_columns(parser)
    add_sampling(parser)


def run(options: argparse.Namespace) -> None:
    """Read, build, write, and say what was built."""
    from duramen.cli.cores import write_core

    check_label(options)
    check_target(options.output, force=options.force, inputs=[options.data], suffixes=(".parquet",))
    start = time.perf_counter()
    file = built(options)
    write_core(options.output, file)
    seconds = time.perf_counter() - start
    options.talk.say(f"{file.core!r}\nwritten to {options.output} in {seconds:.1f} seconds")
    options.talk.emit("build", core=options.output, seconds=seconds, **facts(file.core))


def built(options: argparse.Namespace) -> CoreFile:
    """Build the coreset of a file, as the options say."""
    from duramen.cli.cores import CoreFile
    from duramen.cli.data import learned, names_in, passes
    from duramen.cli.progress import bar
    from duramen.coreset.build import streamed_coreset

    wanted = column_options(options)
    data = learned(options.data, wanted, options.talk, options.loss, options.classes)
    classes = data.encoding.classes
    loss = loss_of(options, None if classes is None else len(classes))
    with bar(options.talk, "building") as shown:
        core = streamed_coreset(
            passes(data, shown, "building"),
            loss=loss,
            size=options.size or SIZE,
            n_outliers=options.outliers or 0,
            sampler=options.sampler or "auto",
            suspects="auto" if options.suspects is None else options.suspects,
            calibrate=not options.no_calibrate,
            random_state=options.seed,
            columns=data.encoding.names,
        )
    return CoreFile(core, data.encoding, names_in(data, core.ids, options.talk))


def facts(core: Coreset) -> dict[str, Any]:
    """Collect what JSON says of a coreset."""
    return {
        "loss": repr(core.loss),
        "n_rows": len(core),
        "n_columns": core.points.n_columns,
        "n_points": core.n_points,
        "total_weight": core.total_weight,
        "n_outliers": core.n_outliers,
        "n_suspected": core.n_suspected,
        "threshold": core.threshold,
        "sampler": core.sampler,
        "calibrated": core.calibrated,
    }
