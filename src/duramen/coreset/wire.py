"""The byte format of summaries: a header that describes the arrays, the arrays, and a checksum.

Bytes come from other machines: every count is checked against the bytes that are there before anything is
allocated, and every value before it is used. Whatever is wrong is a ValueError.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset.candidates import Collected, Form, KeyedPoints, form_of
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import View, given_anchor
from duramen.points import WeightedPoints

FORMAT = 2
_MAGIC = b"DMSY"
_HEAD = struct.Struct("<4sHI")  # magic, format, bytes of the header
_TYPES = {f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8)} | {"|b1", "|i1", "|u1"}


def pack(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
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
        age = "a newer" if version > FORMAT else "an older"
        raise ValueError(
            f"this summary has format {version}, of {age} version of duramen, and this one reads format "
            f"{FORMAT}; use one version on all machines"
        )
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("this summary is damaged: checksum mismatch; create it again")
    try:
        header = json.loads(data[_HEAD.size : -4][:length])
        facts, listed = header["facts"], header["arrays"]
        _require(isinstance(facts, dict), "its header")
        return facts, _read_arrays(data, _HEAD.size + length, listed)
    except (TypeError, KeyError, RecursionError) as error:
        raise _damaged("its header") from error


def _read_arrays(data: bytes, at: int, listed: Any) -> dict[str, Array]:
    """Read the arrays that the header lists, from a place on: they must fill the bytes up to the checksum."""
    arrays: dict[str, Array] = {}
    for name, kind, shape in listed:
        plain = [type(name) is str, *(type(n) is int and 0 <= n <= len(data) for n in shape)]
        _require(kind in _TYPES and len(shape) in (1, 2) and all(plain) and name not in arrays, f"{name!r}")
        size = np.dtype(kind).itemsize * int(np.prod(shape, dtype=object))
        _require(at + size <= len(data) - 4, f"{name!r} is cut off")
        array = np.frombuffer(data[at : at + size], dtype=kind).reshape(shape)
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        at += size
    _require(at == len(data) - 4, "its length")
    return arrays


def to_bytes(body: Collected, fingerprint: str) -> bytes:
    """Encode the result of a pass by the plan with this fingerprint."""
    facts = {"plan": fingerprint, "rows": body.n_rows, "form": body.form, "classes": body.classes}
    arrays = {"strata": body.numbers, "counts": body.counts, "weights": body.weights.parts()}
    if body.totals is not None:
        arrays["totals"] = body.totals.parts()
    for name, part in (("kept", body.kept), ("suspects", body.suspects)):
        if part is not None:
            arrays |= {f"{name}.{field}": array for field, array in _arrays_of(part).items()}
    if body.kept is not None and len(body.numbers) > 1:
        short = np.int16 if len(body.numbers) <= np.iinfo(np.int16).max else np.int32
        arrays["places"] = np.searchsorted(body.numbers, body.kept.strata).astype(short)
    return pack(facts, arrays)


def _arrays_of(part: KeyedPoints) -> dict[str, Array]:
    """Return the arrays of points by name; weights that are all 1 are left out."""
    points, X = part.points, part.points.X
    arrays = {"ids": points.ids, "keys": part.keys, "X": X, "y": points.y, "weights": points.weights}
    if sparse.issparse(X):
        arrays |= {"X": None, "width": np.array([points.n_columns])}
        arrays |= {name: getattr(X, name) for name in ("data", "indices", "indptr")}
    if (points.weights == 1.0).all():
        del arrays["weights"]
    return {name: array for name, array in arrays.items() if array is not None}


OTHER_PLAN = (
    "these summaries were made by different plans, so they cannot be merged; use one plan for all "
    "summaries of a pass"
)


def from_bytes(data: bytes, fingerprint: str, view: View) -> Collected:
    """Read the result of a pass by the plan with this fingerprint and view.

    Raises
    ------
    ValueError
        If the bytes are anything but what :func:`to_bytes` returns for some rows.
    """
    facts, arrays = unpack(data)
    if facts.get("plan") != fingerprint:
        raise ValueError(OTHER_PLAN)
    try:
        return _read(facts, arrays, view)
    except (TypeError, KeyError, IndexError, OverflowError) as error:
        raise _damaged(str(error)) from error


def _read(facts: Mapping[str, Any], arrays: dict[str, Array], view: View) -> Collected:
    numbers, counts, n_rows = arrays["strata"], arrays["counts"], facts["rows"]
    n = len(numbers)
    whole = numbers.dtype == counts.dtype == np.int64 and counts.shape == numbers.shape == (n,)
    _require(whole and bool((numbers[1:] > numbers[:-1]).all() and (counts > 0).all()), "its strata")
    weights = _read_sums(arrays["weights"], n)
    _require(bool((weights.values > 0).all()), "the weights of its strata")
    totals = None if view.features is None else _read_sums(arrays["totals"], view.features.n_columns)
    form = None if facts["form"] is None else Form(*facts["form"])
    classes = np.array(facts["classes"], dtype=np.float64).ravel()[:2]
    if len(classes):
        _check_labels(classes, view)
    kept, suspects = (_read_points(arrays, name, form, view) for name in ("kept", "suspects"))
    n_points = sum(counts.tolist()) + (0 if suspects is None else len(suspects.keys))
    _require(type(n_rows) is int and n_points <= n_rows < 2**63, "its number of rows")
    _require((form is None) == (n_rows == 0) and (kept is None) == (n == 0), "its rows")
    if kept is not None:
        places = arrays["places"] if n > 1 else np.zeros(len(kept.keys), dtype=np.int64)
        _require(places.shape == kept.keys.shape and places.dtype.kind == "i", "its strata")
        _require(bool((places >= 0).all() and (places < n).all()), "its strata")
        kept = kept._replace(strata=numbers[places])
        n_kept = np.bincount(places, minlength=n)
        heavy = np.bincount(places, kept.points.weights, minlength=n)
        _require(bool((n_kept > 0).all() and (n_kept <= counts).all()), "its counts")
        _require(bool((heavy <= weights.values * (1 + 1e-9)).all()), "the weights of its strata")
        _require(bool((kept.keys < np.inf).all()), "its ranks")
    return Collected(n_rows, form, tuple(classes.tolist()), suspects, numbers, counts, weights, totals, kept)


def _read_sums(array: Array, n: int) -> ExactSums:
    _require(array.dtype == np.float64 and len(array) == n, "its sums")
    return ExactSums.of_parts(array)


def _read_points(arrays: Mapping[str, Array], name: str, form: Form | None, view: View) -> KeyedPoints | None:
    """Restore points of positive weight, sorted by id, that the loss accepts; None where there are none."""
    mine = {
        key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")
    }
    if not mine:
        return None
    X, y, ids, keys = mine.get("X"), mine.get("y"), mine["ids"], mine["keys"]
    if X is None:
        data, indices, indptr, width = (mine[part] for part in ("data", "indices", "indptr", "width"))
        _require(indptr.shape == (len(ids) + 1,) and len(data) == indptr[-1] and width.shape == (1,), name)
        try:
            X = sparse.csr_array((data, indices, indptr), shape=(len(ids), int(width[0])))
            X.check_format(full_check=True)
        except ValueError as error:
            raise _damaged(str(error)) from error
    _require(X.dtype.kind == "f" and ids.dtype == np.int64 and X.shape[0] == len(ids) > 0, name)
    points = WeightedPoints(X, y, mine.get("weights"), ids)
    _require(bool((points.weights > 0).all()) and bool((ids[1:] > ids[:-1]).all()), name)
    _require(keys.shape == ids.shape and keys.dtype.kind == "f" and bool((keys >= 0).all()), name)
    _require(form_of(points) == form, "its form")
    if not view.blind:
        given_anchor(view.anchor, view.loss, points.n_columns)  # of a shape that fits
    if y is None:
        _require(not view.loss.needs_labels, name)
    else:
        _check_labels(y, view)
    return KeyedPoints(points, keys, np.zeros(len(ids), dtype=np.int8))


def _check_labels(y: Array, view: View) -> None:
    _require(bool(np.isfinite(y).all()), "its labels")
    if view.loss.needs_labels:
        view.loss.check_labels(y)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _damaged(what)


def _damaged(what: str) -> ValueError:
    return ValueError(f"this summary is damaged or was not made by duramen: {what} is wrong; create it again")
