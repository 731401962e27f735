"""``duramen store insert``: rows of a file into a store."""

from __future__ import annotations

import argparse
import time
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.feeding import add_feeding, data_for, feed
from duramen.cli.store.opening import add_store, described, facts, writing

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "insert",
        run,
        help="put the rows of a file into a store",
        text="Reads a file in batches, each of which is on disk before the next is read. Ctrl-C ends after a "
        "batch, and says how many rows are in.",
        example="duramen store insert customers.duramen rows.parquet",
    )
    add_store(parser)
    add_feeding(parser, "inserted")


def run(options: argparse.Namespace) -> None:
    """Insert, and say how many rows went in."""
    from contextlib import nullcontext

    start = time.perf_counter()
    with writing(options.store) as store:
        data, new = data_for(store, options.data, options.talk)

        def insert(rows: Any) -> None:
            nonlocal new
            with store.transaction() if new and not options.atomic else nullcontext():
                if new:
                    store.note("encoding", data.encoding.to_json())
                store.insert(rows.X, rows.y, rows.weights, rows.ids)
            new = False

        n = feed(store, data, options, insert, doing="inserting", done="inserted")
        seconds = time.perf_counter() - start
        rate = n / max(seconds, 1e-9)
        options.talk.say(f"{n:,} rows inserted in {seconds:.1f} seconds ({rate:,.0f} a second)")
        options.talk.say(described(store))
        options.talk.emit("store insert", n_inserted=n, seconds=seconds, **facts(store))
