"""The table of losses that every conformance test runs over: data, parameters, and a naive oracle each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import duramen as dm

N, D = 40, 3


def cosh_phi(X):
    return np.cosh(X).sum(axis=1)


def cosh_curvature(c, radius):
    return np.cosh(np.abs(c) + radius)


COSH = dm.CustomDivergence(cosh_phi, np.sinh, np.cosh, cosh_curvature)


@dataclass(frozen=True)
class Case:
    """A loss with data that suits it."""

    name: str
    loss: dm.Loss
    naive: Callable  # (theta, x, y) -> float, by the definition, one point at a time
    label: str | None = None  # "sign", "real", "count" or "class"
    positive: bool = False  # data and centres must be positive
    columns: int = D
    spread: float = 1.0

    def __post_init__(self):
        if self.loss.freezes:  # measured on rows of which some are far out
            rng = np.random.default_rng(99)
            X = rng.standard_t(2, size=(200, self.columns)) / self.columns**0.5
            X[:, 1:] += X[:, :1]
            loss = self.loss.unmeasured().measure(dm.points(X))
            vars(self).update(loss=loss, naive=partial(self.naive, frame=loss.frame))

    def data(self, seed: int = 0, n: int = N):
        rng = np.random.default_rng(seed)
        X = rng.normal(scale=self.spread, size=(n, self.columns))
        if self.positive:
            X = np.exp(X)
        y = {
            None: None,
            "sign": rng.choice([-1, 1], size=n),
            "real": rng.normal(size=n),
            "count": rng.poisson(2.0, size=n),
            "class": rng.integers(3, size=n),
        }[self.label]
        return X, y

    def theta(self, rng: np.random.Generator):
        theta = rng.normal(size=self.loss.parameter_shape(self.columns))
        return np.exp(theta) if self.positive else theta

    def ball(self, rng: np.random.Generator, radius: float):
        """Make a random ball that stays in the domain."""
        theta = self.theta(rng)
        if self.positive:
            radius = min(radius, 0.5 * theta.min())
        return dm.Ball(theta, radius)


def predictor(theta, x, intercept=True):
    m = math.fsum(float(a) * float(b) for a, b in zip(theta, x, strict=False))
    return m + float(theta[-1]) if intercept else m


def logistic(theta, x, y, intercept=True):
    s = y * predictor(theta, x, intercept)
    return math.log1p(math.exp(-s)) if s > 0 else -s + math.log1p(math.exp(s))


def hinge(theta, x, y):
    s = y * predictor(theta, x)
    return 0.0 if s >= 1 else (1 - s) ** 2 / 2 if s >= 0 else 0.5 - s


def softmax(theta, x, y, intercept=True):
    m = [predictor(one, x, intercept) for one in theta]
    return math.log(math.fsum(math.exp(one - max(m)) for one in m)) + max(m) - m[y]


def contaminated(base, labels, theta, x, y, frame):
    """Mix the probability of the label with shares of noise that grow with the distance."""
    p = len(x) + 1
    noise = theta[:, p:].tolist() if theta.ndim > 1 else theta[p:].reshape(-1, 2).tolist()
    images = [math.fsum([*(x * column[:-1]).tolist(), column[-1]]) for column in frame.T]
    t = math.log(max(math.fsum(image**2 for image in images), 1.0))
    t = min(math.floor(t * 1024) / 1024, 64.0)
    odds = [0.01 * math.exp(a + math.log1p(math.exp(b)) * t) for a, b in noise]
    shares = [one / (math.fsum(odds) + 1) for one in odds]
    model = math.exp(-base(theta[..., :p], x, y))
    return -math.log(shares[labels.index(y)] + model / (math.fsum(odds) + 1))


def squared(theta, x, y):
    return (predictor(theta, x) - y) ** 2 / 2


def huber(theta, x, y):
    r = abs(predictor(theta, x) - y)
    return r * r / 2 if r <= 0.7 else 0.7 * (r - 0.35)


def pinball(theta, x, y):
    r = y - predictor(theta, x)
    return 0.8 * r if r > 0 else -0.2 * r


def poisson(theta, x, y):
    m = predictor(theta, x)
    return (y * (math.log(y) - m) if y else 0.0) - y + math.exp(m)


def kmeans(theta, x, y):
    return min(math.fsum((float(a) - float(b)) ** 2 for a, b in zip(c, x, strict=True)) for c in theta)


def kmedian(theta, x, y):
    return math.sqrt(kmeans(theta, x, y))


def truth(theta, x, y):
    t = math.dist(theta, x)
    return t * t if t < 1 else 1 + math.log(t * t)


def bregman(phi, slope):
    def divergence(x, c):
        pairs = zip(x.tolist(), c.tolist(), strict=True)
        return math.fsum(phi(a) - phi(b) - slope(b) * (a - b) for a, b in pairs)

    return lambda theta, x, y: min(divergence(x, c) for c in theta)


entropy = bregman(lambda t: t * math.log(t), lambda t: math.log(t) + 1)
spectral = bregman(lambda t: -math.log(t), lambda t: -1 / t)
FLAT = {"fit_intercept": False}

CASES = [
    Case("logistic", dm.LogisticLoss(), logistic, "sign"),
    Case("logistic, no intercept", dm.LogisticLoss(**FLAT), partial(logistic, intercept=False), "sign"),
    Case("smooth hinge", dm.SmoothHingeLoss(), hinge, "sign"),
    Case("softmax", dm.SoftmaxLoss(3), softmax, "class"),
    Case("softmax, no intercept", dm.SoftmaxLoss(3, **FLAT), partial(softmax, intercept=False), "class"),
    Case("contaminated", dm.ContaminatedLoss(), partial(contaminated, logistic, [-1, 1]), "sign"),
    Case(
        "contaminated softmax",
        dm.ContaminatedLoss(dm.SoftmaxLoss(3)),
        partial(contaminated, softmax, [0, 1, 2]),
        "class",
    ),
    Case("squared", dm.SquaredLoss(), squared, "real"),
    Case("huber", dm.HuberLoss(0.7), huber, "real"),
    Case("quantile", dm.QuantileLoss(0.8), pinball, "real"),
    Case("poisson", dm.PoissonLoss(), poisson, "count"),
    Case("one mean", dm.KMeansLoss(1), kmeans),
    Case("k-means", dm.KMeansLoss(4), kmeans),
    Case("k-means, many columns", dm.KMeansLoss(4), kmeans, columns=20),
    Case("k-median", dm.KMedianLoss(4), kmedian),
    Case("k-median, many columns", dm.KMedianLoss(3), kmedian, columns=20),
    Case("truth discovery", dm.TruthDiscoveryLoss(), truth),
    Case("truth discovery, close", dm.TruthDiscoveryLoss(), truth, spread=0.3),
    Case("bregman, one centre, squared", dm.BregmanLoss(1, "squared"), kmeans),
    Case("bregman, squared", dm.BregmanLoss(4, "squared"), kmeans),
    Case("bregman, kl", dm.BregmanLoss(3, "kl"), entropy, positive=True, spread=0.5),
    Case("bregman, itakura-saito", dm.BregmanLoss(3, "itakura-saito"), spectral, positive=True, spread=0.5),
    Case("bregman, cosh", dm.BregmanLoss(3, COSH), bregman(math.cosh, math.sinh)),
]

LINEAR = [case for case in CASES if case.label is not None]
