"""``duramen store update``: other rows in the place of those that are there."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.feeding import add_feeding, data_for, feed
from duramen.cli.store.opening import add_store, described, facts, writing

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "update",
        run,
        help="replace rows of a store, by their ids",
        text="Reads a file with the same columns, ids among them, and puts its rows in the place of those "
        "with the same ids.",
        example="duramen store update customers.duramen corrected.csv",
    )
    add_store(parser)
    add_feeding(parser, "updated")
    parser.add_argument(
        "--id", metavar="NAME", help="the column of ids, where the store numbered its rows itself"
    )


def run(options: argparse.Namespace) -> None:
    """Update, and say how many rows were replaced."""
    with writing(options.store) as store:
        data, new = data_for(store, options.data, options.talk)
        if new:
            raise ValueError(f"{options.store} is empty: there is nothing to update; insert rows first")
        if options.id is not None:
            data = data._replace(encoding=replace(data.encoding, id=options.id))
        if data.encoding.id is None:
            raise ValueError(
                f"{options.store} numbered its rows itself; name the file's column of ids by --id"
            )

        def update(rows: Any) -> None:
            store.update(rows.ids, rows.X, rows.y, rows.weights)

        n = feed(store, data, options, update, doing="updating", done="updated")
        options.talk.say(f"{n:,} rows updated\n{described(store)}")
        options.talk.emit("store update", n_updated=n, **facts(store))
