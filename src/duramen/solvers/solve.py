"""The one call: find parameters with a low trimmed objective."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duramen.arrays import Array, check_count, check_nonnegative, generator, spawn
from duramen.losses.base import Loss, ignore_overflow
from duramen.points import WeightedPoints
from duramen.progress import solver_progress
from duramen.solvers.alternate import Run, Status, Step, Stopping, alternate
from duramen.solvers.newton import with_frame
from duramen.solvers.starts import CLEARLY, base_starts, check_init, damped_start, start
from duramen.trimming import Problem, problem_of


@dataclass(frozen=True, eq=False)
class Solution:
    """Parameters with a low trimmed objective, and how they were found.

    Attributes
    ----------
    theta : array
        The parameters; intercept last, or (k, d) centres.
    objective : float
        The value that was minimised: f_z(theta, X) plus ``penalty``.
    penalty : float
        ``l2 / 2`` times the squared length of the coefficients; 0 for centres.
    outliers : array of int64
        The ids of the points that were set aside, the largest loss first. A
        part of the last one may be kept.
    aside : array
        The weight set aside of each; they add up to z.
    history : array (n_iter + 1,)
        The objective at the start and after each iteration; it never rises.
    status : Status
        Why it stopped.
    n_iter : int
        The number of iterations of the best start.
    start_objectives : array
        The objective that each start reached.
    loss, n_points, total_weight
        The problem that was solved.
    """

    theta: Array
    objective: float
    penalty: float
    outliers: Array
    aside: Array
    history: Array
    status: Status
    start_objectives: Array
    loss: Loss
    n_points: int
    total_weight: float

    def __reduce__(self) -> tuple[Any, ...]:
        return Solution, tuple(vars(self).values())  # so that a copy is read-only too

    def __post_init__(self) -> None:
        for array in (self.theta, self.outliers, self.aside, self.history, self.start_objectives):
            array.flags.writeable = False

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain, by the tolerance given."""
        return self.status.converged

    @property
    def n_iter(self) -> int:
        """The number of iterations of the best start."""
        return len(self.history) - 1

    @property
    def n_outliers(self) -> float:
        """The weight that was set aside: z."""
        return float(self.aside.sum())

    def __repr__(self) -> str:
        mean = (self.objective - self.penalty) / (self.total_weight - self.n_outliers)
        penalty = f", {self.penalty:.4g} of it the penalty" if self.penalty else ""
        starts = f", best of {len(self.start_objectives)} starts" if len(self.start_objectives) > 1 else ""
        verdict = "converged" if self.converged else "NOT CONVERGED"
        return (
            f"Solution: {self.loss!r} on {self.n_points:,} points, theta {self.theta.shape}\n"
            f"  objective {self.objective:,.6g} ({mean:.6g} per unit of kept weight){penalty}\n"
            f"  {len(self.outliers):,} points set aside, weight {self.n_outliers:,.6g} of "
            f"{self.total_weight:,.6g}\n"
            f"  {verdict} after {self.n_iter} iterations{starts}: {self.status.value}"
        )


