"""Rows from a file into a store, batch by batch: each committed, or all or none; Ctrl-C stops between two."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duramen.cli.data import DataFile, learned, open_data, options_of, restated
from duramen.cli.errors import Interrupted, in_one_line
from duramen.cli.losses import name_of
from duramen.cli.options import at_least
from duramen.cli.progress import bar

if TYPE_CHECKING:
    from duramen.cli.output import Output

__all__ = ["add_feeding", "data_for", "feed"]

_MAKING = "duramen store init"


def add_feeding(parser: argparse.ArgumentParser, done: str) -> None:
    """Add the file, and how it is read."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a Parquet, CSV, TSV, Arrow or .npz file")
    parser.add_argument(
        "--batch",
        type=at_least(1),
        metavar="ROWS",
        help=f"rows {done} and committed at once (default: what 8 MB hold, at most 65536)",
    )
    parser.add_argument("--atomic", action="store_true", help="all rows in one transaction: all or none")
    parser.add_argument(
        "--skip", type=at_least(0), default=0, metavar="ROWS", help="begin after so many rows of the file"
    )


def data_for(store: Any, path: Path, talk: Output) -> tuple[DataFile, bool]:
    """Open a file through the store's encoding; if it has none yet, learn it. Says which it was."""
    from duramen.io import Encoding

    state = store.notes.get("encoding")
    if state is not None:
        return DataFile(open_data(path), Encoding.from_json(state)), False
    wanted = store.notes.get("columns") or {}
    if isinstance(wanted.get("one_hot"), list):
        wanted["one_hot"] = tuple(wanted["one_hot"])
    n_classes = getattr(store.loss, "n_classes", None)
    with options_of(_MAKING):
        return learned(path, wanted, talk, name_of(store.loss), n_classes), True


def feed(
    store: Any,
    data: DataFile,
    options: argparse.Namespace,
    apply: Callable[[Any], None],
    *,
    doing: str,
    done: str,
) -> int:
    """Apply every batch of rows to the store; return how many rows that were.

    Raises
    ------
    Interrupted
        After Ctrl-C, between two batches; it says how many rows are in.
    """
    place = options.skip  # rows of the file before it are done with
    whole = store.transaction() if options.atomic else nullcontext()
    with _stoppable() as asked, bar(options.talk, doing) as shown:
        try:
            with whole, options_of(_MAKING):
                for batch, rows in data.encoding.read(data.table, options.batch, place):
                    if asked.is_set():
                        raise Interrupted
                    _applied(apply, rows, batch)
                    place = batch.first + len(batch)
                    shown.at(batch.done, place)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {_so_far(options, place, done)}") from None
        except (ValueError, TypeError, KeyError, OSError) as error:
            if place > options.skip or options.atomic:
                line = in_one_line(error)[0]
                raise ValueError(f"{line}; {_so_far(options, place, done)}") from error
            raise
    if place == options.skip:
        after = f" after the first {place:,} (--skip)" if place else ""
        options.talk.warn(f"nothing was {done}: {data.table.path} has no rows{after}")
    return int(place - options.skip)


def _applied(apply: Callable[[Any], None], rows: Any, batch: Any) -> None:
    """Apply a batch; an error about a row gives its place in the file."""
    try:
        apply(rows)
    except (ValueError, KeyError) as error:
        if type(error) not in (ValueError, KeyError):
            raise
        raise type(error)(restated(in_one_line(error)[0], batch)) from error


def _so_far(options: argparse.Namespace, place: int, done: str) -> str:
    n = place - options.skip
    if options.atomic or not n:
        return f"nothing was {done}"
    return f"{n:,} row{'s' * (n != 1)} {'were' if n != 1 else 'was'} {done} before; to go on: --skip {place}"


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event to look at between batches; a second one interrupts at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def first(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
