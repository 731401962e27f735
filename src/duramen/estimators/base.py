"""What the estimators share: their common parameters, checks of the data, and fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from duramen.estimators.fitting import Data, Fitted, Recipe, fit
from duramen.losses.base import Loss
from duramen.rows import Array, Rows, refuse_nonfinite
from duramen.solvers.solve import warn_of
from duramen.trimming import trimmed_sum

__all__ = ["RobustEstimator", "whole_or_not_at_all"]

_FLOATS = (np.float64, np.float32)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def whole_or_not_at_all(fit: _Method) -> _Method:
    """Make ``fit`` leave the estimator as it was, if it fails."""

    @wraps(fit)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        before = dict(self.__dict__)
        try:
            return fit(self, *arguments, **named)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return wrapped  # type: ignore[return-value]


class RobustEstimator(BaseEstimator):
    """An estimator that is fitted on a robust coreset.

    A subclass makes a recipe of its parameters, and attributes of theta. What is
    fitted comes from :mod:`duramen.estimators.fitting` alone, which knows only
    coresets and solutions of them: a coreset that changes needs nothing else.
    """

    _BOUNDED = "n_outliers=0"
    """What gives the objective a minimum, where it has none."""

    # parameters that a subclass has under these names; those it lacks are as in Recipe
    _COMMON = ("n_outliers", "tol", "sampler", "n_rounds", "max_iter", "random_state")

    def _recipe(self, loss: Loss, l2: float = 0.0) -> Recipe:
        given = self.get_params(deep=False)
        common = {name: given[name] for name in self._COMMON}
        return Recipe(loss, size=given["coreset_size"], l2=l2, n_starts=given["n_init"], **common)

    def _rows(self, X: Any, *, reset: bool, sparse: bool = False, **checks: Any) -> Any:
        """Check rows (and labels, given as y) as scikit-learn does; NaN and infinity in our own passes."""
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if sparse else False,
            dtype=_FLOATS,
            ensure_all_finite=False,
            **checks,
        )

    def _new_rows(self, X: Any, *, sparse: bool = False) -> Rows:
        """Check rows to predict."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False, sparse=sparse)
        refuse_nonfinite(rows)
        return rows

    def _fit(self, recipe: Recipe, data: Data) -> Fitted:
        """Fit, and set the attributes that all estimators have."""
        fitted = fit(recipe, data)
        core = fitted.coreset
        if core is not None and hasattr(self, "feature_names_in_"):
            core = replace(core, columns=tuple(str(name) for name in self.feature_names_in_))
        self.coreset_ = core
        self.coreset_size_ = data.X.shape[0] if core is None else len(core)
        self.size_trials_ = fitted.trials
        self.solution_ = fitted.solution
        self.objective_ = fitted.objective
        self.trimmed_loss_ = fitted.trimmed_loss
        self.outliers_ = fitted.outliers if data.ids is None else data.ids[fitted.outliers]
        self.threshold_ = fitted.threshold
        self.n_iter_ = max(1, fitted.solution.n_iter)
        self._say(fitted, recipe)
        warn_of(
            fitted.solution,
            type(self).__name__,
            more="raise max_iter, or scale the columns",
            bounded=f"pass {self._BOUNDED}, or take fewer outliers or columns",
            stacklevel=6,
        )
        return fitted

    def _say(self, fitted: Fitted, recipe: Recipe) -> None:
        """Tell, where asked to, which size was picked and why."""
        if not self.get_params(deep=False)["verbose"]:
            return
        name = type(self).__name__
        for trial in fitted.trials:
            print(
                f"[{name}] coreset of {trial.size:,} rows: relative standard error "
                f"{trial.relative_error:.2%} (asked: below {recipe.tol:.2%})"
            )
        picked = "picked" if recipe.is_auto else "fitted on"
        print(f"[{name}] {self.coreset_size_:,} rows {picked}; {fitted.solution!r}")

    def _trimmed_score(self, losses: Array, sample_weight: Any) -> float:
        """Sum minus losses, after as large a share of the weight is set aside as in training."""
        weights = self._weights(sample_weight, losses)
        z = self.solution_.n_outliers / self.solution_.total_weight * float(weights.sum())
        return -trimmed_sum(losses, weights, z)

    @staticmethod
    def _weights(sample_weight: Any, X: Rows) -> Array:
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _data(self, X: Rows, y: Array | None, sample_weight: Any) -> Data:
        """Put together what to fit on: rows without weight are as good as absent."""
        if sample_weight is None:
            return Data(X, y)
        weights = self._weights(sample_weight, X)
        live = np.flatnonzero(weights)
        if len(live) == len(weights):
            return Data(X, y, weights)
        if not len(live):
            raise ValueError("all of sample_weight is zero; pass some positive weights")
        return Data(X[live], None if y is None else y[live], weights[live], live)
