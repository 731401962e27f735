"""The paper's data: found in a folder, fetched, or made up; and how they are contaminated."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.extras import needed

__all__ = [
    "POINTS",
    "ROWS",
    "Clouded",
    "Contaminated",
    "MissingDataError",
    "Planting",
    "Table",
    "covertype",
    "made_up_covertype",
    "made_up_survey",
    "noisy_rows",
    "road",
    "spatial",
    "split",
    "survey",
    "with_far_points",
    "with_planted_rows",
]

ROWS, POINTS = 581_012, 541_508  # of Covertype and of the survey
_SURVEYED = ("longitude", "latitude", "altitude_m", "total_field_anomaly_nt")
_ROW_NOISE, _POINT_NOISE = 10.0, 20.0  # standard deviations per column, of standardised columns
_POSITIVE = 2  # the paper's positive class of Covertype: the largest
_FILES = {"covertype": "covertype.parquet", "road": "3D_spatial_network.txt"}
_SURVEY = "britain_magnetic_3d.parquet"


class MissingDataError(OSError):
    """The data were not found; the message is one line, and says what to do."""


class Table(NamedTuple):
    """Rows before anything is planted: columns standardised, labels +1 and -1 where there are labels."""

    name: str
    X: Array
    y: Array | None = None


class Contaminated(NamedTuple):
    """Labelled training rows, some of them planted, and clean rows held out."""

    X: Array
    y: Array
    planted: Array
    X_test: Array
    y_test: Array


class Clouded(NamedTuple):
    """Points, and which of them are planted."""

    X: Array
    planted: Array


def covertype(where: Path | None = None, *, fetch: bool = False) -> Table:
    """Load Covertype, class 2 against the rest.

    Parameters
    ----------
    where : Path, optional
        A folder with covertype.parquet, or such a file; by default DURAMEN_DATA,
        or ../shared/data.
    fetch : bool
        Whether to have scikit-learn download it where no file is found.

    Raises
    ------
    MissingDataError
        If it is not found.
    """
    path = _found(_FILES["covertype"], where)
    if path is not None:
        with _being(path, "Covertype"):
            columns = _parquet(path)
            if columns.shape[1] != 55:
                raise ValueError(f"it has {columns.shape[1]} columns, and not 55")
            _check_finite(columns)
        X, kind = columns[:, :-1], columns[:, -1]
    elif fetch and where is None:
        X, kind = _fetched()
    else:
        raise _missing(_FILES["covertype"], where)
    y = np.where(kind == _POSITIVE, 1, -1)
    return Table("Covertype", _standardised(np.ascontiguousarray(X, dtype=np.float64)), y)


def survey(where: Path | None = None) -> Table:
    """Load the four numeric columns of britain_magnetic_3d.

    Raises
    ------
    MissingDataError
        As :func:`covertype` does.
    """
    path = _found(_SURVEY, where)
    if path is None:
        raise _missing(_SURVEY, where)
    with _being(path, "the survey"):
        columns = _parquet(path, _SURVEYED)
        _check_finite(columns)
    return Table("britain_magnetic_3d", _standardised(columns))


def road(where: Path | None = None) -> Table:
    """Load the UCI 3D Road Network: four columns, separated by commas.

    Raises
    ------
    MissingDataError
        As :func:`covertype` does; also if the file is not what its name says.
    """
    path = _found(_FILES["road"], where)
    if path is None:
        raise _missing(_FILES["road"], where)
    with _being(path, "the UCI 3D Road Network"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a file without a line, which has no four columns
        columns = np.loadtxt(path, delimiter=",", ndmin=2)
        if columns.shape[1] != 4:
            raise ValueError(f"it has {columns.shape[1]} columns, and not 4")
        _check_finite(columns)
    return Table("3D Road Network", _standardised(columns))


def spatial(where: Path | None = None) -> Table:
    """Load the paper's second dataset where it is given, else the survey that stands in for it."""
    path = _found(_FILES["road"], where)
    if path is not None:
        return road(path)
    if _found(_SURVEY, where) is None:
        raise MissingDataError(
            f"neither {_FILES['road']} (the UCI 3D Road Network) nor {_SURVEY} is in {_folder(where)}; "
            "name the folder of one with --data, or take --made-up points"
        )
    return survey(where)


