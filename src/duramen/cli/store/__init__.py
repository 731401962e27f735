"""``duramen store``: a coreset on disk that follows its data; one command a module."""

from __future__ import annotations

from typing import Any

from duramen.cli.parser import Parser

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the commands to the parser."""
    from duramen.cli.store import (
        check,
        compact,
        coreset,
        delete,
        history,
        init,
        insert,
        reanchor,
        recover,
        set_outliers,
        stats,
        update,
    )

    parser = commands.add_parser(
        "store",
        help="a coreset on disk that follows its data: rows come, go and are corrected",
        description="Commands on a store: one file that holds rows and their coreset, and survives crashes.",
        epilog="example: duramen store init customers.duramen --loss logistic --label y --outliers 2%",
    )
    below = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    modules = (init, insert, delete, update, set_outliers, reanchor, coreset, stats, history)
    for module in (*modules, check, compact, recover):
        module.add_parser(below)