def solve(
    points: Any,
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

    The points that cost most are set aside and the parameters are refitted to
    the rest, by turns, until an iteration gains too little. The objective ::

        f_z(theta, X) + l2 / 2 * |coefficients|^2

    never rises. It has many local minima, and the start decides in which the
    search ends, so starts are chosen to be robust against outliers.

    Parameters
    ----------
    points : WeightedPoints, Coreset or DynamicCoreset
        As made by :func:`duramen.points`. X is never copied.
    loss : Loss
        The learning problem, built in or custom. A coreset has its own.
    n_outliers : float
        The weight to set aside: a count (1 or more), or a fraction (below 1).
        None means 0 for points, and a coreset's own number.
    l2 : float
        The penalty on the coefficients of a linear loss; the intercept is free.
    init : array, str or None
        A theta to start from, or the name of a seeding. For centres:
        "local-search" (the default), "thresholded", "k-means++" or "random".
        For linear losses: "zero", or "subsets" (small subsets of the points,
        some of them free of outliers); by default zero, unless subsets do
        clearly better on a sample. Custom losses start from zero. A coreset
        starts from its anchor; for linear losses from zero, with outliers also
        from a fit in which points far out count for less, and from its anchor
        where that is clearly better. A dynamic coreset starts from its latest
        solution, if there is one; if more than a tenth of the points or of the
        outliers changed since, it also starts as points do.
    n_starts : int
        The number of different starts; the best is kept. The additional
        starts of a coreset, as under ``init``, are not counted. A theta given
        as ``init``, or zero, is the first start only.
    random_state : None, int or numpy Generator
        Determines the starts.
    max_iter : int
        The largest number of iterations of a start.
    tol : float, optional
        Stop when an iteration gains less than this share of the objective; by
        default 1e-4, and 1e-6 for centres, whose iterations are fast.
    callback : callable, optional
        Called with a :class:`Step` after each iteration; a true result stops the search.
    progress : bool
        Show a progress bar (needs the extra ``duramen[progress]``).

    Returns
    -------
    Solution

    Raises
    ------
    TypeError, ValueError
        If the problem has no solution: no weight, one class only, as many
        outliers as a class, more centres than distinct points.

    Warns
    -----
    ConvergenceWarning
        If there was more to gain after ``max_iter`` iterations, or the
        objective has no minimum.

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
      objective 0 (0 per unit of kept weight)
      2 points set aside, weight 2 of 102
      converged after ... iterations: ...
    """
    solution = solve_quietly(**locals())
    warn_of(solution, "solve")
    if hasattr(points, "_remember"):  # a dynamic coreset
        points._remember(solution)
    return solution


SETTINGS = tuple(inspect.signature(solve).parameters)[1:]
"""The names of the settings that :func:`solve` takes."""


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
    """Solve like :func:`solve`, without its warnings."""
    anchor, moved_on = None, False
    if hasattr(points, "anchor"):
        moved_on = init is None and getattr(points, "_has_moved_on", False)
        points, loss, n_outliers, init, anchor = _unpack(points, loss, n_outliers, init)
    problem = problem_of(points, loss, 0 if n_outliers is None else n_outliers, l2)
    n_starts, max_iter = check_count("n_starts", n_starts), check_count("max_iter", max_iter)
    tol = problem.loss.tolerance if tol is None else tol
    check_nonnegative("tol", tol)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} must be a function of one Step")
    init = check_init(problem, init)
    rngs = spawn(generator(random_state), n_starts)
    moved_on = moved_on and problem.loss.parameter_shape(problem.points.n_columns) is not None
    damped = anchor is not None and problem.z > 0 and isinstance(init, str)  # "zero"
    loss, problem = problem.loss, with_frame(problem)
    runs: list[Run] = []

    def starts() -> Iterator[Array]:
        if problem.loss.base is not None and init is None:
            yield from base_starts(problem, max_iter)
            return
        for number, rng in enumerate(rngs):
            yield start(problem, init, rng, number)
            if moved_on and number == 0:
                yield start(problem, None, rng)
        if anchor is not None and _is_clearly_better(problem, anchor, _best(runs)):
            yield anchor
        if damped:  # outliers far out may mislead the start from zero
            yield damped_start(problem)

    with solver_progress(callback, progress, len(rngs) + moved_on + damped, max_iter) as report:
        for theta in starts():
            runs.append(alternate(problem, theta, Stopping(max_iter, tol, report, len(runs))))
            if runs[-1].status is Status.STOPPED:
                break
    objectives = np.array([run.objective for run in runs])
    return replace(_solution(problem, _best(runs), objectives), loss=loss)


def _unpack(
    source: Any, loss: Loss | None, n_outliers: float | None, init: Any
) -> tuple[WeightedPoints, Loss, float, Any, Array | None]:
    """Fill in from a coreset what was not given, the start too; also return an anchor to be tried after that.

    A linear loss starts at zero, though the anchor is closer: the anchor fits a small sample, and the set of
    points that it would set aside is a local minimum that the alternation rarely leaves (docs/solving.md).
    """
    core = source.coreset() if hasattr(source, "coreset") else source
    if loss is not None and loss != core.loss:
        raise ValueError(f"this coreset was made for {core.loss!r}, not {loss!r}; leave loss out")
    if n_outliers is None:
        total = core.points.total_weight
        n_outliers = core.n_outliers / total if core.n_outliers < total else core.n_outliers
    anchor = None
    if init is None:
        last = getattr(source, "solution", None)
        anchor = getattr(core.anchor, "theta", None)
        if last is not None:
            init = last.theta
        elif core.loss.has_predictors and anchor is not None:
            init = "zero" if core.loss.base is None else None
        else:
            init, anchor = anchor, None
    return core.points, core.loss, n_outliers, init, anchor


def _best(runs: list[Run]) -> Run:
    return min(runs, key=lambda run: np.nan_to_num(run.objective, nan=np.inf))


def _is_clearly_better(problem: Problem, theta: Array, best: Run) -> bool:
    """Return whether ``theta`` beats the best run, without the penalty, by which it has yet to be shrunk."""
    fitted = best.objective - problem.penalty(best.theta)
    with ignore_overflow():
        return replace(problem, ridge=0.0).at(theta).objective < CLEARLY * fitted


def warn_of(
    solution: Solution,
    caller: str,
    *,
    more: str = "raise max_iter, or tol if less accuracy is enough",
    bounded: str = "pass l2 above 0, or take fewer outliers or columns",
    stacklevel: int = 3,
) -> None:
    """Warn if a solution did not converge; ``more`` and ``bounded`` say what the user can do about it."""
    if solution.status is Status.MAX_ITER:
        gain = 1 - solution.history[-1] / solution.history[-2]
        message = (
            f"{caller} stopped after {solution.n_iter} iterations (max_iter), the last of which still gained "
            f"{gain:.2g} of the objective; {more}"
        )
    elif solution.status is Status.UNBOUNDED:
        message = (
            "the kept points can be fitted perfectly by a theta that grows without bound, so the objective "
            f"has no minimum; {bounded}"
        )
    else:
        return
    from sklearn.exceptions import ConvergenceWarning  # takes a second, and brings in pandas

    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def _solution(problem: Problem, run: Run, objectives: Array) -> Solution:
    points = problem.points
    _, losses, kept, objective = problem.at(run.theta)
    if not np.isfinite(objective):
        raise ValueError(
            f"the objective overflows: the points or labels are too large for {problem.loss!r} in "
            f"{points.X.dtype}; scale them down, or pass float64"
        )
    if problem.loss.has_predictors and len(run.history) == 1 and not run.theta.any():
        with ignore_overflow():
            size = (points.X[kept > 0].astype(np.float64) ** 2).sum()
        if not np.isfinite(size):
            raise ValueError(
                "the squares of the rows overflow float64, so no step can be taken; scale the columns"
            )
    touched = np.flatnonzero(kept < points.weights)
    touched = touched[np.lexsort((-points.ids[touched], -losses[touched]))]  # the largest loss first
    # running sums differ from this one by rounding: no entry lies below the last
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
