"""``duramen store recover``: what can be saved of a damaged store."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.files import check_source, check_target
from duramen.cli.options import add_output
from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "recover",
        run,
        help="save what can be saved of a damaged store",
        text="Reads what can be read, and writes it into a new store. The damaged one stays as it is.",
        example="duramen store recover damaged.duramen -o saved.duramen",
    )
    add_store(parser, "the damaged store")
    add_output(parser, "where to write the new store; a name that is free", replaces=False)


def run(options: argparse.Namespace) -> None:
    """Save, and say what was lost."""
    from duramen.store import recover

    check_source(options.store)
    check_target(options.output, force=None, inputs=[options.store])
    found = recover(options.store, options.output)
    lost = "how many were lost is not known" if found.n_lost is None else f"{found.n_lost:,} lost"
    options.talk.say(f"{found.n_points:,} points saved in {options.output}, {lost}")
    for problem in found.problems:
        options.talk.say(f"  {problem}")
    options.talk.emit(
        "store recover",
        store=options.store,
        recovered=options.output,
        n_points=found.n_points,
        n_lost=found.n_lost,
        problems=found.problems,
    )
