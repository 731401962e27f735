"""Keep a coreset on disk that follows its data: insert, update and delete rows.

A store is one file that holds rows and their coreset, and survives crashes.

example: duramen store init customers.duramen --loss logistic --label y --outliers 2%
"""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from duramen import open_store
from duramen.cli.commands import (
    advance,
    core_facts,
    core_of,
    encoding_in,
    learn_problem,
    names_in,
    open_data,
    open_rows,
)
from duramen.cli.options import (
    Command,
    check_loss,
    column_settings,
    command,
    coreset_settings,
    make_loss,
)
from duramen.cli.output import Fields, bar, defer_interrupts, describe_error, fields_of
from duramen.errors import RowError
from duramen.io import Encoding
from duramen.io.encoding import form_of_ids
from duramen.io.formats import format_of
from duramen.io.scan import TableScan
from duramen.text import plural

StoreCommand = Callable[[Any, Namespace], Fields]

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")


def _command(
    name: str, *options: str, read_only: bool = True, **writes: Any
) -> Callable[[StoreCommand], Command]:
    """Make a command of what is done to an open store; its fields include what the store holds afterwards."""

    def add(run: StoreCommand) -> Command:
        @wraps(run)
        def opened(options: Namespace) -> Fields:
            with open_store(options.store, read_only=read_only) as store:
                facts = run(store, options)
                now = fields_of(store, "n_points", "total_weight", "n_outliers", "n_suspected")
            if options.talk.said:
                shown = "{n_points:,} points, weight {total_weight:,.6g}".format(**now)
                options.talk.say(f"{store.path}: {shown}")
            return {"store": store.path, **now, **facts}

        return command(f"store {name}", "store", *options, **writes)(opened)

    return add


_INIT = ("store", "--from", "--audit", "--engine", "learning problem", "columns", "coreset")


@command("store init", *_INIT, writes="store")
def init(options: Namespace) -> Fields:
    """Create a new, empty store.

    How columns become numbers is learned from the first file that is inserted, or here with
    --from, and kept.

    example: duramen store init customers.duramen --loss logistic --label y --outliers 2%
    """
    encoding = None
    if options.source is None:
        check_loss(options)
        loss = make_loss(options, None)
    else:
        data, loss = learn_problem(options.source, options)
        encoding = data.encoding.to_json()
    asked = {"engine": options.engine, "audit": options.audit, **coreset_settings(options)}
    with open_store(options.store, create=True, loss=loss, **asked) as store, store.transaction():
        store.note("columns", column_settings(options))
        store.note("encoding", encoding)
    learned = "learned" if encoding else "learned from the first file"
    options.talk.say(f"{options.store}: a store for {loss!r}; its columns are {learned}")
    return {"store": options.store, "loss": repr(loss), "learned": encoding is not None}


@_command("insert", "data", "reading", read_only=False)
def insert(store: Any, options: Namespace) -> Fields:
    """Insert the rows of a file into a store.

    The file is read in batches, each of which is on disk before the next is read. Ctrl-C stops
    after a batch and prints how many rows were inserted.

    example: duramen store insert customers.duramen rows.parquet
    """
    data = _data_for(store, options)

    def apply(rows: Any) -> None:
        with store.transaction():
            if not len(store):
                store.note("encoding", data.encoding.to_json())
            store.insert(rows.X, rows.y, rows.weights, rows.ids)

    return _feed(store, data, options, apply, "inserted")


def _data_for(store: Any, options: Namespace) -> TableScan:
    """Open the file with the store's encoding, or learn one if there is none."""
    return open_rows(options, store.loss, encoding_in(store.notes), store.notes.get("columns") or {})


def _feed(store: Any, data: TableScan, options: Namespace, apply: Callable[[Any], None], done: str) -> Fields:
    """Apply every batch of rows to the store; Ctrl-C stops between two."""
    start, n = time.perf_counter(), 0
    with defer_interrupts(), bar(options.talk, data.table.path.name) as shown:
        try:
            with store.transaction() if options.atomic else nullcontext():
                for batch, rows in data.encoding.read(data.table, options.batch, options.skip):
                    try:
                        apply(rows)
                    except RowError as error:
                        raise error.at(batch.place) from None
                    n += len(batch)
                    advance(shown, batch)
        except (KeyboardInterrupt, ValueError, TypeError, KeyError, OSError) as error:
            so_far = f"nothing was {done}"
            if n and not options.atomic:
                so_far = f"{n:,} rows were {done} before; continue with --skip {options.skip + n}"
            kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ValueError
            raise kind(f"{describe_error(error)[0]}; {so_far}") from error
    seconds = time.perf_counter() - start
    if not n:
        options.talk.warn(f"nothing was {done}: {data.table.path} has no rows from --skip {options.skip} on")
    options.talk.say(f"{plural(n, 'row')} {done} in {seconds:.1f} seconds ({n / seconds:,.0f} per second)")
    return {f"n_{done}": n, "seconds": seconds}


@_command("delete", "ids", "--ids-from", read_only=False)
def delete(store: Any, options: Namespace) -> Fields:
    """Delete rows of a store, by their ids.

    All of the rows are deleted in one transaction, or none if one of them does not exist.

    example: duramen store delete customers.duramen 17 42
             duramen store delete customers.duramen --ids-from gone.csv
    """
    if bool(options.ids) == bool(options.ids_from):
        raise ValueError("pass either ids, or a file of ids with --ids-from")
    header, ids = (None, options.ids) if options.ids else _read_ids(options.ids_from)
    named = not len(store) or names_in(store, store.ids[:1]) is not None
    if header is not None and (header in store if named else _WHOLE.fullmatch(header)):
        raise ValueError(
            f"{options.ids_from}: its first line, {header!r}, is an id, not a header; put a name above "
            "it, such as id, or pass the ids as a .txt file, which has no header"
        )
    for one in ids:
        if not (named or _WHOLE.fullmatch(str(one))):
            raise ValueError(f"id {one!r} is not a plain whole number, and this store has integer ids")
    store.delete([str(one) if named else int(one) for one in ids])
    options.talk.say(f"{plural(len(ids), 'row')} deleted")
    return {"n_deleted": len(ids)}


