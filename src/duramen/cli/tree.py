"""The parsers as a tree: what completion scripts and the reference are made from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Command", "Option", "commands", "subcommands"]


class Option(NamedTuple):
    """One option or argument: how it is written, what follows it, and what it says."""

    flags: tuple[str, ...]
    metavar: str
    choices: tuple[str, ...]
    takes_value: bool
    required: bool
    help: str


class Command(NamedTuple):
    """A command: its words, such as ("store", "insert"), and its parser."""

    words: tuple[str, ...]
    parser: argparse.ArgumentParser

    @property
    def options(self) -> list[Option]:
        """Its options, in the order of its help."""
        return [_option(one, self.parser) for one in self._actions() if one.option_strings]

    @property
    def arguments(self) -> list[Option]:
        """What it takes that is no option."""
        return [_option(one, self.parser) for one in self._actions() if not one.option_strings]

    def _actions(self) -> list[argparse.Action]:
        found = self.parser._actions
        return [one for one in found if not isinstance(one, argparse._SubParsersAction)]


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Go through all commands, each before those below it."""
    yield Command(words, parser)
    for name, below in subcommands(parser).items():
        yield from commands(below, (*words, name))


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Give the commands right below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Option:
    takes_value = action.nargs != 0
    choices = tuple(str(one) for one in action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if choices and action.metavar is None:
        metavar = "|".join(choices)
    help = (action.help or "") % {"prog": parser.prog, "default": action.default}
    return Option(
        tuple(action.option_strings),
        metavar if takes_value else "",
        choices,
        takes_value,
        bool(action.required) or (not action.option_strings and action.nargs not in ("?", "*")),
        help,
    )
