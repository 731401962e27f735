"""What a coreset knows beside its rows, as plain JSON and back: exact, and without pickle.

Python writes a float so that reading gives the same float, and an integer in
full; infinity, which JSON lacks, is the text "inf".
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.ball import Anchor
from duramen.losses import (
    BregmanLoss,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    PoissonLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)
from duramen.losses.divergences import Divergence, divergence_of
from duramen.rows import Array

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = [
    "LossMismatchError",
    "anchor_of",
    "anchor_state",
    "check_loss",
    "known_fields",
    "known_state",
    "loss_of",
    "loss_state",
]

_BUILT_IN: dict[str, type[Loss]] = {
    known.__name__: known
    for known in (
        BregmanLoss,
        HuberLoss,
        KMeansLoss,
        KMedianLoss,
        LogisticLoss,
        PoissonLoss,
        SmoothHingeLoss,
        SoftmaxLoss,
        SquaredLoss,
        TruthDiscoveryLoss,
    )
}


class LossMismatchError(ValueError):
    """The loss that was given, or that none was, does not go with what was saved."""


def known_state(core: Coreset) -> dict[str, Any]:
    """Put all that a coreset knows beside its rows into JSON's types."""
    return {
        "loss": loss_state(core.loss),
        "anchor": None if core.anchor is None else anchor_state(core.anchor),
        "threshold": _number(core.threshold),
        "n_points": int(core.n_points),
        "n_suspected": int(core.n_suspected),
        "n_outliers": _number(core.n_outliers),
        "sampler": str(core.sampler),
        "calibrated": bool(core.calibrated),
        "seed": int(core.seed),
        "columns": None if core.columns is None else [str(name) for name in core.columns],
    }


def known_fields(state: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`known_state`, but for the loss and the anchor."""
    columns = state["columns"]
    return {
        "threshold": float(state["threshold"]),
        "n_points": int(state["n_points"]),
        "n_suspected": int(state["n_suspected"]),
        "n_outliers": float(state["n_outliers"]),
        "sampler": str(state["sampler"]),
        "calibrated": bool(state["calibrated"]),
        "seed": int(state["seed"]),
        "columns": None if columns is None else tuple(str(name) for name in columns),
    }


def anchor_of(state: dict[str, Any] | None) -> Anchor | None:
    """Make the anchor anew, with all that was frozen in it."""
    if state is None:
        return None
    frozen = {str(name): _array(part) for name, part in state["frozen"].items()}
    ids = np.array(state["ids"], dtype=np.int64)
    return Anchor(_array(state["theta"]), float(state["radius"]), ids, frozen)


def check_loss(given: Any) -> None:
    """Raise TypeError, with the way out, if what is given for a loss is none."""
    if given is not None and not isinstance(given, Loss):
        found = f"the class {given.__name__}; call it" if isinstance(given, type) else repr(given)
        raise TypeError(f"loss must be a Loss, such as dm.LogisticLoss(); found {found}")


def loss_of(
    state: dict[str, Any],
    given: Loss | None,
    anchor: Anchor | None,
    n_columns: int,
    how: str = "dm.load_coreset(path, loss=...)",
) -> Loss:
    """Make the loss anew, or take the one that is given where a file cannot hold it.

    Raises
    ------
    LossMismatchError
        If the loss given is another than that of the file, or one is needed.
    """
    saved = _built_in(state)
    if saved is not None and given is not None and given != saved:
        raise LossMismatchError(f"was made for {saved!r}, which loss={given!r} contradicts; leave loss out")
    problem = given if saved is None else saved
    if problem is None:
        raise LossMismatchError(
            f"was made with a loss of your own, {state['repr']}, which no file can hold; pass it: {how}"
        )
    shape = problem.parameter_shape(n_columns)
    if anchor is not None and shape is not None and anchor.theta.shape != tuple(shape):
        raise LossMismatchError(
            f"has an anchor of shape {anchor.theta.shape}; {problem!r} on {n_columns} columns needs "
            f"shape {tuple(shape)}; pass the loss that the coreset was made with"
        )
    return problem


def loss_state(loss: Loss) -> dict[str, Any]:
    """Put a loss into JSON's types: a built-in one whole, of another only its words."""
    if _BUILT_IN.get(type(loss).__name__) is type(loss):
        known = _field_state(loss)
        if None not in known.values():
            return {"class": type(loss).__name__, "fields": known}
    return {"class": None, "repr": _safe_repr(loss)}


def _field_state(loss: Any) -> dict[str, Any]:
    """List a built-in loss's fields; None for what cannot be stored: a divergence of the user's own."""
    return {one.name: _field(getattr(loss, one.name)) for one in fields(loss)}


def _field(value: Any) -> Any:
    if not isinstance(value, Divergence):
        return value.item() if isinstance(value, np.generic) else value
    try:
        return value.name if divergence_of(value.name) == value else None
    except ValueError:  # no name that is known
        return None


def _built_in(state: dict[str, Any]) -> Loss | None:
    name = state["class"]
    if name is None:
        return None
    if name not in _BUILT_IN:
        raise ValueError(f"its loss {name!r} is not known here")
    return _BUILT_IN[name](**state["fields"])


def _safe_repr(loss: Loss) -> str:
    try:
        return " ".join(repr(loss).split())[:300]
    except Exception:  # saving must not fail because of it: it is only for a message
        return type(loss).__name__


def anchor_state(anchor: Anchor) -> dict[str, Any]:
    """Put an anchor into JSON's types, with all that was frozen in it."""
    return {
        "theta": _array_state(anchor.theta),
        "radius": anchor.radius,
        "ids": anchor.ids.tolist(),
        "frozen": {name: _array_state(part) for name, part in anchor.frozen.items()},
    }


def _array_state(array: Array) -> dict[str, Any]:
    return {"shape": list(array.shape), "values": array.ravel().tolist()}


def _array(state: dict[str, Any]) -> Array:
    return np.array(state["values"], dtype=np.float64).reshape(state["shape"])


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else repr(float(value))
