"""Options that the experiments on real data share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from experiments.paper.data import MissingDataError, Table

__all__ = ["Parser", "command_of", "load"]

_LEAST_ROWS = 1000
_ELSEWHERE = ("data", "out")  # options that decide where things are, not what comes out


class Parser(argparse.ArgumentParser):
    """A parser with the options that experiments on real data share; it complains in one line."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=f"python -m {prog}",
            description=description,
            epilog=f"example: python -m {prog} --made-up --rows 20000 --outliers 400 --out page.md",
        )
        self.add_argument(
            "--data",
            type=Path,
            metavar="FOLDER",
            help="where the data are (default: DURAMEN_DATA, or ../shared/data)",
        )
        self.add_argument(
            "--made-up", action="store_true", help="take made-up data of the same shape instead"
        )
        self.add_argument(
            "--rows", type=int, help="how many made-up rows (default: as many as the real ones)"
        )
        self.add_argument(
            "--outliers", type=int, default=10_000, help="how many are planted: z (default: 10,000)"
        )
        self.add_argument(
            "--seeds", type=int, default=5, help="how many seeds, from 0 on: each a trial (default: 5)"
        )
        self.add_argument("--out", type=Path, metavar="FILE.md", help="also write the page to this file")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")

    def checked(self, arguments: list[str] | None) -> argparse.Namespace:
        """Parse, and check what is shared."""
        options = self.parse_args(arguments)
        if options.rows is not None and not options.made_up:
            self.error(f"--rows {options.rows} is for made-up data; add --made-up, or leave it out")
        if options.rows is not None and options.rows < _LEAST_ROWS:
            self.error(f"--rows {options.rows} is too few to show anything; take {_LEAST_ROWS} or more")
        if options.outliers < 1 or options.seeds < 1:
            self.error(f"--outliers {options.outliers} and --seeds {options.seeds} must be 1 or more")
        if options.out and not options.out.absolute().parent.is_dir():
            self.error(f"--out {options.out}: there is no folder {options.out.parent}")
        if options.out and options.out.is_dir():
            self.error(f"--out {options.out} is a folder; name a file in it")
        return options


def command_of(parser: Parser, options: argparse.Namespace) -> str:
    """Write the command line that has every option which decides what comes out."""
    words = [parser.prog]
    for name, value in vars(options).items():
        if name in _ELSEWHERE or value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.extend(map(str, value) if isinstance(value, (list, tuple)) else [str(value)])
    return words[0] + " " + shlex.join(words[1:])


def load(
    parser: Parser,
    options: argparse.Namespace,
    real: Callable[[Path | None], Table],
    made_up: Callable[..., Table],
) -> Table:
    """Load the real data, or make some up; complain in one line where neither is to be had."""
    if options.made_up:
        return made_up() if options.rows is None else made_up(options.rows)
    try:
        return real(options.data)
    except MissingDataError as error:
        parser.error(str(error))
