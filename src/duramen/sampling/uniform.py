"""Uniform sampling: every unit of weight matters the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duramen.rows import Array
from duramen.sampling.base import RankedSampler, Seen

__all__ = ["UniformSampler"]


@dataclass(frozen=True)
class UniformSampler(RankedSampler):
    """Draw points in proportion to their weight: the paper's Uniform (section 3.1).

    It needs nothing of a loss. By Theorem 1 it is a robust coreset by itself
    for any loss at all, but with an error in the number of outliers, and only
    of use where outliers are a fair share of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> points = dm.points(np.arange(100.0)[:, None])
    >>> dm.UniformSampler().reduce(points, 4, np.random.default_rng(0)).weights
    array([25., 25., 25., 25.])
    """

    def ceiling(self, seen: Seen) -> float:
        return 1.0

    def scores(self, seen: Seen) -> Array:
        return np.ones(len(seen))
