"""Models as JSON, with all that is needed to predict from a file; and their predictions.

The fields are listed in docs/command-line.md. A checksum detects damage; remove it
to edit a model by hand.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

from duramen.cli.data import CoreFile, checksum, read_encoding
from duramen.cli.output import fields_of, naming, plain
from duramen.coreset.save import loss_of, loss_state
from duramen.files import replacing
from duramen.losses import BregmanLoss, PoissonLoss, SmoothHingeLoss
from duramen.losses.centres import DistanceLoss

if TYPE_CHECKING:
    from duramen.arrays import Array, Rows
    from duramen.coreset.estimate import Estimate
    from duramen.io import Encoding
    from duramen.losses import Loss
    from duramen.solvers.solve import Solution

_FORMAT = "duramen model"
_VERSION = 1
_TYPES = {
    "text": (str,),
    "a whole number": (int,),
    "a number": (int, float),
    "a number or null": (int, float, type(None)),
    "true or false": (bool,),
    "a list or null": (list, type(None)),
}
_FACTS = {
    "made_by": "text",
    "n_points": "a whole number",
    "total_weight": "a number",
    "n_outliers": "a number",
    "l2": "a number",
    "objective": "a number",
    "std_error": "a number or null",
    "low": "a number or null",
    "high": "a number or null",
    "converged": "true or false",
    "status": "text",
    "n_iter": "a whole number",
}


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model."""

    loss: Loss
    theta: Array
    columns: tuple[str, ...] | None  # the columns of numbers that theta is for
    classes: list[Any] | None  # the labels, in the order of their numbers
    encoding: Encoding | None  # how columns of a file become numbers
    facts: dict[str, Any]  # how it was fitted

    @property
    def n_columns(self) -> int:
        """The number of columns that theta is for."""
        return int(self.theta.shape[-1]) - bool(getattr(self.loss, "fit_intercept", False))


def make_model(file: CoreFile, solution: Solution, estimate: Estimate, l2: float) -> Model:
    """Make the model of a solution on a coreset."""
    from duramen import __version__

    facts = {
        "made_by": f"duramen {__version__}",
        "n_points": file.core.n_points,
        "l2": l2,
        "status": solution.status.value,
        **fields_of(solution, "total_weight", "n_outliers", "objective", "converged", "n_iter"),
        **fields_of(estimate, "std_error", "low", "high"),
    }
    columns, classes = file.core.columns, _classes_of(file)
    return Model(solution.loss, solution.theta, columns, classes, file.encoding, facts)


def _classes_of(file: CoreFile) -> list[Any] | None:
    """Return the classes: as in the data, or else the numbers that the labels are."""
    n_classes, y = _n_classes(file.core.loss), file.core.y
    if n_classes is None or y is None:
        return None
    if file.encoding is not None and file.encoding.classes is not None:
        return list(file.encoding.classes)
    return [-1, 1] if n_classes == 2 and (y == -1).any() else list(range(n_classes))


def _n_classes(loss: Loss) -> int | None:
    return getattr(loss, "n_classes", 2 if getattr(loss, "classifies", False) else None)


def write_model(path: Path, model: Model) -> None:
    """Write a model; an existing file is replaced once all is written."""
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "loss": loss_state(model.loss),
        "theta": model.theta.tolist(),
        "columns": model.columns,
        "classes": model.classes,
        **plain(model.facts),
        "encoding": None if model.encoding is None else model.encoding.to_json(),
    }
    text = json.dumps({**state, "crc32": checksum(state)}, indent=1, allow_nan=False, ensure_ascii=False)
    with naming(str(path)), replacing(path) as file:
        file.write(text.encode() + b"\n")


def read_model(path: Path) -> Model:
    """Read and validate a model; refuse damage and newer versions."""
    state = _read_json(path)
    try:
        return _parse_model(state)
    except KeyError as error:
        raise _damaged(path, f"it has no {error}") from None
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise _damaged(path, str(error)) from None


