"""What the estimators share: their common parameters, checks of the data, and fitted attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from scipy import sparse as scipy_sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from duramen.arrays import Array, Rows, refuse_nonfinite
from duramen.dynamic import DynamicCoreset
from duramen.estimators.fitting import (
    AllRows,
    FitResult,
    FitSettings,
    MemoryData,
    as_dynamic,
    check_updatable,
    data_of,
    fit,
    joined,
    refit,
    remember,
    seed_of,
    undone_on_failure,
)
from duramen.estimators.out_of_core import IntakeSettings, OutOfCoreData, is_out_of_core
from duramen.losses.base import Loss
from duramen.solvers.solve import warn_of
from duramen.trimming import outlier_weight, trimmed_sum

_FLOATS = (np.float64, np.float32)


_Method = TypeVar("_Method", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="RobustEstimator")


def atomic(fit: _Method) -> _Method:
    """Make ``fit``, or another method, leave the estimator as it was, if it fails."""

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

    A subclass makes a settings of its parameters, and attributes of theta. What is
    fitted comes from :mod:`duramen.estimators.fitting` alone, which knows only
    coresets and solutions of them: a coreset that changes needs nothing else, but
    that its rows are kept (:mod:`duramen.estimators.fitting`).
    """

    _BOUNDED = "n_outliers=0"
    """What gives the objective a minimum, where it has none."""

    # parameters that a subclass has under these names; those it lacks are as in FitSettings
    _COMMON = ("n_outliers", "tol", "sampler", "n_rounds", "max_iter", "random_state")

    def _settings(self, loss: Loss, l2: float = 0.0) -> FitSettings:
        """Return the settings of a fit, with one seed for all that is random in it."""
        given = self.get_params(deep=False)
        common = {name: given[name] for name in self._COMMON}
        common["random_state"] = seed_of(common["random_state"])
        return FitSettings(loss, size=given["coreset_size"], l2=l2, n_starts=given["n_init"], **common)

    def _rows(self, X: Any, *, reset: bool, sparse: bool = False, **checks: Any) -> Any:
        """Check rows (and labels, given as y) as scikit-learn does; NaN and infinity in our own passes."""
        if reset and sparse and self._updatable and scipy_sparse.issparse(X):
            raise TypeError(
                "updatable=True keeps dense rows, and X is sparse; pass X.toarray(), or updatable=False"
            )
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if sparse else False,
            dtype=_FLOATS,
            ensure_all_finite=False,
            **checks,
        )

    def _collect(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        settings: FitSettings,
        needs: IntakeSettings,
        *,
        labelled: bool = False,
        **checks: Any,
    ) -> AllRows:
        """Return all rows to fit on: checked arrays, or a first pass over a scan or a Dask collection.

        The random state of the settings must be a seed.
        """
        if not is_out_of_core(X):
            if not labelled:
                return self._data(self._rows(X, reset=True, **checks), None, sample_weight)
            X, y = self._rows(X, y=y, reset=True, **checks)
            return self._data(X, y, sample_weight)
        for name, value in (
            ("updatable=True", self._updatable),
            ("coreset_size=None", settings.size is None),
        ):
            if value:
                raise TypeError(
                    f"{name} keeps all rows in memory, which a scan or a Dask collection is meant to avoid; "
                    "leave it out, or pass arrays"
                )
        data = OutOfCoreData.of(X, y, sample_weight, settings, labelled=labelled, needs=needs)
        for name in ("feature_names_in_", "labels_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        self.n_features_in_ = data.n_columns
        if data.feature_names is not None:
            self.feature_names_in_ = data.feature_names
        return data

    def _new_rows(self, X: Any, *, sparse: bool = False) -> Rows:
        """Check rows to predict."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False, sparse=sparse)
        refuse_nonfinite(rows)
        return rows

    @property
    def _updatable(self) -> Any:
        return self.get_params(deep=False)["updatable"]

    def _fit(self, settings: FitSettings, data: AllRows) -> None:
        """Fit, keep the rows if they may change, and set all attributes."""
        check_updatable(self._updatable, settings)
        fitted = fit(settings, data)
        for name in ("dynamic_", "absorbed_ids_", "_fitted_settings", "_n_seen"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if self._updatable:
            assert isinstance(data, MemoryData)
            self.dynamic_ = as_dynamic(settings, data, fitted)
            self._fitted_settings = settings
            self._n_seen = data.X.shape[0] if data.ids is None else data.n_given
        self._set(fitted, data, settings)

    def _set(self, fitted: FitResult, data: AllRows, settings: FitSettings) -> None:
        """Set the attributes that all estimators have, and those of this one; warn of what ended badly."""
        core = fitted.coreset
        if core is not None and hasattr(self, "feature_names_in_"):
            core = replace(core, columns=tuple(str(name) for name in self.feature_names_in_))
        self.coreset_ = core
        self.coreset_size_ = data.n_points if core is None else len(core)
        self.size_trials_ = fitted.trials
        self.solution_ = fitted.solution
        self.objective_ = fitted.objective
        self.trimmed_loss_ = fitted.at_solution.trimmed_loss
        self.outliers_ = data.ids_of(fitted.at_solution.outliers)
        self.threshold_ = fitted.at_solution.threshold
        self.n_iter_ = max(1, fitted.solution.n_iter)
        self._set_parameters(fitted, data)
        self._print_sizes(fitted, settings)
        warn_of(
            fitted.solution,
            type(self).__name__,
            more="raise max_iter, or scale the columns",
            bounded=f"pass {self._BOUNDED}, or take fewer outliers or columns",
            stacklevel=6,
        )

    @abstractmethod
    def _set_parameters(self, fitted: FitResult, data: AllRows) -> None:
        """Set the attributes of this estimator alone."""

    # rows that go and come

    @atomic
    def forget(self: _Self, ids: Any) -> _Self:
        """Let rows of the training data go, and fit again to those that are left.

        The coreset is then what it would be had these rows never been there, with
        the same anchor and seed. What else is fitted is as after ``fit``, with rows
        named by their ids; solving starts from the last solution, and once anew.

        Parameters
        ----------
        ids : int or array of int
            Which rows: their numbers in ``fit``, as in ``outliers_``, or what ``absorbed_ids_`` was after
            ``absorb``. With none, ``[]``, the model is fitted again to the rows that are there.

        Raises
        ------
        KeyError
            If a row is not here; nothing has changed.
        ValueError
            If the model kept no rows (``updatable=False``), or cannot do without these; nothing has changed.
        """
        live = self._live()
        gone = live.points(ids)
        there = live.ids
        data = data_of(live.points(there[~np.isin(there, gone.ids)]))
        self._check_rows_left(data)
        live.delete(gone.ids)
        with undone_on_failure(live, lambda: live.insert(gone.X, gone.y, gone.weights, gone.ids)):
            self._refit(live, data)
        return self

    @atomic
    def absorb(self: _Self, X: Any, y: Any = None, sample_weight: Any = None) -> _Self:
        """Take new rows in, and fit again to all that are there; ``absorbed_ids_`` are the ids of the new.

        What ``fit`` measured stays (the size and anchor of the coreset, the classes, scales), unless
        the coreset no longer does: then it is made anew.

        Parameters
        ----------
        X : array or data frame (n, d)
        y : array (n,)
            For those estimators that take labels.
        sample_weight : array (n,), optional
            Rows without weight get an id, but are not kept.

        Raises
        ------
        TypeError, ValueError
            As ``fit`` does, or if the model kept no rows (``updatable=False``), or y holds a class that it
            does not know; nothing has changed.
        """
        live = self._live()
        there = live.points()
        X, y = self._more_rows(X, y)
        ids = max(self._n_seen, int(there.ids.max()) + 1) + np.arange(X.shape[0])
        new = self._as_fitted(self._data(X, y, sample_weight), there.X.dtype)
        new = new._replace(ids=ids if new.ids is None else ids[new.ids])
        data = joined(there, new)
        self._check_rows_left(data)
        live.insert(new.X, new.y, new.weights, new.ids)
        with undone_on_failure(live, lambda: live.delete(new.ids)):
            self._refit(live, data, anew=len(there) <= live.size < len(live))
        self.absorbed_ids_ = ids
        self._n_seen = int(ids[-1]) + 1
        return self

    def _live(self) -> DynamicCoreset:
        """Give the rows that were kept; raise, with the way out, if none were."""
        check_is_fitted(self)
        if not hasattr(self, "dynamic_"):
            raise ValueError(
                f"this {type(self).__name__} was fitted with updatable=False, so it kept no rows that could "
                "go or come; set updatable=True and fit again"
            )
        return self.dynamic_

    def _refit(self, live: DynamicCoreset, data: MemoryData, *, anew: bool = False) -> None:
        """Fit to rows that have changed; make the coreset anew where it no longer does."""
        settings, fitted = self._fitted_settings, None
        if not anew:
            live.set_outliers(settings.n_outliers)
            core = None if settings.size is None else live.coreset()
            fitted = refit(settings, data, core, self.solution_.theta)
        if fitted is None:
            fitted = fit(settings, data)
            self.dynamic_ = as_dynamic(settings, data, fitted)
        remember(self.dynamic_, fitted)
        self._set(fitted, data, settings)

    def _more_rows(self, X: Any, y: Any) -> tuple[Array, Array | None]:
        """Check rows to absorb, as ``fit`` checks its own; labels are ignored where it ignores them."""
        return self._rows(X, reset=False), None

    def _as_fitted(self, new: MemoryData, dtype: Any) -> MemoryData:
        """Bring new rows into the form in which those of the fit were kept."""
        refuse_nonfinite(new.X)
        with np.errstate(over="ignore"):
            X = new.X.astype(dtype, copy=False)
        refuse_nonfinite(X, f"X as {dtype}")
        return new._replace(X=X)

    def _check_rows_left(self, data: MemoryData) -> None:
        """Raise ValueError if rows after a change would not do, before it is made."""
        if not data.X.shape[0]:
            raise ValueError("no rows would be left; keep some, or fit again on others")
        assert data.weights is not None
        outlier_weight(self._fitted_settings.n_outliers, float(data.weights.sum()))

    def _print_sizes(self, fitted: FitResult, settings: FitSettings) -> None:
        """Tell, where asked to, which size was picked and why."""
        if not self.get_params(deep=False)["verbose"]:
            return
        name = type(self).__name__
        for trial in fitted.trials:
            print(
                f"[{name}] coreset of {trial.size:,} rows: relative standard error "
                f"{trial.relative_error:.2%} (asked: below {settings.tol:.2%})"
            )
        picked = "picked" if settings.is_auto else "fitted on"
        print(f"[{name}] {self.coreset_size_:,} rows {picked}; {fitted.solution!r}")

    def _trimmed_score(self, losses: Array, sample_weight: Any) -> float:
        """Sum minus losses, after as large a share of the weight is set aside as in training."""
        weights = self._weights(sample_weight, losses)
        z = self.solution_.n_outliers / self.solution_.total_weight * float(weights.sum())
        return -trimmed_sum(losses, weights, z)

    @staticmethod
    def _weights(sample_weight: Any, X: Rows) -> Array:
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _data(self, X: Rows, y: Array | None, sample_weight: Any) -> MemoryData:
        """Put together what to fit on: rows without weight are as good as absent."""
        if sample_weight is None:
            return MemoryData(X, y)
        weights = self._weights(sample_weight, X)
        live = np.flatnonzero(weights)
        if len(live) == len(weights):
            return MemoryData(X, y, weights)
        if not len(live):
            raise ValueError("all of sample_weight is zero; pass some positive weights")
        return MemoryData(X[live], None if y is None else y[live], weights[live], live, len(weights))
