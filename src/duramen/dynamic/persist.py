"""A dynamic coreset apart from its points: put into JSON's types, and made anew from them and the points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor, Ball
from duramen.coreset.save import anchor_of, anchor_state, loss_of, loss_state
from duramen.coreset.view import as_anchor
from duramen.dynamic.arrivals import RowValidator
from duramen.dynamic.ids import Names
from duramen.dynamic.rows import Part
from duramen.dynamic.state import State
from duramen.dynamic.tree import Tree
from duramen.losses.base import Loss
from duramen.samplers import LayeredSampler, LeverageSampler, Sampler, SensitivitySampler, UniformSampler

if TYPE_CHECKING:
    from duramen.dynamic.dynamic_coreset import DynamicCoreset

__all__ = [
    "SavedState",
    "anchor_to_json",
    "restore",
    "restore_settings",
    "settings_from_json",
    "settings_to_json",
    "state_to_json",
]


_SAMPLERS: dict[str, type[Sampler]] = {
    known.__name__: known for known in (UniformSampler, LayeredSampler, LeverageSampler, SensitivitySampler)
}


# what does not change


def settings_to_json(dyn: DynamicCoreset) -> dict[str, Any]:
    """Put what a dynamic coreset was made with into JSON's types."""
    settings, plan = dyn._settings, dyn._settings.recipe.plan
    return {
        "loss": loss_state(dyn.loss),
        "size": plan.size,
        "suspects": plan.suspects,
        "n_outliers": dyn._first_outliers,
        "sampler": _sampler_state(settings.recipe.sampler),
        "engine": dyn.engine,
        "calibrate": settings.calibrate,
        "bucket_size": settings.bucket_size,
        "height": settings.height,
        "seed": dyn.seed,
    }


def settings_from_json(state: dict[str, Any], loss: Loss | None, sampler: Any) -> dict[str, Any]:
    """Undo :func:`settings_to_json`: the arguments that a dynamic coreset is made with, but the seed.

    Raises
    ------
    LossMismatchError, TypeError
        If a loss or a sampler of the user's own is needed and not given, or is another.
    """
    return {
        "loss": loss_of(state["loss"], loss, None, 0, "dm.open_store(path, loss=...)"),
        "size": int(state["size"]),
        "suspects": float(state["suspects"]),
        "n_outliers": float(state["n_outliers"]),
        "sampler": _sampler_of(state["sampler"], sampler),
        "engine": str(state["engine"]),
        "calibrate": bool(state["calibrate"]),
        "bucket_size": state["bucket_size"],
        "height": state["height"],
    }


def restore_settings(dyn: DynamicCoreset, seed: int, given: dict[str, Any] | None) -> None:
    """Give one that was just made the seed and the anchor that were given to it the first time."""
    anchor = None if given is None else anchor_of(given)
    kinds = {None: None, "anchor": anchor, "ball": anchor and anchor.ball, "theta": anchor and anchor.theta}
    kept = kinds[None if given is None else str(given["kind"])]
    dyn._settings = replace(dyn._settings, recipe=replace(dyn._settings.recipe, seed=seed), given=kept)


def anchor_to_json(given: Any) -> dict[str, Any] | None:
    """Put an anchor that was given into JSON's types: with all that is in it, a ball, or a theta alone."""
    if given is None:
        return None
    kind = "anchor" if isinstance(given, Anchor) else "ball" if isinstance(given, Ball) else "theta"
    return {**anchor_state(as_anchor(given)), "kind": kind}


def _sampler_state(sampler: Sampler | str) -> dict[str, Any]:
    if isinstance(sampler, str):
        return {"name": sampler}
    if _SAMPLERS.get(type(sampler).__name__) is type(sampler):
        known = {one.name: getattr(sampler, one.name) for one in fields(sampler)}  # type: ignore[arg-type]
        return {"class": type(sampler).__name__, "fields": known}
    return {"class": None, "repr": " ".join(repr(sampler).split())[:300]}


