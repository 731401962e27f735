"""Clustering by distance, and its case of one centre with bounded influence: truth discovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from duramen.losses.checks import checked_k
from duramen.losses.distance import DistanceLoss
from duramen.rows import Array

__all__ = ["KMeansLoss", "KMedianLoss", "TruthDiscoveryLoss"]


@dataclass(frozen=True)
class _CentresLoss(DistanceLoss):
    """What the losses of k centres share."""

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_k(self.k))

    @property
    def convex(self) -> bool:
        return self.k == 1

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.k, n_columns)


@dataclass(frozen=True)
class KMeansLoss(_CentresLoss):
    """k-means: the squared Euclidean distance to the nearest of k centres.

    theta is (k, d). Not Lipschitz on unbounded data, and smooth (with constant
    2) only for k = 1; inside a ball of radius l the deviation is 2 t l + l^2
    with t the distance to the nearest centre.

    Parameters
    ----------
    k : int
        How many centres.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.KMeansLoss(2).values([[0.0, 0.0], [10.0, 0.0]], [[3.0, 4.0], [9.0, 0.0]])
    array([25.,  1.])
    """

    def height(self, squared: Array) -> Array:
        return squared

    def pull(self, squared: Array) -> Array:
        return np.full_like(squared, 2)

    def smoothness(self, X: Any, y: Any = None) -> Array | None:
        rows = self._rows(X)
        return np.full(len(rows), 2, dtype=rows.dtype) if self.k == 1 else None


@dataclass(frozen=True)
class KMedianLoss(_CentresLoss):
    """k-median: the Euclidean distance to the nearest of k centres.

    theta is (k, d). Each f is 1-Lipschitz in the largest move of a centre
    (paper, appendix A), whatever the data. At a centre itself, where there is
    no gradient, it counts as zero.

    Parameters
    ----------
    k : int
        How many centres.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.KMedianLoss(2).values([[0.0, 0.0], [10.0, 0.0]], [[3.0, 4.0], [9.0, 0.0]])
    array([5., 1.])
    """

    def height(self, squared: Array) -> Array:
        return np.sqrt(squared)

    def pull(self, squared: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.where(squared > 0, 1 / np.sqrt(squared), 0)

    def lipschitz(self, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        return np.ones(len(rows), dtype=rows.dtype)


@dataclass(frozen=True)
class TruthDiscoveryLoss(DistanceLoss):
    """Truth discovery: theta is the truth, each row what one source claims of it.

    With ``t = |theta - x|``, f is t^2 up to 1 and 1 + log t^2 beyond (paper, appendix
    A): a source far off has little pull. Each f is 2-Lipschitz and 2-smooth.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.TruthDiscoveryLoss().values([0.0, 0.0], [[0.5, 0.0], [0.0, 1.0], [100.0, 0.0]])
    array([ 0.25      ,  1.        , 10.21034037])
    """

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns,)

    def height(self, squared: Array) -> Array:
        return np.minimum(squared, 1) + np.log(np.maximum(squared, 1))

    def pull(self, squared: Array) -> Array:
        return 2 / np.maximum(squared, 1)

    def lipschitz(self, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        return np.full(len(rows), 2, dtype=rows.dtype)

    def smoothness(self, X: Any, y: Any = None) -> Array:
        return self.lipschitz(X, y)
