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
from duramen.coreset.candidates import Collected, FirstPassResult, Form, RankedPoints, form_of
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import View
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints

FORMAT = 2
_MAGIC = b"DMSY"
_HEAD = struct.Struct("<4sHI")  # magic, format, bytes of the header
_TYPES = {f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8)} | {"|b1", "|i1", "|u1"}
_BODIES = FirstPassResult | Collected


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
        plain = [type(n) is int and 0 <= n <= len(data) for n in shape]
        _require(kind in _TYPES and len(shape) in (1, 2) and all(plain) and name not in arrays, f"{name!r}")
        size = np.dtype(kind).itemsize * int(np.prod(shape, dtype=object))
        _require(at + size <= len(data) - 4, f"{name!r} is cut off")
        array = np.frombuffer(data[at : at + size], dtype=kind).reshape(shape)
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        at += size
    _require(at == len(data) - 4, "its length")
    return arrays


def to_bytes(body: _BODIES, fingerprint: str) -> bytes:
    """Encode the result of a pass by the plan with this fingerprint."""
    facts = {"plan": fingerprint, "rows": body.n_rows, "points": body.n_points}
    arrays = {"weights": (body.weight if isinstance(body, FirstPassResult) else body.weights).parts()}
    if body.kept is not None:
        arrays |= {**_pack_points(body.kept.points, "kept"), "ranks": body.kept.ranks}
    if isinstance(body, FirstPassResult):
        return pack({**facts, "kind": "first", "form": body.form, "classes": body.classes}, arrays)
    arrays |= {"strata": body.numbers, "counts": body.counts}
    if body.totals is not None:
        arrays["totals"] = body.totals.parts()
    if body.kept is not None and len(body.numbers) > 1:
        short = np.int16 if len(body.numbers) <= np.iinfo(np.int16).max else np.int32
        arrays["places"] = np.searchsorted(body.numbers, body.kept.strata).astype(short)
    if body.suspects is not None:
        arrays |= {**_pack_points(body.suspects.points, "suspects"), "losses": body.suspects.losses}
    return pack({**facts, "kind": "second"}, arrays)


def from_bytes(data: bytes, fingerprint: str, loss: Loss, view: View | None) -> _BODIES:
    """Read the result of a pass by the plan with this fingerprint, loss and view.

    Raises
    ------
    ValueError
        If the bytes are anything but what :func:`to_bytes` returns for some rows.
    """
    facts, arrays = unpack(data)
    if facts.get("plan") != fingerprint:
        raise ValueError(OTHER_PLAN)
    kind = "first" if view is None else "second"
    _require(facts.get("kind") == kind, "it is of another pass")
    try:
        n_rows, n_points = (_whole(facts[name]) for name in ("rows", "points"))
        _require(n_points <= n_rows, "its numbers of rows")
        if view is None:
            return _first(facts, arrays, loss, n_rows, n_points)
        return _second(arrays, view, n_rows, n_points)
    except (TypeError, KeyError, IndexError, OverflowError) as error:
        raise _damaged(str(error)) from error


OTHER_PLAN = (
    "these summaries were made by different plans, so they cannot be merged; use one plan for all "
    "summaries of a pass"
)


def _first(
    facts: Mapping[str, Any], arrays: dict[str, Array], loss: Loss, n_rows: int, n_points: int
) -> FirstPassResult:
    form, classes, weight = facts["form"], facts["classes"], _read_sums(arrays["weights"], 1).total()
    _require((form is None) == (n_rows == 0) and weight.values >= 0, "its rows")
    if form is not None:
        columns, dtype, *flags = form
        _require(_whole(columns) > 0 and dtype in ("float32", "float64"), "its form")
        _require(len(flags) == 2 and all(type(flag) is bool for flag in flags), "its form")
        form = Form(*form)
    _require(isinstance(classes, list) and len(classes) <= 2, "its classes")
    if classes:
        _check_labels(np.array(classes, dtype=np.float64), loss)
    points, kept = _read_points(arrays, "kept", loss), None
    _require((weight.values > 0) == (n_points > 0), "its weight")
    if points is not None:
        _require(form_of(points) == form and len(points) <= n_points, "its sample")
        ranks = _numbers(arrays["ranks"], len(points))
        kept = RankedPoints(points, ranks, np.zeros(len(points), dtype=np.int8))
    return FirstPassResult(n_rows, n_points, weight, form, tuple(classes), kept)


