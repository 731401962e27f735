"""Clustering with outliers: k-means, k-medians, Bregman divergences."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from duramen.arrays import Array, check_count
from duramen.estimators.base import N_OUTLIERS, RobustEstimator
from duramen.estimators.fitting import AllRows, FitSettings, TrimmedPass, is_out_of_core
from duramen.losses import BregmanLoss, KMeansLoss, KMedianLoss
from duramen.losses.centres import distinct_rows


@dataclass(eq=False, repr=False)
class _Clustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, RobustEstimator):
    """A clustering; a subclass adds its loss."""

    n_clusters: int = 8
    _: KW_ONLY
    n_init: int = 5

    _loss: ClassVar[Any] = KMeansLoss  # makes the loss with k centres

    def _settings(self) -> FitSettings:
        return self._settings_of(self._loss(check_count("n_clusters", self.n_clusters)))

    def _adapt(self, data: AllRows) -> AllRows:
        k, points = data.settings.loss.n_centres, data.points or data.sample()
        self._n_asked = k
        if data.n_rows < k:
            raise ValueError(
                f"n_samples={data.n_rows} should be >= n_clusters={k}; use fewer clusters, or more rows"
            )
        found = len(distinct_rows(points.X, np.arange(len(points)), k))
        if found == k:
            return data
        warnings.warn(
            f"n_clusters={k} is above the number of distinct rows of positive weight, {found}; the centres "
            f"beyond those repeat the last one; pass n_clusters={found} or less",
            ConvergenceWarning,
            stacklevel=4,
        )
        return data.with_settings(loss=self._loss(found))

    def fit_predict(self, X: Any, y: Any = None, **named: Any) -> Array:
        """Find the centres, and the nearest one of each row in memory: (n,) of int32."""
        if is_out_of_core(X):
            raise TypeError(
                "labels_ has one value per row, and is not kept for a scan or a Dask collection; call fit, "
                "and then predict on batches"
            )
        return super().fit_predict(X, y, **named)

    def predict(self, X: Any) -> Array:
        """Find the nearest centre of each row: (n,) of int32, for outliers too."""
        return self._nearest(self._new_rows(X))

    def transform(self, X: Any) -> Array:
        """Compute the distance of each row from each centre: (n, n_clusters)."""
        rows, loss = self._new_rows(X), self._loss_of(1)
        return np.column_stack([loss.values(centre[None], rows) for centre in self.cluster_centers_])

    def _nearest(self, rows: Array) -> Array:
        loss = self._loss_of(len(self.cluster_centers_))
        return loss.predictions(self.cluster_centers_, rows)["cluster"].astype(np.int32)

    def _loss_of(self, k: int) -> Any:
        fitted: Any = self.solution_.loss
        return replace(fitted, k=k)

    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        order = np.lexsort(self.solution_.theta.T[::-1])  # so that numbers do not depend on the seed
        repeats = self._n_asked - len(order)  # of the last centre, beyond the distinct rows
        self.cluster_centers_ = self.solution_.theta[np.pad(order, (0, repeats), "edge")]
        if data.n_rows > data.n_points:  # rows of weight zero have labels, too
            self.labels_ = self._nearest(data.X)
        elif found.cache is not None:
            self.labels_ = np.argsort(order)[found.cache].astype(np.int32)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


@dataclass(eq=False, repr=False)
class RobustKMeans(_Clustering):
    """k-means that sets the worst rows aside (k-means--), fitted on a small coreset.

    Parameters
    ----------
    n_clusters : int
    {parameters}

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, d)
    labels_ : array (n,)
        The nearest centre of each training row, outliers too;
        ``labels_[outliers_] = -1`` marks them as other libraries do. After
        ``forget`` or ``absorb``: of each row in ``dynamic_.ids``, in that order.
    inertia_ : float
        The sum of squared distances of the rows that are kept: ``trimmed_loss_``.
    {attributes}

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

    n_outliers: float = N_OUTLIERS

    @property
    def inertia_(self) -> float:
        """The sum of squared distances of the rows that are kept."""
        return self.trimmed_loss_

    def transform(self, X: Any) -> Array:
        return np.sqrt(super().transform(X))


@dataclass(eq=False, repr=False)
class RobustKMedians(_Clustering):
    """k-median that sets the worst rows aside, fitted on a small coreset.

    The loss of a row is its Euclidean distance to the nearest centre, not its
    square, so that distant rows have less influence.

    Parameters
    ----------
    n_clusters : int
    {parameters}

    Attributes
    ----------
    cluster_centers_, labels_ : arrays
        As in :class:`RobustKMeans`.
    {attributes}

    Examples
    --------
    >>> import duramen as dm
    >>> model = dm.RobustKMedians(1, n_outliers=1, random_state=0).fit([[0.0], [1.0], [2.0], [900.0]])
    >>> model.cluster_centers_.round(2), model.outliers_
    (array([[1.]]), array([3]))
    """

    n_outliers: float = N_OUTLIERS
    _loss = KMedianLoss


@dataclass(eq=False, repr=False)
class RobustBregmanClustering(_Clustering):
    """Clustering by a Bregman divergence that sets the worst rows aside, fitted on a small coreset.

    Parameters
    ----------
    n_clusters : int
    divergence : {"squared", "kl", "itakura-saito"}, pair (phi, gradient), or CustomDivergence
        "squared" is k-means; "kl", for counts and shares, needs data of 0 or
        more; "itakura-saito", for spectra, positive data. See
        :class:`duramen.BregmanLoss`.
    {parameters}

    Attributes
    ----------
    cluster_centers_, labels_ : arrays
        As in :class:`RobustKMeans`.
    {attributes}

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

    divergence: Any = "squared"
    n_outliers: float = N_OUTLIERS

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.divergence in ("kl", "itakura-saito")
        return tags

    def _rows(self, X: Any, **checks: Any) -> Any:
        return super()._rows(
            X, ensure_non_negative=self.__sklearn_tags__().input_tags.positive_only, **checks
        )

    def _loss(self, k: int) -> BregmanLoss:
        return BregmanLoss(k, self.divergence)
