"""Tables, and attacks on them: planted noise, wrong labels and far clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(os.environ.get("DURAMEN_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


class Table(NamedTuple):
    """Clean rows, in units of standard deviations: those to train on, and those to test on."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


FILES: dict[str, tuple[str, Callable[[Any], Any]]] = {  # the column of labels, and how they become classes
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
DEVELOPMENT = (*list(FILES)[:5], "made: separate")
HELD_OUT = (*list(FILES)[5:], "made: overlapping")
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

    label, positive = FILES[name]
    columns = pq.read_table(FOLDER / f"{name}.parquet")
    features = [one for one in columns.column_names if one not in _NOT_FEATURES | {label}]
    X = np.stack([columns[one].to_numpy() for one in features], axis=1)
    return X, positive(columns[label].to_numpy())


def _made(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make rows of ten correlated columns with heavy tails, whose classes overlap little or much."""
    X = rng.standard_t(5, size=(n, 10)) @ (np.eye(10) + 0.3 * rng.normal(size=(10, 10)))
    steep = 4.0 if name.endswith("separate") else 1.0
    theta = rng.normal(size=10)
    return X, X @ (theta * steep / np.linalg.norm(theta)) + rng.logistic(size=n) > 0


Bad = tuple[Any, np.ndarray, Any]
"""Which rows become bad, and what their columns and labels become."""


def _random(y: np.ndarray, n_bad: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(len(y), n_bad, replace=False)


def planted(X: np.ndarray, y: np.ndarray, plain: Any, n_bad: int, rng: np.random.Generator) -> Bad:
    """Add N(0, 10) to every column of some rows, and shuffle their labels among them."""
    rows = _random(y, n_bad, rng)
    return rows, X[rows] + rng.normal(scale=10, size=(n_bad, X.shape[1])), rng.permutation(y[rows])


def surest(X: np.ndarray, y: np.ndarray, plain: Any, n_bad: int, rng: np.random.Generator) -> Bad:
    """Flip the labels of the rows of which the plain fit is surest."""
    rows = np.argsort(-y * plain.decision_function(X))[:n_bad]
    return rows, X[rows], -y[rows]


def flipped(X: np.ndarray, y: np.ndarray, plain: Any, n_bad: int, rng: np.random.Generator) -> Bad:
    """Flip the labels of random rows."""
    rows = _random(y, n_bad, rng)
    return rows, X[rows], -y[rows]


def leverage(X: np.ndarray, y: np.ndarray, plain: Any, n_bad: int, rng: np.random.Generator) -> Bad:
    """Flip the labels of the rows of the largest leverage."""
    q = np.linalg.svd(X, full_matrices=False)[0]
    rows = np.argsort(-(q**2).sum(axis=1))[:n_bad]
    return rows, X[rows], -y[rows]


def cluster(
    X: np.ndarray, y: np.ndarray, plain: Any, n_bad: int, rng: np.random.Generator, *, distance: float
) -> Bad:
    """Move some rows to one place far out on the positive side, labelled negative."""
    rows = _random(y, n_bad, rng)
    place = distance * plain.coef_[0] / np.linalg.norm(plain.coef_[0])
    return rows, place + 0.1 * rng.normal(size=(n_bad, X.shape[1])), -1


class Attack(NamedTuple):
    """What is done to which share of the rows; ``plain`` is the plain fit on the clean training rows."""

    name: str
    share: float
    make: Callable[..., Bad]

    def on(
        self, X: np.ndarray, y: np.ndarray, plain: Any, *seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows and labels after the attack, and which rows are bad."""
        X, y, bad = X.copy(), y.copy(), np.zeros(len(y), bool)
        if self.share:
            rng = np.random.default_rng((*seed, round(1000 * self.share)))
            rows, X_bad, y_bad = self.make(X, y, plain, round(self.share * len(y)), rng)
            X[rows], y[rows], bad[rows] = X_bad, y_bad, True
        return X, y, bad


MADE = {
    "planted noise": planted,
    "surest labels flipped": surest,
    "random labels flipped": flipped,
    "labels flipped at leverage points": leverage,
    "cluster at 8": partial(cluster, distance=8.0),
}
_FAR = {f"cluster at {distance}": partial(cluster, distance=distance) for distance in (3, 5, 12, 20, 30)}


def _attacks(makes: dict[str, Any], shares: Iterable[float]) -> list[Attack]:
    return [Attack(name, share, make) for name, make in makes.items() for share in shares]


CORE = [Attack("clean", 0.0, flipped), *_attacks(MADE, (0.02, 0.1))]
SWEEP = [*_attacks(_FAR, (0.02, 0.1)), *_attacks(MADE, (0.05, 0.2, 0.3))]
