"""What the estimators share: their common parameters, checks of the data, and fitted attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from duramen.estimators.fitting import Data, Fitted, Recipe, fit
from duramen.losses.base import Loss
from duramen.rows import Array, Rows, refuse_nonfinite
from duramen.trimming import trimmed_sum

__all__ = ["RobustEstimator"]

_FLOATS = (np.float64, np.float32)


class RobustEstimator(BaseEstimator):
    """An estimator that is fitted on a robust coreset.

    A subclass says which loss its parameters mean (``_loss``), and turns theta
    into attributes (``_keep``). ``_solved`` alone sets what is fitted, from
    whatever coreset it is given: a fit that starts from a coreset which changes
    needs nothing else.
    """

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

    def _fit(self, recipe: Recipe, X: Rows, y: Array | None, sample_weight: Any) -> Fitted:
        """Fit, and set the attributes that all estimators have."""
        fitted = fit(recipe, self._data(X, y, sample_weight))
        core = fitted.coreset
        if core is not None and hasattr(self, "feature_names_in_"):
            core = replace(core, columns=tuple(str(name) for name in self.feature_names_in_))
        self.coreset_ = core
        self.coreset_size_ = X.shape[0] if core is None else len(core)
        self.size_trials_ = fitted.trials
        self.solution_ = fitted.solution
        self.objective_ = fitted.objective
        self.trimmed_loss_ = fitted.trimmed_loss
        self.outliers_ = fitted.outliers
        self.threshold_ = fitted.threshold
        self.n_iter_ = max(1, fitted.solution.n_iter)
        self._say(fitted, recipe)
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
        picked = "picked" if recipe.size == "auto" else "asked for"
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
        return Data(X, y, None if sample_weight is None else self._weights(sample_weight, X))
