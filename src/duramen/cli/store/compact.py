"""``duramen store compact``: a store without gaps, in which no byte of a deleted row is left."""

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
        "compact",
        run,
        help="give the space of deleted rows back",
        text="Writes the store anew without gaps. After it, no byte of a deleted row is in its files.",
        example="duramen store compact customers.duramen",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> None:
    """Compact, and say what it saved."""
    before = options.store.stat().st_size if options.store.exists() else 0
    with writing(options.store) as store:
        store.compact()
        found = facts(store)
    after = options.store.stat().st_size
    options.talk.say(f"{options.store}: {before:,} bytes before, {after:,} now")
    options.talk.emit("store compact", n_bytes_before=before, n_bytes=after, **found)
