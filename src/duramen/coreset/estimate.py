"""Error bars: how far the coreset's objective is from the data's, estimated from the coreset alone.

With c the loss above which weight is set aside, f_z is the sum of weight times
min(f, c), less c z; and to first order in the sample it does not matter that c
depends on the sample too. So the error of f_z(theta, C) is that of a plain sum over
a sample with known inclusion probabilities: a textbook variance, of the
residuals where weights were calibrated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from duramen.arrays import Array

_QUANTILE = 1.959963984540054  # of the normal distribution: 95% lie within this many standard errors


class Estimate(NamedTuple):
    """An objective, and its 95% interval.

    Attributes
    ----------
    value : float
        f_z(theta, C).
    std_error : float
        Of ``value`` as an estimate of f_z(theta, X). NaN where the inclusion
        probabilities of the sampler are not known.
    low, high : float
        The interval that contains f_z(theta, X) for about 95% of all seeds.
    """

    value: float
    std_error: float
    low: float
    high: float

    @staticmethod
    def of(value: float, std_error: float) -> Estimate:
        """Compute the interval from a value and its standard error; losses are not negative."""
        reach = _QUANTILE * std_error
        low = 0.0 if reach == math.inf else float(np.maximum(value - reach, 0.0))
        return Estimate(value, std_error, low, value + reach)

    def __repr__(self) -> str:
        return (
            f"Estimate: {self.value:,.6g} +- {self.std_error:,.3g}, "
            f"95% between {self.low:,.6g} and {self.high:,.6g}"
        )


def standard_error(values: Array, weights: Array, inclusion: Array, groups: Array) -> float:
    """Estimate the standard error of the sum of weight times value over a sample.

    Parameters
    ----------
    values, weights, inclusion, groups : arrays (m,)
        ``values`` are residuals where weights were calibrated; ``weights`` are as sampled, with
        the exact sum in each group. ``inclusion`` is NaN where it is not known, and so is the result then.
    """
    if np.isnan(inclusion).any():
        return math.nan
    errors = []
    for group in np.unique(groups):
        mine = np.flatnonzero((groups == group) & ~(inclusion >= 1))
        if len(mine):
            errors.append(_group_error(values[mine], weights[mine], inclusion[mine]))
    return math.hypot(*errors)


def _group_error(values: Array, weights: Array, inclusion: Array) -> float:
    """Estimate the standard error of a sum over points of one group, none of them certain."""
    if not np.isfinite(values).all():
        return math.inf
    n, size, heaviest = len(values), float(np.abs(values).max()) or 1.0, float(weights.max())
    apart = values / size
    if n > 1:  # a single point has no spread to estimate its error from: its value is used
        apart = (apart - np.average(apart, weights=weights)) * math.sqrt(n / (n - 1))
    squares = (1 - inclusion) * np.square(weights / heaviest * apart)
    return math.sqrt(squares.sum()) * heaviest * size
