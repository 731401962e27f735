"""What every estimator does: build the coreset, solve on it, and look once at all the rows.

The same rows are drawn at every step, since the seed is one: a larger size adds
rows, and another anchor only weighs them anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from duramen.ball import Anchor
from duramen.coreset import Coreset, Estimate
from duramen.estimators.data import AllRows, Data
from duramen.estimators.recipe import Recipe, seed_of
from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.points import WeightedPoints, points
from duramen.robust.plan import ROWS_A_PARAMETER
from duramen.rows import Array
from duramen.solvers import Solution
from duramen.solvers.problem import count_distinct
from duramen.solvers.solve import solved

__all__ = ["Fitted", "Trial", "fit", "refit", "rough_theta"]

_LEAST = 1000  # rows of a coreset whose size is chosen here
_SMALL = 20_000  # entries of a problem that is solved to the last digits, since it takes no time
_PERFECT = 1e-20  # the cost of a perfect fit, by rounding, in units of squared labels
_MORE = 1.2  # rows more than the error asks for, since the error is itself an estimate


class Trial(NamedTuple):
    """A size that was tried, and the relative standard error of the objective with it."""

    size: int
    relative_error: float


class Fitted(NamedTuple):
    """What came out.

    ``size`` is how many rows the coreset was to have, None for all;
    ``objective`` estimates f_z at the solution from the coreset; ``trimmed_loss``
    is f_z over all rows. ``outliers`` are rows, the largest loss first;
    ``threshold`` the least loss among them; ``marks`` what the loss noted of each
    row: the number of its nearest centre. The outliers' labels and weights follow.
    """

    solution: Solution
    coreset: Coreset | None
    size: int | None
    trials: list[Trial]
    objective: Estimate
    trimmed_loss: float
    outliers: Array
    threshold: float
    marks: Array | None
    outlier_labels: Array | None
    outlier_weights: Array


class _Found(NamedTuple):
    """A coreset, the size that was asked of it, and its solution."""

    coreset: Coreset
    size: int
    solution: Solution


def fit(recipe: Recipe, data: AllRows) -> Fitted:
    """Fit, on a coreset or on everything, and tell outliers from the rest among all rows.

    Raises
    ------
    TypeError, ValueError
        As ``robust_coreset`` and ``solve`` do.
    """
    if recipe.size is None:
        assert isinstance(data, Data)
        everything = points(data.X, data.y, data.weights, data.ids)
        return _on_everything(recipe, data, _solve(recipe, everything, seed_of(recipe.random_state)))
    found, trials = _by_size(recipe, data)
    return _looked(recipe, data, found, trials)


def refit(recipe: Recipe, data: Data, core: Coreset | None, start: Array) -> Fitted | None:
    """Fit, from ``start`` on too, on a coreset of the data that is there already; without one, on everything.

    None if the coreset no longer does: a class is missing from it, or its error bars are wider than
    ``tol``, where the size is to be chosen here.
    """
    if core is None:
        everything = points(data.X, data.y, data.weights, data.ids)
        return _on_everything(recipe, data, _solved_again(recipe, everything, start))
    if not _speaks_for_all(core, recipe):
        return None
    found = _Found(core, len(core), _solved_again(recipe, core, start))
    trials: list[Trial] = []
    if recipe.is_auto:
        trials.append(Trial(len(core), _relative_error(core, found.solution, recipe)))
        if not _is_enough(recipe, trials[-1], core):
            return None
    return _looked(recipe, data, found, trials)


def _on_everything(recipe: Recipe, data: Data, solution: Solution) -> Fitted:
    seen = data.look(recipe, solution.theta)
    return Fitted(solution, None, None, [], Estimate.of(seen[0], 0.0), *seen)


def _looked(recipe: Recipe, data: AllRows, found: _Found, trials: list[Trial]) -> Fitted:
    core, size, solution = found
    seen = data.look(recipe, solution.theta)
    return Fitted(solution, core, size, trials, core.estimate(solution.theta), *seen)


def rough_theta(recipe: Recipe, data: AllRows) -> Array:
    """Fit on a small coreset, without a look at the rows after it."""
    return _by_size(replace(recipe, size=_LEAST, n_rounds=1), data)[0].solution.theta


def _by_size(recipe: Recipe, data: AllRows) -> tuple[_Found, list[Trial]]:
    """Solve on a coreset of the size asked for, or of one large enough by its own error bars."""
    seed, n = seed_of(recipe.random_state), data.n_points
    n_parameters = int(np.prod(recipe.loss.parameter_shape(data.n_columns) or (1,)))
    size = max(_LEAST, ROWS_A_PARAMETER * n_parameters) if recipe.is_auto else int(recipe.size)
    anchor: Any = None  # the first one: what a small coreset led to may have been misled
    trials: list[Trial] = []
    while True:
        core = data.build(recipe, size, seed, anchor)
        anchor = core.anchor
        if not _speaks_for_all(core, recipe):
            if size >= n:
                raise ValueError(
                    f"{recipe.sampler!r} leaves out whole classes, or keeps too few distinct rows, even of a "
                    f"coreset of {size} rows; take another sampler"
                )
            size = 4 * size
            continue
        found = _Found(core, size, _solve(recipe, core, seed))
        if len(core) < core.n_points:
            for _ in range(int(recipe.n_rounds) - 1):
                found = _again(recipe, data, found, seed)
        if not recipe.is_auto:
            return found, trials
        trials.append(Trial(len(found.coreset), _relative_error(found.coreset, found.solution, recipe)))
        if _is_enough(recipe, trials[-1], found.coreset):
            return found, trials
        wanted = _MORE * size * (trials[-1].relative_error / recipe.tol) ** 2
        size = n if wanted > n / 2 else int(max(wanted, 2 * size))


def _is_enough(recipe: Recipe, trial: Trial, core: Coreset) -> bool:
    return trial.relative_error < recipe.tol or len(core) >= core.n_points


def _solve(recipe: Recipe, on: Coreset | WeightedPoints, seed: int, init: Any = None) -> Solution:
    problem: dict[str, Any] = {"l2": recipe.l2, "max_iter": recipe.max_iter, "random_state": seed}
    problem.update(loss=None, n_outliers=None)  # which a coreset knows
    if recipe.is_linear and len(on) * on.X.shape[1] <= _SMALL:
        problem["tol"] = 1e-16
    if isinstance(on, WeightedPoints):
        problem.update(loss=recipe.loss, n_outliers=recipe.n_outliers)
    if init is None and isinstance(recipe.loss, LinearLoss) and len(on) <= on.X.shape[1]:
        everything = solved(on, **{**problem, "n_outliers": 0}, init="zero")
        size = 1.0 if on.y is None else float(np.abs(on.y).max())
        if everything.objective <= _PERFECT * on.total_weight * size**2:
            init = everything.theta  # what fits all rows fits those kept: which they are is no matter
    return solved(on, **problem, init=init, n_starts=1 if init is not None else recipe.n_starts)


def _solved_again(recipe: Recipe, on: Coreset | WeightedPoints, start: Array) -> Solution:
    """Solve from the last solution, and once as if it and the anchor were not there: they may be misled."""
    seed, bare = seed_of(recipe.random_state), on if isinstance(on, WeightedPoints) else on.points
    runs = [_solve(recipe, on, seed, init=start), _solve(replace(recipe, n_starts=1), bare, seed)]
    return min(runs, key=lambda run: run.objective)


def _again(recipe: Recipe, data: AllRows, found: _Found, seed: int) -> _Found:
    """Weigh the same rows so that they agree with all the data at the solution, and solve from there.

    Where the coreset was fitted more closely than the data, it no longer is.
    """
    core, _, solution = found
    assert core.anchor is not None
    again = data.build(recipe, len(core), seed, Anchor(solution.theta, core.anchor.radius))
    if not _speaks_for_all(again, recipe):
        return found
    return _Found(again, len(core), _solve(recipe, again, seed, init=solution.theta))


def _speaks_for_all(core: Coreset, recipe: Recipe) -> bool:
    """Tell whether a problem that all the data can solve can be solved on the coreset, too.

    Classes that are rare, or all among the suspected, may be missing from it, or weigh less than z in it;
    of data with few distinct points it may have too few.
    """
    loss = recipe.loss
    if len(core) >= core.n_points:
        return True
    if isinstance(loss, SoftmaxLoss):
        assert core.y is not None
        return len(np.unique(core.y)) == loss.n_classes
    if isinstance(loss, LinearLoss):
        if not loss.classifies:
            return True
        assert core.y is not None
        return bool(np.bincount(core.y > 0, core.weights, minlength=2).min() > core.n_outliers)
    k = getattr(loss, "k", 1)
    return k == 1 or count_distinct(core.X, None, k) == k


def _relative_error(core: Coreset, solution: Solution, recipe: Recipe) -> float:
    estimate = core.estimate(solution.theta)
    if np.isnan(estimate.std_error):
        raise ValueError(
            f"coreset_size='auto' goes by error bars, and {recipe.sampler!r} gives none; pass a number"
        )
    return estimate.std_error / estimate.value if estimate.std_error else 0.0
