"""The table of estimators that the laws run over: how to make one, data that suits it, and its loss.

The law that ties them to ``robust_coreset`` and ``solve`` runs over all of them in the first tier of tests, the others
over one of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import duramen as dm


@dataclass(frozen=True)
class Case:
    """An estimator, and what kind of labels it takes."""

    name: str
    make: Callable
    loss: dm.Loss
    label: str | None = None
    positive: bool = False
    l2: float = 0.0
    share: float = 0.02  # that is set aside

    def data(self, n: int = 3000, seed: int = 0, share: float = 0.02):
        """Make rows, labels or None, and which rows are planted."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 3))
        X[:, 1:] += 6 * rng.integers(2, size=(n, 1))  # two clusters, which say nothing about labels
        planted = np.zeros(n, dtype=bool)
        planted[rng.choice(n, round(share * n), replace=False)] = True
        y = self._labels(X, rng)
        sides = np.sign(rng.normal(size=(planted.sum(), 3)))
        if self.label is not None:  # far out where the model is surest, with the wrong label
            sides[:, 1:] = 0
        X[planted] += (60 + 40 * rng.random((planted.sum(), 1))) * sides
        if self.positive:
            X = np.abs(X) + 0.1
        if self.label == "sign":
            y[planted] = np.where(X[planted, 0] > 0, 0, 1)
        elif self.label in ("class", "clear class"):
            y[planted] = np.where(X[planted, 0] > 0, 0, 2)
        elif self.label is not None:
            y[planted] = 0
        return X, y, planted

    def _labels(self, X, rng):
        n, m = len(X), 1.5 * X[:, 0]
        return {
            None: None,
            "sign": (m + rng.logistic(size=n) > 0).astype(int),
            "class": np.digitize(m + rng.logistic(size=n), [-1, 1]),
            "clear class": np.digitize(4 * m + np.random.default_rng(n).logistic(size=n), [-3, 3]),
            "real": m + 0.3 * rng.normal(size=n),
            "count": rng.poisson(np.exp(m / 2)).astype(float),
        }[self.label]

    def fit(self, X, y=None, sample_weight=None, **settings):
        return self.make(**{"random_state": 0, **settings}).fit(X, y, sample_weight=sample_weight)


_TRIMMED = partial(dm.RobustLogisticRegression, n_outliers=0.02)
CASES = [
    Case("logistic", _TRIMMED, dm.LogisticLoss(), "sign", l2=1.0),
    Case("multinomial", _TRIMMED, dm.SoftmaxLoss(3), "class", l2=1.0),
    Case("squared", dm.RobustLinearRegression, dm.SquaredLoss(), "real"),
    Case("huber", partial(dm.RobustLinearRegression, "huber", delta=0.5), dm.HuberLoss(0.5), "real"),
    Case("poisson", partial(dm.RobustLinearRegression, "poisson"), dm.PoissonLoss(), "count"),
    Case("k-means", partial(dm.RobustKMeans, 2), dm.KMeansLoss(2)),
    Case("k-medians", partial(dm.RobustKMedians, 2), dm.KMedianLoss(2)),
    Case("kl", partial(dm.RobustBregmanClustering, 2, "kl"), dm.BregmanLoss(2, "kl"), positive=True),
    Case("truth", partial(dm.TruthDiscovery, scale=1.0), dm.TruthDiscoveryLoss()),
    Case(
        "quantile", partial(dm.RobustLinearRegression, "quantile", quantile=0.7), dm.QuantileLoss(0.7), "real"
    ),
]
CASE = {case.name: case for case in CASES}
LEARNED = [  # whose default is to learn the contamination
    Case("mixture", dm.RobustLogisticRegression, dm.ContaminatedLoss(), "sign", l2=1.0, share=0.0),
    Case(
        "mixture of 3",
        dm.RobustLogisticRegression,
        dm.ContaminatedLoss(dm.SoftmaxLoss(3)),
        "clear class",
        l2=1.0,
        share=0.0,
    ),
]
QUICK = ("logistic", "mixture", "squared", "k-means", "truth")


def parametrized(cases, quick):
    """Parametrize over cases, of which those named ``quick`` are in the first tier."""
    slow = {False: pytest.mark.slow, True: ()}
    params = [pytest.param(one, id=one.name, marks=slow[one.name in quick]) for one in cases]
    return pytest.mark.parametrize("case", params)


every_case = parametrized(CASES, QUICK)
every_default = parametrized(CASES + LEARNED, QUICK)


def take(y, rows):
    """Take labels, where there are any."""
    return None if y is None else y[rows]
