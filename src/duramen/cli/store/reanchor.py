"""``duramen store reanchor``: another anchor."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, facts, writing

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "reanchor",
        run,
        help="look at everything from a new anchor",
        text="Finds a rough solution on the rows that are there now, and chooses the coreset from there. Do "
        "it where duramen store stats advises it, or to leave no trace of deleted rows.",
        example="duramen store reanchor customers.duramen",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> None:
    """Make a new anchor, and say how it fits."""
    with writing(options.store) as store:
        store.reanchor()
        options.talk.say(repr(store.anchor_report()).replace("reanchor()", "duramen store reanchor"))
        options.talk.emit("store reanchor", radius=store.anchor_report().radius, **facts(store))
