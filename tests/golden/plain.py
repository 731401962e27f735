"""Losses at the anchor by their plain formulas: what the oracle needs to know of every row.

Nothing here comes from the package. A row counts as (x, 1) where the loss has an intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class AtAnchor:
    """Of every row: its loss at the anchor, the gradient, and how far either can move in the anchor's ball.

    ``gradients`` (n, p) are flat; ``nearest`` numbers the nearest of several centres. The constants that a
    loss lacks are None.
    """

    values: Any
    gradients: Any
    convex: bool = True
    nearest: Any = None
    deviation: Any = None
    lipschitz: Any = None
    smooth: Any = None
    hessian: Any = None  # the norm of the Hessian at the anchor, and how far it can grow in the ball


def _logistic(m: Any, y: Any) -> Any:
    s = np.where(y > 0, m, -m)
    return np.log1p(np.exp(-np.abs(s))) + np.maximum(-s, 0)


def _logistic_slope(m: Any, y: Any) -> Any:
    sign = np.where(y > 0, 1.0, -1.0)
    return -sign / (1 + np.exp(sign * m))


def _hinge(m: Any, y: Any) -> Any:
    s = y * m
    return np.where(s >= 1, 0.0, np.where(s >= 0, (1 - s) ** 2 / 2, 0.5 - s))


def _huber(m: Any, y: Any, delta: float = 0.75) -> Any:
    r = np.abs(m - y)
    return np.where(r <= delta, r * r / 2, delta * (r - delta / 2))


def _poisson(m: Any, y: Any) -> Any:
    return np.exp(m) - y * m + np.where(y > 0, y * np.log(np.maximum(y, 1)) - y, 0.0)


LINEAR = {  # psi(m, y), its slope, and the largest slope, second and third derivative
    "logistic": (_logistic, _logistic_slope, 1.0, 0.25, 1 / (6 * 3**0.5)),
    "hinge": (_hinge, lambda m, y: -y * np.clip(1 - y * m, 0, 1), 1.0, 1.0, None),
    "huber": (_huber, lambda m, y: np.clip(m - y, -0.75, 0.75), 0.75, 1.0, None),
    "squared": (lambda m, y: (m - y) ** 2 / 2, lambda m, y: m - y, None, 1.0, 0.0),
    "poisson": (_poisson, lambda m, y: np.exp(m) - y, None, None, None),
}
DISTANCE = {  # h(t) of the distance t to the nearest centre, h'(t) / t, and the constants
    "k-means": (lambda t: t * t, lambda t: np.full_like(t, 2.0), None, None),
    "one-mean": (lambda t: t * t, lambda t: np.full_like(t, 2.0), None, 2.0),
    "k-median": (lambda t: t, lambda t: 1 / np.where(t > 0, t, np.inf), 1.0, None),
    "truth": (
        lambda t: np.where(t < 1, t * t, 1 + np.log(np.maximum(t, 1) ** 2)),
        lambda t: 2 / np.maximum(t * t, 1),
        2.0,
        2.0,
    ),
}


def look(name: str, theta: Any, radius: float, X: Any, y: Any) -> AtAnchor:
    """Look at rows from the anchor."""
    theta, X = np.asarray(theta, dtype=float), np.asarray(X, dtype=float)
    if name in LINEAR:
        return _look_linear(name, theta, radius, np.column_stack([X, np.ones(len(X))]), y)
    if name == "softmax":
        return _look_softmax(theta, np.column_stack([X, np.ones(len(X))]), y)
    return _look_kl(theta, X) if name == "kl" else _look_distance(name, theta, radius, X)


def _look_linear(name: str, theta: Any, radius: float, Z: Any, y: Any) -> AtAnchor:
    psi, slope, max_slope, max_curvature, max_third = LINEAR[name]
    m = _row_sums(Z * theta)
    length = np.sqrt(_row_sums(Z * Z))
    values, reach = psi(m, y), radius * length
    hessian = None
    if max_third is not None:
        bend = np.exp(-np.abs(m)) / (1 + np.exp(-np.abs(m))) ** 2 if name == "logistic" else 1.0
        hessian = bend * length**2 + max_third * length**3 * radius / 3
    return AtAnchor(
        values,
        slope(m, y)[:, None] * Z,
        deviation=np.maximum(psi(m + reach, y), psi(m - reach, y)) - values,
        lipschitz=None if max_slope is None else max_slope * length,
        smooth=None if max_curvature is None else max_curvature * length**2,
        hessian=hessian,
    )


def _look_softmax(theta: Any, Z: Any, y: Any) -> AtAnchor:
    m = np.stack([_row_sums(Z * one) for one in theta], axis=1)
    m -= m.max(axis=1, keepdims=True)
    own = np.arange(len(Z)), np.asarray(y, dtype=int)
    pulls = np.exp(m) / np.exp(m).sum(axis=1, keepdims=True)
    values = np.log(np.exp(m).sum(axis=1)) - m[own]
    pulls[own] -= 1
    return AtAnchor(values, (pulls[:, :, None] * Z[:, None, :]).reshape(len(Z), -1))


def _look_distance(name: str, theta: Any, radius: float, X: Any) -> AtAnchor:
    height, pull, lipschitz, smooth = DISTANCE[name]
    centres = theta.reshape(-1, X.shape[1])
    squares = np.stack([_row_sums((X - centre) ** 2) for centre in centres], axis=1)
    nearest, t = squares.argmin(axis=1), np.sqrt(squares.min(axis=1))
    values = squares.min(axis=1) if name in ("k-means", "one-mean") else height(t)
    away, towards = height(t + radius), height(np.maximum(t - radius, 0))
    gaps = pull(t)[:, None] * (centres[nearest] - X)
    return AtAnchor(
        values,
        _of_nearest(gaps, nearest, centres),
        convex=name != "truth" and len(centres) == 1,
        nearest=nearest if len(centres) > 1 else None,
        deviation=np.maximum(away - values, values - towards),
        lipschitz=None if lipschitz is None else np.full(len(X), lipschitz),
        smooth=None if smooth is None else np.full(len(X), smooth),
    )


def _look_kl(theta: Any, X: Any) -> AtAnchor:
    costs = np.stack([_row_sums(X * np.log(X / centre) - X + centre) for centre in theta], axis=1)
    nearest = costs.argmin(axis=1)
    gaps = (theta[nearest] - X) / theta[nearest]
    return AtAnchor(costs.min(axis=1), _of_nearest(gaps, nearest, theta), convex=False, nearest=nearest)


def _of_nearest(gaps: Any, nearest: Any, centres: Any) -> Any:
    gradients = np.zeros((len(gaps), *centres.shape))
    gradients[np.arange(len(gaps)), nearest] = gaps
    return gradients.reshape(len(gaps), -1)


def _row_sums(terms: Any) -> Any:
    """Add up columns one after the other, so that equal rows have equal sums."""
    total = np.zeros(len(terms))
    for column in terms.T:
        total = total + column
    return total
