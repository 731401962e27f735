"""Contenders, and cells: every contender fitted to a table under an attack, and measured.

Figures are of test rows that are clean; one loss is of such that are attacked in the same way.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import duramen as dm
from experiments.attacks.situations import Attack, Table, table


def losses(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute the logistic loss of each row; a probability counts as 1e-12 at least."""
    probabilities = model.predict_proba(X)[np.arange(len(y)), (y > 0).astype(int)]
    return -np.log(np.clip(probabilities, 1e-12, 1))


def plain_fit(X: np.ndarray, y: np.ndarray) -> Any:
    """Fit scikit-learn's logistic regression with its defaults, to convergence."""
    return LogisticRegression(max_iter=2000).fit(X, y)


Fitted = tuple[Any, Callable[[np.ndarray, np.ndarray], np.ndarray]]
"""A model, and how much it suspects each row."""


def plain(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Trust every row."""
    model = plain_fit(X, y)
    return model, partial(losses, model)


def forest(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Drop the rows that an isolation forest isolates first, as many as are bad."""
    if not share:
        return plain(X, y, share, seed)
    filtering = IsolationForest(contamination=share, random_state=seed).fit(X)
    keep = filtering.predict(X) == 1
    return plain_fit(X[keep], y[keep]), lambda X, y: -filtering.score_samples(X)


def by_hand(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Drop the rows of the largest losses, as many as are bad, and fit again; five times."""
    model = plain_fit(X, y)
    for _ in range(5 if share else 0):
        keep = np.argsort(losses(model, X, y))[: len(y) - round(share * len(y))]
        model = plain_fit(X[keep], y[keep])
    return model, partial(losses, model)


def trimmed(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Minimise the paper's objective, which sets the share aside; on clean rows its usual 2%."""
    model = dm.RobustLogisticRegression(n_outliers=share or 0.02, random_state=seed).fit(X, y)
    return model, partial(losses, model)


def learned(X: np.ndarray, y: np.ndarray, share: float, seed: int, **settings: Any) -> Fitted:
    """Let duramen learn what is bad: the share is not given."""
    model = dm.RobustLogisticRegression(random_state=seed, **settings).fit(X, y)
    return model, getattr(model, "outlier_probability", model.losses)


def live(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Fit half of the rows and some wrong ones, absorb the other half, and forget the wrong ones."""
    half = len(y) // 2
    wrong = slice(half, half + half // 5)
    X_first, y_first = np.vstack([X[:half], X[wrong]]), np.append(y[:half], -y[wrong])
    model, _ = learned(X_first, y_first, share, seed, coreset_size=4000, updatable=True)
    model.absorb(X[half:], y[half:]).forget(np.arange(half, len(y_first)))
    return model, getattr(model, "outlier_probability", model.losses)


CONTENDERS: dict[str, Callable[[np.ndarray, np.ndarray, float, int], Fitted]] = {
    "plain": plain,
    "forest + plain": forest,
    "trimming by hand": by_hand,
    "f_z": trimmed,
    "duramen": learned,
    "duramen, 4,000 rows": partial(learned, coreset_size=4000),
    "duramen, live": live,
}


class Cell(NamedTuple):
    """What a contender came to on a table under an attack; not a number where it could not be fitted."""

    table: str
    attack: str
    share: float
    contender: str
    loss: float
    attacked_loss: float
    accuracy: float
    auc: float
    calibration: float
    found: float
    seconds: float


def calibration_error(probabilities: np.ndarray, positive: np.ndarray, bins: int = 15) -> float:
    """Compute the expected calibration error, with bins of equal mass."""
    parts = np.array_split(np.argsort(probabilities), bins)
    return sum(abs((probabilities[part] - positive[part]).sum()) for part in parts) / len(positive)


def one_cell(data: Table, attack: Attack, plain: Any, seed: int) -> Iterator[Cell]:
    """Fit all contenders to the attacked rows, and measure them."""
    X, y, bad = attack.on(data.X, data.y, plain, seed)
    X_attacked, y_attacked, _ = attack.on(data.X_test, data.y_test, plain, seed, 1)
    positive = data.y_test > 0
    for name, fit in CONTENDERS.items():
        figures = [np.nan] * 7
        try:
            start = time.perf_counter()
            model, suspicion = fit(X, y, attack.share, seed)
            seconds = time.perf_counter() - start
            p = model.predict_proba(data.X_test)[:, 1]
            suspected = np.argsort(-suspicion(X, y))[: bad.sum()]
            figures = [
                losses(model, data.X_test, data.y_test).mean(),
                losses(model, X_attacked, y_attacked).mean(),
                ((p > 0.5) == positive).mean(),
                roc_auc_score(positive, p),
                calibration_error(p, positive),
                bad[suspected].mean() if bad.any() else np.nan,
                seconds,
            ]
        except ValueError as error:  # such as that a whole class would be set aside
            print(f"{data.name}, {attack.name}, {attack.share:.0%}: {name} failed: {error}", flush=True)
        yield Cell(data.name, attack.name, attack.share, name, *(float(f"{one:.5g}") for one in figures))


def one_table(name: str, attacks: list[Attack], rows: int, seed: int) -> list[Cell]:
    """Run all attacks on a table, printing each cell."""
    data = table(name, rows, seed)
    plain, found = plain_fit(data.X, data.y), []
    for attack in attacks:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of slow convergence: it shows in the figures
            cells = list(one_cell(data, attack, plain, seed))
        figures = ", ".join(f"{one.contender} {one.loss:.4g}" for one in cells)
        print(f"{name}, {attack.name}, {attack.share:.0%}: {figures}", flush=True)
        found += cells
    return found


def run(names: Iterable[str], attacks: list[Attack], rows: int, seed: int, jobs: int) -> list[Cell]:
    """Run the tables, several at a time, each with one thread."""
    work = (delayed(one_table)(name, attacks, rows, seed) for name in names)
    return [cell for cells in Parallel(jobs)(work) for cell in cells]
