"""Logistic regression with outliers, for two classes or more."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from duramen.arrays import Array, check_range
from duramen.estimators.base import N_OUTLIERS, RobustEstimator
from duramen.estimators.fitting import AllRows, FitSettings, TrimmedPass, encoded
from duramen.losses import LogisticLoss, SoftmaxLoss
from duramen.trimming import outlier_weight


@dataclass(eq=False, repr=False)
class RobustLogisticRegression(ClassifierMixin, RobustEstimator):
    """Logistic regression that sets the worst rows aside, fitted on a small coreset.

    It minimises scikit-learn's objective over the rows that are kept: the sum of
    their logistic losses (multinomial for more than two classes), plus
    ``|coef|^2 / (2 C)``. The ``n_outliers`` rows with the largest losses are set
    aside; they are found along with the coefficients.

    Parameters
    ----------
    {parameters}
    C : float
        As in scikit-learn: the inverse of the penalty. ``np.inf`` means no penalty.
    fit_intercept : bool

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : array (1, d), or (n_classes, d) for more than two classes
    intercept_ : array (1,) or (n_classes,)
    {attributes}

    See Also
    --------
    duramen.robust_coreset, duramen.solve : the two steps of ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = np.where(X[:, 0] + 0.5 * rng.logistic(size=100_000) > 0, "yes", "no")
    >>> X[:2000, 0], y[:2000] = 20, "no"  # planted
    >>> model = dm.RobustLogisticRegression(n_outliers=0.02, random_state=0).fit(X, y)
    >>> model.coef_.round(1) + 0.0, model.predict([[1.0, 0.0, 0.0]])
    (array([[2., 0., 0.]]), array(['yes'], dtype='<U3'))
    >>> bool((np.sort(model.outliers_) == np.arange(2000)).all()), model.coreset_size_
    (True, 1000)
    """

    n_outliers: float = N_OUTLIERS
    _: KW_ONLY
    C: float = 1.0
    fit_intercept: bool = True

    _BOUNDED = "a finite C"
    _SPARSE = "csr"
    _LABELS: ClassVar = {}

    def _settings(self) -> FitSettings:
        expected = "a positive number, 1e-300 or more; np.inf: no penalty"
        return self._settings_of(self._loss(2), l2=1 / check_range("C", self.C, 1e-300, np.inf, expected))

    def _adapt(self, data: AllRows) -> AllRows:
        labels = self.classes_ = data.profile.classes
        if data.classes is not None:
            self.classes_ = np.array(data.classes)[labels.astype(np.intp)]
        self._check_classes(data.profile.class_weights, data.settings.n_outliers)
        self._as_trained = partial(encoded, classes=self.classes_)
        data = data.with_settings(loss=self._loss(len(labels)))
        return data.converted(partial(encoded, classes=labels))

    def decision_function(self, X: Any) -> Array:
        """Compute the linear predictor: (n,) for two classes, positive for the second; else (n, k)."""
        scores = self._new_rows(X) @ self.coef_.T + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the class of each row: (n,)."""
        scores = self._scores(X)  # first, as it is here that a model without a fit is refused
        return self.classes_[scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class: (n, n_classes), in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithm of the probability of each class."""
        scores = self._scores(X)
        largest = np.finfo(scores.dtype).max / 4
        return log_softmax(np.clip(scores, -largest, largest), axis=1)

    def _scores(self, X: Any) -> Array:
        """Compute the linear predictor of each class: (n, n_classes)."""
        scores = self.decision_function(X)
        return np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores

    def _loss(self, n_classes: int) -> LogisticLoss | SoftmaxLoss:
        if n_classes == 2:
            return LogisticLoss(fit_intercept=self.fit_intercept)
        return SoftmaxLoss(n_classes, fit_intercept=self.fit_intercept)

    def _check_rows_left(self, data: AllRows) -> None:
        codes = data.points.y.astype(np.intp)
        weights = np.bincount(codes, data.points.weights, minlength=len(self.classes_))
        self._check_classes(weights, data.settings.n_outliers)

    def _check_classes(self, weights: Array, n_outliers: float) -> None:
        """Raise ValueError if there is only one class, none of a class, or n_outliers may be one of two."""
        self._class_weights = weights
        lightest, least = self.classes_.tolist()[np.argmin(weights)], weights.min()
        if len(weights) < 2:
            raise ValueError(
                f"two or more classes are needed; all rows of positive weight belong to one class, "
                f"{lightest!r}"
            )
        if not least:
            raise ValueError(
                f"no rows of the class {lightest!r} would be left; keep some, or fit again without that class"
            )
        if len(weights) == 2 and outlier_weight(n_outliers, weights.sum()) >= least:
            raise ValueError(
                f"n_outliers={n_outliers} could set aside the whole class {lightest!r}, of weight {least:g}; "
                "pass n_outliers below it"
            )

    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        parameters, n_columns = np.atleast_2d(self.solution_.theta), data.n_columns
        if len(parameters) > 1:  # adding the same to all classes changes nothing: centre them
            parameters = parameters - parameters.mean(axis=0)
        self.coef_ = parameters[:, :n_columns].copy()
        self.intercept_ = parameters[:, n_columns:].sum(axis=1)  # 0 where there is none
        weights = self._class_weights  # summed in another order than those of the outliers
        lost_weights = np.bincount(found.labels.astype(np.intp), found.weights, minlength=len(weights))
        lost = np.flatnonzero(lost_weights >= weights * (1 - 1e-12))
        if len(lost):
            warnings.warn(
                f"all rows of the class {self.classes_.tolist()[lost[0]]!r} were set aside as outliers; "
                f"pass n_outliers below its weight, {weights[lost[0]]:g}",
                stacklevel=6,
            )
