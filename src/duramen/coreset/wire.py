"""The byte format of summaries: a header that describes the arrays, the arrays, and a checksum.

Bytes come from other machines: every count is checked against the bytes that are there before anything is
allocated, and every value before it is used. Whatever is wrong is a ValueError.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.points import WeightedPoints

Arrays: TypeAlias = dict[str, Array]  # by name

FORMAT = 2
_MAGIC = b"DMSY"
_HEAD = struct.Struct("<4sHI")  # magic, format, bytes of the header
_TYPES = {f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8)} | {"|b1", "|i1", "|u1"}


def pack(facts: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Encode facts (of JSON types) and arrays.

    Examples
    --------
    >>> facts, arrays = unpack(pack({"kind": "first"}, {"ids": np.array([3, 4])}))
    >>> facts, arrays["ids"]
    ({'kind': 'first'}, array([3, 4]))
    """
    plain = {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        for name, array in arrays.items()
    }
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in plain.items()]
    header = json.dumps({"facts": facts, "arrays": shapes}, separators=(",", ":")).encode()
    body = b"".join([_HEAD.pack(_MAGIC, FORMAT, len(header)), header, *(a.tobytes() for a in plain.values())])
    return body + zlib.crc32(body).to_bytes(4, "little")


def unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Read what :func:`pack` returned; raise ValueError for anything else."""
    if len(data) < _HEAD.size + 4 or data[:4] != _MAGIC:
        raise ValueError(f"these {len(data)} bytes are not a summary; pass what Summary.to_bytes() returned")
    _, version, length = _HEAD.unpack_from(data)
    if version != FORMAT:
        age = "a newer" if version > FORMAT else "an older"
        raise ValueError(
            f"this summary has format {version}, of {age} version of duramen, and this one reads format "
            f"{FORMAT}; use one version on all machines"
        )
    with decoding():
        require(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little"), "its checksum")
        header = json.loads(data[_HEAD.size : -4][:length])
        require(isinstance(header["facts"], dict), "its header")
        arrays, at = {}, _HEAD.size + length
        for name, kind, shape in header["arrays"]:
            is_shape = len(shape) in (1, 2) and all(type(n) is int and 0 <= n <= len(data) for n in shape)
            require(kind in _TYPES and is_shape and name not in arrays, f"{name!r}")
            size = np.dtype(kind).itemsize * math.prod(shape)
            array = np.frombuffer(data[at : at + size], dtype=kind).reshape(shape)
            arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
            at += size
        require(at == len(data) - 4, "its length")
        return header["facts"], arrays


def arrays_of(points: WeightedPoints, name: str) -> Arrays:
    """Return the arrays of points, by names that begin with ``name``; weights that are all 1 are left out."""
    weights = None if (points.weights == 1.0).all() else points.weights
    arrays = {"ids": points.ids, "X": points.X, "y": points.y, "weights": weights}
    if sparse.issparse(points.X):
        arrays |= {part: getattr(points.X, part) for part in ("data", "indices", "indptr")}
        arrays |= {"X": None, "width": np.array([points.n_columns])}
    return {f"{name}.{part}": array for part, array in arrays.items() if array is not None}


def points_of(arrays: Arrays, name: str) -> WeightedPoints:
    """Restore points from the arrays that :func:`arrays_of` returned."""
    prefix = f"{name}."
    mine = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    X, ids = mine.get("X"), mine["ids"]
    if X is None:
        data, indices, indptr, width = (mine[part] for part in ("data", "indices", "indptr", "width"))
        X = sparse.csr_array((data, indices, indptr), shape=(len(ids), width.item()))
        X.check_format(full_check=True)
    return WeightedPoints(X, mine.get("y"), mine.get("weights"), ids)


def require(condition: Any, what: str) -> None:
    """Raise ValueError, naming what is wrong, unless a condition holds."""
    if not condition:
        raise ValueError(f"{what} is wrong")


@contextmanager
def decoding() -> Iterator[None]:
    """Turn any error into a ValueError about the bytes: damaged ones may fail in any way."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"this summary is damaged or was not made by duramen: {error}; create it again"
        ) from error
