"""The one call: find parameters with a low trimmed objective."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.seeds import generator, spawn
from duramen.solvers.alternate import Run, Stopping, alternate, fit_of
from duramen.solvers.newton import DampedNewton
from duramen.solvers.problem import (
    Problem,
    Solution,
    Status,
    Step,
    is_linear,
    is_number,
    is_of_centres,
    problem_of,
)
from duramen.solvers.progress import reporting
from duramen.solvers.starts import CLEARLY, check_init, damped_start, start
from duramen.trimming import kept_sum, kept_weights

__all__ = ["SETTINGS", "WAYS_OUT", "solve", "solve_quietly", "warn_of"]


SETTINGS: tuple[str, ...] = (
    "loss",
    "n_outliers",
    "l2",
    "init",
    "n_starts",
    "random_state",
    "max_iter",
    "tol",
)
SETTINGS += ("callback", "progress")
"""What :func:`solve` takes, beside the points."""

WAYS_OUT: dict[str, Any] = {
    "more": "raise max_iter, or tol to be content with less",
    "bounded": "pass l2 above 0, or take fewer outliers or columns",
}
"""What a caller of :func:`solve` can do about a solution that is none."""


class CoresetLike(Protocol):
    """Points that know what they are for: a coreset."""

    @property
    def points(self) -> WeightedPoints: ...

    @property
    def loss(self) -> Loss: ...

    @property
    def n_outliers(self) -> float: ...

    @property
    def anchor(self) -> Anchor | None: ...


class DynamicLike(Protocol):
    """A summary that changes, and remembers where the last search ended."""

    @property
    def solution(self) -> Solution | None: ...

    @property
    def _has_moved_on(self) -> bool: ...

    def coreset(self) -> CoresetLike: ...

    def _remember(self, solution: Solution) -> None: ...


def solve(
    points: WeightedPoints | CoresetLike | DynamicLike,
    loss: Loss | None = None,
    n_outliers: float | None = None,
    *,
    l2: float = 0.0,
    init: Any = None,
    n_starts: int = 1,
    random_state: Any = None,
    max_iter: int = 300,
    tol: float | None = None,
    callback: Callable[[Step], Any] | None = None,
    progress: bool = False,
) -> Solution:
    """Find parameters that fit the points well after the worst weight ``n_outliers`` is set aside.

    By turns, weight is set aside where it costs most and the parameters are
    refitted to the rest, until an iteration gains too little. The objective ::

        f_z(theta, X) + l2 / 2 * |coefficients|^2

    never rises. It has many local minima; where the search starts decides in
    which it ends, so starts are sought with an eye on outliers.

    Parameters
    ----------
    points : WeightedPoints, Coreset or DynamicCoreset
        As made by :func:`duramen.points`. X is never copied.
    loss : Loss
        The learning problem, built in or of your own. A coreset knows its own.
    n_outliers : float
        The weight to set aside: a count (1 or more), or a fraction (below 1).
        None is 0 for points, and what a coreset was made for.
    l2 : float
        The penalty on the coefficients of a linear loss; the intercept is free.
    init : array, str or None
        A theta to start from, or the name of a seeding. For centres:
        "local-search" (the default), "thresholded", "k-means++" or "random".
        For linear losses: "zero", or "subsets" (handfuls of points, some of
        them free of outliers); by default zero, unless subsets do clearly
        better on a sample. Losses of your own start from zero. A coreset
        starts for linear losses from zero, with outliers also from a fit in
        which points far out count for less, and from its anchor too where that
        is clearly better; for all others from its anchor. A dynamic coreset
        starts from its latest solution, once there is one; and as points do
        too, if more than a tenth of them or of the outliers changed since.
    n_starts : int
        How often to start, each time from another place; the best is kept.
        What a coreset adds, as ``init`` says, comes on top. A
        theta given as ``init``, or zero, is the first of them only.
    random_state : None, int or numpy Generator
        Decides the starts.
    max_iter : int
        How many iterations a start may take.
    tol : float, optional
        Stop when an iteration gains less than this share of the objective; by
        default 1e-4, and 1e-6 for centres, whose iterations take little time.
    callback : callable, optional
        Called with a :class:`Step` after each iteration; a true answer stops.
    progress : bool
        Show a bar (needs the extra ``duramen[progress]``).

    Returns
    -------
    Solution

    Raises
    ------
    TypeError, ValueError
        If the problem has no answer: no weight, one class only, as many
        outliers as a class, more centres than distinct points.

    Warns
    -----
    ConvergenceWarning
        If there was more to gain after ``max_iter`` iterations, or the
        objective has no minimum; it says what to do.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.concatenate([np.zeros((50, 2)), np.ones((50, 2)), [[70.0, 80.0], [90.0, 0.0]]])
    >>> solution = dm.solve(dm.points(X), dm.KMeansLoss(2), n_outliers=2, random_state=0)
    >>> np.sort(solution.theta, axis=0)
    array([[0., 0.],
           [1., 1.]])
    >>> solution
    Solution: KMeansLoss(k=2) on 102 points, theta (2, 2)
      objective 0 (0 a unit of kept weight)
      2 points set aside, weight 2 of 102
      converged after ... iterations: ...
    """
    live: Any = points if hasattr(points, "_remember") else None
    solution = solve_quietly(
        points,
        loss,
        n_outliers,
        l2=l2,
        init=init,
        n_starts=n_starts,
        random_state=random_state,
        max_iter=max_iter,
        tol=tol,
        callback=callback,
        progress=progress,
    )
    warn_of(solution, "solve", **WAYS_OUT)
    if live is not None:
        live._remember(solution)
    return solution


def solve_quietly(
    points: Any,
    loss: Any = None,
    n_outliers: Any = None,
    *,
    l2: Any = 0.0,
    init: Any = None,
    n_starts: Any = 1,
    random_state: Any = None,
    max_iter: Any = 300,
    tol: Any = None,
    callback: Any = None,
    progress: bool = False,
) -> Solution:
    """Do what :func:`solve` does, without its warnings."""
    resort, cold = None, False
    if not isinstance(points, WeightedPoints) and hasattr(points, "anchor"):
        last = getattr(points, "solution", None)
        cold = init is None and hasattr(points, "_has_moved_on") and points._has_moved_on
        core = points.coreset() if hasattr(points, "coreset") else points
        points, loss, n_outliers, init, resort = _unpacked(core, loss, n_outliers, init, last)
    problem = problem_of(points, loss, 0 if n_outliers is None else n_outliers, l2)
    _check_numbers(n_starts, max_iter, tol, callback)
    ready = check_init(problem, init)
    enough = float(tol) if tol is not None else 1e-6 if is_of_centres(problem.loss) else 1e-4
    rngs = spawn(generator(random_state), int(n_starts))
    more = int(cold) + int(_misleads(problem, ready, resort))
    with reporting(callback, progress, len(rngs) + more, max_iter) as report:
        runs: list[Run] = []
        for theta in _places(problem, ready, rngs, resort, cold, runs):
            runs.append(alternate(problem, theta, Stopping(int(max_iter), enough, report, len(runs))))
            if runs[-1].status is Status.STOPPED:
                break
    best = min(runs, key=lambda run: run.objective if np.isfinite(run.objective) else np.inf)
    _refuse_overflow(problem, best)
    return _solution(problem, best, np.array([run.objective for run in runs]))


def _unpacked(
    core: CoresetLike, loss: Loss | None, n_outliers: float | None, init: Any, last: Solution | None
) -> tuple[WeightedPoints, Loss, float, Any, Array | None]:
    """Take from a coreset what was not given: also where to start, and a last resort.

    A linear loss starts at zero, though the anchor is closer: the anchor fits a small sample, and the set of
    points that it would set aside is a local minimum that the alternation hardly leaves (docs/solving.md).
    """
    if loss is not None and loss != core.loss:
        raise ValueError(f"this coreset was made for {core.loss!r}, not {loss!r}; leave loss out")
    total = core.points.total_weight
    z = n_outliers
    if z is None:
        z = core.n_outliers / total if core.n_outliers < total else core.n_outliers
    if init is None and last is not None:
        return core.points, core.loss, z, last.theta, None if core.anchor is None else core.anchor.theta
    if init is not None or core.anchor is None:
        return core.points, core.loss, z, init, None
    if is_linear(core.loss):
        return core.points, core.loss, z, "zero", core.anchor.theta
    return core.points, core.loss, z, core.anchor.theta, None


def _places(
    problem: Problem,
    init: Any,
    rngs: list[np.random.Generator],
    resort: Array | None,
    cold: bool,
    runs: list[Run],
) -> Iterator[Array]:
    """Go through the places to start from: those asked for, and what a coreset adds to them.

    ``runs`` are those from the places before, by the time that the next is asked for.
    """
    for number, rng in enumerate(rngs):
        yield start(problem, init, rng, number)
        if cold and number == 0:
            yield start(problem, None, rng, 0)
    if resort is not None and _is_clearly_better(problem, resort, runs):
        yield resort
    if _misleads(problem, init, resort):
        yield damped_start(problem)


def _misleads(problem: Problem, init: Any, resort: Array | None) -> bool:
    """Tell whether outliers far out may mislead the start of a coreset: if that is zero."""
    return resort is not None and problem.z > 0 and isinstance(init, str) and init == "zero"


def _is_clearly_better(problem: Problem, theta: Array, runs: list[Run]) -> bool:
    """Tell whether ``theta`` as it is beats what was found: then outliers misled the start from zero.

    Penalties apart: where they are large, ``theta`` is yet to be shrunken.
    """
    best = min(runs, key=lambda run: run.objective)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        losses = problem.loss.values(theta, problem.X, problem.y)
    cost = kept_sum(losses, problem.trimmer()(losses))
    return cost < CLEARLY * (best.objective - problem.penalty(best.theta))


def _check_numbers(n_starts: Any, max_iter: Any, tol: Any, callback: Any) -> None:
    for name, value in (("n_starts", n_starts), ("max_iter", max_iter)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole and value >= 1):
            raise ValueError(f"{name}={value!r} must be a whole number of 1 or more")
    if tol is not None and not (is_number(tol) and 0 <= tol < np.inf):
        raise ValueError(f"tol={tol!r} must be zero or a positive finite number")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} cannot be called; pass a function of one Step")


def _refuse_overflow(problem: Problem, run: Run) -> None:
    """Raise ValueError if nothing moved from zero because the squares of the rows are no numbers."""
    if len(run.history) > 1 or run.theta.any():
        return
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        fit = fit_of(problem)
        if not isinstance(fit, DampedNewton):
            return
        _, bend, _ = fit.derivatives(run.theta, fit.evaluate(run.theta).kept)
    if not np.isfinite(bend).all():
        raise ValueError(
            "the squares of the rows overflow float64, so no step can be taken; scale the columns"
        )


def warn_of(solution: Solution, who: str, *, more: str, bounded: str, stacklevel: int = 3) -> None:
    """Warn if a solution is none, and say the way out: ``more`` iterations, or how to make it ``bounded``."""
    if solution.status is Status.MAX_ITER:
        gain = 1 - solution.history[-1] / solution.history[-2]
        message = (
            f"{who} stopped after {solution.n_iter} iterations (max_iter), the last of which still gained "
            f"{gain:.2g} of the objective; {more}"
        )
    elif solution.status is Status.UNBOUNDED:
        message = (
            "the kept points can be fitted perfectly by a theta that grows without end, so the objective has "
            f"no minimum; {bounded}"
        )
    else:
        return
    from sklearn.exceptions import ConvergenceWarning  # takes a second, and brings in pandas

    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def _solution(problem: Problem, run: Run, objectives: Array) -> Solution:
    points = problem.points
    losses = problem.loss.values(run.theta, points.X, points.y)
    kept = kept_weights(losses, points.weights, problem.z, points.ids)
    objective = problem.objective(run.theta, losses, kept)
    if not np.isfinite(objective):
        raise ValueError(
            f"the objective overflows: the points or labels are too large for {problem.loss!r} in "
            f"{points.X.dtype}; scale them down, or pass float64"
        )
    touched = np.flatnonzero(kept < points.weights)
    touched = touched[np.lexsort((-points.ids[touched], -losses[touched]))]
    # what is left between the running sums and this one is rounding: no entry lies below the last
    history = np.maximum(np.append(run.history[:-1], objective), objective)
    return Solution(
        theta=run.theta,
        objective=objective,
        penalty=problem.penalty(run.theta),
        outliers=points.ids[touched],
        aside=points.weights[touched] - kept[touched],
        history=history,
        status=run.status,
        start_objectives=objectives,
        loss=problem.loss,
        n_points=len(points),
        total_weight=points.total_weight,
    )
