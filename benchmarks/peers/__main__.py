"""Compare duramen with other libraries: ``python -m benchmarks.peers``."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path
from typing import NoReturn

from benchmarks.peers.measuring import measure
from benchmarks.peers.page import absent, page
from benchmarks.peers.part import Part, counts_of, some_rows
from benchmarks.peers.parts import PARTS
from benchmarks.peers.shared import MissingDataError, Table, machine

__all__ = ["main"]

_LEAST_ROWS = 2000
_FILES = ("out", "json")  # options that name a file to write
_FOLDERS = ("out", "data")  # options that do not affect the results


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: list[str] | None = None) -> str:
    """Run the comparison, print its page and return it."""
    parser = _parser()
    options = _checked(parser, arguments)
    begin, seen = time.perf_counter(), machine()
    tables = {key: _load(parser, options, part) for key, part in PARTS.items()}
    results = []
    for key, part in PARTS.items():
        base = tables.pop(key)
        entries = [one for one in part.entries if one.is_here and one.key not in options.skip]
        found = measure(key, part, base, counts_of(len(base.X)), entries, range(options.trials))
        results.append((found, absent(part.entries, options.skip)))
    minutes = (time.perf_counter() - begin) / 60
    command = command_of(parser, _that_decide(options)).strip()
    text = page(results, command, seen, minutes, options.trials)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    if options.json:
        parts = {key: one.as_json() for key, (one, _) in zip(PARTS, results, strict=True)}
        record = {"command": command, "machine": seen, "minutes": minutes, "parts": parts}
        options.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return text


def command_of(parser: Parser, options: argparse.Namespace) -> str:
    """Write the command line with every option that affects the results."""
    words = [parser.prog]
    for name, value in vars(options).items():
        if name in _FOLDERS or value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.extend(map(str, value) if isinstance(value, (list, tuple)) else [str(value)])
    return words[0] + " " + shlex.join(words[1:])


def _that_decide(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options that affect the results."""
    return argparse.Namespace(**{**vars(options), "json": None, "skip": options.skip or None})


def _load(parser: Parser, options: argparse.Namespace, part: Part) -> Table:
    """Load the data of a part, or make some up."""
    real, made_up = part.tables
    if options.made_up:
        return made_up() if options.rows is None else made_up(options.rows)
    try:
        return some_rows(real(options.data), options.rows)
    except MissingDataError as error:
        parser.error(str(error))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m benchmarks.peers",
        description="Compares duramen with scikit-learn, river and faiss, and writes a page in Markdown.",
        epilog="example: python -m benchmarks.peers --made-up --rows 20000 --skip trimming --out page.md",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="also write the page to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to this file")
    parser.add_argument("--rows", type=int, metavar="N", help="number of rows to use (default: all)")
    parser.add_argument("--trials", type=int, default=1, metavar="N", help="seeds, from 0 on (default: 1)")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="where the data are (default: DURAMEN_DATA, or ../shared/data)",
    )
    parser.add_argument("--made-up", action="store_true", help="take made-up data of the same shape instead")
    parser.add_argument(
        "--skip", nargs="+", default=[], metavar="NAME", help=f"peers to leave out: {', '.join(_peers())}"
    )
    return parser


def _peers() -> list[str]:
    """List the keys of the peers, each once."""
    return list(dict.fromkeys(one.key for part in PARTS.values() for one in part.entries if not one.ours))


def _checked(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if options.rows is not None and options.rows < _LEAST_ROWS:
        parser.error(f"--rows {options.rows} is too few to show anything; take {_LEAST_ROWS} or more")
    if options.trials < 1:
        parser.error(f"--trials {options.trials} must be 1 or more")
    for name in options.skip:
        if name not in _peers():
            parser.error(f"--skip {name}: there is no such peer; there are {', '.join(_peers())}")
    for name in _FILES:
        path = getattr(options, name)
        if path and path.is_dir():
            parser.error(f"--{name} {path} is a folder; name a file in it")
        if path and not path.absolute().parent.is_dir():
            parser.error(f"--{name} {path}: there is no folder {path.parent}")
    return options


if __name__ == "__main__":
    main()
