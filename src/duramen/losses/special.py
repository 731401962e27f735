"""Elementary functions that keep their digits where the textbook formula loses them.

Each is the difference of two nearly equal numbers near its zero, where the
plain formula would return noise. Near it, a series is summed instead; tests
compare with exact arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.losses.base import ignore_overflow

_NEAR = 0.2  # |s| below which the series in s = (x - c) / (x + c) is used: 11 terms reach 1e-17
_TERMS = 11
_EXP_COEFFICIENTS = [1 / math.factorial(power) for power in range(20, 1, -1)]  # the rest is below 1e-17


def exp_excess_near(u: Array) -> Array:
    """Compute exp(u) - 1 - u for |u| <= 1 by its series, to a few units in the last place."""
    total = np.full_like(u, _EXP_COEFFICIENTS[0])
    for coefficient in _EXP_COEFFICIENTS[1:]:
        total *= u
        total += coefficient
    total *= u
    total *= u
    return total


def relative_entropy(x: Array, c: Array) -> Array:
    """Compute x log(x / c) - x + c for x >= 0 and c > 0, with 0 log 0 = 0.

    With s = (x - c) / (x + c) it equals c [2 s^2 + 2 (1 + s) (s^3/3 + s^5/5 + ...)] / (1 - s).

    Examples
    --------
    >>> relative_entropy(np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0, 1.0]))
    array([3.        , 0.        , 0.38629436])
    """
    s = _contrast(x, c)
    near = np.abs(s) < _NEAR
    t = np.where(near, s, 0)
    close = c * (2 * t * t + 2 * (1 + t) * _odd_tail(t)) / (1 - t)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        apart = np.where(x > 0, x * _log_ratio(x, c), 0) + (c - x)
    return np.asarray(np.where(near, close, apart))


def itakura_saito(x: Array, c: Array) -> Array:
    """Compute x / c - log(x / c) - 1 for x > 0 and c > 0.

    With s = (x - c) / (x + c) it equals 2 s^2 / (1 - s) - 2 (s^3/3 + s^5/5 + ...).

    Examples
    --------
    >>> itakura_saito(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([0.        , 0.30685282])
    """
    s = _contrast(x, c)
    near = np.abs(s) < _NEAR
    t = np.where(near, s, 0)
    with ignore_overflow():
        return np.asarray(
            np.where(near, 2 * t * t / (1 - t) - 2 * _odd_tail(t), x / c - _log_ratio(x, c) - 1)
        )


def _contrast(x: Array, c: Array) -> Any:
    """Compute (x - c) / (x + c), also where x + c would overflow."""
    return (x / 2 - c / 2) / (x / 2 + c / 2)


def _log_ratio(x: Array, c: Array) -> Any:
    """Compute log(x / c), also where the quotient would overflow or vanish."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        ratio = x / c
        normal = (ratio > np.finfo(ratio.dtype).tiny) & np.isfinite(ratio)
        return np.where(normal, np.log(ratio), np.log(x) - np.log(c))


def _odd_tail(s: Array) -> Any:
    """Sum s^3/3 + s^5/5 + ...: half of log((1 + s) / (1 - s)), less s."""
    square = s * s
    total = np.zeros_like(s)
    for term in range(_TERMS, 0, -1):
        total = square * (1 / (2 * term + 1) + total)
    return s * total
