"""The commands ``duramen store ...``: a coreset on disk that follows its data."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from duramen.cli.data import (
    advance,
    core_facts,
    core_of,
    learn_data,
    names_in,
    open_data,
    options_of,
    read_data,
    read_encoding,
    write_core,
)
from duramen.cli.options import (
    add_columns,
    add_data,
    add_loss,
    add_output,
    add_sampling,
    at_least,
    check_loss,
    check_source,
    check_target,
    column_settings,
    make_loss,
    outliers,
    sampling_settings,
)
from duramen.cli.output import Interrupted, bar, defer_interrupts, describe_error, fields_of
from duramen.cli.parser import add_command, add_group
from duramen.errors import RowError
from duramen.io.scan import TableSource
from duramen.store.store import open_store

_INIT = "duramen store init"


def add_parser(commands: Any) -> None:
    """Add the commands to the parser."""
    parser = commands.add_parser(
        "store",
        help="keep a coreset on disk that follows its data: insert, update and delete rows",
        description="Commands on a store: one file that holds rows and their coreset, and survives crashes.",
        epilog="example: duramen store init customers.duramen --loss logistic --label y --outliers 2%",
    )
    below = add_group(parser)
    init = _add(below, "init", run_init, "the store to create")
    add = init.add_argument
    add("--from", dest="like", type=Path, metavar="DATA", help="a file to learn the columns from")
    add("--audit", action="store_true", help="keep the id and the time of every deletion")
    engines = ("auto", "ranked", "tree")
    add("--engine", choices=engines, default="auto", help="data structure (default: auto)")
    add_loss(init, required=True)
    add_columns(init)
    add_sampling(init)
    _add_rows(_add(below, "insert", insert))
    add = _add(below, "delete", delete).add_argument
    add("ids", nargs="*", metavar="ID", help="the ids of the rows")
    ids_from = "a table with one column, or text with one id per line; - is standard input"
    add("--ids-from", type=Path, metavar="FILE", help=ids_from)
    parser = _add(below, "update", update)
    _add_rows(parser)
    parser.add_argument("--id", metavar="NAME", help="the column of ids, if the store numbered its rows")
    add = _add(below, "set-outliers", set_outliers).add_argument
    add("outliers", type=outliers, metavar="OUTLIERS", help="2%%, 0.02, or a count")
    _add(below, "reanchor", reanchor)
    add_output(_add(below, "coreset", coreset), "the coreset to write, a Parquet file", ".parquet")
    _add(below, "stats", stats)
    _add(below, "history", history)
    _add(below, "check", check)
    _add(below, "compact", compact)
    add = _add(below, "backup", backup).add_argument
    add("copy", type=Path, metavar="PATH", help="the copy to write; it must not exist")


def _add(commands: Any, name: str, run: Callable[[Namespace], None], help: str = "the store") -> Any:
    parser = add_command(commands, name, run)
    parser.add_argument("store", type=Path, metavar="STORE", help=help)
    return parser


def _add_rows(parser: ArgumentParser) -> None:
    """Add the file of rows, and how it is read."""
    add_data(parser)
    add = parser.add_argument
    batch = "rows per transaction (default: as many as 8 MB hold, at most 65536)"
    add("--batch", type=at_least(1), metavar="ROWS", help=batch)
    add("--atomic", action="store_true", help="all rows in one transaction: all or none")
    add("--skip", type=at_least(0), default=0, metavar="ROWS", help="skip this many rows of the file")


def _open(options: Namespace, *, read_only: bool = False) -> Any:
    check_source(options.store)
    return open_store(options.store, read_only=read_only)


def _facts(store: Any) -> dict[str, Any]:
    """Return the JSON fields about a store after a change."""
    return {
        "store": store.path,
        **fields_of(store, "n_points", "total_weight", "n_outliers", "n_suspected"),
    }


def _print_change(options: Namespace, store: Any, command: str, text: str, **fields: Any) -> None:
    """Print what was done to a store, and what it holds now."""
    now = f"{store.path}: {store.n_points:,} points, weight {store.total_weight:,.6g}"
    options.talk.result(command, f"{text}\n{now}", **fields, **_facts(store))


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def run_init(options: Namespace) -> None:
    """Create a new, empty store.

    How columns become numbers is learned from the first file that is inserted, or here with
    --from, and kept.

    example: duramen store init customers.duramen --loss logistic --label y --outliers 2%
    """
    check_loss(options)
    path, settings, encoding = options.store, column_settings(options), None
    check_target(path)
    if options.like is not None:
        encoding = learn_data(options.like, settings, options.talk, options.loss, options.classes).encoding
    loss = make_loss(options, None if encoding is None else encoding.classes)
    with (
        open_store(
            path,
            create=True,
            loss=loss,
            engine=options.engine,
            audit=options.audit,
            **sampling_settings(options),
        ) as store,
        store.transaction(),
    ):
        store.note("columns", settings)
        if encoding is not None:
            store.note("encoding", encoding.to_json())
    learned = "learned" if encoding is not None else "learned from the first file"
    options.talk.result(
        "store init",
        f"{path}: a store for {loss!r}; its columns are {learned}",
        store=path,
        loss=repr(loss),
        learned=encoding is not None,
    )


def insert(options: Namespace) -> None:
    """Insert the rows of a file into a store.

    The file is read in batches, each of which is on disk before the next is read. Ctrl-C stops
    after a batch and prints how many rows were inserted.

    example: duramen store insert customers.duramen rows.parquet
    """
    start = time.perf_counter()
    with _open(options) as store:
        data, new = _data_for(store, options)

        def apply(rows: Any) -> None:
            nonlocal new
            with store.transaction():
                if new:
                    store.note("encoding", data.encoding.to_json())
                store.insert(rows.X, rows.y, rows.weights, rows.ids)
            new = False

        n = _feed(store, data, options, apply, "inserted")
        seconds = time.perf_counter() - start
        rate = n / max(seconds, 1e-9)
        text = f"{_rows(n)} inserted in {seconds:.1f} seconds ({rate:,.0f} per second)"
        _print_change(options, store, "store insert", text, n_inserted=n, seconds=seconds)


def update(options: Namespace) -> None:
    """Replace rows of a store, by their ids.

    The file has the same columns, ids among them; each row replaces the one with the same id.

    example: duramen store update customers.duramen corrected.csv
    """
    with _open(options) as store:
        data, new = _data_for(store, options)
        if new:
            raise ValueError(f"{options.store} is empty, so there is nothing to update; insert rows first")
        if options.id is not None:
            data = TableSource(data.table, replace(data.encoding, id=options.id))
        if data.encoding.id is None:
            raise ValueError(
                f"{options.store} numbered its rows itself; name the column of ids of the file with --id"
            )

        def apply(rows: Any) -> None:
            store.update(rows.ids, rows.X, rows.y, rows.weights)

        n = _feed(store, data, options, apply, "updated")
        _print_change(options, store, "store update", f"{_rows(n)} updated", n_updated=n)


def _data_for(store: Any, options: Namespace) -> tuple[TableSource, bool]:
    """Open the file with the store's encoding, or learn one if there is none; return whether it is new."""
    encoding = read_encoding(store.notes.get("encoding"))
    settings = store.notes.get("columns") or {}
    with options_of(_INIT):
        return read_data(options.data, encoding, settings, options.talk, store.loss), encoding is None


