"""Contenders, and cells: every contender fitted to a table under an attack, and measured.

Figures are of test rows that are clean; one loss is of such that are attacked in the same way.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import duramen as dm
from experiments.attacks.situations import CORE, Attack, table


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
    return model, model.outlier_probability


def live(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Fitted:
    """Fit half of the rows and some wrong ones, absorb the other half, and forget the wrong ones."""
    half = len(y) // 2
    wrong = slice(half, half + half // 5)
    X_first, y_first = np.vstack([X[:half], X[wrong]]), np.append(y[:half], -y[wrong])
    model, _ = learned(X_first, y_first, share, seed, coreset_size=4000, updatable=True)
    model.absorb(X[half:], y[half:]).forget(np.arange(half, len(y_first)))
    return model, model.outlier_probability


CONTENDERS: dict[str, Callable[[np.ndarray, np.ndarray, float, int], Fitted]] = {
    "plain": plain,
    "forest + plain": forest,
    "trimming by hand": by_hand,
    "f_z": trimmed,
    "duramen": learned,
    "duramen, 4,000 rows": partial(learned, coreset_size=4000),
    "duramen, live": live,
}
SWEPT = tuple(CONTENDERS)[:5]
"""Those that run beyond the core; coresets take most of the time."""


cached_table = lru_cache(maxsize=1)(table)


class Cell(NamedTuple):
    """What a contender came to on a table under an attack; not a number where the fit was refused.

    ``found`` is the share of bad rows among as many that are suspected most; ``seconds`` are of CPU.
    """

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


def one_cell(name: str, attack: Attack, rows: int, seed: int, contenders: Iterable[str]) -> list[Cell]:
    """Fit contenders to a table under an attack, measure them, and print their losses."""
    data = cached_table(name, rows, seed)
    clean_fit = plain_fit(data.X, data.y)
    X, y, bad = attack.on(data.X, data.y, clean_fit, seed)
    X_attacked, y_attacked, _ = attack.on(data.X_test, data.y_test, clean_fit, seed, 1)
    positive = data.y_test > 0
    found, place = [], f"{name}, {attack.name}, {attack.share:.0%}"
    for contender in contenders:
        figures = [np.nan] * 7
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as of slow convergence: it shows in the figures
                start = time.process_time()
                model, suspicion = CONTENDERS[contender](X, y, attack.share, seed)
                seconds = time.process_time() - start
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
            print(f"{place}: {contender} was refused: {error}", flush=True)
        rounded = (float(f"{one:.4g}") for one in figures)
        found.append(Cell(name, attack.name, attack.share, contender, *rounded))
    print(f"{place}: " + ", ".join(f"{one.contender} {one.loss:.4g}" for one in found), flush=True)
    return found


def run(tables: Iterable[str], attacks: Iterable[Attack], rows: int, seed: int, jobs: int) -> list[Cell]:
    """Run all cells, one per core at a time; the sweep without coresets, which take most of the time."""
    cells = [(name, attack) for name in tables for attack in attacks]
    work = (
        delayed(one_cell)(name, attack, rows, seed, CONTENDERS if attack in CORE else SWEPT)
        for name, attack in cells
    )
    return [cell for found in Parallel(jobs)(work) for cell in found]
