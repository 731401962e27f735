"""``duramen store set-outliers``: another number of outliers."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.options import outliers
from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, facts, writing

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "set-outliers",
        run,
        help="set another number of outliers",
        text="Sets what may be set aside: a count, which stays, or a share, which follows the points.",
        example="duramen store set-outliers customers.duramen 3%",
    )
    add_store(parser)
    parser.add_argument("outliers", type=outliers, metavar="OUTLIERS", help="2%%, 0.02, or a count")


def run(options: argparse.Namespace) -> None:
    """Set it, and say what it comes to."""
    with writing(options.store) as store:
        store.set_outliers(options.outliers)
        aside, suspected = f"{store.n_outliers:,.6g}", f"{store.n_suspected:,}"
        options.talk.say(f"{store.path}: weight {aside} may be set aside, {suspected} points are suspected")
        options.talk.emit("store set-outliers", **facts(store))
