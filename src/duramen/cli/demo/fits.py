"""The ways to fit that the demo sets side by side, each timed and judged on the clean rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.cli.demo.data import Contaminated
from duramen.coreset import Coreset, Estimate
from duramen.coreset.build import robust_coreset
from duramen.losses import LogisticLoss
from duramen.points import points
from duramen.solvers import solve
from duramen.trimming import trimmed_objective

__all__ = ["FITS", "Comparison", "TimedFit", "compare"]

_LOSS = LogisticLoss()
FITS = (
    "scikit-learn, on everything",
    "trimmed fit, on everything",
    "plain coreset",
    "robust coreset",
    "told which rows are planted",
)


class TimedFit(NamedTuple):
    """One way to fit, and how it did on the rows that are clean."""

    name: str
    n_rows: int
    seconds: float
    theta: Array
    clean_loss: float
    accuracy: float
    found: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """All that the demo found: the fits, the robust coreset, and what it says of itself.

    Attributes
    ----------
    ordinary, trimmed, plain, robust, ideal : TimedFit
    core : Coreset
        The robust one.
    estimate : Estimate
        What it says the trimmed objective of the ideal fit is, on all rows.
    truth, best : float
        What it is at the robust fit, and at the ideal one.
    """

    ordinary: TimedFit
    trimmed: TimedFit
    plain: TimedFit
    robust: TimedFit
    ideal: TimedFit
    core: Coreset
    estimate: Estimate
    truth: float
    best: float

    @property
    def fits(self) -> tuple[TimedFit, ...]:
        """The four that anybody can do; the ideal is not among them."""
        return self.ordinary, self.trimmed, self.plain, self.robust


def compare(sample: Contaminated, size: int, seed: int, begin: Callable[[str], object]) -> Comparison:
    """TimedFit in five ways; ``begin`` is called with the name of each as it begins."""
    import sklearn.linear_model  # noqa: F401  (here, so that no fit is charged for it)

    ways: tuple[Callable[[], _Fitted], ...] = (
        lambda: _scikit_learn(sample),
        lambda: _trimmed(sample, seed),
        lambda: _on_coreset(sample, size, seed, 0),
        lambda: _on_coreset(sample, size, seed, sample.z),
        lambda: _told(sample),
    )
    fits, fitted = [], []
    for name, way in zip(FITS, ways, strict=True):
        begin(name)
        start = time.perf_counter()
        fitted.append(way())
        fits.append(_judged(name, time.perf_counter() - start, fitted[-1], sample))
    core = fitted[3].core
    assert core is not None
    ordinary, trimmed, plain, robust, ideal = fits
    truth, best = (_trimmed_objective(sample, one.theta) for one in (robust, ideal))
    estimate = core.estimate(ideal.theta)
    return Comparison(ordinary, trimmed, plain, robust, ideal, core, estimate, truth, best)


class _Fitted(NamedTuple):
    """What a way to fit gives: parameters, from how many rows, and the coreset if there was one."""

    theta: Array
    n_rows: int
    core: Coreset | None = None


def _scikit_learn(sample: Contaminated) -> _Fitted:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(sample.X, sample.y)
    return _Fitted(np.append(model.coef_[0], model.intercept_), len(sample.y))


def _trimmed(sample: Contaminated, seed: int) -> _Fitted:
    data = points(sample.X, sample.y)
    return _Fitted(solve(data, _LOSS, sample.z, random_state=seed).theta, len(data))


def _on_coreset(sample: Contaminated, size: int, seed: int, z: int) -> _Fitted:
    """Build a coreset and fit on it: the robust one, or for no outliers the sampler's own."""
    suspects: Any = "auto" if z else 0
    settings: dict[str, Any] = {"size": size, "n_outliers": z, "suspects": suspects, "random_state": seed}
    core = robust_coreset(sample.X, sample.y, loss=_LOSS, **settings)
    return _Fitted(solve(core, random_state=seed).theta, len(core), core)


def _told(sample: Contaminated) -> _Fitted:
    """TimedFit on the clean rows alone: weight zero is the same as absent."""
    clean = points(sample.X, sample.y, weights=~sample.planted)
    return _Fitted(solve(clean, _LOSS).theta, len(clean) - sample.z)


def _judged(name: str, seconds: float, fitted: _Fitted, sample: Contaminated) -> TimedFit:
    """Judge parameters on the clean rows, and by which rows cost them the most."""
    losses = _LOSS.values(fitted.theta, sample.X, sample.y)
    clean = losses[~sample.planted]
    right = float(np.mean(clean < math.log(2)))  # what a row on the boundary costs
    worst = np.argpartition(losses, -sample.z)[-sample.z :]
    found = float(sample.planted[worst].mean())
    return TimedFit(name, fitted.n_rows, seconds, fitted.theta, float(clean.mean()), right, found)


def _trimmed_objective(sample: Contaminated, theta: Array) -> float:
    return trimmed_objective(points(sample.X, sample.y), theta, loss=_LOSS, n_outliers=sample.z)
