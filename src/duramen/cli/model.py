"""Models as JSON: what was learned, and all that is needed to predict from a file.

The fields are listed in docs/command-line.md. A checksum shows damage; who edits
a model by hand removes it.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.cli.output import naming, plain
from duramen.coreset.save import loss_of, loss_state
from duramen.files import replacing

if TYPE_CHECKING:
    from duramen.arrays import Array
    from duramen.io import Encoding
    from duramen.losses import Loss

__all__ = ["Model", "read_model", "write_model"]

FORMAT = "duramen model"
VERSION = 1
_NUMBERS = ("n_outliers", "objective", "total_weight", "l2")
_MAYBE_NUMBERS = ("std_error", "low", "high")
_WHOLE = ("n_points", "n_iter")
_TEXTS = ("made_by", "status")


@dataclass(frozen=True, eq=False)
class Model:
    """What was learned.

    Attributes
    ----------
    loss : Loss
    theta : array
        Its parameters.
    columns : tuple of str, or None
        The names of the columns of numbers that theta is for.
    classes : list, or None
        What the labels are called, in the order of their numbers.
    encoding : Encoding or None
        How columns of a file become numbers.
    facts : dict
        How it was found: for the reader's eyes.
    """

    loss: Loss
    theta: Array
    columns: tuple[str, ...] | None
    classes: list[Any] | None
    encoding: Encoding | None
    facts: dict[str, Any]


def write_model(path: Path, model: Model) -> None:
    """Write a model; an existing file is replaced when all is written."""
    state = {
        "format": FORMAT,
        "version": VERSION,
        "loss": loss_state(model.loss),
        "theta": model.theta.tolist(),
        "columns": None if model.columns is None else list(model.columns),
        "classes": model.classes,
        **plain(model.facts),
        "encoding": None if model.encoding is None else model.encoding.to_json(),
    }
    text = json.dumps({**state, "crc32": _checksum(state)}, indent=1, allow_nan=False, ensure_ascii=False)
    with naming(str(path)), replacing(path) as file:
        file.write(text.encode() + b"\n")


def read_model(path: Path) -> Model:
    """Read a model, and check all of it.

    Raises
    ------
    ValueError
        If it is no model, is damaged, or was written by a newer version.
    """
    state = _read(path)
    try:
        _check(state)
        loss = loss_of(state["loss"], None, None, 1)
        theta = np.array(state["theta"], dtype=np.float64)
        _check_theta(theta, loss, state)
        encoding = _encoding(state)
    except KeyError as error:
        raise _damaged(path, f"it does not say {error}") from None
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise _damaged(path, str(error)) from None
    facts = {name: state[name] for name in (*_TEXTS, *_WHOLE, *_NUMBERS, *_MAYBE_NUMBERS, "converged")}
    columns = None if state["columns"] is None else tuple(state["columns"])
    return Model(loss, theta, columns, state["classes"], encoding, facts)


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON, and refuse what is no model of ours, or one of a later day."""
    raw = path.read_bytes()
    way_out = "duramen fit writes models"
    try:
        state = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if raw[:40].find(FORMAT.encode()) >= 0:
            raise _damaged(path, f"it is no JSON ({error})") from None
        raise ValueError(f"{path} is no model: it is no JSON; {way_out}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} is no model: its format is not {FORMAT!r}; {way_out}")
    version = state.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ValueError(
            f"{path}: version {version} of the format is newer than this library reads ({VERSION}); "
            "upgrade duramen"
        )
    return state


def _check(state: dict[str, Any]) -> None:
    """Raise ValueError or KeyError if a field is missing, or of another type than it should be."""
    said = {name: part for name, part in state.items() if name != "crc32"}
    if "crc32" in state and state["crc32"] != _checksum(said):
        raise ValueError(
            "its content is not what was saved (the checksum differs; if you edited it, remove crc32)"
        )
    if state["version"] != VERSION:
        raise ValueError(f"its version is {state['version']!r}")
    for name in _NUMBERS:
        _expect(name, state[name], _is_number(state[name]), "a number")
    for name in _MAYBE_NUMBERS:
        _expect(name, state[name], state[name] is None or _is_number(state[name]), "a number or null")
    for name in _WHOLE:
        _expect(name, state[name], _is_number(state[name]) and isinstance(state[name], int), "a whole number")
    for name in _TEXTS:
        _expect(name, state[name], isinstance(state[name], str), "text")
    _expect("converged", state["converged"], isinstance(state["converged"], bool), "true or false")
    columns, classes = state["columns"], state["classes"]
    texts = columns is None or (isinstance(columns, list) and all(isinstance(one, str) for one in columns))
    _expect("columns", columns, texts, "a list of names or null")
    _expect("classes", classes, classes is None or isinstance(classes, list), "a list or null")


def _encoding(state: dict[str, Any]) -> Encoding | None:
    if state["encoding"] is None:
        return None
    from duramen.io import Encoding

    encoding = Encoding.from_json(state["encoding"])
    if list(encoding.names) != state["columns"]:
        raise ValueError("its encoding makes other columns than it has")
    return encoding


def _check_theta(theta: Array, loss: Loss, state: dict[str, Any]) -> None:
    if not np.isfinite(theta).all():
        raise ValueError("its theta holds something that is no number")
    width = len(state["columns"]) if state["columns"] is not None else None
    if width is None:
        width = theta.shape[-1] - bool(getattr(loss, "fit_intercept", False)) if theta.ndim else 0
    shape = loss.parameter_shape(width)
    if shape is not None and theta.shape != tuple(shape):
        raise ValueError(
            f"its theta has shape {theta.shape}; {loss!r} on {width} columns needs {tuple(shape)}"
        )
    classes = state["classes"]
    needed = getattr(loss, "n_classes", 2 if getattr(loss, "classifies", False) else None)
    if (classes is None) != (needed is None) or (classes is not None and len(classes) != needed):
        raise ValueError(f"its classes are {classes}, where {loss!r} has {needed or 'none'}")


def _expect(name: str, value: Any, right: bool, what: str) -> None:
    if not right:
        raise ValueError(f"its {name} is {value!r} and should be {what}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; copy it again, or fit again")


def _checksum(state: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True, allow_nan=False).encode())
