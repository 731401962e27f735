"""``duramen demo``: what a few planted rows do to an ordinary fit, and to one on a robust coreset."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from duramen.cli.demo.data import contaminated, n_planted
from duramen.cli.demo.fits import FITS, compare
from duramen.cli.demo.picture import save_picture
from duramen.cli.demo.progress import steps
from duramen.cli.demo.report import opening, own_word, table

__all__ = ["add_parser"]

_ROWS, _SIZE = 1_000_000, 4000
_FEWEST_ROWS, _SMALLEST = 5000, 500  # below, one fit differs from the next by chance


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="a million rows with outliers: everything, a plain and a robust coreset, side by side",
        description="Fits rows of which an adversary planted some: with scikit-learn and trimmed, on "
        "everything; on a plain coreset; and on a robust one. Prints a table and saves a picture.",
        epilog="example: duramen demo --rows 200000 --outliers 1% --picture demo.png",
    )
    parser.add_argument("--rows", type=int, default=_ROWS, help=f"how many rows to make (default: {_ROWS:,})")
    parser.add_argument(
        "--outliers", type=share, default=0.02, help="share of planted rows, as 0.02 or 2%% (default: 2%%)"
    )
    parser.add_argument(
        "--size", type=int, help=f"rows of a coreset (default: {_SIZE:,}, or a fifth of few rows)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides all that is random (default: 0)")
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("duramen-demo.png"),
        help="where to save the picture (default: duramen-demo.png; needs the plot extra)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the data, fit them side by side, print a table and save a picture."""
    size = min(_SIZE, options.rows // 5) if options.size is None else options.size
    _check(options, size)
    start = time.perf_counter()
    print(opening(options.rows, n_planted(options.rows, options.outliers)), flush=True)
    with steps(1 + len(FITS)) as begin:
        begin(f"making {options.rows:,} rows")
        sample = contaminated(options.rows, options.outliers, options.seed)
        found = compare(sample, size, options.seed, begin)
    print(f"{table(found)}\n\n{own_word(found)}\n", flush=True)
    print(save_picture(sample, found, options.picture))
    print(f"in all {time.perf_counter() - start:.0f} seconds")


def share(text: str) -> float:
    """Read a share: 0.02, or 2%."""
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _check(options: argparse.Namespace, size: int) -> None:
    """Refuse options that cannot be, before anything takes time."""
    rows, picture = options.rows, options.picture
    if rows < _FEWEST_ROWS:
        raise ValueError(f"--rows {rows} is too few to show anything; take {_FEWEST_ROWS} or more")
    if not 0 < options.outliers <= 0.2:
        raise ValueError(f"--outliers {options.outliers:g} must be above 0 and at most 0.2 (20%)")
    if not _SMALLEST <= size <= rows // 2:
        raise ValueError(f"--size {size} must be between {_SMALLEST} and {rows // 2}, half the rows")
    if options.seed < 0:
        raise ValueError(f"--seed {options.seed} must be 0 or more")
    if not picture.absolute().parent.is_dir():
        raise ValueError(f"--picture {picture}: there is no folder {picture.parent}")
    if picture.is_dir():
        raise ValueError(f"--picture {picture} is a folder; name a file in it")
    if picture.suffix.lower() != ".png":
        raise ValueError(f"--picture {picture} must end in .png, which is what is written")
    if not os.access(picture.absolute().parent, os.W_OK):
        raise ValueError(f"--picture {picture}: nothing can be written to that folder; name another")
