"""The parser of all commands; nothing here, or in what it imports, takes time to import."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from duramen import __version__
from duramen.cli.output import write

__all__ = ["Parser", "add_command", "make_parser"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose options are not guessed from their beginnings."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout and message:
            write(message)  # the base class passes over errors
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"duramen: {message}; see {self.prog} --help\n")


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], *, help: str, text: str, example: str
) -> argparse.ArgumentParser:
    """Add a command: its line in the list, what its --help says, and an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=text,
        epilog=f"example: {example}",
        formatter_class=_Help,
    )
    add_talk(parser)
    parser.set_defaults(run=run)
    return parser


class _Help(argparse.HelpFormatter):
    """Keeps the line of an example as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example: "):
            return indent + text.replace("\n", "\n         " + indent)
        return super()._fill_text(text, width, indent)


def add_talk(parser: argparse.ArgumentParser) -> None:
    """Add how much a command says, and in which form."""
    talk = parser.add_mutually_exclusive_group()
    talk.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    talk.add_argument("--quiet", action="store_true", help="print nothing but errors")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    from duramen.cli import build, certify, completion, demo, fit, predict, report, store

    parser = Parser(
        prog="duramen",
        description="Robust, fully-dynamic coresets: small weighted summaries of large, changing, "
        "contaminated data.",
        epilog="example: duramen demo\n         duramen build rows.parquet -o core.parquet --loss logistic "
        "--label y --outliers 2%%".replace("%%", "%"),
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"duramen {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for module in (build, fit, predict, certify, store, report, demo, completion):
        module.add_parser(commands)
    return parser
