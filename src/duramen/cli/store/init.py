"""``duramen store init``: a new, empty store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from duramen.cli.build import SIZE
from duramen.cli.losses import add_loss, check_label, loss_of
from duramen.cli.options import add_columns, add_sampling, column_options
from duramen.cli.parser import add_command
from duramen.cli.store.opening import add_store

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "init",
        run,
        help="make a new, empty store",
        text="Makes a store for a learning problem. How columns become numbers is learned from the first "
        "file that is inserted, or here with --from, and kept.",
        example="duramen store init customers.duramen --loss logistic --label y --outliers 2%",
    )
    add_store(parser, "where to make it")
    parser.add_argument(
        "--from", dest="like", type=Path, metavar="DATA", help="a file to learn the columns from"
    )
    parser.add_argument("--audit", action="store_true", help="keep the id and the time of every deletion")
    parser.add_argument(
        "--engine",
        choices=("auto", "ranked", "tree"),
        default="auto",
        help="how the coreset is kept (default: auto)",
    )
    add_loss(parser, required=True)
    add_columns(parser)
    add_sampling(parser)


def run(options: argparse.Namespace) -> None:
    """Make the store, and note which columns are what."""
    from duramen.store import open_store

    check_label(options)
    path = options.store
    if path.exists():
        raise FileExistsError(f"{path} exists; a new store needs a name of its own")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first")
    wanted, encoding = column_options(options), None
    if options.like is not None:
        from duramen.cli.data import learned

        encoding = learned(options.like, wanted, options.talk, options.loss, options.classes).encoding
    classes = None if encoding is None or encoding.classes is None else len(encoding.classes)
    store = open_store(
        path,
        create=True,
        loss=loss_of(options, classes),
        size=options.size or SIZE,
        n_outliers=options.outliers or 0,
        sampler=options.sampler or "auto",
        engine=options.engine,
        suspects="auto" if options.suspects is None else options.suspects,
        calibrate=not options.no_calibrate,
        random_state=options.seed,
        audit=options.audit,
    )
    with store:
        with store.transaction():
            store.note("columns", wanted)
            if encoding is not None:
                store.note("encoding", encoding.to_json())
        loss = repr(store.loss)
    learned_now = "learned" if encoding is not None else "learned from the first file"
    options.talk.say(f"{path}: a store for {loss}; its columns are {learned_now}")
    options.talk.emit("store init", store=path, loss=loss, learned=encoding is not None)
