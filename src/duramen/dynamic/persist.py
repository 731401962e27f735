"""Convert a dynamic coreset, apart from its points, to JSON types, and restore it from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.save import anchor_of, anchor_state, loss_of, state_of
from duramen.coreset.view import SAMPLERS, as_anchor
from duramen.dynamic.state import State
from duramen.dynamic.validation import RowValidator
from duramen.losses.base import Anchor, Ball, Loss
from duramen.samplers.base import Sampler

if TYPE_CHECKING:
    from duramen.dynamic import DynamicCoreset

_SAMPLERS = {known.__name__: known for known in SAMPLERS.values()}

_PLAIN = ("n_outliers", "n_changes", "n_sample", "try_at", "reason")  # of the state

UNUSED = {"lightest": None, "heaviest": 0.0}  # the range of the weights, which version 0.1 writes and reads


# what does not change


def settings_to_json(dyn: DynamicCoreset) -> dict[str, Any]:
    """Convert the arguments of a dynamic coreset to JSON types."""
    settings, sampler = dyn._settings, dyn._settings.sampler
    return {
        **{name: getattr(settings, name) for name in ("calibrate", "bucket_size", "height", "seed")},
        **{name: getattr(settings.by_size, name) for name in ("size", "suspects")},
        "loss": state_of(dyn.loss),
        "n_outliers": dyn._state.n_outliers,
        "sampler": {"name": sampler} if isinstance(sampler, str) else state_of(sampler, _SAMPLERS),
        "engine": dyn.engine,
    }


def settings_from_json(state: dict[str, Any], loss: Loss | None, sampler: Any) -> dict[str, Any]:
    """Undo :func:`settings_to_json`: return the arguments of a dynamic coreset, except the seed."""
    return {
        **{name: value for name, value in state.items() if name != "seed"},
        "loss": loss_of(state["loss"], loss, "dm.open_store(path, loss=...)"),
        "sampler": _sampler_from_json(state["sampler"], sampler),
    }


def anchor_to_json(given: Any) -> dict[str, Any] | None:
    """Convert an anchor that was given to JSON types: an anchor, a ball, or a theta alone."""
    if given is None:
        return None
    kind = "anchor" if isinstance(given, Anchor) else "ball" if isinstance(given, Ball) else "theta"
    return {**anchor_state(as_anchor(given)), "kind": kind}


def _sampler_from_json(state: dict[str, Any], given: Any) -> Sampler | str:
    if "name" in state:
        return str(state["name"])
    if state["class"] is not None:
        return _SAMPLERS[state["class"]](**state["fields"])
    if not isinstance(given, Sampler):
        raise TypeError(
            f"was made with a custom sampler, {state['repr']}, which cannot be saved; pass it: "
            f"dm.open_store(path, sampler=...); found sampler={given!r}"
        )
    return given


# what changes


def state_to_json(dyn: DynamicCoreset) -> dict[str, Any]:
    """Convert what changes with every operation, beside the points, to JSON types."""
    state, validator = dyn._state, dyn._state.validator
    if not validator.n_columns:
        return {"n_outliers": state.n_outliers, "next_id": state.ids.next, "gate": None}
    tree = state.tree
    return {
        **UNUSED,
        **{name: getattr(state, name) for name in _PLAIN},
        "next_id": state.ids.next,
        "named": bool(state.ids.names),
        "classes": sorted(validator.classes),
        "buckets": None if tree is None else [tree.bucket_size, tree.measured],
        "gate": {
            "n_columns": validator.n_columns,
            "dtype": validator.dtype.str,
            "labelled": validator.labelled,
            "columns": None if validator.columns is None else list(validator.columns),
        },
    }


def restore(
    dyn: DynamicCoreset,
    metadata: dict[str, Any],
    n: int,
    blocks: Iterable[dict[str, Array]],
    *,
    names: dict[int, Any],
    sample: Array,
    order: Array,
) -> None:
    """Restore the ``n`` points of a dynamic coreset that has none, and all that was saved beside them.

    ``metadata`` has what the functions above returned: its "settings", the anchor "given" to it, its "state",
    and the "anchor" that its points are scored from, without ids.
    Points come in the blocks of :class:`Slots`. ``names`` are by id. ``sample`` are ids of points that the
    anchor was found on and that are unchanged. ``order`` are the ids in the order of a tree.
    """
    given, saved, anchor = metadata["given"], metadata["state"], metadata["anchor"]
    kept: Any = anchor_of(given)
    if given is not None and given["kind"] != "anchor":
        kept = getattr(kept, given["kind"])  # its ball or its theta
    dyn._settings = replace(dyn._settings, seed=int(metadata["settings"]["seed"]), given=kept)
    layout, dyn._solution = saved["gate"], None
    validator = RowValidator(dyn.loss, **(layout or {}))
    state = State(dyn._settings, validator, saved["n_outliers"], saved["next_id"])
    if layout is None:
        dyn._state = state
        return
    validator.classes = frozenset(saved["classes"])
    vars(state).update({name: saved[name] for name in _PLAIN})
    state.slots.load(n, blocks)
    if saved.get("named") or names:
        if not np.array_equal(sorted(names), state.slots.index.keys()):
            raise ValueError("names are missing, or belong to other points")
        state.ids.names = names
    state.restore(anchor and anchor_of({**anchor, "ids": sorted(sample.tolist())}), sample)
    if state.tree is not None:
        slots = state.slots.find(order)
        if not np.array_equal(np.sort(slots), np.sort(state.tree.slots())):
            raise ValueError("places in the tree belong to other points")
        state.tree.restore(slots, *saved["buckets"])
    dyn._state = state
