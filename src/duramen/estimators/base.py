"""The base class of the estimators: common parameters and attributes, fit, forget and absorb."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from duramen.arrays import Array, Rows, as_rows, check_flag, refuse_nonfinite
from duramen.coreset.coreset import Estimate
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.estimators.fitting import (
    AllRows,
    FitResult,
    FitSettings,
    TrimmedPass,
    fit,
    is_out_of_core,
    refit,
    seed_of,
)
from duramen.losses.base import Loss
from duramen.points import WeightedPoints, checked_total
from duramen.samplers.base import RankedSampler, Sampler
from duramen.solvers.solve import warn_of
from duramen.trimming import trimmed_sum

N_OUTLIERS = 0.02
"""The default of ``n_outliers``; those of the other common parameters are in :class:`RobustEstimator`."""

_PARAMETERS = """n_outliers : float, or "auto" where that is the default
        How much to set aside: a count (1 or more), or a fraction (below 1) of
        all rows; by weight, where there are weights. "auto" sets nothing aside, but
        learns how much does not follow the model.
    coreset_size : int, "auto" or None
        How many weighted rows to fit on. "auto" starts from 1,000 (4,000 if the
        contamination is learned), or 50 per parameter if that is more, and grows
        until the relative standard error of the objective is below ``tol``;
        ``coreset_size_`` is the result. None fits on all rows.
    sampler : str or Sampler
        "auto", "leverage", "sensitivity", "layered", "uniform", or a custom sampler.
    n_init : int
        How many starts to solve from on the coreset; the best solution is kept. They
        cost little there, and the centres of a clustering depend strongly on them. Where
        the contamination is learned, the starts are always the same three.
    n_rounds : int
        How many times to build the coreset, each time around the last solution. The
        second round undoes most of the overfitting to few rows, at the cost of one
        more pass over the data. A coreset of fewer than 50 rows per parameter can be
        worse after it: then the round of the least loss over all rows is kept.
    max_iter : int
        The maximum number of iterations of the solver.
    tol : float
        For ``coreset_size="auto"``.
    verbose : bool
        Whether to print the sizes tried and the solver's result.
    updatable : bool
        Whether to keep the rows in a dynamic coreset (``dynamic_``), so that
        ``forget`` and ``absorb`` work. It copies the rows, which must be dense.
    random_state : None, int, numpy Generator or RandomState"""

_ATTRIBUTES = """outliers_ : array of int
        The rows of the training data that the solution sets aside, the largest
        loss first. A part of the last one may be kept. With ``n_outliers="auto"``,
        those that are outliers with a probability above one half, the most probable
        first. Absorbed rows are named by their ids.
    threshold_ : float
        The smallest loss that is set aside; infinite if nothing is.
    objective_ : Estimate
        f_z at the solution with its error bar, from the coreset alone. The solution
        minimises the loss of the coreset: expect a little more on the data.
    trimmed_loss_ : float
        f_z at the solution over all training rows, exactly.
    coreset_ : Coreset or None
    coreset_size_ : int
        The number of rows that the model was fitted on. "auto" takes them all if there
        are no more than it starts from, or ``tol`` needs more than half: then it is
        ``coreset_.n_points``, and ``coreset_`` says "all ... points, none left out".
    size_trials_ : list of (size, relative_error)
        The sizes that ``coreset_size="auto"`` tried, and what each error was; the last
        is the one that was taken.
    solution_ : Solution
    dynamic_ : DynamicCoreset
        With ``updatable=True``: the rows, in a coreset that follows them.
    absorbed_ids_ : array of int
        After ``absorb``: the ids of the new rows.
    n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn."""

_FLOATS = (np.float64, np.float32)

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="RobustEstimator")


def atomic(change: _Method) -> _Method:
    """Make a method such as ``fit`` leave the estimator unchanged if it fails."""

    @wraps(change)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        changed = copy(self)
        change(changed, *arguments, **named)
        self.__dict__ = changed.__dict__
        return self

    return wrapped  # type: ignore[return-value]


def _unchanged(X: Rows, y: Any) -> tuple[Rows, Any]:
    return X, y


@dataclass(eq=False, repr=False)
class RobustEstimator(BaseEstimator):
    """An estimator that is fitted on a robust coreset.

    A subclass is a dataclass whose fields are its parameters, besides those here. It turns them into
    :class:`FitSettings`, adapts these to the data, and turns theta into attributes; the fit itself is in
    :mod:`duramen.estimators.fitting`. In its docstring, ``{parameters}`` and ``{attributes}`` stand for the
    common ones.
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
    _SPARSE: ClassVar[str | bool] = False  # the form of sparse rows, if they may be so
    _LABELS: ClassVar[dict[str, Any] | None] = None  # how to validate labels; None if they are ignored
    _as_trained = staticmethod(_unchanged)  # how to convert rows and labels to what the loss takes

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        described = (cls.__doc__ or "").replace("{parameters}", _PARAMETERS)
        cls.__doc__ = described.replace("{attributes}", _ATTRIBUTES)

    @atomic
    def fit(self: _Self, X: Any, y: Any = None, sample_weight: Any = None) -> _Self:
        """Fit the model.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d); a scan or a Dask collection
            Only linear models take sparse rows. Data that does not fit in memory is the result of
            :func:`duramen.scan`, or a Dask DataFrame or array; the model is the same as with all rows
            in memory, but a clustering has no ``labels_``: call ``predict`` on batches.
        y : array (n,)
            Numbers, or classes: integers, strings, booleans; clusterings and :class:`TruthDiscovery` ignore
            it. With a Dask collection, a Dask array or Series of numbers; with a scan, leave it out and
            pass ``label=`` to the scan.
        sample_weight : array (n,), optional
            A row of weight w counts as w rows. With a Dask collection, a Dask array or
            Series; with a scan, leave it out and pass ``weight=`` to the scan.

        Notes
        -----
        Data that does not fit in memory is read in ``2 + n_rounds`` passes, and in ``n_rounds``
        more for each further size that ``coreset_size="auto"`` tries (one more if a coreset missed
        a class, with ``class_weight``, or if ``delta="auto"``; ``n_rounds`` with fewer than 50 rows per
        parameter; one over a column of a Dask DataFrame, to count rows). Memory holds the coreset, a
        sample of 20,000 rows, and a few numbers for each outlier; if ``tol`` needs more than half of
        the rows, the coreset is all of them. ``coreset_size=None`` and ``updatable=True`` would
        hold all rows, and are refused.
        """
        self._fit(self._adapt(self._collect(X, y, sample_weight)))
        return self

    @abstractmethod
    def _settings(self) -> FitSettings:
        """Check the parameters, and return the settings of a fit."""

    def _adapt(self, data: AllRows) -> AllRows:
        """Choose what depends on the data, such as a scale; raise ValueError if it cannot be fitted to."""
        return data

    def _weighed(self, points: WeightedPoints) -> WeightedPoints:
        """Weigh absorbed rows as those of the fit."""
        return points

    def _mended(self, fitted: FitResult, data: AllRows) -> FitResult:
        """Return a fit with what should be changed after solving."""
        return fitted

    @abstractmethod
    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        """Set the attributes specific to this estimator, from ``solution_`` and the losses of all rows."""

    def _settings_of(self, loss: Loss, l2: float = 0.0) -> FitSettings:
        n_outliers = 0.0 if loss.base is not None else self.n_outliers
        names = ("coreset_size", "sampler", "n_init", "n_rounds", "max_iter", "tol")
        return FitSettings(
            loss, l2, seed_of(self.random_state), n_outliers, *(getattr(self, name) for name in names)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._SPARSE) and not self.updatable
        return tags

    def _rows(self, X: Any, **checks: Any) -> Any:
        """Check rows (and labels, passed as y) as scikit-learn does, except for NaN and infinity."""
        return validate_data(
            self, X, accept_sparse=self._SPARSE, dtype=_FLOATS, ensure_all_finite=False, **checks
        )

    def _training_rows(
        self, X: Any, y: Any, sample_weight: Any, first_id: int = 0, *, reset: bool
    ) -> tuple[Rows, WeightedPoints]:
        """Check rows to fit or to absorb; combine those of positive weight with labels, if these matter."""
        if self._SPARSE and self.updatable and issparse(X):
            raise TypeError(
                "updatable=True needs dense rows, but X is sparse; pass X.toarray(), or updatable=False"
            )
        if self._LABELS is None:
            X, y = self._rows(X, reset=reset), None
        else:
            X, y = self._rows(X, reset=reset, y=y, **self._LABELS)
        weights = _weights(sample_weight, X)
        if not checked_total(weights):
            raise ValueError("all of sample_weight is zero; pass some positive weights")
        points = WeightedPoints._from_parts(as_rows(X), y, weights, first_id + np.arange(len(weights)))
        return X, points if weights.all() else points.take(weights > 0)

    def _collect(self, X: Any, y: Any, sample_weight: Any) -> AllRows:
        """Profile all rows to fit on: checked arrays, a scan or a Dask collection."""
        settings = self._settings()
        if check_flag("updatable", self.updatable) and not isinstance(self.sampler, (str, RankedSampler)):
            raise TypeError(
                f"updatable=True needs a sampler that scores points one by one, but {self.sampler!r} does "
                "not; use a built-in sampler or a RankedSampler, or pass updatable=False"
            )
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit
        if not is_out_of_core(X):
            return AllRows.in_memory(settings, *self._training_rows(X, y, sample_weight, reset=True))
        if self.updatable or settings.coreset_size is None:
            raise TypeError(
                "updatable=True and coreset_size=None keep all rows in memory, but X is a scan or a Dask "
                "collection; leave them out, or pass arrays"
            )
        data = AllRows.out_of_core(settings, X, y, sample_weight)
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

    def _fit(self, data: AllRows) -> None:
        """Fit, keep the rows if ``updatable``, and set all attributes."""
        fitted = self._mended(fit(data), data)
        if self.updatable:
            self.dynamic_ = _as_dynamic(data, fitted)
            self._fitted_settings, self._n_seen = data.settings, data.n_rows
        self._set(fitted, data)

    def _set(self, fitted: FitResult, data: AllRows) -> None:
        """Set the common attributes and those of this estimator; warn if solving did not converge."""
        solution, core, _, self.size_trials_ = fitted
        self.solution_ = solution
        if core is not None and hasattr(self, "feature_names_in_"):
            core = replace(core, columns=tuple(map(str, self.feature_names_in_)))
        self.coreset_ = core
        self.coreset_size_ = len(core or data.points)
        found = data.evaluate(solution)
        self.trimmed_loss_, self.outliers_ = found.trimmed_loss, found.ids
        self.threshold_ = float(found.losses.min(initial=np.inf)) if self.solution_.n_outliers else np.inf
        self.objective_ = (
            Estimate.of(found.trimmed_loss, 0.0) if core is None else core.estimate(solution.theta)
        )
        self.n_iter_ = max(1, solution.n_iter)
        self._set_parameters(found, data)
        self._print_sizes()
        warn_of(
            solution,
            type(self).__name__,
            more="raise max_iter, or scale the columns",
            bounded=f"pass {self._BOUNDED}, or use fewer outliers or columns",
            stacklevel=6,
        )

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
        KeyError, ValueError
            If there is no such row; if the model kept no rows (``updatable=False``), or needs these rows.
            The model does not change then.
        """
        live = self._live()
        gone = live.points(ids)
        if len(gone) == len(live):
            raise ValueError("no rows would be left; keep some, or fit again on others")
        self._refit(live, gone, None)
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
            As ``fit`` does, or if the model kept no rows (``updatable=False``), or a class is unknown.
            The model does not change then.
        """
        live = self._live()
        first = max(self._n_seen, live.ids.max() + 1)
        X, new = self._training_rows(X, y, sample_weight, first, reset=False)
        self._n_seen = first + len(X)
        self.absorbed_ids_ = np.arange(first, self._n_seen)
        refuse_nonfinite(new.X)
        X, y = self._as_trained(new.X, new.y)
        self._refit(live, None, self._weighed(new.with_parts(X=X, y=y)))
        return self

    def _live(self) -> DynamicCoreset:
        """Return the rows that ``fit`` kept; raise ValueError if it kept none."""
        check_is_fitted(self)
        if not hasattr(self, "dynamic_"):
            raise ValueError(
                f"this {type(self).__name__} was fitted with updatable=False, so it kept no rows; set "
                "updatable=True and fit again"
            )
        return self.dynamic_

    def _refit(self, live: DynamicCoreset, gone: WeightedPoints | None, new: WeightedPoints | None) -> None:
        """Exchange some rows for others and fit to them all; undo the exchange if that fails.

        If a coreset of the same size and anchor no longer suffices, they are put into a new one.
        """
        settings, n_before, fitted = self._fitted_settings, len(live), None
        kept, n_outliers = live._solution, live.n_outliers
        _exchange(live, gone, new)
        try:
            live.set_outliers(settings.n_outliers)
            points = live.points()
            data = AllRows.in_memory(settings, points.X, points)
            self._check_rows_left(data)
            if not n_before <= live.size < len(points):
                core = None if settings.coreset_size is None else live.coreset()
                fitted = refit(data, core, self.solution_.theta)
            fresh = fitted is None
            fitted = self._mended(fitted or fit(data), data)
            if fresh:
                self.dynamic_ = _as_dynamic(data, fitted)
            self.dynamic_._solution = fitted.solution
            self._set(fitted, data)
        except BaseException:
            _exchange(live, new, gone)
            live.set_outliers(n_outliers)
            live._solution = kept
            raise

    def _check_rows_left(self, data: AllRows) -> None:
        """Raise ValueError if the model cannot be fitted to the rows that a change would leave."""

    def _print_sizes(self) -> None:
        """Print, with ``verbose``, which size was chosen and why."""
        if self.verbose:
            for size, error in self.size_trials_:
                print(f"coreset of {size:,} rows: relative standard error {error:.2%}")
            everything = self.coreset_ is None or self.coreset_size_ == self.coreset_.n_points
            rows = f"{'all ' * everything}{self.coreset_size_:,} rows"
            print(f"{type(self).__name__} fitted on {rows}; {self.solution_!r}")

    def losses(self, X: Any, y: Any = None) -> Array:
        """Compute the loss of each row; above ``threshold_`` it is as large as that of an outlier."""
        rows = self._new_rows(X)
        return self.solution_.loss.values(self.solution_.theta, *self._as_trained(rows, y))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute minus the loss of the rows, with the same share of the weight set aside as in training."""
        losses = self.losses(X, y)
        weights = _weights(sample_weight, losses)
        z = self.solution_.n_outliers / self.solution_.total_weight * weights.sum()
        return -trimmed_sum(losses, weights, z)


_weights = partial(_check_sample_weight, dtype=np.float64, ensure_non_negative=True)


def _exchange(live: DynamicCoreset, gone: WeightedPoints | None, new: WeightedPoints | None) -> None:
    if gone is not None:
        live.delete(gone.ids)
    if new is not None:
        live.insert(new.X, new.y, new.weights, new.ids)


def _as_dynamic(data: AllRows, fitted: FitResult) -> DynamicCoreset:
    """Put the rows of a fit into a dynamic coreset that returns the coreset of the fit."""
    core = fitted.coreset
    live = DynamicCoreset(**data.settings.coreset_arguments(fitted.size, core and core.anchor))
    _exchange(live, None, data.points)
    if core is not None:
        live.reanchor(core.anchor)  # so that its report does not count these rows as newer than the anchor
    live._solution = fitted.solution  # no warning if it is far from the anchor
    return live
