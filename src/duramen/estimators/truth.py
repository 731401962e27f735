"""Truth discovery: what is true, where sources disagree and some lie."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from duramen.arrays import Array, refuse_nonfinite
from duramen.estimators.base import RobustEstimator, atomic
from duramen.estimators.fitting import AllRows, FitResult, MemoryData
from duramen.estimators.out_of_core import IntakeSettings
from duramen.losses import TruthDiscoveryLoss
from duramen.samplers import Sampler
from duramen.solvers.problem import is_number

__all__ = ["TruthDiscovery"]


class TruthDiscovery(RobustEstimator):
    """Find the truth that most sources agree on; the worst are set aside, and those far off count little.

    Each row is a source, each column a question, and the entry what the source
    claims. With t the distance of a row from the truth in units of ``scale``, it
    costs t^2 up to 1 and 1 + log t^2 beyond (the paper's appendix A).

    Parameters
    ----------
    n_outliers, coreset_size, sampler, n_init, n_rounds, max_iter, tol, verbose, updatable, random_state
        As in :class:`RobustLogisticRegression`.
    scale : float or "auto"
        How far an honest source may be off. "auto" is the median distance from
        the medians of the columns; ``scale_`` is what it came to.

    Attributes
    ----------
    truth_ : array (d,)
    scale_ : float
    outliers_, threshold_, objective_, trimmed_loss_, coreset_, coreset_size_, size_trials_, solution_
        As in :class:`RobustLogisticRegression`; the coreset and the losses are in units of ``scale_``.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> claims = [10.0, 20.0, 30.0] + rng.normal(size=(20_000, 3))
    >>> claims[:4000] = 99  # a fifth of the sources made it up together
    >>> model = dm.TruthDiscovery(n_outliers=0.2, random_state=0).fit(claims)
    >>> model.truth_.round(1)
    array([10., 20., 30.])
    >>> model.reliability([[10.0, 20.0, 30.0], [99.0, 99.0, 99.0]]).round(2)
    array([1., 0.])
    """

    def __init__(
        self,
        n_outliers: float = 0.02,
        *,
        coreset_size: int | str | None = "auto",
        scale: float | str = "auto",
        sampler: Sampler | str = "auto",
        n_init: int = 1,
        n_rounds: int = 2,
        max_iter: int = 300,
        tol: float = 0.01,
        verbose: bool = False,
        updatable: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_outliers = n_outliers
        self.coreset_size = coreset_size
        self.scale = scale
        self.sampler = sampler
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.updatable = updatable
        self.random_state = random_state

    @atomic
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TruthDiscovery:
        """Find the truth.

        Parameters
        ----------
        X : array or data frame (n, d); or data beyond memory
            One source a row. It is copied, unless ``scale`` is 1. A scan or a Dask
            collection is read in passes, as by :meth:`RobustLogisticRegression.fit`.
        y : ignored
        sample_weight : array (n,), optional
            A source of weight w counts as w sources. A Dask array or Series beside a
            Dask collection; of a scan, its weight.
        """
        settings = self._settings(TruthDiscoveryLoss())
        needs = IntakeSettings(settings.loss, some=self._measured(), dense=True)
        data = self._collect(X, None, sample_weight, settings, needs)
        if isinstance(data, MemoryData):
            refuse_nonfinite(data.X)
        self.scale_ = self._scale(data)
        self._fit(settings, data.map_rows(partial(_in_units, scale=self.scale_)))
        return self

    def reliability(self, X: Any) -> Array:
        """Say how much each source counts: (n,), 1 within ``scale_`` of the truth, then 1 over t^2."""
        squared = self.losses(X)
        return np.where(squared <= 1, 1.0, np.exp(1 - squared))  # beyond 1 the loss is 1 + log t^2

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute minus the cost of the rows, after as large a share is set aside as in training."""
        return self._trimmed_score(self.losses(X), sample_weight)

    def losses(self, X: Any) -> Array:
        """Compute the loss of each row: what is above ``threshold_`` costs as much as an outlier."""
        rows = self._new_rows(X)
        return TruthDiscoveryLoss().values(self.truth_ / self.scale_, _in_units(rows, self.scale_))

    def _set_parameters(self, fitted: FitResult, data: AllRows) -> None:
        self.truth_ = fitted.solution.theta * self.scale_

    def _as_fitted(self, new: MemoryData, dtype: Any) -> MemoryData:
        new = super()._as_fitted(new, dtype)
        return new._replace(X=_in_units(new.X, self.scale_))

    def _measured(self) -> bool:
        """Tell whether the scale is to be measured; raise ValueError if it is neither that nor a number."""
        if isinstance(self.scale, str) and self.scale == "auto":
            return True
        if not (is_number(self.scale) and 0 < float(self.scale) < np.inf):
            raise ValueError(f"scale={self.scale!r} must be a positive number, or 'auto'")
        return False

    def _scale(self, data: AllRows) -> float:
        if not self._measured():
            return float(self.scale)
        some = data.some()
        rows = np.asarray(some.X, dtype=np.float64)
        with np.errstate(over="ignore"):
            gaps = rows - [some.median(column) for column in rows.T]
        largest = float(np.abs(gaps).max())
        if not np.isfinite(largest):
            raise ValueError("the claims are too far apart for float64; scale them down")
        far = np.linalg.norm(gaps / (largest or 1.0), axis=1)
        return (some.median(far) or float(far.max())) * largest or 1.0


def _in_units(X: Array, scale: float) -> Array:
    if scale == 1:
        return X
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        units = X / X.dtype.type(scale)
    if not np.isfinite(units).all():
        raise ValueError(f"scale={scale:g} is too small: the claims overflow {X.dtype} in units of it")
    return units
