"""``duramen store coreset``: the coreset of what is in a store now."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.build import facts
from duramen.cli.files import check_target
from duramen.cli.options import add_output
from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, reading

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "coreset",
        run,
        help="write the coreset of what is in a store now",
        text="Writes the coreset of the rows that are there now, as duramen build writes one.",
        example="duramen store coreset customers.duramen -o core.parquet",
    )
    add_store(parser)
    add_output(parser, "where to write the coreset, a Parquet file")


def run(options: argparse.Namespace) -> None:
    """Make the coreset and write it."""
    from duramen.cli.cores import write_core
    from duramen.cli.sources import file_of

    check_target(options.output, force=options.force, inputs=[options.store], suffixes=(".parquet",))
    with reading(options.store) as store:
        file = file_of(store)
    write_core(options.output, file)
    options.talk.say(f"{file.core!r}\nwritten to {options.output}")
    options.talk.emit("store coreset", core=options.output, **facts(file.core))
