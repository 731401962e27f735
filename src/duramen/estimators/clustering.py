"""Clustering with outliers: k-means, k-medians, Bregman divergences."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_non_negative

from duramen.arrays import Array
from duramen.estimators.base import RobustEstimator, atomic
from duramen.estimators.fitting import AllRows, FitResult, MemoryData
from duramen.estimators.out_of_core import IntakeSettings, is_out_of_core
from duramen.losses import BregmanLoss, KMeansLoss, KMedianLoss
from duramen.losses.base import check_k
from duramen.samplers import Sampler
from duramen.solvers.problem import count_distinct

__all__ = ["RobustBregmanClustering", "RobustKMeans", "RobustKMedians"]

_Loss = BregmanLoss | KMeansLoss | KMedianLoss
_NO_LABELS = "labels are one value a row, and not kept for data beyond memory, a scan or a Dask collection"


_Self = TypeVar("_Self", bound="_Clustering")


class _Clustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, RobustEstimator):
    """What the clusterings share: everything but their loss."""

    n_clusters: int

    def __init__(
        self,
        n_clusters: int = 8,
        n_outliers: float = 0.02,
        *,
        coreset_size: int | str | None = "auto",
        sampler: Sampler | str = "auto",
        n_init: int = 5,
        n_rounds: int = 2,
        max_iter: int = 300,
        tol: float = 0.01,
        verbose: bool = False,
        updatable: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_outliers = n_outliers
        self.coreset_size = coreset_size
        self.sampler = sampler
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.updatable = updatable
        self.random_state = random_state

    @atomic
    def fit(self: _Self, X: Any, y: Any = None, sample_weight: Any = None) -> _Self:
        """Find the centres.

        Parameters
        ----------
        X : array or data frame (n, d); or data beyond memory
            A scan or a Dask collection, read in passes as by
            :meth:`RobustLogisticRegression.fit`. Then there are no ``labels_``: call
            ``predict`` on batches.
        y : ignored
        sample_weight : array (n,), optional
            A row of weight w counts as w rows. A Dask array or Series beside a Dask
            collection; of a scan, its weight.
        """
        k = check_k(self.n_clusters, "n_clusters", "clusters")
        settings = self._settings(self._loss(k))
        needs = IntakeSettings(settings.loss, distinct=k, dense=True)
        data = self._collect(X, None, sample_weight, settings, needs)
        if data.n_rows < k:
            raise ValueError(
                f"n_samples={data.n_rows} should be >= n_clusters={k}; take fewer clusters, or more rows"
            )
        self._n_asked = k
        self._fit(replace(settings, loss=self._loss(self._distinct(data, k))), data)
        if isinstance(data, MemoryData) and data.ids is not None:  # rows without weight have labels, too
            rows = self._rows(X, reset=False)
            self.labels_ = self._fitted_loss().nearest(self.cluster_centers_, rows).astype(np.int32)
        return self

    def fit_predict(self, X: Any, y: Any = None, **named: Any) -> Array:
        """Find the centres, and the nearest one of each row: (n,) of int32; of data in memory only."""
        if is_out_of_core(X):
            raise TypeError(f"{_NO_LABELS}, call fit, and then predict on batches")
        return super().fit_predict(X, y, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "labels_" and "cluster_centers_" in self.__dict__:
            raise AttributeError(f"{_NO_LABELS}, call predict on batches")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def predict(self, X: Any) -> Array:
        """Find the nearest centre of each row: (n,) of int32, for outliers too."""
        rows = self._new_rows(X)
        return self._fitted_loss().nearest(self.cluster_centers_, rows).astype(np.int32)

    def transform(self, X: Any) -> Array:
        """Measure how far each row lies from each centre: (n, n_clusters)."""
        rows = self._new_rows(X)
        return np.stack([self._lengths(centre[None], rows) for centre in self.cluster_centers_], axis=1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute minus the cost of the rows, after as large a share is set aside as in training."""
        return self._trimmed_score(self.losses(X), sample_weight)

    def losses(self, X: Any) -> Array:
        """Compute the loss of each row: what is above ``threshold_`` costs as much as an outlier."""
        rows = self._new_rows(X)
        return self._fitted_loss().values(self.cluster_centers_, rows)

    def _distinct(self, data: AllRows, k: int) -> int:
        """Count how many clusters there can be, and warn if fewer than asked for."""
        found = max(1, data.distinct(k))
        if found < k:
            warnings.warn(
                f"n_clusters={k} is above the number of distinct rows of positive weight, {found}: so many "
                f"clusters are found, and the other centres repeat the last; take n_clusters={found} or less",
                ConvergenceWarning,
                stacklevel=4,
            )
        return found

    def _set_parameters(self, fitted: FitResult, data: AllRows) -> None:
        order = np.lexsort(fitted.solution.theta.T[::-1])  # so that numbers do not depend on the seed
        numbers = np.minimum(np.arange(self._n_asked), len(order) - 1)
        self.cluster_centers_ = fitted.solution.theta[order[numbers]]
        if fitted.at_solution.cache is not None:
            self.labels_ = np.argsort(order)[np.asarray(fitted.at_solution.cache)].astype(np.int32)

    def _check_rows_left(self, data: MemoryData) -> None:
        super()._check_rows_left(data)
        k = len(self.solution_.theta)
        found = count_distinct(data.X, data.weights, self._n_asked)
        if found < k:
            raise ValueError(
                f"{found} distinct rows would be left for {k} clusters; keep more, or fit again with "
                f"n_clusters={found} or less"
            )
        if found > k:
            warnings.warn(
                f"n_clusters={self._n_asked} was above the number of distinct rows when the model was "
                f"fitted, so it has {k} clusters, and now there are more; fit again to find them",
                ConvergenceWarning,
                stacklevel=4,
            )

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    @abstractmethod
    def _loss(self, k: Any) -> _Loss:
        """Make the loss of so many centres."""

    def _fitted_loss(self, k: int | None = None) -> _Loss:
        """Give the loss that was fitted, for all centres or for so many."""
        fitted: Any = self.solution_.loss
        return replace(fitted, k=k or len(self.cluster_centers_))

    def _lengths(self, centre: Array, rows: Array) -> Array:
        return self._fitted_loss(1).values(centre, rows)


class RobustKMeans(_Clustering):
    """k-means that sets the worst rows aside (k-means--), fitted on a small coreset.

    Parameters
    ----------
    n_clusters : int
    n_outliers : float
        How much to set aside: a count (1 or more), or a fraction (below 1) of
        all rows; by weight, where there are weights.
    coreset_size, sampler, n_rounds, max_iter, tol, verbose, updatable, random_state
        As in :class:`RobustLogisticRegression`.
    n_init : int
        How often to start; on a coreset that costs little, and seeding decides
        more than anything else.

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, d)
    labels_ : array (n,)
        The nearest centre of each training row, outliers too;
        ``labels_[outliers_] = -1`` marks them as other libraries do. After
        ``forget`` or ``absorb``: of each row in ``dynamic_.ids``, in that order.
    inertia_ : float
        The sum of squared distances of the rows that are kept: ``trimmed_loss_``.
    outliers_, threshold_, objective_, trimmed_loss_, coreset_, coreset_size_, size_trials_, solution_
        As in :class:`RobustLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 2)) + 10 * rng.integers(2, size=(50_000, 1))
    >>> X[:500] = rng.normal(size=(500, 2)) * 1000
    >>> model = dm.RobustKMeans(2, n_outliers=500, random_state=0).fit(X)
    >>> model.cluster_centers_.round(1) + 0.0
    array([[ 0.,  0.],
           [10., 10.]])
    >>> bool((model.outliers_ < 500).mean() > 0.98)
    True
    """

    @property
    def inertia_(self) -> float:
        """The sum of squared distances of the rows that are kept."""
        return self.trimmed_loss_

    def _loss(self, k: Any) -> KMeansLoss:
        return KMeansLoss(k)

    def _lengths(self, centre: Array, rows: Array) -> Array:
        return np.sqrt(super()._lengths(centre, rows))


class RobustKMedians(_Clustering):
    """k-median that sets the worst rows aside, fitted on a small coreset.

    The cost of a row is its Euclidean distance to the nearest centre, not the
    square of it: what lies far pulls less.

    Parameters
    ----------
    n_clusters, n_outliers, coreset_size, sampler, n_init, n_rounds, max_iter, tol, verbose, updatable
        As in :class:`RobustKMeans`.
    random_state : None, int, numpy Generator or RandomState

    Attributes
    ----------
    cluster_centers_, labels_, outliers_, threshold_, objective_, trimmed_loss_, coreset_, coreset_size_
        As in :class:`RobustKMeans`.

    Examples
    --------
    >>> import duramen as dm
    >>> model = dm.RobustKMedians(1, n_outliers=1, random_state=0).fit([[0.0], [1.0], [2.0], [900.0]])
    >>> model.cluster_centers_.round(2), model.outliers_
    (array([[1.]]), array([3]))
    """

    def _loss(self, k: Any) -> KMedianLoss:
        return KMedianLoss(k)


class RobustBregmanClustering(_Clustering):
    """Clustering by a Bregman divergence that sets the worst rows aside, fitted on a small coreset.

    Parameters
    ----------
    n_clusters : int
    divergence : {"squared", "kl", "itakura-saito"}, pair (phi, gradient), or CustomDivergence
        "squared" is k-means; "kl", for counts and shares, takes data of 0 or
        more; "itakura-saito", for spectra, data above 0. See
        :class:`duramen.BregmanLoss`.
    n_outliers, coreset_size, sampler, n_init, n_rounds, max_iter, tol, verbose, updatable, random_state
        As in :class:`RobustKMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, outliers_, threshold_, objective_, trimmed_loss_, coreset_, coreset_size_
        As in :class:`RobustKMeans`.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.where(np.arange(10_000) % 2, 3.0, 50.0)[:, None] * [1, 2]).astype(float)
    >>> X[:50] = 10_000
    >>> model = dm.RobustBregmanClustering(2, "kl", n_outliers=50, random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_, axis=0).round(0)
    array([[  3.,   6.],
           [ 50., 100.]])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        divergence: Any = "squared",
        n_outliers: float = 0.02,
        *,
        coreset_size: int | str | None = "auto",
        sampler: Sampler | str = "auto",
        n_init: int = 5,
        n_rounds: int = 2,
        max_iter: int = 300,
        tol: float = 0.01,
        verbose: bool = False,
        updatable: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_outliers,
            coreset_size=coreset_size,
            sampler=sampler,
            n_init=n_init,
            n_rounds=n_rounds,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            updatable=updatable,
            random_state=random_state,
        )
        self.divergence = divergence

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self._is_positive
        return tags

    @property
    def _is_positive(self) -> bool:
        return isinstance(self.divergence, str) and self.divergence in ("kl", "itakura-saito")

    def _rows(self, X: Any, **checks: Any) -> Any:
        rows = super()._rows(X, **checks)
        if self._is_positive:
            check_non_negative(rows, type(self).__name__)
        return rows

    def _loss(self, k: Any) -> BregmanLoss:
        return BregmanLoss(k, self.divergence)
