"""Regression with outliers: least squares, Huber's loss, quantiles, counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from duramen.arrays import Array, check_nonnegative
from duramen.estimators.base import N_OUTLIERS, RobustEstimator
from duramen.estimators.fitting import (
    MIN_SIZE,
    AllRows,
    FitSettings,
    TrimmedPass,
    fit,
    is_auto,
    weighted_median,
)
from duramen.losses import HuberLoss, LinearLoss, PoissonLoss, QuantileLoss, SquaredLoss

_LOSSES = {"squared": SquaredLoss, "huber": HuberLoss, "quantile": QuantileLoss, "poisson": PoissonLoss}
_GAUSSIAN = 1.4826  # the standard deviation of a Gaussian, in median absolute deviations
_EFFICIENT = 1.35  # Huber's choice: 95% as efficient as least squares on Gaussian errors
_ROUNDING = 1e-9  # of the size of the labels: the residuals of a perfect fit


@dataclass(eq=False, repr=False)
class RobustLinearRegression(RegressorMixin, RobustEstimator):
    """Linear regression that sets the worst rows aside, fitted on a small coreset.

    Trimming guards against rows that are entirely wrong, features included;
    Huber's loss guards against wrong labels.

    Parameters
    ----------
    loss : {"squared", "huber", "quantile", "poisson"}
        Half the squared residual; Huber's loss of it; its pinball loss; half the Poisson deviance
        of counts with mean ``exp(X @ coef_ + intercept_)``.
    {parameters}
    alpha : float
        Penalty: ``alpha / 2 * |coef|^2`` is added to the sum of losses. With squared
        loss it is the alpha of scikit-learn's Ridge.
    delta : float or "auto"
        Where Huber's parabola becomes a line, in the units of y. "auto" is 1.35
        standard deviations of the residuals, estimated from their median at a
        rough trimmed fit; ``delta_`` is the result.
    quantile : float
        Which quantile of the labels to predict with the quantile loss: 0.5 is the median.
    fit_intercept : bool

    Attributes
    ----------
    coef_ : array (d,)
    intercept_ : float
    delta_ : float
        With Huber's loss.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 2))
    >>> y = X @ [3.0, -1.0] + 5 + 0.1 * rng.normal(size=100_000)
    >>> X[:1000] += 50  # planted
    >>> model = dm.RobustLinearRegression(n_outliers=1000, random_state=0).fit(X, y)
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([ 3., -1.]), 5.0)
    """

    loss: str = "squared"
    n_outliers: float = N_OUTLIERS
    _: KW_ONLY
    alpha: float = 0.0
    delta: float | str = "auto"
    quantile: float = 0.5
    fit_intercept: bool = True

    _BOUNDED = "alpha above 0"
    _SPARSE = "csr"
    _LABELS: ClassVar = {"y_numeric": True}

    def _settings(self) -> FitSettings:
        if self.loss not in _LOSSES:
            raise ValueError(f"loss={self.loss!r} is not known; use one of {list(_LOSSES)}")
        loss = self._loss(1.0 if is_auto(self.delta) else self.delta)
        return self._settings_of(loss, l2=check_nonnegative("alpha", self.alpha))

    def _adapt(self, data: AllRows) -> AllRows:
        if self.loss == "huber":
            self.delta_ = float(self._measure_delta(data) if is_auto(self.delta) else self.delta)
            data = data.with_settings(loss=self._loss(self.delta_))
        return data

    def predict(self, X: Any) -> Array:
        """Predict the label of each row, or the mean of its count: (n,)."""
        rows = self._new_rows(X)
        return self.solution_.loss.predictions(self.solution_.theta, rows)["value"]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute R^2 of the predictions; for counts D^2, the share of deviance explained."""
        if self.loss != "poisson":
            return float(super().score(X, y, sample_weight))
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags

    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        theta = self.solution_.theta
        self.coef_ = theta[: data.n_columns].copy()
        self.intercept_ = float(theta[data.n_columns :].sum())  # 0 where there is none

    def _loss(self, delta: Any) -> LinearLoss:
        kind: Any = _LOSSES[self.loss]
        own = {one.name: getattr(self, one.name) for one in fields(kind)}
        return kind(**own | ({"delta": delta} if "delta" in own else {}))

    def _measure_delta(self, data: AllRows) -> float:
        """Compute Huber's delta from the residuals of a rough trimmed fit."""
        squared = SquaredLoss(fit_intercept=self.fit_intercept)
        theta = fit(data.with_settings(loss=squared, coreset_size=MIN_SIZE, n_rounds=1)).solution.theta
        sample = data.sample()
        labels = np.asarray(sample.y, dtype=np.float64)
        spread = weighted_median(np.sqrt(2 * squared.values(theta, sample.X, sample.y)), sample.weights)
        weights = sample.weights * (labels != 0)
        size = weighted_median(np.abs(labels), weights) if weights.any() else 1.0
        return _EFFICIENT * _GAUSSIAN * (spread if spread > _ROUNDING * size else size)
