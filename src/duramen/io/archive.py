"""NumPy archives (.npz): a matrix and columns beside it."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from duramen.arrays import Array
from duramen.io.columns import (
    Column,
    Kind,
    as_int64,
    check_names,
    readable,
    refuse_large,
)
from duramen.io.table import Batch, Table
from duramen.text import few

_Headers: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError),
    *(ValueError, TypeError, KeyError, SyntaxError, OverflowError, MemoryError, struct.error),
)  # what a damaged archive raises
_KINDS = {"b": Kind.FLAG, "i": Kind.WHOLE, "u": Kind.WHOLE, "U": Kind.TEXT, "M": Kind.TIME, "m": Kind.TIME}


class NumpyColumn(Column):
    """A column that is a NumPy array."""

    def __init__(self, values: Array, kind: Kind) -> None:
        self.values, self.kind = values, kind

    def numbers(self) -> Array:
        self._check("numbers")
        refuse_large(self.values)
        return self.values

    def texts(self) -> tuple[Array, list[str]]:
        self._check("text")
        known, codes = np.unique(self.values, return_inverse=True)
        return codes.reshape(-1).astype(np.int64), known.tolist()

    def whole(self) -> Array:
        self._check("whole numbers")
        return as_int64(self.values)


class ArchiveTable(Table):
    """An archive of arrays.

    The columns of a two-dimensional array are called x0, x1, ..., unless a one-dimensional array
    of text, ``columns``, names them. A one-dimensional array with one value per row is a column
    of that name. The first batch loads an array as a whole. Nothing is unpickled.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loaded: dict[str, Array] = {}
        headers = _headers(path)
        matrices = [key for key, (shape, _) in headers.items() if len(shape) > 1]
        names: list[str] = []
        sources: list[tuple[str, int | None]] = []  # of each column: its array, and its place there
        for key in matrices:
            shape = headers[key][0]
            if len(shape) > 2:
                raise ValueError(f"{path}: {key!r} has shape {shape}; rows and columns are needed")
            names = self._matrix_names(headers, shape[1])
            sources = [(key, place) for place in range(shape[1])]
        if len(matrices) > 1:
            raise ValueError(f"{path} has several matrices: {few(matrices)}; keep one in the file")
        taken = "columns" if names else None
        beside = [key for key, (shape, _) in headers.items() if len(shape) == 1 and key != taken]
        self.columns = check_names(path, [*names, *beside])
        sources += [(key, None) for key in beside]
        self._sources = dict(zip(self.columns, sources, strict=True))
        self.kinds = {name: _kind(headers[key][1]) for name, (key, _) in self._sources.items()}
        lengths = {key: headers[key][0][0] for key, _ in sources}
        (first, self.n_rows), *others = lengths.items()
        for key, length in others:
            if length != self.n_rows:
                raise ValueError(
                    f"{path}: {key!r} has {length} values, {first!r} has {self.n_rows} rows; "
                    "every array needs one value per row"
                )

    def _matrix_names(self, headers: _Headers, n_columns: int) -> list[str]:
        if "columns" not in headers:
            return [f"x{place}" for place in range(n_columns)]
        shape, dtype = headers["columns"]
        if shape != (n_columns,) or dtype.kind != "U":
            raise ValueError(
                f"{self.path}: 'columns' must be {n_columns} strings, one for each column of the matrix; "
                f"it has shape {shape} and type {dtype}"
            )
        return [str(name) for name in self._load("columns")]

    def _load(self, key: str) -> Array:
        if key not in self._loaded:
            with (
                readable(self.path, "a .npz file", *_BROKEN),
                np.load(self.path, allow_pickle=False) as archive,
            ):
                self._loaded[key] = archive[key]
        return self._loaded[key]

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        total = self.n_rows or 0
        for first in range(skip, total, n_rows):
            rows = slice(first, min(first + n_rows, total))
            read = {name: partial(self._column, name, rows) for name in columns}
            yield Batch(self, first, rows.stop / total, rows.stop - first, read)

    def _column(self, name: str, rows: slice) -> NumpyColumn:
        key, place = self._sources[name]
        array = self._load(key)
        return NumpyColumn(array[rows] if place is None else array[rows, place], self.kinds[name])


def _headers(path: Path) -> _Headers:
    """Read the shapes and types of the arrays, not the arrays."""
    headers: _Headers = {}
    with readable(path, "a .npz file", *_BROKEN), zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = read(file)
            headers[entry.removesuffix(".npy")] = (shape, dtype)
    objects = [key for key, (_, dtype) in headers.items() if dtype.hasobject]
    if objects:
        raise ValueError(
            f"{path}: {few(objects)} hold Python objects, which are not unpickled; "
            "save numbers, or text as fixed-width strings (astype(str))"
        )
    return headers


def _kind(dtype: np.dtype[Any]) -> Kind:
    if dtype.kind == "f":
        return Kind.SINGLE if dtype.itemsize <= 4 else Kind.REAL
    return _KINDS.get(dtype.kind, Kind.OTHER)
