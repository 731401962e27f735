"""``duramen store check``: whether a store is whole."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, reading

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "check",
        run,
        help="check every page and every invariant of a store",
        text="Reads everything in a store. Damage is an error: it is named in one line, and the exit code is "
        "2; duramen store recover saves what can be saved.",
        example="duramen store check customers.duramen",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> None:
    """Check, and say what was checked."""
    with reading(options.store) as store:
        summary = store.check()
    options.talk.say(f"{options.store}: {summary}")
    options.talk.emit("store check", store=options.store, whole=True, summary=summary)