def made_up_covertype(rows: int = ROWS) -> Table:
    """Make normal rows of 54 columns whose labels follow a logistic model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 54))
    theta = rng.normal(size=54) / 4
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-X @ theta)), 1, -1)
    return Table("made-up rows", _standardised(X), y)


def made_up_survey(rows: int = POINTS) -> Table:
    """Make points of 4 columns around thirty centres."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(30, 4))
    return Table(
        "made-up points", _standardised(rng.normal(size=(rows, 4)) + centres[rng.integers(30, size=rows)])
    )


Planting = Callable[[Array, Array, Array, np.random.Generator], None]
"""Changes rows X and labels y in place where a mask says so."""


def noisy_rows(X: Array, y: Array, chosen: Array, rng: np.random.Generator) -> None:
    """Give the chosen rows noise on every column, and shuffle their labels: the paper's contamination."""
    X[chosen] += rng.normal(scale=_ROW_NOISE, size=(int(chosen.sum()), X.shape[1]))
    y[chosen] = rng.permutation(y[chosen])


def with_planted_rows(table: Table, planted: int, held_out: int, seed: int) -> Contaminated:
    """Hold random rows out; of the others give some noise on their columns, and shuffle their labels."""
    rng = np.random.default_rng(seed)
    data = split(table, held_out, rng)
    data.planted[rng.choice(len(data.X), planted, replace=False)] = True
    noisy_rows(data.X, data.y, data.planted, rng)
    return data


def split(table: Table, held_out: int, rng: np.random.Generator) -> Contaminated:
    """Hold random rows out, and copy the others, in random order; nothing is planted yet."""
    assert table.y is not None
    order = rng.permutation(len(table.X))
    test, train = order[:held_out], order[held_out:]
    none_planted = np.zeros(len(train), dtype=bool)
    return Contaminated(table.X[train], table.y[train], none_planted, table.X[test], table.y[test])


def with_far_points(table: Table, planted: int, seed: int, scale: float = _POINT_NOISE) -> Clouded:
    """Add points: uniform in the bounding box, moved by noise of so large a standard deviation."""
    rng = np.random.default_rng(seed)
    box = rng.uniform(table.X.min(axis=0), table.X.max(axis=0), size=(planted, table.X.shape[1]))
    far = box + rng.normal(scale=scale, size=box.shape)
    return Clouded(np.concatenate([table.X, far]), np.arange(len(table.X) + planted) >= len(table.X))


def _standardised(X: Array) -> Array:
    X = X - X.mean(axis=0)
    X /= np.maximum(X.std(axis=0), 1e-12)
    return X


def _folder(where: Path | None) -> Path:
    return (
        where if where is not None else Path(os.environ.get("DURAMEN_DATA", Path("..") / "shared" / "data"))
    )


def _found(file: str, where: Path | None) -> Path | None:
    """Find a file in a folder; a path to a file is that file, if it bears the name."""
    place = _folder(where)
    path = place if place.is_file() and place.name == file else place / file
    return path if path.is_file() else None


def _missing(file: str, where: Path | None) -> MissingDataError:
    return MissingDataError(
        f"there is no {file} in {_folder(where)}; name its folder with --data or DURAMEN_DATA, "
        "or take --made-up data"
    )


@contextmanager
def _being(path: Path, what: str) -> Iterator[None]:
    """Make read errors say which file it was, what it should be, and what to do."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise MissingDataError(
            f"{path} is not {what}: {reason}; pass the original file, or another --data"
        ) from None


def _check_finite(columns: Array) -> None:
    """Raise ValueError for the first value that is not finite."""
    bad = np.argwhere(~np.isfinite(columns))
    if len(bad):
        row, column = bad[0]
        raise ValueError(f"{columns[row, column]} in row {row}, column {column}, counting from 0")


def _parquet(path: Path, names: tuple[str, ...] | None = None) -> Array:
    pq = needed("pyarrow.parquet", path.name, "frames")
    found = pq.read_schema(path).names
    if missing := [name for name in names or () if name not in found]:
        raise ValueError(f"it has no column {missing[0]!r}")
    table = pq.read_table(path, columns=list(names) if names else None)
    return np.stack([column.to_numpy().astype(np.float64) for column in table.columns], axis=1)


def _fetched() -> tuple[Array, Array]:
    from sklearn.datasets import fetch_covtype

    try:
        bunch: Any = fetch_covtype()
    except OSError as error:
        raise MissingDataError(
            f"Covertype is in no file here, and could not be downloaded ({error}); name the folder of "
            f"{_FILES['covertype']} with --data, or take --made-up data"
        ) from None
    return bunch.data, bunch.target
