"""Run the paper's tables and figures: ``python -m experiments.paper all``, or one of its parts."""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from duramen.extras import needed
from experiments.paper import data
from experiments.paper.attacks import Attacks
from experiments.paper.data import Table
from experiments.paper.dynamic import Dynamic
from experiments.paper.experiment import Experiment, run
from experiments.paper.figure3 import Figure3
from experiments.paper.figure3c import Figure3c
from experiments.paper.table1 import Table1
from experiments.paper.table2 import Table2

PARTS = {
    "table1": ("table1",),
    "table2": ("table2",),
    "figure3": ("figure3", "figure3c"),
    "attacks": ("attacks",),
    "dynamic": ("dynamic",),
}
_LEAST_ROWS = 20_000
_OUTLIERS = 10_000  # as in the paper; the same share if there are less than half as many rows as in Covertype


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, one experiment after the other; print each table, and return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        check_options(options)
        tables = Tables(options)
        for name in (name for part in PARTS if options.which in (part, "all") for name in PARTS[part]):
            experiment = make_experiment(name, tables, options.trials)
            options.out.mkdir(parents=True, exist_ok=True)
            print(experiment.summary(run_experiment(experiment, options)))
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        same = "the same command without --fresh" if options.fresh else "the same command"
        print(f"interrupted; results so far are in {options.out}, and {same} continues", file=sys.stderr)
        return 130
    print(f"figures, pages and pictures are in {options.out}")
    return 0


def make_parser() -> Parser:
    """Build the parser."""
    parser = Parser(
        prog="python -m experiments.paper",
        description="Runs an experiment of the paper and prints its table: the paper's figures, its methods "
        "here, and this library at its best. table1 is logistic regression on Covertype; table2 k-means on "
        "the 3D Road Network, or on britain_magnetic_3d where that is not given; figure3 loss and accuracy "
        "against the size, and the speed-up of updates. Beyond the paper: attacks, plain against robust as "
        "contamination grows; dynamic, a coreset whose data change. Results are written to JSON, "
        "Markdown and pictures step by step; the same command continues where it was interrupted.",
        epilog="example: python -m experiments.paper table1 --trials 5 --out paper",
    )
    parser.add_argument("which", choices=(*PARTS, "all"), help="what to run")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder of covertype.parquet, and of 3D_spatial_network.txt or britain_magnetic_3d.parquet "
        "(default: DURAMEN_DATA, or ../shared/data; else scikit-learn downloads Covertype)",
    )
    parser.add_argument("--trials", type=int, default=5, metavar="N", help="contaminations (default: 5)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("duramen-paper"),
        metavar="DIR",
        help="the folder for the results (default: duramen-paper)",
    )
    parser.add_argument("--fresh", action="store_true", help="run again what the folder has already")
    parser.add_argument("--no-plots", action="store_true", help="draw no pictures, which need duramen[plot]")
    parser.add_argument("--made-up", action="store_true", help="use made-up data of the same shape")
    parser.add_argument("--rows", type=int, metavar="N", help="how many made-up rows (default: as many)")
    return parser


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot work, before anything takes time."""
    if options.trials < 1:
        raise ValueError(f"--trials {options.trials} must be 1 or more")
    if options.rows is not None and not options.made_up:
        raise ValueError(f"--rows {options.rows} is for made-up data; add --made-up, or leave it out")
    if options.rows is not None and options.rows < _LEAST_ROWS:
        raise ValueError(f"--rows {options.rows} must be {_LEAST_ROWS} or more")
    if options.made_up and options.data is not None:
        raise ValueError(f"--data {options.data} and --made-up exclude each other; leave one out")
    if not options.no_plots:
        needed("matplotlib", "experiments.paper, for pictures (--no-plots does without),", "plot")
    out = options.out
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder for the results")
    existing = next(one for one in (out.absolute(), *out.absolute().parents) if one.exists())
    if not os.access(existing, os.W_OK):
        raise ValueError(f"--out {out}: {existing} is not writable; name another folder")


def run_experiment(experiment: Experiment, options: argparse.Namespace) -> object:
    """Run an experiment, printing each step to standard error."""

    def watch(step: str, share: float) -> None:
        print(f"{share:4.0%} {experiment.name}: {step}", file=sys.stderr)

    words = ["python", "-m", "experiments.paper", options.which, "--trials", str(options.trials)]
    words += ["--made-up"] * options.made_up + (["--rows", str(options.rows)] if options.rows else [])
    return run(
        experiment,
        options.out,
        command=shlex.join(words),
        fresh=options.fresh,
        plots=not options.no_plots,
        watch=watch,
    )


def make_experiment(name: str, tables: Tables, trials: int) -> Experiment:
    """Build an experiment on the data it is about."""
    table = tables.spatial if name == "table2" else tables.covertype
    z = n_outliers(table)
    if name in ("table1", "figure3"):
        return {"table1": Table1, "figure3": Figure3}[name](table, z, z, trials)
    if name == "dynamic":
        return Dynamic(table, z / len(table.X), trials)
    return {"table2": Table2, "figure3c": Figure3c, "attacks": Attacks}[name](table, z, trials)


def n_outliers(table: Table) -> int:
    """Return the paper's number of outliers, and of test rows; for a smaller table the same share."""
    rows = len(table.X)
    if rows < _LEAST_ROWS:
        raise ValueError(
            f"{table.name} has {rows:,} rows here, too few to show anything; {_LEAST_ROWS:,} are needed"
        )
    return _OUTLIERS if rows > data.ROWS // 2 else max(100, round(rows * _OUTLIERS / data.ROWS))


class Tables:
    """The two datasets, each loaded when first needed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    @functools.cached_property
    def covertype(self) -> Table:
        """Covertype: found, downloaded or made up."""
        if self._options.made_up:
            return data.made_up_covertype(self._options.rows or data.ROWS)
        try:
            return data.covertype(self._options.data)
        except data.MissingDataError:
            if self._options.data is not None:
                raise
            print("covertype.parquet is not here: scikit-learn downloads Covertype, 11 MB", file=sys.stderr)
            return data.covertype(fetch=True)

    @functools.cached_property
    def spatial(self) -> Table:
        """The 3D Road Network, or what stands in for it."""
        if self._options.made_up:
            return data.made_up_survey(self._options.rows or data.POINTS)
        return data.spatial(self._options.data)


if __name__ == "__main__":
    sys.exit(main())
