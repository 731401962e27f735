"""Logistic regression with outliers, for two classes or more."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from duramen.arrays import ABOVE_ZERO, LARGEST, Array, check_flag, check_range
from duramen.coreset.view import ROWS_A_PARAMETER
from duramen.estimators.base import RobustEstimator
from duramen.estimators.contamination import Margins, held_out_margins
from duramen.estimators.fitting import (
    AllRows,
    FitResult,
    FitSettings,
    TrimmedPass,
    encoded,
    is_auto,
    weighed,
)
from duramen.losses import ContaminatedLoss, LinearLoss, LogisticLoss, SoftmaxLoss
from duramen.losses.base import ignore_overflow
from duramen.points import WeightedPoints, checked_total
from duramen.trimming import outlier_weight


def _check_class_weight(asked: Any) -> None:
    """Raise TypeError or ValueError unless this is None, "balanced", or positive numbers by label."""
    expected = "class_weight must be None, 'balanced', or a dict with a number for each label"
    if isinstance(asked, dict):
        for label, factor in asked.items():
            check_range(f"class_weight[{label!r}]", factor, ABOVE_ZERO, LARGEST, "a positive number")
    elif not (asked is None or (isinstance(asked, str) and asked == "balanced")):
        wrong = ValueError if isinstance(asked, str) else TypeError
        raise wrong(f"{expected}; found {asked!r}")


def _class_factors(asked: Any, classes: Array, weights: Array) -> Array:
    """Compute by what the weight of each class is multiplied, in the order of ``classes``."""
    if asked is None:
        return np.ones(len(classes))
    if isinstance(asked, str):
        return weights.sum() / (len(classes) * weights)
    unknown = [label for label in asked if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"class_weight has the label {unknown[0]!r}, but the classes are {classes.tolist()}; leave it out"
        )
    return np.array([asked.get(label, 1.0) for label in classes.tolist()], dtype=np.float64)


@dataclass(eq=False, repr=False)
class RobustLogisticRegression(ClassifierMixin, RobustEstimator):
    """Logistic regression that learns how many labels are wrong, and where; or sets the worst rows aside.

    By default (``n_outliers="auto"``) it learns, along with the coefficients, which share of the rows has
    labels that no linear model explains, for each class and growing with the distance from the middle of the
    data (:class:`ContaminatedLoss`). Such rows hardly count, and probabilities allow for them. Nothing has
    to be known about the outliers.

    With a count or a fraction as ``n_outliers``, it minimises scikit-learn's objective over the rows that are
    kept, the paper's f_z: the sum of their logistic losses (multinomial for more than two classes), plus
    ``|coef|^2 / (2 C)``. That is a guarantee against an adversary who places at most so many rows, and a hard
    cut. It costs: rows near the boundary are cut too, which makes probabilities overconfident
    (``recalibrate=True`` mends that), and a rare class may be cut as a whole.

    The loss is multinomial for more than two classes, and fitted on a small coreset in any case.

    Parameters
    ----------
    {parameters}
    C : float
        As in scikit-learn: the inverse of the penalty. ``np.inf`` means no penalty.
    fit_intercept : bool
    class_weight : None, "balanced" or dict
        As in scikit-learn: by what the weights of the rows of each class are multiplied,
        by label, 1 where there is no entry; "balanced" gives all classes the same weight
        in total, and keeps the sum. ``n_outliers`` is about the products. Absorbed
        rows get the factors that ``fit`` found.
    recalibrate : bool
        With a count or a fraction: whether to learn a slope for all coefficients, a
        shift and the shares of noise, so that probabilities are honest.

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : array (1, d), or (n_classes, d) for more than two classes
    intercept_ : array (1,) or (n_classes,)
    contamination_ : Contamination
        The share of rows whose labels the model cannot explain, with error bars, near
        the middle, far out, and for each class. They need not be wrong: see
        :doc:`choosing`. Not with a count or a fraction, unless recalibrated.
    slope_ : float
        What the fitted coefficients were multiplied by, as held-out rows say: below 1 if
        there were fewer than 50 rows per parameter, or with ``recalibrate``.
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
    >>> model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    >>> model.coef_.round(1) + 0.0, model.predict([[1.0, 0.0, 0.0]])
    (array([[2., 0., 0.]]), array(['yes'], dtype='<U3'))
    >>> round(model.contamination_.far.value, 2), model.contamination_.high < 0.04
    (0.08, True)
    >>> bool((model.outlier_probability(X, y)[:2000] > 0.99).all())
    True
    """

    n_outliers: Any = "auto"
    _: KW_ONLY
    C: float = 1.0
    fit_intercept: bool = True
    class_weight: Any = None
    recalibrate: bool = False

    _BOUNDED = "a finite C"
    _SPARSE = "csr"
    _LABELS: ClassVar = {}

    def _settings(self) -> FitSettings:
        _check_class_weight(self.class_weight)
        check_flag("recalibrate", self.recalibrate)
        expected = "a positive number, 1e-300 or more; np.inf: no penalty"
        return self._settings_of(self._loss(2), l2=1 / check_range("C", self.C, 1e-300, np.inf, expected))

    def _adapt(self, data: AllRows) -> AllRows:
        labels = self.classes_ = data.profile.classes
        if data.classes is not None:
            self.classes_ = np.array(data.classes)[labels.astype(np.intp)]
        weights = data.profile.class_weights
        self._factors = _class_factors(self.class_weight, self.classes_, weights)
        with ignore_overflow():
            weights = weights * self._factors
        checked_total(weights)
        self._check_classes(weights, data.settings.n_outliers)
        self._learns = is_auto(self.n_outliers) or self.recalibrate
        self._as_trained = partial(encoded, classes=self.classes_)
        data = data.with_settings(loss=self._loss(len(labels)))
        data = data.converted(partial(encoded, classes=labels))
        return data if self.class_weight is None else data.weighed(self._factors)

    def _weighed(self, points: WeightedPoints) -> WeightedPoints:
        return weighed(points, self._factors)

    def decision_function(self, X: Any) -> Array:
        """Compute the log odds of the second of two classes: (n,); else a score of each class, (n, k).

        With a count or a fraction as ``n_outliers``, scores are the linear predictors.
        """
        rows = self._new_rows(X)
        if self._mixture is not None:
            scores = self._mixture.loss.log_probabilities(self._mixture.theta, rows)
            return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores
        scores = rows @ self.coef_.T + self.intercept_
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

    def outlier_probability(self, X: Any, y: Any) -> Array:
        """Compute the probability that the model does not explain the label of a row: (n,).

        It is that of a label from the noise rather than from the model, by Bayes' rule. Such a label
        need not be wrong: see ``contamination_``.
        """
        rows = self._new_rows(X)
        if self._mixture is None:
            raise ValueError(
                f"a model with n_outliers={self.n_outliers!r} has no probabilities of outliers; use "
                'n_outliers="auto", or recalibrate=True'
            )
        return self._mixture.loss.blame(self._mixture.theta, *self._as_trained(rows, y))

    def _scores(self, X: Any) -> Array:
        """Compute a score of each class, with probabilities as its softmax: (n, n_classes)."""
        scores = self.decision_function(X)
        return np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores

    def _loss(self, n_classes: int) -> LinearLoss:
        make: Any = LogisticLoss if n_classes == 2 else partial(SoftmaxLoss, n_classes)
        base: LinearLoss = make(fit_intercept=self.fit_intercept)
        return ContaminatedLoss(base) if is_auto(self.n_outliers) else base

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

    def _mended(self, fitted: FitResult, data: AllRows) -> FitResult:
        """Take the shares of noise from the solution, or learn them where its margins are too large."""
        solution, core = fitted.solution, fitted.coreset
        points = data.points if core is None else core.points
        loss: Any = solution.loss
        base, learned, d = loss.base or loss, loss.base is not None, points.n_columns
        self.slope_ = 1.0
        self._mixture, self._margins = None, None  # type: Any, Any
        if self._learns:
            few = len(points) < ROWS_A_PARAMETER * base.ridge(0.0, d).size
            held_out = held_out_margins(solution, points, data.settings.l2) if few else None
            if not learned:
                loss = ContaminatedLoss(base).measure(points)
                solution = replace(solution, loss=loss, theta=loss.join(solution.theta))
            margins = Margins.of(solution, points, core)
            found = margins.unchanged(solution.theta, d)
            if few or not learned:
                margins = margins if held_out is None else margins._replace(margins=held_out)
                found = margins.learn(found)
                solution = replace(solution, theta=margins.changed(found, solution.theta, d))
            self.slope_, self._mixture, self._margins = float(found[0]), solution, (margins, found)
        return fitted._replace(solution=solution) if learned else fitted

    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        n_columns, theta = data.n_columns, self.solution_.theta
        if self._mixture is not None:
            theta = self._mixture.loss.split(self._mixture.theta, n_columns)[0]
            noise = (found if self._mixture is self.solution_ else data.evaluate(self._mixture)).noise
            (margins, learned), self._margins = self._margins, None
            self.contamination_ = margins.contamination(learned, noise, self.classes_.tolist())
        parameters = np.atleast_2d(theta)
        if len(parameters) > 1:  # adding the same to all classes changes nothing: centre them
            parameters = parameters - parameters.mean(axis=0)
        self.coef_ = parameters[:, :n_columns].copy()
        self.intercept_ = parameters[:, n_columns:].sum(axis=1)  # 0 where there is none
        weights = self._class_weights  # summed in another order than those of the outliers
        lost_weights = np.bincount(found.labels.astype(np.intp), found.weights, minlength=len(weights))
        worst = np.argmax(lost_weights / weights)
        if lost_weights[worst] > weights[worst] / 2:
            most = (
                f"{lost_weights[worst]:,.6g} of the {weights[worst]:,.6g} rows (by weight) of the class "
                f"{self.classes_.tolist()[worst]!r}"
            )
            warnings.warn(
                f"the model hardly explains the labels of {most}, which are in outliers_; they need not be "
                'wrong: try class_weight="balanced", or columns that tell this class from others'
                if self._mixture is self.solution_
                else f"n_outliers={data.settings.n_outliers} set aside {most}: the model hardly knows this "
                'class; use n_outliers="auto", fewer outliers, or class_weight="balanced"',
                stacklevel=6,
            )