def _feed(store: Any, data: TableSource, options: Namespace, apply: Callable[[Any], None], done: str) -> int:
    """Apply every batch of rows to the store, and return the number of rows; Ctrl-C stops between two."""
    place = options.skip  # the rows of the file before it are done
    whole = store.transaction() if options.atomic else nullcontext()
    with defer_interrupts(), bar(options.talk, data.table.path.name) as shown:
        try:
            with whole, options_of(_INIT):
                for batch, rows in data.encoding.read(data.table, options.batch, place):
                    _apply(apply, rows, batch)
                    place = batch.first + len(batch)
                    advance(shown, batch)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {_so_far(options, place, done)}") from None
        except (ValueError, TypeError, KeyError, OSError) as error:
            if place > options.skip or options.atomic:
                line = describe_error(error)[0]
                raise ValueError(f"{line}; {_so_far(options, place, done)}") from error
            raise
    if place == options.skip:
        after = f" after the first {place:,} (--skip)" if place else ""
        options.talk.warn(f"nothing was {done}: {data.table.path} has no rows{after}")
    return int(place - options.skip)


def _apply(apply: Callable[[Any], None], rows: Any, batch: Any) -> None:
    """Apply a batch; an error about a row names its place in the file."""
    try:
        apply(rows)
    except RowError as error:
        error.at(batch.place)
        raise