def _read_ids(path: Path) -> tuple[str | None, list[Any]]:
    """Read ids from a table with one column, or from lines of text; return the header of a CSV file, too."""
    from_stdin = str(path) == "-"
    if from_stdin or format_of(path) is None:
        text = sys.stdin.read() if from_stdin else path.read_text("utf-8", "replace")
        return None, list(filter(None, map(str.strip, text.removeprefix("\ufeff").splitlines())))
    table = open_data(path)
    name, *others = table.columns
    if others:
        raise ValueError(f"{path} has {len(table.columns)} columns; pass a file with one, the ids")
    encoding = Encoding((), id=name, ids=form_of_ids(table, name))
    header = None if table.typed else name
    return header, [one for _, rows in encoding.read(table) for one in rows.ids]  # type: ignore[union-attr]


@_command("update", "data", "reading", "--id", read_only=False)
def update(store: Any, options: Namespace) -> Fields:
    """Replace rows of a store, by their ids.

    The file has the same columns, ids among them; each row replaces the one with the same id.
    --id names the column of ids, if the store numbered its rows.

    example: duramen store update customers.duramen corrected.csv
    """
    data = _data_for(store, options)
    data = TableScan(data.table, replace(data.encoding, id=options.id or data.encoding.id))
    if data.encoding.id is None:
        raise ValueError(
            f"{options.store} numbered its rows itself; name the column of ids of the file with --id"
        )

    return _feed(
        store, data, options, lambda rows: store.update(rows.ids, rows.X, rows.y, rows.weights), "updated"
    )


@_command("set-outliers", "outliers", read_only=False)
def set_outliers(store: Any, options: Namespace) -> Fields:
    """Set the number of outliers.

    A count stays as it is; a fraction follows the number of points.

    example: duramen store set-outliers customers.duramen 3%
    """
    store.set_outliers(options.outliers)
    return {}


@_command("coreset", writes="output", suffixes=(".parquet",))
def coreset(store: Any, options: Namespace) -> Fields:
    """Write the coreset of a store.

    The file is like one of duramen build, with the coreset of the present rows.

    example: duramen store coreset customers.duramen -o core.parquet
    """
    core = core_of(store)
    core.save(options.output)
    return {"core": options.output, **core_facts(core)}


@_command("backup", "copy", writes="copy")
def backup(store: Any, options: Namespace) -> Fields:
    """Copy a store, also while it is in use.

    The copy is a store as of one moment, even if another process changes the original during the copy.

    example: duramen store backup customers.duramen customers-copy.duramen
    """
    return {"copy": options.copy, "n_bytes": store.backup(options.copy).stat().st_size}


@_command("reanchor", read_only=False)
def reanchor(store: Any, options: Namespace) -> Fields:
    """Find a new anchor for a store.

    A rough solution is found on the present rows, and the coreset is selected around it. Do
    this when duramen store stats advises it, or to leave no trace of deleted rows.

    example: duramen store reanchor customers.duramen
    """
    store.reanchor()
    return {"radius": store.anchor.radius}


@_command("stats")
def stats(store: Any, options: Namespace) -> Fields:
    """Print what is in a store.

    That is the number of rows, their columns, how many are suspected, and how well the anchor
    fits.

    example: duramen store stats customers.duramen
    """
    report, encoding = store.anchor_report(), encoding_in(store.notes)
    return {
        "loss": repr(store.loss),
        "columns": store.columns if encoding is None else encoding.names,
        "label": (store.notes.get("encoding") or store.notes.get("columns") or {}).get("label"),
        **fields_of(store, "size", "engine", "threshold"),
        "anchored": store.anchor is not None,
        **fields_of(report, "radius", "n_late"),
        "reanchor_advised": report.advised,
        "n_forgotten": len(store.forgotten),
        "n_bytes": options.store.stat().st_size,
    }


@_command("history")
def history(store: Any, options: Namespace) -> Fields:
    """List the anchors of a store, and the deletions in its audit.

    Anchors are listed with their time, number of points and how far they moved; deletions, in a
    store made with --audit, with their id and time.

    example: duramen store history customers.duramen
    """
    events = [event._asdict() for event in store.history]
    return {"events": events, "forgotten": [{"id": one, "time": time} for one, time in store.forgotten]}


@_command("check")
def check(store: Any, options: Namespace) -> Fields:
    """Check every page and every invariant of a store.

    Damage is an error, described in one line with the way out; the exit code is 2.

    example: duramen store check customers.duramen
    """
    summary = store.check()
    options.talk.say(summary)
    return {"whole": True, "summary": summary}


@_command("compact", read_only=False)
def compact(store: Any, options: Namespace) -> Fields:
    """Free the space of deleted rows.

    The store is rewritten without gaps. Afterwards no byte of a deleted row is in its files.

    example: duramen store compact customers.duramen
    """
    before = options.store.stat().st_size
    store.compact()
    after = options.store.stat().st_size
    options.talk.say(f"{before:,} bytes before, {after:,} now")
    return {"n_bytes_before": before, "n_bytes": after}