def _read_json(path: Path) -> dict[str, Any]:
    """Read the JSON; refuse a file that is not a model, or of a newer version."""
    raw = path.read_bytes()
    try:
        state = json.loads(raw.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        if _FORMAT.encode() in raw[:40]:
            raise _damaged(path, f"it is not JSON ({error})") from None
        state = None
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a model; duramen fit writes models")
    version = state.get("version")
    if isinstance(version, int) and version > _VERSION:
        raise ValueError(
            f"{path}: version {version} of the format is newer than this library reads ({_VERSION}); "
            "upgrade duramen"
        )
    return state


def _parse_model(state: dict[str, Any]) -> Model:
    """Make the model; raise ValueError or KeyError if a field is missing or wrong."""
    crc32 = state.pop("crc32", None)
    if crc32 not in (None, checksum(state)):
        raise ValueError("its checksum differs; if you edited it, remove crc32")
    if state["version"] != _VERSION:
        raise ValueError(f"its version is {state['version']!r}")
    for name, kind in {**_FACTS, "columns": "a list or null", "classes": "a list or null"}.items():
        if type(state[name]) not in _TYPES[kind]:
            raise ValueError(f"its {name} is {state[name]!r} and should be {kind}")
    columns, encoding = state["columns"], read_encoding(state["encoding"])
    if columns is not None and not all(isinstance(name, str) for name in columns):
        raise ValueError(f"its columns are {columns!r} and should be names")
    if encoding is not None and list(encoding.names) != columns:
        raise ValueError("its encoding does not produce its columns")
    model = Model(
        loss_of(state["loss"], None, None, 1),
        np.array(state["theta"], dtype=np.float64),
        None if columns is None else tuple(columns),
        state["classes"],
        encoding,
        {name: state[name] for name in _FACTS},
    )
    _check_theta(model)
    return model


def _check_theta(model: Model) -> None:
    if not np.isfinite(model.theta).all():
        raise ValueError("its theta holds a value that is not a number")
    width = model.n_columns if model.columns is None else len(model.columns)
    shape = model.loss.parameter_shape(width)
    if shape is not None and model.theta.shape != tuple(shape):
        raise ValueError(
            f"its theta has shape {model.theta.shape}; {model.loss!r} on {width} columns needs {tuple(shape)}"
        )
    n_classes = None if model.classes is None else len(model.classes)
    if n_classes != _n_classes(model.loss):
        raise ValueError(f"its classes are {model.classes}, but {model.loss!r} has {_n_classes(model.loss)}")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a number in JSON")
    return value


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; copy it again, or fit again")


def predict_rows(model: Model, X: Rows) -> dict[str, Array]:
    """Predict rows; return columns by name.

    For classes ``class``, and ``probability=NAME`` for each of them (for the hinge
    loss, which has no probabilities, ``score``: above 0 for the second class); for
    regressions ``value``; for centres ``cluster`` and ``distance`` (for bregman, the
    divergence).
    """
    loss: Any = model.loss
    rows, theta = np.asarray(X, dtype=np.float64), model.theta
    if isinstance(loss, BregmanLoss):
        distance, cluster = loss.values_and_cache(theta, rows)
        return {"cluster": cluster, "distance": distance}
    if isinstance(loss, DistanceLoss):
        squared, cluster = loss.assign(theta, rows)
        return {"cluster": cluster, "distance": np.sqrt(squared)}
    m = rows @ theta[..., :-1].T + theta[..., -1] if loss.fit_intercept else rows @ theta.T
    if model.classes is not None:
        return _predict_classes(model, m)
    return {"value": np.exp(m) if isinstance(loss, PoissonLoss) else m}


def _predict_classes(model: Model, m: Array) -> dict[str, Array]:
    from duramen.io.encoding import category_text

    names = np.array(model.classes, dtype=object)
    classes = names[m.argmax(axis=1) if m.ndim == 2 else (m > 0).astype(np.intp)]
    if isinstance(model.loss, SmoothHingeLoss):
        return {"class": classes, "score": m}
    shares = softmax(m, axis=1) if m.ndim == 2 else np.stack([expit(-m), expit(m)], axis=1)
    columns = {f"probability={category_text(name)}": shares[:, place] for place, name in enumerate(names)}
    return {"class": classes, **columns}
