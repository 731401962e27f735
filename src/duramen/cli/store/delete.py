"""``duramen store delete``: rows out of a store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, described, facts, writing

__all__ = ["add_parser"]

_TABLES = (".parquet", ".csv", ".tsv", ".arrow", ".feather", ".ipc", ".npz", ".gz")


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "delete",
        run,
        help="take rows out of a store, by their ids",
        text="Deletes rows in one transaction: all of them, or none if one is not there.",
        example="duramen store delete customers.duramen 17 42\n"
        "duramen store delete customers.duramen --ids-from gone.csv",
    )
    add_store(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="the ids of the rows")
    parser.add_argument(
        "--ids-from",
        type=Path,
        metavar="FILE",
        help="a table with one column, or text with one id a line; - is standard input",
    )


def run(options: argparse.Namespace) -> None:
    """Delete, and say how many rows are left."""
    if bool(options.ids) == bool(options.ids_from):
        raise ValueError("name ids, or a file that holds them by --ids-from; one of the two")
    given = options.ids or _read(options.ids_from)
    if not given:
        raise ValueError(f"{options.ids_from} holds no ids")
    with writing(options.store) as store:
        store.delete(ids_for(store, given))
        n = len(given)
        options.talk.say(f"{n:,} row{'s' * (n != 1)} deleted\n{described(store)}")
        options.talk.emit("store delete", n_deleted=n, **facts(store))


def ids_for(store: Any, given: list[Any]) -> list[Any]:
    """Read ids as the store has them: names, or whole numbers.

    Raises
    ------
    ValueError
        If ids are numbers there, and one given is none.
    """
    from duramen.cli.sources import names_of

    if store.n_points and names_of(store, store.ids[:1]) is not None:
        return [str(one) for one in given]
    try:
        return [int(one) for one in given]
    except ValueError:
        wrong = next(one for one in given if not _is_whole(one))
        raise ValueError(f"id {wrong!r} is no whole number, as ids are in this store") from None


def _is_whole(one: Any) -> bool:
    try:
        int(one)
    except ValueError:
        return False
    return True


def _read(path: Path) -> list[Any]:
    """Read ids from a table with one column, or from lines of text."""
    if str(path) == "-":
        return [line.strip() for line in sys.stdin if line.strip()]
    if path.suffix.lower() not in _TABLES:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    return _column(path)


def _column(path: Path) -> list[Any]:
    from duramen.cli.data import open_data
    from duramen.tables.kinds import Kind

    table = open_data(path)
    if len(table.columns) != 1:
        raise ValueError(f"{path} has {len(table.columns)} columns; pass a file with one, the ids")
    name = table.columns[0]
    found: list[Any] = []
    for batch in table.batches():
        column = batch.column(name)
        found += column.whole().tolist() if column.kind is Kind.WHOLE else column.words()
    return found