def _second(arrays: dict[str, Array], view: View, n_rows: int, n_points: int) -> Collected:
    numbers, counts = arrays["strata"], arrays["counts"]
    n = len(numbers)
    whole = numbers.dtype == counts.dtype == np.int64 and counts.shape == numbers.shape == (n,)
    _require(whole and bool((numbers[1:] > numbers[:-1]).all() and (counts > 0).all()), "its strata")
    weights = _read_sums(arrays["weights"], n)
    _require(bool((weights.values > 0).all()), "the weights of its strata")
    totals = None if view.features is None else _read_sums(arrays["totals"], view.features.n_columns)
    points, outer = (_read_points(arrays, name, view.loss, view) for name in ("kept", "suspects"))
    suspects = kept = None
    if outer is not None:
        losses = arrays["losses"]
        _require(losses.shape == (len(outer),) and losses.dtype.kind == "f", "its losses")
        _require(bool((losses >= 0).all()), "its losses")
        suspects = AnchoredPoints(outer, view.loss, view.anchor, losses)
    n_inner = sum(counts.tolist())
    _require(n_points == n_inner + (0 if outer is None else len(outer)), "its numbers of points")
    _require((points is None) == (n == 0), "its candidates")
    if points is not None:
        places = arrays["places"] if n > 1 else np.zeros(len(points), dtype=np.int64)
        _require(places.shape == (len(points),) and places.dtype.kind == "i", "its strata")
        _require(bool((places >= 0).all() and (places < n).all()), "its strata")
        n_kept, heavy = np.bincount(places, minlength=n), np.bincount(places, points.weights, minlength=n)
        _require(bool((n_kept > 0).all() and (n_kept <= counts).all()), "its counts")
        _require(bool((heavy <= weights.values * (1 + 1e-9)).all()), "the weights of its strata")
        kept = RankedPoints(points, _numbers(arrays["ranks"], len(points)), numbers[places])
    return Collected(n_rows, n_points, suspects, numbers, counts, weights, totals, kept)


def _read_sums(array: Array, n: int) -> ExactSums:
    _require(array.dtype == np.float64 and len(array) == n, "its sums")
    return ExactSums.of_parts(array)


def _pack_points(points: WeightedPoints, name: str) -> dict[str, Array]:
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


def _read_points(
    arrays: Mapping[str, Array], name: str, loss: Loss, view: View | None = None
) -> WeightedPoints | None:
    """Restore points of positive weight, sorted by id, that the loss accepts; None where there are none."""
    ids, X = arrays.get(f"{name}.ids"), arrays.get(f"{name}.X")
    if ids is None:
        return None
    if X is None:
        data, indices, indptr, width = (arrays[f"{name}.{part}"] for part in _PARTS)
        _require(indptr.shape == (len(ids) + 1,) and len(data) == indptr[-1] and width.shape == (1,), name)
        try:
            X = sparse.csr_array((data, indices, indptr), shape=(len(ids), int(width[0])))
            X.check_format(full_check=True)
        except ValueError as error:
            raise _damaged(str(error)) from error
    _require(X.dtype.kind == "f" and X.dtype.itemsize >= 4 and ids.dtype == np.int64, name)
    _require(X.ndim == 2 and X.shape[0] == len(ids) > 0 and X.shape[1] > 0, name)
    weights = _numbers(arrays.get(f"{name}.weights", np.ones(len(ids))), len(ids))
    _require(bool((weights > 0).all()) and bool((ids[1:] > ids[:-1]).all()), name)
    points = WeightedPoints(X, arrays.get(f"{name}.y"), weights, ids)
    if points.y is None:
        _require(not loss.needs_labels, name)
    else:
        _check_labels(points.y, loss)
    shape = None if view is None else loss.parameter_shape(points.n_columns)
    _require(shape is None or view is None or tuple(shape) == view.anchor.theta.shape, name)
    return points


_PARTS = ("data", "indices", "indptr", "width")


def _check_labels(y: Array, loss: Loss) -> None:
    _require(bool(np.isfinite(y).all()), "its labels")
    if loss.needs_labels:
        loss.check_labels(y)


def _numbers(array: Array, n: int) -> Array:
    """Refuse anything but n finite numbers of at least zero."""
    _require(array.shape == (n,) and array.dtype == np.float64, "its numbers")
    _require(bool((array >= 0).all() and (array < np.inf).all()), "its numbers")
    return array


def _whole(number: Any) -> int:
    _require(type(number) is int and 0 <= number < 2**63, "a number in its header")
    return int(number)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _damaged(what)


def _damaged(what: str) -> ValueError:
    return ValueError(f"this summary is damaged or was not made by duramen: {what} is wrong; create it again")
