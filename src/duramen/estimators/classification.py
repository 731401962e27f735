"""Logistic regression with outliers, for two classes or more."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from duramen.arrays import Array, Rows, is_number
from duramen.estimators.base import N_OUTLIERS, RobustEstimator, atomic
from duramen.estimators.fitting import AllRows, FitSettings, LossesAtSolution, codes_of, with_parts
from duramen.losses import LogisticLoss, SoftmaxLoss
from duramen.points import WeightedPoints
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
    n_outliers : float
        How much to set aside: a count (1 or more), or a fraction (below 1) of
        all rows; by weight, where there are weights.
    coreset_size : int, "auto" or None
        How many weighted rows to fit on. "auto" starts from 1,000, or 50 per
        parameter if that is more, and grows until the relative standard error of
        the objective is below ``tol``; ``coreset_size_`` is the result. None fits
        on all rows.
    C : float
        As in scikit-learn: the inverse of the penalty. ``np.inf`` means no penalty.
    fit_intercept : bool
    sampler : str or Sampler
        "auto", "leverage", "sensitivity", "layered", "uniform", or a custom sampler.
    n_init : int
        How many starts to solve from on the coreset; the best solution is kept.
    n_rounds : int
        How many times to build the coreset, each time around the last solution. The
        second round undoes most of the overfitting to few rows, at the cost of one
        more pass over the data.
    max_iter : int
        The maximum number of iterations of the solver.
    tol : float
        For ``coreset_size="auto"``.
    verbose : bool
        Whether to print the sizes tried and the solver's result.
    updatable : bool
        Whether to keep the rows in a dynamic coreset (``dynamic_``), so that
        ``forget`` and ``absorb`` work. It copies the rows, which must be dense.
    random_state : None, int, numpy Generator or RandomState

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : array (1, d), or (n_classes, d) for more than two classes
    intercept_ : array (1,) or (n_classes,)
    outliers_ : array of int
        The rows of the training data that the solution sets aside, the largest
        loss first. A part of the last one may be kept. Absorbed rows are named by
        their ids.
    threshold_ : float
        The smallest loss among them.
    objective_ : Estimate
        f_z at the solution with its error bar, from the coreset alone. The solution
        minimises the loss of the coreset: expect a little more on the data.
    trimmed_loss_ : float
        f_z at the solution over all training rows, exactly.
    coreset_ : Coreset or None
    coreset_size_ : int
        The number of rows that the model was fitted on.
    size_trials_ : list of (size, relative_error)
        The sizes that ``coreset_size="auto"`` tried.
    solution_ : Solution
    dynamic_ : DynamicCoreset
        With ``updatable=True``: the rows, in a coreset that follows them.
    absorbed_ids_ : array of int
        After ``absorb``: the ids of the new rows.
    n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn.

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
    _SPARSE = True
    _LABELS: ClassVar = {}

    @atomic
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RobustLogisticRegression:
        """Fit the model.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d); a scan or a Dask collection
            Data that does not fit in memory is the result of :func:`duramen.scan`, or
            a Dask DataFrame or array; the model is the same as with all rows in memory.
        y : array (n,)
            Classes: integers, strings, booleans. With a Dask collection, a Dask array or
            Series of numbers; with a scan, leave it out and pass ``label=`` to the scan.
        sample_weight : array (n,), optional
            A row of weight w counts as w rows. With a Dask collection, a Dask array or
            Series; with a scan, leave it out and pass ``weight=`` to the scan.

        Notes
        -----
        Data that does not fit in memory is read in ``2 + n_rounds`` passes, and in ``n_rounds``
        more for each further size that ``coreset_size="auto"`` tries (one more
        if a coreset missed a class; one over a column of a Dask DataFrame, to
        count rows). Memory holds the coreset, a sample of 20,000 rows, and a few
        numbers for each outlier; if ``tol`` needs more than half of the rows, the
        coreset is all of them. ``coreset_size=None`` and ``updatable=True`` would
        hold all rows, and are refused.
        """
        settings = self._settings_for(2)
        data = self._collect(X, y, sample_weight, settings)
        self.classes_, data = data.with_class_codes()
        self._check_classes(data, self.n_outliers)
        self._fit(replace(settings, loss=self._loss(len(self.classes_))), data)
        return self

    def decision_function(self, X: Any) -> Array:
        """Compute the linear predictor: (n,) for two classes, positive for the second; else (n, k)."""
        rows = self._new_rows(X)
        scores = np.asarray(rows @ self.coef_.T + self.intercept_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the class of each row: (n,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class: (n, n_classes), in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithm of the probability of each class."""
        scores = self.decision_function(X)
        scores = np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
        largest = np.finfo(scores.dtype).max / 4
        return np.asarray(log_softmax(np.clip(scores, -largest, largest), axis=1))

    def _as_trained(self, rows: Rows, y: Any) -> tuple[Rows, Any]:
        return rows, self._codes(y)

    def _codes(self, y: Any) -> Array:
        codes = codes_of(y, self.classes_)
        if (codes < 0).any():
            raise ValueError(
                f"y holds the class {np.asarray(y).tolist()[np.argmin(codes)]!r}, but the model knows "
                f"{self.classes_.tolist()}; call fit to learn other classes"
            )
        return codes

    def _loss(self, n_classes: int) -> LogisticLoss | SoftmaxLoss:
        if n_classes == 2:
            return LogisticLoss(fit_intercept=self.fit_intercept)
        return SoftmaxLoss(n_classes, fit_intercept=self.fit_intercept)

    def _settings_for(self, n_classes: int) -> FitSettings:
        if not (is_number(self.C) and self.C >= 1e-300):
            raise ValueError(f"C={self.C!r} must be a positive number, 1e-300 or more; np.inf: no penalty")
        return self._settings(self._loss(n_classes), l2=1 / float(self.C), classes=True)

    def _check_classes(self, data: AllRows, n_outliers: float) -> None:
        """Raise ValueError if there is only one class, none of a class, or n_outliers may be one of two."""
        weights = data.class_weights(len(self.classes_))
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
        if len(weights) == 2 and outlier_weight(n_outliers, float(weights.sum())) >= least:
            raise ValueError(
                f"n_outliers={n_outliers} could set aside the whole class {lightest!r}, of weight {least:g}; "
                "pass n_outliers below it"
            )

    def _set_parameters(self, found: LossesAtSolution, data: AllRows) -> None:
        parameters, n_columns = np.atleast_2d(self.solution_.theta), data.n_columns
        if len(parameters) > 1:  # adding the same to all classes changes nothing: centre them
            parameters = parameters - parameters.mean(axis=0)
        self.coef_ = parameters[:, :n_columns].copy()
        padded = np.column_stack([parameters, np.zeros(len(parameters))])  # where there is no intercept
        self.intercept_ = padded[:, n_columns].copy()
        self._warn_of_lost_classes(found, data)

    def _as_fitted(self, new: WeightedPoints, dtype: Any) -> WeightedPoints:
        return with_parts(super()._as_fitted(new, dtype), y=self._codes(new.y))

    def _check_rows_left(self, data: AllRows) -> None:
        self._check_classes(data, self._fitted_settings.n_outliers)

    def _warn_of_lost_classes(self, outliers: LossesAtSolution, data: AllRows) -> None:
        weights = data.class_weights(len(self.classes_))
        codes = outliers.outlier_labels.astype(np.intp)
        lost_weights = np.bincount(codes, outliers.outlier_weights, minlength=len(weights))
        lost = np.flatnonzero(lost_weights >= weights * (1 - 1e-12))  # the two are summed in different orders
        if len(lost):
            warnings.warn(
                f"all rows of the class {self.classes_.tolist()[lost[0]]!r} were set aside as outliers; "
                f"pass n_outliers below its weight, {weights[lost[0]]:g}",
                stacklevel=7,
            )
