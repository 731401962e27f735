"""``duramen store delete``: rows out of a store."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store, described, facts, writing

__all__ = ["add_parser"]

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")


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
    given, header = (options.ids, None) if options.ids else _read(options.ids_from)
    if not given:
        raise ValueError(f"{options.ids_from} holds no ids")
    with writing(options.store) as store:
        if header is not None:
            _refuse_id(store, header, options.ids_from)
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
    if _has_names(store):
        return [str(one) for one in given]
    wrong = next((one for one in given if not _is_whole(one)), None)
    if wrong is not None:
        raise ValueError(f"id {wrong!r} is no plain whole number, as ids are in this store")
    return [int(one) for one in given]


def _has_names(store: Any) -> bool:
    from duramen.cli.sources import names_of

    encoding = store.notes.get("encoding")
    if encoding is not None and encoding["id"] is not None:
        return bool(encoding["ids"] == "text")
    return bool(store.n_points) and names_of(store, store.ids[:1]) is not None


def _is_whole(one: Any) -> bool:
    return _WHOLE.fullmatch(str(one)) is not None


def _refuse_id(store: Any, header: str, path: Path) -> None:
    """Refuse a text file whose first line is an id: as a header it would not be deleted."""
    if header in store if _has_names(store) else _is_whole(header):
        raise ValueError(
            f"{path}: its first line, {header!r}, is an id and no header; put a name above it, such as id, "
            "or pass the ids as a .txt file, which has no header"
        )


def _read(path: Path) -> tuple[list[Any], str | None]:
    """Read ids from a table with one column, or from lines of text; of a CSV file, give the header too."""
    from duramen.cli.files import check_source
    from duramen.io.opening import is_table

    if str(path) == "-":
        return _lines(sys.stdin.read()), None
    check_source(path)
    if is_table(path):
        return _column(path)
    try:
        return _lines(path.read_bytes().decode()), None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither a table nor UTF-8 text with one id a line") from None


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line]


def _column(path: Path) -> tuple[list[Any], str | None]:
    from duramen.cli.data import open_data
    from duramen.io.columns import Kind
    from duramen.io.encoding import named
    from duramen.io.learning import check_kinds

    table = open_data(path)
    if len(table.columns) != 1:
        raise ValueError(f"{path} has {len(table.columns)} columns; pass a file with one, the ids")
    name = table.columns[0]
    check_kinds(table, (), frozenset(), None, None, name)
    found: list[Any] = []
    for batch in table.batches():
        with named(batch, name):
            column = batch.column(name)
            found += column.whole().tolist() if column.kind is Kind.WHOLE else column.words()
    return found, None if table.typed else name
