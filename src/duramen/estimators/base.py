"""The base class of the estimators: common parameters, validation, fitted attributes, forget and absorb."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from duramen.arrays import Array, Rows, as_rows, refuse_nonfinite
from duramen.coreset.coreset import Estimate
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.estimators.fitting import (
    AllRows,
    FitResult,
    FitSettings,
    LossesAtSolution,
    Needs,
    fit,
    is_out_of_core,
    refit,
    seed_of,
    with_parts,
)
from duramen.losses.base import Loss
from duramen.points import WeightedPoints, checked_weights
from duramen.samplers.base import Sampler
from duramen.solvers.solve import warn_of
from duramen.trimming import outlier_weight, trimmed_sum

N_OUTLIERS = 0.02
"""The default of ``n_outliers``; those of the other common parameters are in :class:`RobustEstimator`."""

_FLOATS = (np.float64, np.float32)

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="RobustEstimator")


def atomic(fit: _Method) -> _Method:
    """Make a method such as ``fit`` leave the estimator unchanged if it fails."""

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


@dataclass(eq=False, repr=False)
class RobustEstimator(BaseEstimator):
    """An estimator that is fitted on a robust coreset.

    A subclass is a dataclass whose fields are its parameters, besides those here. It
    turns them into :class:`FitSettings`, and theta into attributes; the fit itself is in
    :mod:`duramen.estimators.fitting`.
    """

    n_outliers = N_OUTLIERS  # a field of each subclass, since its position in the signature differs
    _: KW_ONLY
    coreset_size: int | str | None = "auto"
    sampler: Sampler | str = "auto"
    n_init: int = 1
    n_rounds: int = 2
    max_iter: int = 300
    tol: float = 0.01
    verbose: bool = False
    updatable: bool = False
    random_state: Any = None

    _BOUNDED = "n_outliers=0"  # the parameter that gives the objective a minimum where it has none
    _SPARSE = False  # whether rows may be sparse
    _LABELS: ClassVar[dict[str, Any] | None] = None  # how to validate labels; None if they are ignored

    def _settings(
        self, loss: Loss, l2: float = 0.0, *, classes: bool = False, distinct: int = 0
    ) -> FitSettings:
        return FitSettings(
            loss,
            n_outliers=self.n_outliers,
            size=self.coreset_size,
            tol=self.tol,
            sampler=self.sampler,
            l2=l2,
            n_starts=self.n_init,
            n_rounds=self.n_rounds,
            max_iter=self.max_iter,
            seed=seed_of(self.random_state),
            needs=Needs(self._LABELS is not None, self._SPARSE, classes, distinct),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._SPARSE and not self.updatable
        return tags

    def _rows(self, X: Any, *, reset: bool, **checks: Any) -> Any:
        """Check rows (and labels, passed as y) as scikit-learn does, except for NaN and infinity."""
        accepted = "csr" if self._SPARSE else False
        checks |= {"accept_sparse": accepted, "dtype": _FLOATS, "ensure_all_finite": False}
        return validate_data(self, X, reset=reset, **checks)

    def _training_rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Rows, Array | None]:
        """Check rows and labels to fit or to absorb; labels that the estimator ignores become None."""
        if self._SPARSE and self.updatable and issparse(X):
            raise TypeError(
                "updatable=True needs dense rows, but X is sparse; pass X.toarray(), or updatable=False"
            )
        if self._LABELS is None:
            return self._rows(X, reset=reset), None
        return self._rows(X, reset=reset, y=y, **self._LABELS)

    def _collect(self, X: Any, y: Any, sample_weight: Any, settings: FitSettings) -> AllRows:
        """Profile all rows to fit on: checked arrays, a scan or a Dask collection."""
        self._check_updatable(settings)
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit
        if not is_out_of_core(X):
            rows, labels = self._training_rows(X, y, reset=True)
            return AllRows.in_memory(self._points(rows, labels, sample_weight), settings.needs, rows.shape[0])
        if self.updatable or settings.size is None:
            raise TypeError(
                "updatable=True and coreset_size=None keep all rows in memory, but X is a scan or a Dask "
                "collection; leave them out, or pass arrays"
            )
        data = AllRows.out_of_core(X, y, sample_weight, settings)
        self.n_features_in_ = data.n_columns
        if data.feature_names is not None:
            self.feature_names_in_ = data.feature_names
        return data

    def _new_rows(self, X: Any) -> Rows:
        """Check rows to predict."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        refuse_nonfinite(rows)
        return rows

    def _fit(self, settings: FitSettings, data: AllRows) -> None:
        """Fit, keep the rows if ``updatable``, and set all attributes."""
        fitted = fit(settings, data)
        if self.updatable:
            self.dynamic_ = _as_dynamic(settings, data, fitted)
            self._fitted_settings = settings
            self._n_seen = data.n_rows
        self._set(fitted, data, settings)

    def _set(self, fitted: FitResult, data: AllRows, settings: FitSettings) -> None:
        """Set the common attributes and those of this estimator; warn if solving did not converge."""
        core = fitted.coreset
        if core is not None and hasattr(self, "feature_names_in_"):
            core = replace(core, columns=tuple(str(name) for name in self.feature_names_in_))
        self.coreset_ = core
        self.coreset_size_ = data.n_points if core is None else len(core)
        self.size_trials_ = fitted.trials
        self.solution_ = fitted.solution
        found = data.evaluate(settings, fitted.solution.theta)
        self.trimmed_loss_ = found.trimmed_loss
        self.outliers_ = found.outliers
        self.threshold_ = found.threshold
        exactly = Estimate.of(found.trimmed_loss, 0.0)
        self.objective_ = exactly if core is None else core.estimate(fitted.solution.theta)
        self.n_iter_ = max(1, fitted.solution.n_iter)
        self._set_parameters(found, data)
        self._print_sizes(fitted, settings)
        warn_of(
            fitted.solution,
            type(self).__name__,
            more="raise max_iter, or scale the columns",
            bounded=f"pass {self._BOUNDED}, or use fewer outliers or columns",
            stacklevel=6,
        )

    @abstractmethod
    def _set_parameters(self, found: LossesAtSolution, data: AllRows) -> None:
        """Set the attributes specific to this estimator, from ``solution_`` and the losses of all rows."""

    @atomic
    def forget(self: _Self, ids: Any) -> _Self:
        """Remove rows from the training data, and fit again to the rest.

        The coreset is then as if these rows had never been there, with the
        same anchor and seed. The other attributes are as after ``fit``, with rows
        named by their ids; solving starts from the last solution, and once from scratch.

        Parameters
        ----------
        ids : int or array of int
            Which rows: their numbers in ``fit``, as in ``outliers_``, or their ``absorbed_ids_`` after
            ``absorb``. With ``[]``, the model is fitted again to the same rows.

        Raises
        ------
        KeyError
            If there is no such row; the model does not change.
        ValueError
            If the model kept no rows (``updatable=False``), or needs these rows; the model does not change.
        """
        live = self._live()
        gone = live.points(ids)
        data = self._profile(live.points(live.ids[~np.isin(live.ids, gone.ids)]))
        live.delete(gone.ids)
        self._refit(live, data, undo=lambda: live.insert(gone.X, gone.y, gone.weights, gone.ids))
        return self

    @atomic
    def absorb(self: _Self, X: Any, y: Any = None, sample_weight: Any = None) -> _Self:
        """Add new rows, and fit again to all rows; ``absorbed_ids_`` are the ids of the new ones.

        The size and anchor of the coreset, the classes and scales stay as ``fit`` found them. A coreset
        that no longer suffices is built again.

        Parameters
        ----------
        X : array or data frame (n, d)
        y : array (n,)
            For estimators that take labels.
        sample_weight : array (n,), optional
            Rows of weight zero get an id, but are not kept.

        Raises
        ------
        TypeError, ValueError
            As ``fit`` does, or if the model kept no rows (``updatable=False``), or y holds an unknown
            class; the model does not change.
        """
        live = self._live()
        before = live.points()
        X, y = self._training_rows(X, y, reset=False)
        ids = max(self._n_seen, int(before.ids.max()) + 1) + np.arange(X.shape[0])
        new = self._as_fitted(self._points(X, y, sample_weight, ids), before.X.dtype)
        data = self._profile(WeightedPoints.concat([before, new]))
        live.insert(new.X, new.y, new.weights, new.ids)
        rebuild = len(before) <= live.size < len(live)
        self._refit(live, data, undo=lambda: live.delete(new.ids), rebuild=rebuild)
        self.absorbed_ids_ = ids
        self._n_seen = int(ids[-1]) + 1
        return self

    def _profile(self, points: WeightedPoints) -> AllRows:
        """Profile the rows that a change would leave; raise ValueError if no model can be fitted to them."""
        if not len(points):
            raise ValueError("no rows would be left; keep some, or fit again on others")
        outlier_weight(self._fitted_settings.n_outliers, points.total_weight)
        data = AllRows.in_memory(points, self._fitted_settings.needs, len(points))
        self._check_rows_left(data)
        return data

    def _check_rows_left(self, data: AllRows) -> None:
        """Raise ValueError if the model cannot be fitted to the rows that a change would leave."""

    def _live(self) -> DynamicCoreset:
        """Return the rows that ``fit`` kept; raise ValueError if it kept none."""
        check_is_fitted(self)
        if not hasattr(self, "dynamic_"):
            raise ValueError(
                f"this {type(self).__name__} was fitted with updatable=False, so it kept no rows; set "
                "updatable=True and fit again"
            )
        return self.dynamic_

    def _refit(
        self, live: DynamicCoreset, data: AllRows, undo: Callable[[], Any], *, rebuild: bool = False
    ) -> None:
        """Fit to rows that have changed, on a new coreset if the old one no longer suffices.

        If that fails, ``undo`` the change; only the anchor's report then counts rows put back as new.
        """
        settings, solution, fitted = self._fitted_settings, live.solution, None
        try:
            if not rebuild:
                live.set_outliers(settings.n_outliers)
                core = None if settings.size is None else live.coreset()
                fitted = refit(settings, data, core, self.solution_.theta)
            if fitted is None:
                fitted = fit(settings, data)
                self.dynamic_ = _as_dynamic(settings, data, fitted)
            self.dynamic_._solution = fitted.solution
            self._set(fitted, data, settings)
        except BaseException:
            undo()
            live._solution = solution
            raise

    def _as_fitted(self, new: WeightedPoints, dtype: Any) -> WeightedPoints:
        """Convert new rows to the form in which ``fit`` kept its rows."""
        with np.errstate(over="ignore"):
            X = new.X.astype(dtype, copy=False)
        refuse_nonfinite(X, f"X as {dtype}")
        return with_parts(new, X=X)

    def _check_updatable(self, settings: FitSettings) -> None:
        """Raise TypeError if rows cannot be kept for later changes.

        The coreset of a sampler that does not score points one by one depends on how points arrived:
        forgetting some of them would leave a trace.
        """
        if not isinstance(self.updatable, (bool, np.bool_)):
            raise TypeError(f"updatable={self.updatable!r} must be True or False")
        if self.updatable and DynamicCoreset(**settings.coreset_arguments(2, None)).engine == "tree":
            raise TypeError(
                f"updatable=True needs a sampler that scores points one by one, but {self.sampler!r} does "
                "not; use a built-in sampler or a RankedSampler, or pass updatable=False"
            )

    def _print_sizes(self, fitted: FitResult, settings: FitSettings) -> None:
        """Print, with ``verbose``, which size was chosen and why."""
        if not self.verbose:
            return
        name = type(self).__name__
        for trial in fitted.trials:
            print(
                f"[{name}] coreset of {trial.size:,} rows: relative standard error "
                f"{trial.relative_error:.2%} (target: below {settings.tol:.2%})"
            )
        print(f"[{name}] fitted on {self.coreset_size_:,} rows; {fitted.solution!r}")

    def losses(self, X: Any, y: Any = None) -> Array:
        """Compute the loss of each row; above ``threshold_`` it is as large as that of an outlier."""
        rows = self._new_rows(X)
        return self.solution_.loss.values(self.solution_.theta, *self._as_trained(rows, y))

    def _as_trained(self, rows: Rows, y: Any) -> tuple[Rows, Any]:
        """Convert rows and labels to what the loss takes."""
        return rows, y

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute minus the loss of the rows, with the same share of the weight set aside as in training."""
        losses = self.losses(X, y)
        weights = _weights(sample_weight, losses)
        z = self.solution_.n_outliers / self.solution_.total_weight * float(weights.sum())
        return -trimmed_sum(losses, weights, z)

    @staticmethod
    def _points(X: Rows, y: Array | None, sample_weight: Any, ids: Array | None = None) -> WeightedPoints:
        """Combine rows, labels and weights; drop rows of weight zero."""
        n = X.shape[0]
        weights = np.ones(n) if sample_weight is None else _weights(sample_weight, X)
        ids = np.arange(n) if ids is None else ids
        points = WeightedPoints._from_parts(
            as_rows(X, check_values=False), y, checked_weights(weights, n), ids
        )
        if not weights.any():
            raise ValueError("all of sample_weight is zero; pass some positive weights")
        return points if weights.all() else points.take(weights > 0)


def _weights(sample_weight: Any, X: Rows) -> Array:
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def _as_dynamic(settings: FitSettings, data: AllRows, fitted: FitResult) -> DynamicCoreset:
    """Put the rows of a fit into a dynamic coreset that returns the coreset of the fit."""
    core, points = fitted.coreset, data.points
    assert points is not None
    live = DynamicCoreset(
        # without an anchor it is all points
        **settings.coreset_arguments(fitted.size or sys.maxsize, None if core is None else core.anchor)
    )
    live.insert(points.X, points.y, points.weights, points.ids)
    if core is not None:
        live.reanchor(core.anchor)  # so that its report does not count these rows as newer than the anchor
    live._solution = fitted.solution  # no warning if it is far from the anchor
    return live
