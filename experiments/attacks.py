"""Attacks on classifiers: what planted noise, wrong labels and far clusters do to a model, and to the plain one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

_FOLDER = Path(os.environ.get("DURAMEN_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


class Table(NamedTuple):
    """Clean rows, in units of standard deviations: those to train on, and those to test on."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Attack(NamedTuple):
    """A table after an attack, and which rows are bad."""

    name: str
    share: float
    X: np.ndarray
    y: np.ndarray
    bad: np.ndarray


_FILES: dict[str, tuple[str, Callable[[Any], Any]]] = {  # the column of labels, and how they become classes
    "covertype": ("Cover_Type", lambda y: y == 2),
    "electricity_nsw": ("target", lambda y: y > 0),
    "skin_segmentation": ("label", lambda y: y == y.max()),
    "shuttle_od": ("label", lambda y: y > 0),
    "house_prices": ("SalePrice", lambda y: y > np.median(y)),
    "a9a_adult": ("label", lambda y: y > 0),
    "celeba_attr": ("label", lambda y: y > 0),
    "warfarin_dose": ("TherapeuticDoseofWarfarin", lambda y: y > np.median(y)),
    "qsar_drug": ("y", lambda y: y > np.median(y)),
    "britain_magnetic_3d": ("total_field_anomaly_nt", lambda y: y > 0),
}
TABLES = [*_FILES, "made: separate", "made: overlapping"]
_NOT_FEATURES = {"is_test", "part", "survey_area", "line_segment"}


def table(name: str, rows: int, seed: int = 0) -> Table:
    """Read or make a table, and split it: at most ``rows`` rows to train on, and as many to test on."""
    rng = np.random.default_rng(seed)
    X, positive = _made(name, 2 * rows, rng) if name.startswith("made") else _read(name)
    order = rng.permutation(len(X))[: 2 * rows]
    X, y = X[order].astype(float), np.where(positive[order], 1, -1)
    n = min(rows, int(0.7 * len(X)))
    X = X[:, X[:n].std(axis=0) > 0]
    X = (X - X[:n].mean(axis=0)) / X[:n].std(axis=0)
    return Table(name, X[:n], y[:n], X[n:], y[n:])


def _read(name: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    label, positive = _FILES[name]
    columns = pq.read_table(_FOLDER / f"{name}.parquet")
    features = [one for one in columns.column_names if one not in _NOT_FEATURES | {label}]
    X = np.stack([columns[one].to_numpy() for one in features], axis=1)
    return X, positive(columns[label].to_numpy())


def _made(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make rows of ten correlated columns with heavy tails, whose classes overlap little or much."""
    X = rng.standard_t(5, size=(n, 10)) @ (np.eye(10) + 0.3 * rng.normal(size=(10, 10)))
    steep = 4.0 if name.endswith("separate") else 1.0
    theta = rng.normal(size=10)
    return X, X @ (theta * steep / np.linalg.norm(theta)) + rng.logistic(size=n) > 0


def plain_fit(X: np.ndarray, y: np.ndarray) -> Any:
    """Fit scikit-learn's logistic regression with its defaults, to convergence."""
    return LogisticRegression(max_iter=2000).fit(X, y)


def clean(data: Table, share: float, rng: np.random.Generator) -> Attack:
    return Attack("clean", 0.0, data.X, data.y, np.zeros(len(data.y), bool))


def _attacked(name: str, data: Table, share: float, rows: np.ndarray, y: Any, X: Any = None) -> Attack:
    bad = np.zeros(len(data.y), bool)
    bad[rows] = True
    new_X, new_y = data.X.copy(), data.y.copy()
    new_y[rows] = y
    if X is not None:
        new_X[rows] = X
    return Attack(name, share, new_X, new_y, bad)


def _some(data: Table, share: float, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(len(data.y), round(share * len(data.y)), replace=False)


def planted(data: Table, share: float, rng: np.random.Generator) -> Attack:
    """Add N(0, 10) to every column of some rows, and shuffle their labels among them."""
    rows = _some(data, share, rng)
    noise = rng.normal(scale=10, size=(len(rows), data.X.shape[1]))
    return _attacked("planted noise", data, share, rows, rng.permutation(data.y[rows]), data.X[rows] + noise)


def surest(data: Table, share: float, rng: np.random.Generator) -> Attack:
    """Flip the labels of the rows of which the plain fit is surest."""
    margins = data.y * plain_fit(data.X, data.y).decision_function(data.X)
    rows = np.argsort(-margins)[: round(share * len(data.y))]
    return _attacked("surest labels flipped", data, share, rows, -data.y[rows])


def flipped(data: Table, share: float, rng: np.random.Generator) -> Attack:
    """Flip the labels of random rows."""
    rows = _some(data, share, rng)
    return _attacked("random labels flipped", data, share, rows, -data.y[rows])


def leverage(data: Table, share: float, rng: np.random.Generator) -> Attack:
    """Flip the labels of the rows of the largest leverage."""
    q = np.linalg.svd(data.X, full_matrices=False)[0]
    rows = np.argsort(-(q**2).sum(axis=1))[: round(share * len(data.y))]
    return _attacked("labels flipped at leverage points", data, share, rows, -data.y[rows])


def cluster(data: Table, share: float, rng: np.random.Generator, distance: float = 8.0) -> Attack:
    """Move some rows to one place far out on the positive side, labelled negative."""
    rows = _some(data, share, rng)
    theta = plain_fit(data.X, data.y).coef_[0]
    place = distance * theta / np.linalg.norm(theta)
    X = place + 0.1 * rng.normal(size=(len(rows), len(theta)))
    return _attacked(f"cluster at {distance:g}", data, share, rows, -1, X)


def attacks(data: Table, seed: int = 0, *, sweep: bool = False) -> Iterator[Attack]:
    yield clean(data, 0.0, np.random.default_rng(seed))
    for make in (planted, surest, flipped, leverage, cluster):
        for share in (0.02, 0.1):
            yield make(data, share, np.random.default_rng((seed, round(1000 * share))))
    if sweep:
        for share in (0.02, 0.1):
            for distance in (3.0, 5.0, 12.0, 20.0, 30.0):
                yield cluster(data, share, np.random.default_rng((seed, round(1000 * share))), distance)
        for make in (planted, surest, flipped, leverage, cluster):
            for share in (0.2, 0.3):
                yield make(data, share, np.random.default_rng((seed, round(1000 * share))))