def _sampler_of(state: dict[str, Any], given: Any) -> Sampler | str:
    if "name" in state:
        return str(state["name"])
    if state["class"] is not None:
        return _SAMPLERS[state["class"]](**state["fields"])
    if given is None:
        raise TypeError(
            f"was made with a sampler of your own, {state['repr']}, which no file can hold; "
            "pass it: dm.open_store(path, sampler=...)"
        )
    if not isinstance(given, Sampler):
        raise TypeError(f"was made with a sampler of your own; sampler={given!r} is none")
    return given


# what changes


def state_to_json(dyn: DynamicCoreset) -> dict[str, Any]:
    """Put what changes with every operation, beside the points, into JSON's types."""
    state = dyn._state
    if state is None:
        return {"n_outliers": dyn._first_outliers, "next_id": dyn._first_id, "gate": None}
    lightest, heaviest = state.weights.kept
    engine = None if state.candidates is None else state.candidates.engine
    tree = engine if isinstance(engine, Tree) else None
    return {
        "n_outliers": state.n_outliers,
        "next_id": state.ids.next,
        "named": state.ids.names is not None,
        "n_changes": state.n_changes,
        "n_sample": state.n_sample,
        "try_at": state.try_at,
        "reason": state.reason,
        "lightest": None if math.isinf(lightest) else lightest,
        "heaviest": heaviest,
        "classes": sorted(state.validator.classes),
        "buckets": None if tree is None else [tree.buckets.size, tree.buckets.measured],
        "gate": {
            "n_columns": state.validator.n_columns,
            "dtype": state.validator.dtype.str,
            "labelled": state.validator.labelled,
            "columns": None if state.validator.columns is None else list(state.validator.columns),
        },
    }


@dataclass(frozen=True)
class SavedState:
    """All that was known of the points that are here, beside the points themselves."""

    state: dict[str, Any]
    anchor: Anchor | None
    names: dict[int, Any] | None  # by id, where points have them
    sample: Array  # ids of points that the anchor was made from, and are here unchanged
    changed_since_anchor: Array  # (n,) bool, in the order of the points
    order: Array | None  # ids, as they stood in a tree


def restore(dyn: DynamicCoreset, n: int, parts: Iterable[Part], known: SavedState) -> None:
    """Put points that were here before back into one without any, as they stood.

    ``parts`` is read before ``known.changed_since_anchor`` is, which may be filled meanwhile.
    """
    said, gate = known.state, known.state["gate"]
    dyn._first_outliers, dyn._first_id = float(said["n_outliers"]), int(said["next_id"])
    dyn._state = dyn._core = dyn._solution = None
    if gate is None:
        return
    rows = np.empty((0, int(gate["n_columns"])), dtype=np.dtype(gate["dtype"]).newbyteorder("="))
    entry = RowValidator(dyn.loss, rows, rows[:, 0] if gate["labelled"] else None)
    entry.columns = None if gate["columns"] is None else tuple(gate["columns"])
    entry.classes = frozenset(map(float, said["classes"]))
    state = State(dyn._settings, entry, dyn._first_outliers, dyn._first_id)
    state.slots.load(n, parts)
    weights = state.slots.weights[:n]
    state.n_weighted = int(np.count_nonzero(weights))
    state.total.add_many(weights)
    state.n_changes = int(said["n_changes"])
    state.try_at, state.reason = int(said["try_at"]), str(said["reason"])
    state.weights.kept = (math.inf if said["lightest"] is None else said["lightest"], said["heaviest"])
    if known.names is not None:
        if not np.array_equal(sorted(known.names), state.slots.index.keys()):
            raise ValueError("names are of other points")
        state.ids.names = Names()
        state.ids.names.add(np.array(list(known.names)), list(known.names.values()))
    if known.anchor is not None:
        state.restore(known.anchor, known.sample, int(said["n_sample"]))
        _restore_candidates(state, known)
    dyn._state = state


def _restore_candidates(state: State, known: SavedState) -> None:
    view = state.candidates
    assert view is not None
    view.changed_since_anchor[: len(known.changed_since_anchor)] = known.changed_since_anchor
    if isinstance(view.engine, Tree):
        order = np.empty(0, dtype=np.int64) if known.order is None else known.order
        slots = state.slots.index.find_many(order)
        if not np.array_equal(np.sort(slots), np.sort(view.engine.slots())):
            raise ValueError("places in the tree are of other points")
        view.engine.buckets.restore(slots, *map(int, known.state["buckets"]))
