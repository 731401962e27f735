"""``duramen paper``: the paper's tables and figures, run again on this machine."""

from __future__ import annotations

import argparse
import functools
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.cli.errors import Interrupted
from duramen.cli.options import at_least
from duramen.cli.parser import add_command

if TYPE_CHECKING:
    from experiments.paper.data import Table
    from experiments.paper.experiment import Experiment, Results

__all__ = ["add_parser"]

_PARTS = {
    "table1": ("table1",),
    "table2": ("table2",),
    "figure3": ("figure3", "figure3c"),
    "attacks": ("attacks",),
    "dynamic": ("dynamic",),
}
_LEAST_ROWS = 20_000
_OUTLIERS = 10_000  # the paper's; of less than half as many rows as Covertype has, as large a share


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "paper",
        run,
        help="the paper's tables and figures, run again on this machine",
        text="Runs an experiment of the paper and prints its table: the paper's figures, its methods here, "
        "and this library at its best. table1 is logistic regression on Covertype; table2 k-means on the 3D "
        "Road Network, or on britain_magnetic_3d where that is not given; figure3 loss and accuracy against "
        "the size, and the speed-up of updates. Beyond the paper: attacks, plain against robust as "
        "contamination grows; dynamic, the life of a coreset whose data come and go. Figures go to JSON, "
        "Markdown and pictures in a folder, step by step; the same command again goes on from there.",
        example="duramen paper table1 --data ../shared/data --trials 5 --out paper",
    )
    parser.add_argument("which", choices=(*_PARTS, "all"), help="what to run")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder of covertype.parquet, and of 3D_spatial_network.txt or britain_magnetic_3d.parquet "
        "(default: DURAMEN_DATA, or ../shared/data; Covertype is else downloaded by scikit-learn)",
    )
    parser.add_argument(
        "--trials",
        type=at_least(1),
        default=5,
        metavar="N",
        help="trials, each contaminated anew (default: 5)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("duramen-paper"),
        metavar="DIR",
        help="the folder that the results are kept in (default: duramen-paper)",
    )
    parser.add_argument("--fresh", action="store_true", help="do again what the folder has already")
    parser.add_argument("--no-plots", action="store_true", help="draw no pictures, which need duramen[plot]")
    parser.add_argument("--made-up", action="store_true", help="take made-up data of the same shape instead")
    parser.add_argument(
        "--rows", type=at_least(_LEAST_ROWS), metavar="N", help="how many made-up rows (default: as many)"
    )


def run(options: argparse.Namespace) -> None:
    """Run what was asked for, one experiment after the other, and print each table."""
    from duramen.extras import needed

    if options.rows is not None and not options.made_up:
        raise ValueError(f"--rows {options.rows} is for made-up data; add --made-up, or leave it out")
    if options.made_up and options.data is not None:
        raise ValueError(f"--data {options.data} and --made-up exclude each other; leave one out")
    if not options.no_plots:
        needed("matplotlib", "duramen paper, for pictures (--no-plots goes without),", "plot")
    _check_folder(options.out)
    data, found = _Data(options), []
    wanted = [name for part in _PARTS if options.which in (part, "all") for name in _PARTS[part]]
    for name in wanted:
        experiment = _experiment(name, data, options.trials)
        options.out.mkdir(parents=True, exist_ok=True)
        results = _watched(experiment, options)
        options.talk.say(experiment.summary(results))
        found.append({"name": name, "settings": experiment.settings, "found": results.records})
    options.talk.say(f"figures, pages and pictures are in {options.out}")
    options.talk.emit("paper", which=options.which, out=options.out, experiments=found)


def _check_folder(out: Path) -> None:
    """Refuse a folder that nothing can be written to, before anything takes time."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder for the results")
    there = next(one for one in (out.absolute(), *out.absolute().parents) if one.exists())
    if not os.access(there, os.W_OK):
        raise ValueError(f"--out {out}: nothing can be written to {there}; name another folder")


def _watched(experiment: Experiment, options: argparse.Namespace) -> Results:
    """Run an experiment under a bar."""
    from duramen.cli.progress import bar
    from experiments.paper.experiment import run as run_experiment

    with bar(options.talk, experiment.name) as shown:

        def watch(step: str, share: float) -> None:
            shown.begin(f"{experiment.name}: {step}")
            shown.at(share)

        try:
            return run_experiment(
                experiment,
                options.out,
                command=_command(options),
                fresh=options.fresh,
                plots=not options.no_plots,
                watch=watch,
            )
        except KeyboardInterrupt:
            same = "the same command without --fresh" if options.fresh else "the same command"
            raise Interrupted(
                f"interrupted; what is done is kept in {options.out}, and {same} goes on from there"
            ) from None


def _experiment(name: str, data: _Data, trials: int) -> Experiment:
    """Make an experiment on the data that it is about."""
    from experiments.paper.attacks import Attacks
    from experiments.paper.dynamic import Dynamic
    from experiments.paper.figure3 import Figure3
    from experiments.paper.figure3c import Figure3c
    from experiments.paper.table1 import Table1
    from experiments.paper.table2 import Table2

    if name == "table2":
        return Table2(data.spatial, _outliers(data.spatial), trials)
    table = data.covertype
    z = _outliers(table)
    if name == "attacks":
        return Attacks(table, z, trials)
    if name == "dynamic":
        return Dynamic(table, z / len(table.X), trials)
    if name == "figure3c":
        return Figure3c(table, z, trials)
    return {"table1": Table1, "figure3": Figure3}[name](table, z, z, trials)


class _Data:
    """The two datasets, each loaded when it is first asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    @functools.cached_property
    def covertype(self) -> Table:
        """Covertype: found, downloaded or made up."""
        from experiments.paper import data

        if self._options.made_up:
            return data.made_up_covertype(self._options.rows or data.ROWS)
        try:
            return data.covertype(self._options.data)
        except data.MissingDataError:
            if self._options.data is not None:
                raise
            self._options.talk.warn("covertype.parquet is not here: scikit-learn downloads Covertype, 11 MB")
            return data.covertype(fetch=True)

    @functools.cached_property
    def spatial(self) -> Table:
        """The 3D Road Network, or what stands in for it."""
        from experiments.paper import data

        if self._options.made_up:
            return data.made_up_survey(self._options.rows or data.POINTS)
        return data.spatial(self._options.data)


def _outliers(table: Table) -> int:
    """Give the paper's number of outliers, and of test rows."""
    from experiments.paper.data import ROWS

    rows = len(table.X)
    if rows < _LEAST_ROWS:
        raise ValueError(
            f"{table.name} has {rows:,} rows here, too few to show anything; {_LEAST_ROWS:,} are needed"
        )
    return _OUTLIERS if rows > ROWS // 2 else max(100, round(rows * _OUTLIERS / ROWS))


def _command(options: argparse.Namespace) -> str:
    """Write the command with every option that decides the figures."""
    words = ["duramen", "paper", options.which, "--trials", str(options.trials)]
    if options.made_up:
        words += ["--made-up", *(["--rows", str(options.rows)] if options.rows else [])]
    return shlex.join(words)