def _so_far(options: Namespace, place: int, done: str) -> str:
    n = place - options.skip
    if options.atomic or not n:
        return f"nothing was {done}"
    return f"{_rows(n)} {'were' if n != 1 else 'was'} {done} before; continue with --skip {place}"


def delete(options: Namespace) -> None:
    """Delete rows of a store, by their ids.

    All of the rows are deleted in one transaction, or none if one of them does not exist.

    example: duramen store delete customers.duramen 17 42
             duramen store delete customers.duramen --ids-from gone.csv
    """
    if bool(options.ids) == bool(options.ids_from):
        raise ValueError("pass either ids, or a file of ids with --ids-from")
    ids, header = (options.ids, None) if options.ids else _read_ids(options.ids_from)
    if not ids:
        raise ValueError(f"{options.ids_from} holds no ids")
    with _open(options) as store:
        names = _has_names(store)
        if header is not None and (header in store if names else _is_whole(header)):
            raise ValueError(
                f"{options.ids_from}: its first line, {header!r}, is an id, not a header; put a name above "
                "it, such as id, or pass the ids as a .txt file, which has no header"
            )
        wrong = next((one for one in ids if not (names or _is_whole(one))), None)
        if wrong is not None:
            raise ValueError(f"id {wrong!r} is not a plain whole number, and this store has integer ids")
        store.delete([str(one) if names else int(one) for one in ids])
        n = len(ids)
        _print_change(options, store, "store delete", f"{_rows(n)} deleted", n_deleted=n)


def _has_names(store: Any) -> bool:
    encoding = store.notes.get("encoding")
    if encoding is not None and encoding["id"] is not None:
        return bool(encoding["ids"] == "text")
    return bool(store.n_points) and names_in(store, store.ids[:1]) is not None


def _is_whole(one: Any) -> bool:
    return re.fullmatch(r"-?(0|[1-9][0-9]*)", str(one)) is not None


def _read_ids(path: Path) -> tuple[list[Any], str | None]:
    """Read ids from a table with one column, or from lines of text; of a CSV file, return the header too."""
    from duramen.io.opening import is_table

    if str(path) != "-":
        check_source(path)
        if is_table(path):
            return _read_column(path)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_bytes().decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither a table nor UTF-8 text with one id per line") from None
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line], None


def _read_column(path: Path) -> tuple[list[Any], str | None]:
    from duramen.io import Encoding
    from duramen.io.learning import has_text_ids

    table = open_data(path)
    if len(table.columns) != 1:
        raise ValueError(f"{path} has {len(table.columns)} columns; pass a file with one, the ids")
    name = table.columns[0]
    encoding = Encoding((), id=name, text_ids=has_text_ids(table, name))
    ids = [one for _, rows in encoding.read(table) for one in rows.ids]  # type: ignore[union-attr]
    return ids, None if table.typed else name


def set_outliers(options: Namespace) -> None:
    """Set the number of outliers.

    A count stays as it is; a fraction follows the number of points.

    example: duramen store set-outliers customers.duramen 3%
    """
    with _open(options) as store:
        store.set_outliers(options.outliers)
        aside, suspected = f"{store.n_outliers:,.6g}", f"{store.n_suspected:,}"
        options.talk.result(
            "store set-outliers",
            f"{store.path}: weight {aside} may be set aside, {suspected} points are suspected",
            **_facts(store),
        )


def reanchor(options: Namespace) -> None:
    """Find a new anchor for a store.

    A rough solution is found on the present rows, and the coreset is selected around it. Do
    this when duramen store stats advises it, or to leave no trace of deleted rows.

    example: duramen store reanchor customers.duramen
    """
    with _open(options) as store:
        store.reanchor()
        report = store.anchor_report()
        options.talk.result("store reanchor", _anchor_words(report), radius=report.radius, **_facts(store))


def _anchor_words(report: Any) -> str:
    return repr(report).replace("reanchor()", "duramen store reanchor")


def coreset(options: Namespace) -> None:
    """Write the coreset of a store.

    The file is like one of duramen build, with the coreset of the present rows.

    example: duramen store coreset customers.duramen -o core.parquet
    """
    with _open(options, read_only=True) as store:
        file = core_of(store)
    write_core(options.output, file)
    options.talk.result(
        "store coreset",
        f"{file.core!r}\nwritten to {options.output}",
        core=options.output,
        **core_facts(file.core),
    )


