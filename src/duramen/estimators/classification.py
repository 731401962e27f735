"""Logistic regression with outliers, for two classes or more."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from duramen.arrays import Array
from duramen.estimators.base import RobustEstimator, atomic
from duramen.estimators.fitting import AllRows, FitResult, FitSettings, MemoryData, class_codes
from duramen.estimators.out_of_core import IntakeSettings
from duramen.losses import LogisticLoss, SoftmaxLoss
from duramen.samplers import Sampler
from duramen.solvers.problem import is_number
from duramen.trimming import outlier_weight

__all__ = ["RobustLogisticRegression"]


class RobustLogisticRegression(ClassifierMixin, RobustEstimator):
    """Logistic regression that sets the worst rows aside, fitted on a small coreset.

    What is minimised is scikit-learn's objective over the rows that are kept:
    the sum of their logistic losses (of more than two classes: multinomial),
    plus ``|coef|^2 / (2 C)``. The rows that cost most, ``n_outliers`` of them,
    are set aside; which they are is found along with the coefficients.

    Parameters
    ----------
    n_outliers : float
        How much to set aside: a count (1 or more), or a fraction (below 1) of
        all rows; by weight, where there are weights.
    coreset_size : int, "auto" or None
        How many weighted rows to fit on. "auto" takes 1,000, or 50 a parameter
        if those are more, and more again until the relative standard error of
        the objective is below ``tol``; ``coreset_size_`` is what it took. None
        fits on everything.
    C : float
        As in scikit-learn: the inverse of the penalty. ``np.inf`` is no penalty.
    fit_intercept : bool
    sampler : str or Sampler
        "auto", "leverage", "sensitivity", "layered", "uniform", or your own.
    n_init : int
        How often to start solving on the coreset; the best is kept.
    n_rounds : int
        How often to build the coreset, each time around the last solution. The
        second round undoes most of what a fit to few rows overdoes, for one more
        look at the data; 1 leaves it out.
    max_iter : int
        How many iterations solving may take.
    tol : float
        For ``coreset_size="auto"``.
    verbose : bool
        Whether to print which size was picked, and how solving went.
    updatable : bool
        Whether to keep the rows in a dynamic coreset (``dynamic_``), so that
        ``forget`` and ``absorb`` work; it copies the rows. Dense rows only.
    random_state : None, int, numpy Generator or RandomState

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : array (1, d), or (n_classes, d) for more than two classes
    intercept_ : array (1,) or (n_classes,)
    outliers_ : array of int
        The rows of the training data that the solution sets aside, the largest
        loss first. Of the last one a part may be kept. Rows that were absorbed
        are named by their ids.
    threshold_ : float
        The least loss among them.
    objective_ : Estimate
        f_z at the solution with its error bar, from the coreset alone. A fit
        is chosen to look good on its coreset: expect a little more on the data.
    trimmed_loss_ : float
        f_z at the solution over all training rows, exactly.
    coreset_ : Coreset or None
    coreset_size_ : int
        How many rows were fitted on.
    size_trials_ : list of (size, relative_error)
        What ``coreset_size="auto"`` tried.
    solution_ : Solution
    dynamic_ : DynamicCoreset
        With ``updatable=True``: the rows, in a coreset that follows them.
    absorbed_ids_ : array of int
        After ``absorb``: the ids of the rows that it took in.
    n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    duramen.robust_coreset, duramen.solve : what this is made of.

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

    def __init__(
        self,
        n_outliers: float = 0.02,
        *,
        coreset_size: int | str | None = "auto",
        C: float = 1.0,
        fit_intercept: bool = True,
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
        self.C = C
        self.fit_intercept = fit_intercept
        self.sampler = sampler
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.updatable = updatable
        self.random_state = random_state

    _BOUNDED = "a finite C"

    @atomic
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RobustLogisticRegression:
        """Fit the model.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d); or data beyond memory
            What :func:`duramen.scan` returns, or a Dask DataFrame or array. The
            model is that of all rows in memory.
        y : array (n,)
            Classes: integers, strings, booleans. Of a scan they are its label, and y
            stays out; of a Dask collection, a Dask array or Series of numbers.
        sample_weight : array (n,), optional
            A row of weight w counts as w rows. As y, of data beyond memory.

        Notes
        -----
        Data that does not fit in memory is read in ``2 + n_rounds`` passes, and in ``n_rounds``
        more for each further size that ``coreset_size="auto"`` tries (one more
        where a coreset missed a class; one over a column of a Dask DataFrame, to
        count rows). Memory holds the coreset, a sample of 20,000 rows, and a few
        numbers for each outlier; a ``tol`` that asks for more than half of the rows
        has the coreset be all of them. ``coreset_size=None`` and ``updatable=True``
        would hold all rows, and are refused.
        """
        settings = self._settings_for(2)
        data = self._collect(
            X, y, sample_weight, settings, IntakeSettings(classes=True), labelled=True, sparse=True
        )
        classes, data = data.with_class_codes()
        if isinstance(data, MemoryData):
            check_classification_targets(y)
        self.classes_ = classes
        self._check_classes(data, self.n_outliers)
        self._fit(replace(settings, loss=self._loss(len(classes))), data)
        return self

    def decision_function(self, X: Any) -> Array:
        """Compute the predictor of each row: (n,) for two classes, above zero for the second; else (n, k)."""
        rows = self._new_rows(X, sparse=True)
        scores = np.asarray(rows @ self.coef_.T + self.intercept_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the class of each row: (n,)."""
        scores = self.decision_function(X)
        which = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[which]

    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class: (n, n_classes), in the order of ``classes_``."""
        return np.asarray(softmax(_both_sides(self.decision_function(X)), axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithm of the probability of each class."""
        scores = _both_sides(self.decision_function(X))
        top = scores.max(axis=1, keepdims=True)
        return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))

    def losses(self, X: Any, y: Any) -> Array:
        """Compute the loss of each row: what is above ``threshold_`` costs as much as an outlier."""
        rows = self._new_rows(X, sparse=True)
        codes = self._codes(y)
        if codes.shape != (rows.shape[0],) or (codes < 0).any():
            raise ValueError(f"y must hold one of the classes {self.classes_.tolist()} a row")
        return self.solution_.loss.values(self.solution_.theta, rows, codes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.updatable
        return tags

    def _loss(self, n_classes: int) -> LogisticLoss | SoftmaxLoss:
        if n_classes == 2:
            return LogisticLoss(fit_intercept=self.fit_intercept)
        return SoftmaxLoss(n_classes, fit_intercept=self.fit_intercept)

    def _settings_for(self, n_classes: int) -> FitSettings:
        if not (is_number(self.C) and self.C > 0):
            raise ValueError(f"C={self.C!r} must be a positive number; np.inf is no penalty")
        if 1 / np.finfo(np.float64).max > self.C:
            raise ValueError(f"C={self.C!r} is too small: one over it is no number; take 1e-300 or more")
        return self._settings(self._loss(n_classes), l2=1 / float(self.C))

    def _check_classes(self, data: AllRows, n_outliers: float) -> None:
        """Refuse classes that cannot be told apart."""
        classes, heavy = self.classes_, data.class_weights(len(self.classes_))
        if len(classes) < 2:
            raise ValueError(
                f"two or more classes are needed; all rows of weight are of one class, {_shown(classes[0])}"
            )
        z = outlier_weight(n_outliers, float(heavy.sum()))
        if len(classes) == 2 and z >= heavy.min():
            raise ValueError(
                f"n_outliers={n_outliers} could set aside the whole class "
                f"{_shown(classes[np.argmin(heavy)])}, of weight {heavy.min():g}; take fewer outliers than "
                "the smaller class weighs"
            )

    def _codes(self, y: Any) -> Array:
        """Find the numbers of the classes of rows; -1 for those that are not known."""
        numbers = {name: number for number, name in enumerate(self.classes_.tolist())}
        seen, inverse = np.unique(np.asarray(y), return_inverse=True)
        return np.array([numbers.get(name, -1) for name in seen.tolist()], dtype=np.intp)[inverse]

    def _set_parameters(self, fitted: FitResult, data: AllRows) -> None:
        parameters, n_columns = np.atleast_2d(fitted.solution.theta), data.n_columns
        if len(parameters) > 1:  # adding the same to all classes changes nothing: one of all such answers
            parameters = parameters - parameters.mean(axis=0)
        self.coef_ = parameters[:, :n_columns].copy()
        with_intercept = parameters.shape[1] > n_columns
        self.intercept_ = parameters[:, n_columns].copy() if with_intercept else np.zeros(len(parameters))
        self._warn_of_lost_classes(fitted, data)

    def _more_rows(self, X: Any, y: Any) -> tuple[Array, Array | None]:
        return self._rows(X, y=y, reset=False)

    def _as_fitted(self, new: MemoryData, dtype: Any) -> MemoryData:
        names, which = class_codes(np.asarray(new.y))
        codes = self._codes(names)
        if (codes < 0).any():
            raise ValueError(
                f"y holds the class {_shown(names[np.argmin(codes)])}, and the model knows "
                f"{self.classes_.tolist()}; fit again to teach it another"
            )
        return super()._as_fitted(new, dtype)._replace(y=codes[which])

    def _check_rows_left(self, data: MemoryData) -> None:
        super()._check_rows_left(data)
        lost = np.flatnonzero(data.class_weights(len(self.classes_)) == 0)
        if len(lost):
            raise ValueError(
                f"no rows of the class {_shown(self.classes_[lost[0]])} would be left; keep some, or fit "
                "again without that class"
            )
        self._check_classes(data, self._fitted_settings.n_outliers)

    def _warn_of_lost_classes(self, fitted: FitResult, data: AllRows) -> None:
        if fitted.at_solution.outlier_labels is None:
            return
        heavy = data.class_weights(len(self.classes_))
        codes = fitted.at_solution.outlier_labels.astype(np.intp)
        gone = np.bincount(codes, fitted.at_solution.outlier_weights, minlength=len(heavy))
        lost = np.flatnonzero(gone >= heavy * (1 - 1e-12))  # however either was added up
        if len(lost):
            warnings.warn(
                f"all rows of the class {_shown(self.classes_[lost[0]])} were set aside as outliers; "
                f"take n_outliers below its weight, {heavy[lost[0]]:g}",
                stacklevel=7,
            )


def _shown(label: Any) -> str:
    return repr(label.item() if isinstance(label, np.generic) else label)


def _both_sides(scores: Array) -> Array:
    """Give a score for each class, all of them finite."""
    largest = np.finfo(scores.dtype).max / 4
    scores = np.clip(scores, -largest, largest)
    return np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores
