"""Summaries as bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.robust.passes.census import Census, Form
from duramen.robust.passes.exact import ExactSums
from duramen.robust.passes.inliers import InlierState
from duramen.robust.passes.lowest import Held
from duramen.robust.passes.selection import Outlook, Selection
from duramen.robust.passes.wire import pack, packed_points, unpack, unpacked_points
from duramen.rows import Array
from duramen.sampling import Seen

__all__ = ["from_bytes", "to_bytes"]

_SHORT = np.iinfo(np.int16).max


def to_bytes(body: Census | Selection, mark: str) -> bytes:
    """Turn what a pass tells into bytes; ``mark`` says by which plan it was made."""
    facts = {"plan": mark, "rows": body.n_rows, "points": body.n_points}
    if isinstance(body, Census):
        facts |= {"kind": "census", "form": body.form, "classes": body.classes}
        arrays = {"weight": _array(body.weight), **_held(body.held)}
        return pack(facts, arrays)
    inliers = body.inliers
    facts |= {"kind": "selection", "stratified": inliers.stratified}
    arrays = {"strata": inliers.numbers, "counts": inliers.counts, "weights": _array(inliers.weights)}
    if inliers.totals is not None:
        arrays["totals"] = _array(inliers.totals)
    arrays |= _held(inliers.held)
    if inliers.held is not None and inliers.stratified:
        short = np.int16 if len(inliers.numbers) <= _SHORT else np.int32
        arrays["places"] = np.searchsorted(inliers.numbers, inliers.held.places).astype(short)
    if body.suspects is not None:
        arrays |= packed_points(body.suspects.points, "suspects")
        arrays["losses"] = np.asarray(body.suspects.losses)
    return pack(facts, arrays)


def from_bytes(data: bytes, outlook: Outlook | None) -> tuple[str, Census | Selection]:
    """Read the mark of the plan, and what a pass tells."""
    facts, arrays = unpack(data)
    mark, n_rows, n_points = facts["plan"], facts["rows"], facts["points"]
    points = unpacked_points(arrays, "held")
    if facts["kind"] == "census":
        form = None if facts["form"] is None else Form(*facts["form"])
        held = None if points is None else Held(points, arrays["ranks"], np.zeros(len(points), dtype=np.int8))
        weight = _sums(arrays["weight"])
        return mark, Census(n_rows, n_points, weight, form, tuple(facts["classes"]), held)
    strata = arrays["strata"]
    held = None
    if points is not None:
        places = arrays.get("places", np.zeros(len(points), dtype=np.int16))
        held = Held(points, arrays["ranks"], strata[places])
    totals = _sums(arrays["totals"]) if "totals" in arrays else None
    weights = _sums(arrays["weights"])
    inliers = InlierState(strata, arrays["counts"], weights, totals, facts["stratified"], held)
    suspects = None
    outer = unpacked_points(arrays, "suspects")
    if outer is not None and outlook is not None:
        suspects = Seen(outer, outlook.loss, outlook.anchor, arrays["losses"])
    return mark, Selection(n_rows, n_points, suspects, inliers)


def _held(held: Held | None) -> dict[str, Array]:
    return {} if held is None else {**packed_points(held.points, "held"), "ranks": held.numbers}


def _array(sums: ExactSums) -> Array:
    return np.frombuffer(sums.to_bytes(), dtype=np.uint8)


def _sums(array: Any) -> ExactSums:
    return ExactSums.from_bytes(np.asarray(array).tobytes())
