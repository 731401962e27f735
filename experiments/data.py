"""The data of the experiments: the real sets or made-up ones of their shape, and how to contaminate them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = [
    "Clouded",
    "Contaminated",
    "MissingDataError",
    "Table",
    "covertype",
    "made_up_covertype",
    "made_up_survey",
    "survey",
    "with_far_points",
    "with_planted_rows",
]

_SURVEYED = ("longitude", "latitude", "altitude_m", "total_field_anomaly_nt")
_ROW_NOISE, _POINT_NOISE = 10.0, 20.0  # standard deviations a column, of standardised columns


class MissingDataError(Exception):
    """The data are not here; the message is one line, and names the way out."""


class Table(NamedTuple):
    """Rows before anything is planted: columns standardised, labels +1 and -1 where there are labels."""

    name: str
    X: np.ndarray
    y: np.ndarray | None = None


class Contaminated(NamedTuple):
    """Labelled training rows, some of them planted, and clean rows held out."""

    X: np.ndarray
    y: np.ndarray
    planted: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Clouded(NamedTuple):
    """Points, and which of them are planted."""

    X: np.ndarray
    planted: np.ndarray


def covertype(folder: Path | None = None) -> Table:
    """Load Covertype, class 2 against the rest.

    Raises
    ------
    MissingDataError
        If it is not in ``folder``, nor, without one, in DURAMEN_DATA or ../shared/data.
    """
    columns = _columns("covertype.parquet", folder)
    y = np.where(columns[:, -1] == 2, 1, -1)
    return Table("Covertype", _standardised(np.ascontiguousarray(columns[:, :-1])), y)


def survey(folder: Path | None = None) -> Table:
    """Load the four numeric columns of britain_magnetic_3d.

    Raises
    ------
    MissingDataError
        As :func:`covertype` does.
    """
    columns = _columns("britain_magnetic_3d.parquet", folder, _SURVEYED)
    return Table("britain_magnetic_3d", _standardised(columns))


def made_up_covertype(rows: int = 581_012) -> Table:
    """Make normal rows of 54 columns whose labels follow a logistic model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 54))
    theta = rng.normal(size=54) / 4
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-X @ theta)), 1, -1)
    return Table("made-up rows", _standardised(X), y)


def made_up_survey(rows: int = 541_508) -> Table:
    """Make points of 4 columns around thirty centres."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(30, 4))
    return Table(
        "made-up points", _standardised(rng.normal(size=(rows, 4)) + centres[rng.integers(30, size=rows)])
    )


def with_planted_rows(table: Table, planted: int, held_out: int, seed: int) -> Contaminated:
    """Hold random rows out; of the others give some noise on their columns, and shuffle their labels."""
    assert table.y is not None
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.X))
    test, train = order[:held_out], order[held_out:]
    X, y = table.X[train], table.y[train]
    chosen = np.zeros(len(X), dtype=bool)
    chosen[rng.choice(len(X), planted, replace=False)] = True
    X[chosen] += rng.normal(scale=_ROW_NOISE, size=(planted, X.shape[1]))
    y[chosen] = rng.permutation(y[chosen])
    return Contaminated(X, y, chosen, table.X[test], table.y[test])


def with_far_points(table: Table, planted: int, seed: int) -> Clouded:
    """Add points: uniform in the bounding box, moved by noise."""
    rng = np.random.default_rng(seed)
    box = rng.uniform(table.X.min(axis=0), table.X.max(axis=0), size=(planted, table.X.shape[1]))
    far = box + rng.normal(scale=_POINT_NOISE, size=box.shape)
    return Clouded(np.concatenate([table.X, far]), np.arange(len(table.X) + planted) >= len(table.X))


def _standardised(X: np.ndarray) -> np.ndarray:
    X = X - X.mean(axis=0)
    X /= np.maximum(X.std(axis=0), 1e-12)
    return X


def _columns(file: str, folder: Path | None, names: tuple[str, ...] | None = None) -> np.ndarray:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = (folder or Path(os.environ.get("DURAMEN_DATA", beside))) / file
    if not path.exists():
        raise MissingDataError(
            f"there is no {file} in {path.parent}; name its folder with --data or DURAMEN_DATA, "
            "or take --made-up data"
        )
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDataError(f"{file} is read by pyarrow: pip install 'duramen[frames]'") from None
    table = pq.read_table(path, columns=list(names) if names else None)
    return np.stack([column.to_numpy().astype(np.float64) for column in table.columns], axis=1)
