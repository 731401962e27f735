"""The parser class, and functions that add commands; kept quick to import, dependencies included."""

from __future__ import annotations

import argparse
import inspect
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from duramen.cli.output import write


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which does not accept abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **settings})

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout and message:
            write(message)  # the base class ignores errors
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"duramen: {message}; see {self.prog} --help\n")


class _Help(argparse.HelpFormatter):
    """Keeps the lines of an example as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example: ") else super()._fill_text(text, width, indent)


def add_command(commands: Any, name: str, run: Callable[[Namespace], None]) -> Parser:
    """Add a command with --json and --quiet; the docstring of ``run``, ending in an example, is its help."""
    text, _, example = (inspect.getdoc(run) or "").partition("\n\nexample: ")
    summary = text.partition("\n\n")[0].rstrip(".")
    parser: Parser = commands.add_parser(
        name, help=summary[:1].lower() + summary[1:], description=text, epilog=f"example: {example}"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    form.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.set_defaults(run=run)
    return parser


def add_group(parser: argparse.ArgumentParser) -> Any:
    """Add a group of subcommands to a parser."""
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Iterate over a parser and the parsers of all its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)
