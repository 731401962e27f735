"""The byte format of summaries: a header that describes the arrays, the arrays, and a checksum."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.points import WeightedPoints

FORMAT = 1
_MAGIC = b"DMSY"
_HEAD = struct.Struct("<4sHI")  # magic, format, bytes of the header


def pack(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Encode facts (of JSON types) and arrays.

    Examples
    --------
    >>> facts, arrays = unpack(pack({"kind": "census"}, {"ids": np.array([3, 4])}))
    >>> facts, arrays["ids"]
    ({'kind': 'census'}, array([3, 4]))
    """
    plain = {name: _plain(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in plain.items()]
    header = json.dumps({"facts": facts, "arrays": shapes}, separators=(",", ":")).encode()
    body = b"".join([_HEAD.pack(_MAGIC, FORMAT, len(header)), header, *(a.tobytes() for a in plain.values())])
    return body + zlib.crc32(body).to_bytes(4, "little")


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what :func:`pack` returned.

    Raises
    ------
    ValueError
        If it is not a summary, has another format, or is damaged.
    """
    if len(data) < _HEAD.size + 4 or data[:4] != _MAGIC:
        raise ValueError(f"these {len(data)} bytes are not a summary; pass what Summary.to_bytes() returned")
    _, version, length = _HEAD.unpack_from(data)
    if version != FORMAT:
        raise ValueError(
            f"this summary has format {version}, and this version of duramen reads format {FORMAT}; "
            "use one version on all machines"
        )
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("this summary is damaged: checksum mismatch; create it again")
    header = json.loads(data[_HEAD.size : _HEAD.size + length])
    arrays, at = {}, _HEAD.size + length
    for name, kind, shape in header["arrays"]:
        if np.dtype(kind).kind not in "biuf":
            raise ValueError(f"this summary is damaged: it has an array of type {kind}")
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(data, dtype=kind, count=count, offset=at).reshape(shape)
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        at += array.nbytes
    return header["facts"], arrays


def packed_points(points: WeightedPoints, name: str) -> dict[str, Array]:
    """Return the arrays of points by name; weights that are all 1 are left out."""
    arrays: dict[str, Array] = {f"{name}.ids": points.ids}
    if sparse.issparse(points.X):
        for part in ("data", "indices", "indptr"):
            arrays[f"{name}.{part}"] = getattr(points.X, part)
        arrays[f"{name}.width"] = np.array([points.n_columns])
    else:
        arrays[f"{name}.X"] = points.X
    if points.y is not None:
        arrays[f"{name}.y"] = points.y
    if not (points.weights == 1.0).all():
        arrays[f"{name}.weights"] = points.weights
    return arrays


def unpacked_points(arrays: Mapping[str, Array], name: str) -> WeightedPoints | None:
    """Restore points from their arrays; None where there are none."""
    if f"{name}.ids" not in arrays:
        return None
    ids = arrays[f"{name}.ids"]
    X: Any
    if f"{name}.data" in arrays:
        parts = tuple(arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
        X = sparse.csr_array(parts, shape=(len(ids), int(arrays[f"{name}.width"][0])))
    else:
        X = arrays[f"{name}.X"]
    weights = arrays.get(f"{name}.weights", np.ones(len(ids)))
    return WeightedPoints._from_parts(X, arrays.get(f"{name}.y"), weights, ids)


def _plain(array: Array) -> Array:
    """Return an array in C order, with little-endian numbers."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a summary cannot hold an array of type {array.dtype}")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
