"""Run the suite: ``python -m experiments.attacks``."""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from functools import partial
from pathlib import Path

from duramen.extras import needed
from experiments.attacks.contenders import Cell, run
from experiments.attacks.pages import Grid, draw, gridded, page
from experiments.attacks.situations import CORE, DEVELOPMENT, FILES, FOLDER, HELD_OUT, SWEEP
from experiments.paper.experiment import save_picture
from experiments.paper.pages import machine

MARK = "<!-- from here on written by python -m experiments.attacks -->"


def main(arguments: list[str] | None = None) -> None:
    """Run the suite; write every cell, the page and the picture."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _options(words)
    file = options.out / "cells.csv"
    if not options.redraw:
        about = shlex.join(["python", "-m", "experiments.attacks", *words]), machine()
        attacks = CORE if options.core else [*CORE, *SWEEP]
        cells = run(options.tables, attacks, options.rows, options.seed, options.jobs)
        options.out.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([about, Cell._fields, *cells])
    (command, where), grid = read(file)
    save_picture(options.out / "losses", partial(draw, grid))
    target = options.out.with_suffix(".md")
    prose = target.read_text() if target.exists() else "# Attacks on classifiers\n\n"
    made = f"{MARK}\n\n## Counts\n\nMade by\n\n    {command}\n\non {where}.\n\n"
    target.write_text(prose.partition(MARK)[0] + made + page(grid))
    print(f"{target} and {options.out} are written")


def read(file: Path) -> tuple[list[str], Grid]:
    """Read the command that made the cells and where it ran, and the cells."""
    with file.open(newline="") as lines:
        about, _, *cells = csv.reader(lines)
    return about, gridded(Cell(a, b, float(c), d, *map(float, figures)) for a, b, c, d, *figures in cells)


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.attacks",
        description="Attacks training rows in every way, and compares contenders, robust and plain.",
        epilog="example: python -m experiments.attacks --core --tables covertype celeba_attr --out attacks",
    )
    add = parser.add_argument
    add("--rows", type=int, default=10_000, help="training rows of a table (default: 10,000)")
    tables = (*DEVELOPMENT, *HELD_OUT)
    listed = "default: all; " + ", ".join(tables)
    add("--tables", nargs="+", choices=tables, default=tables, metavar="TABLE", help=listed)
    add("--core", action="store_true", help="only the eleven situations, without the sweep")
    place = "the folder of the cells and the picture; the page is DIR.md (default: docs/attacks)"
    add("--out", type=Path, default=Path("docs/attacks"), metavar="DIR", help=place)
    add("--seed", type=int, default=0, help="decides splits and attacks (default: 0)")
    add("--jobs", type=int, default=-1, help="tables at a time (default: one per core)")
    add("--redraw", action="store_true", help="run nothing: page and picture from the cells in DIR")
    options = parser.parse_args(words)
    if options.rows < 500 or options.seed < 0 or not options.jobs:
        parser.error("--rows must be 500 or more, --seed 0 or more, and --jobs not 0")
    needed("matplotlib", "experiments.attacks", "plot")
    missing = [name for name in options.tables if name in FILES and not (FOLDER / f"{name}.parquet").exists()]
    if missing and not options.redraw:
        parser.error(
            f"there is no {missing[0]}.parquet in {FOLDER}; set DURAMEN_DATA, or choose among --tables"
        )
    return options


if __name__ == "__main__":
    main()