_STATS = """\
{path}: a store for {loss}
  points        {n_points:,}, weight {total_weight:,.6g}
  columns       {known}
  label         {label}
  coreset       {size:,} rows, {engine}
  to set aside  weight {n_outliers:,.6g}
  suspected     {n_suspected:,} points, with a loss of {threshold:.6g} or more
  deleted       {n_forgotten:,} in the audit
  on disk       {n_bytes:,} bytes
  anchor        {anchor}"""


def stats(options: Namespace) -> None:
    """Print what is in a store.

    That is the number of rows, their columns, how many are suspected, and how well the anchor
    fits.

    example: duramen store stats customers.duramen
    """
    with _open(options, read_only=True) as store:
        report, encoding = store.anchor_report(), read_encoding(store.notes.get("encoding"))
        columns = store.columns if encoding is None else encoding.names
        roles = store.notes.get("encoding") or store.notes.get("columns") or {}
        facts = {
            **_facts(store),
            "loss": repr(store.loss),
            "columns": None if columns is None else list(columns),
            "label": roles.get("label"),
            **fields_of(store, "size", "engine", "threshold"),
            "anchored": store.anchor is not None,
            "radius": report.radius,
            "reanchor_advised": report.advised,
            "n_late": report.n_late,
            "n_forgotten": len(store.forgotten),
            "n_bytes": options.store.stat().st_size,
        }
    more = {
        "path": options.store,
        "known": textwrap.shorten(", ".join(columns or ["not known yet"]), 80, placeholder=" ..."),
        "anchor": _anchor_words(report).partition(": ")[2],
    }
    text = _STATS.format(**more, **{**facts, "label": facts["label"] or "none"})
    options.talk.result("store stats", text, **facts)


def history(options: Namespace) -> None:
    """List the anchors of a store, and the deletions in its audit.

    Anchors are listed with their time, number of points and how far they moved; deletions, in a
    store made with --audit, with their id and time.

    example: duramen store history customers.duramen
    """
    with _open(options, read_only=True) as store:
        events = list(store.history)
        deleted = [{"id": one, "time": time} for one, time in store.forgotten]
    lines = [f"{options.store}: {len(events)} event{'s' * (len(events) != 1)}{':' if events else ''}"]
    for event in events:
        points = "" if event.n_points is None else f"{event.n_points:,} points, "
        moved = "" if event.moved is None else f", moved by {event.moved:.4g}"
        lines.append(f"  {event.time}  {event.what}: {points}radius {event.radius:.4g}{moved}")
    if deleted:
        lines += [f"{len(deleted):,} deleted:", *(f"  {one['time']}  {one['id']}" for one in deleted)]
    options.talk.result(
        "store history",
        "\n".join(lines),
        store=options.store,
        events=[event._asdict() for event in events],
        forgotten=deleted,
    )


def check(options: Namespace) -> None:
    """Check every page and every invariant of a store.

    Damage is an error, described in one line with the way out; the exit code is 2.

    example: duramen store check customers.duramen
    """
    with _open(options, read_only=True) as store:
        summary = store.check()
    options.talk.result(
        "store check", f"{options.store}: {summary}", store=options.store, whole=True, summary=summary
    )


def compact(options: Namespace) -> None:
    """Free the space of deleted rows.

    The store is rewritten without gaps. Afterwards no byte of a deleted row is in its files.

    example: duramen store compact customers.duramen
    """
    with _open(options) as store:
        before = options.store.stat().st_size
        store.compact()
        facts = _facts(store)
    after = options.store.stat().st_size
    options.talk.result(
        "store compact",
        f"{options.store}: {before:,} bytes before, {after:,} now",
        n_bytes_before=before,
        n_bytes=after,
        **facts,
    )


def backup(options: Namespace) -> None:
    """Copy a store, also while it is in use.

    The copy is a store as of one moment, even if another process changes the original during the copy.

    example: duramen store backup customers.duramen customers-copy.duramen
    """
    check_target(options.copy, inputs=[options.store])
    with _open(options, read_only=True) as store:
        store.backup(options.copy)
        facts = _facts(store)
    n_bytes = options.copy.stat().st_size
    options.talk.result(
        "store backup",
        f"{facts['n_points']:,} points copied to {options.copy}, {n_bytes:,} bytes",
        copy=options.copy,
        n_bytes=n_bytes,
        **facts,
    )
