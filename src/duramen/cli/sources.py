"""What a fit or a report is of: a coreset's file, a store, or data from which a coreset is built first."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from duramen.cli.files import kind_of
from duramen.cli.losses import check_label, check_same
from duramen.cli.options import given

if TYPE_CHECKING:
    from duramen.cli.cores import CoreFile

__all__ = ["CoresetSource", "core_of", "store_file"]

_OF_DATA = (
    "label",
    "features",
    "weight",
    "id",
    "one_hot",
    "impute",
    "size",
    "sampler",
    "suspects",
    "no_calibrate",
)


class CoresetSource(NamedTuple):
    """A coreset with its encoding, and where it came from: "core", "store" or "data"."""

    kind: str
    file: CoreFile


def core_of(path: Path, options: argparse.Namespace) -> CoresetSource:
    """Load the coreset of a file or of a store, or build one of data."""
    from duramen.cli.build import built
    from duramen.cli.cores import read_core

    kind = kind_of(path)
    if kind == "model":
        raise ValueError(f"{path} is a model, which is learned already; duramen predict uses it")
    if kind == "data":
        if options.loss is None:
            raise ValueError(f"{path} is data, and so a loss is needed; pass --loss, such as --loss logistic")
        check_label(options)
        options.data = path
        return CoresetSource(kind, built(options))
    extra = given(options, _OF_DATA)
    if extra:
        what = "a coreset" if kind == "core" else "a store"
        raise ValueError(
            f"{path} is {what}, which knows its columns and its size; leave {' and '.join(extra)} out"
        )
    file = read_core(path) if kind == "core" else store_file(path)
    check_same(options, file.core.loss, str(path))
    return CoresetSource(kind, file)


def store_file(path: Path) -> CoreFile:
    """Make the coreset of a store, with its encoding and the names of its rows."""
    from duramen.store import open_store

    with open_store(path, read_only=True) as store:
        return file_of(store)


def file_of(store: Any) -> CoreFile:
    """Make the coreset of an open store, with its encoding and the names of its rows."""
    from duramen.cli.cores import CoreFile
    from duramen.io import Encoding

    core, state = store.coreset(), store.notes.get("encoding")
    names = names_of(store, core.ids)
    if state is None:
        return CoreFile(core, None, names)
    encoding = Encoding.from_json(state)
    return CoreFile(replace(core, columns=tuple(encoding.names)), encoding, names)


def names_of(store: Any, ids: Iterable[int]) -> dict[int, str] | None:
    """Give the names of points of a store; None where their ids are numbers."""
    numbers = [int(one) for one in ids]
    try:
        return dict(zip(numbers, map(str, store.names_of(numbers)), strict=True))
    except KeyError:  # no names here
        return None
