"""Solving with outliers: against scikit-learn's fits of the same problem, in the same run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import duramen as dm
from benchmarks.data import Z, contaminated_rows, contaminated_survey
from benchmarks.timing import peak_bytes, ratio, report
from duramen.solvers.alternating import Stopping, alternate
from duramen.solvers.fit import GradientFit
from duramen.solvers.newton import NewtonFit
from duramen.solvers.problem import problem_of

LOGISTIC = dm.LogisticLoss()


def main() -> None:
    """Print the ratios."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    logistic()
    clustering()


def logistic() -> None:
    name, X, y = contaminated_rows()
    points = dm.points(X, y)
    print(f"trimmed logistic regression, {name}, {X.shape[0]:,} x {X.shape[1]}, z = {Z:,}")
    problem = problem_of(points, LOGISTIC, Z)
    theta = alternate(problem, np.zeros(X.shape[1] + 1), Stopping(max_iter=5)).theta
    fit = NewtonFit(problem)
    here = fit.evaluate(theta)

    def iteration() -> None:
        fit.evaluate(fit.refit(here))

    for solver in ("lbfgs", "newton-cholesky"):
        peer = partial(warm_fit, X, y, theta, here.kept, solver)
        report(f"an outer iteration, over a warm {solver} fit", ratio(iteration, peer, 3), 1.3)
    one_pass = partial(np.matmul, X, theta[:-1].copy())
    report("an outer iteration, over one X @ theta", ratio(iteration, one_pass, 5))
    by_gradients = GradientFit(problem)

    def iteration_by_gradients() -> None:
        by_gradients.evaluate(by_gradients.refit(here))

    report("an outer iteration by L-BFGS, over one by Newton", ratio(iteration_by_gradients, iteration, 3))
    solve = partial(dm.solve, points, LOGISTIC, Z, random_state=0)
    plain = partial(LogisticRegression(C=np.inf, max_iter=300).fit, X, y)
    report("the whole trimmed fit, over LogisticRegression on all rows", ratio(solve, plain, 2))
    start = time.perf_counter()
    dm.find_anchor(points, LOGISTIC, Z, random_state=0)
    report("find_anchor", time.perf_counter() - start, 0.1, " s")
    report("  over one X @ theta", ratio(partial(dm.find_anchor, points, LOGISTIC, Z, 0), one_pass, 5))
    report("memory of the whole fit, over X", peak_bytes(solve) / X.nbytes, 1)


def warm_fit(X: np.ndarray, y: np.ndarray, theta: np.ndarray, kept: np.ndarray, solver: str) -> None:
    model = LogisticRegression(C=np.inf, solver=solver, warm_start=True, max_iter=300)
    model.coef_, model.intercept_ = theta[None, :-1].copy(), theta[-1:].copy()
    model.classes_ = np.array([-1, 1])
    model.fit(X, y, sample_weight=kept)


def clustering() -> None:
    name, X = contaminated_survey()
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(200_000, 54)) + rng.normal(size=(12, 54))[rng.integers(0, 12, 200_000)]
    for what, rows, k in ((name, X, 10), (name, X, 50), ("made-up clusters", wide, 10)):
        print(f"k-means--, {what}, {rows.shape[0]:,} x {rows.shape[1]}, k = {k}, z = {Z:,}, an iteration")
        points, loss = dm.points(rows), dm.KMeansLoss(k)
        seeded = dm.solve(points, loss, Z, random_state=0, tol=1.0).theta
        anywhere = rows[rng.choice(len(rows) - Z, k, replace=False)]
        for start, theta, target in (("solve's own seeds", seeded, 1.5), ("random rows", anywhere, None)):
            ours = an_iteration(partial(alternating, points, loss, theta))
            theirs = an_iteration(partial(lloyd, rows, k, theta))
            report(f"from {start}, over scikit-learn's Lloyd", ours / theirs, target)
    print("seeding and all, over KMeans(n_init=1) with its own")
    points, loss = dm.points(X), dm.KMeansLoss(10)
    solve = partial(dm.solve, points, loss, Z, random_state=0)
    plain = partial(KMeans(10, n_init=1, random_state=0).fit, X)
    report("k-means--, whole", ratio(solve, plain, 2))
    report("find_anchor, over one whole solve", ratio(partial(dm.find_anchor, points, loss, Z, 0), solve, 2))


def alternating(points: dm.WeightedPoints, loss: dm.Loss, theta: np.ndarray, n: int) -> int:
    run = alternate(problem_of(points, loss, Z), theta, Stopping(max_iter=n, tol=0))
    return max(1, len(run.history) - 1)


def lloyd(X: np.ndarray, k: int, theta: np.ndarray, n: int) -> int:
    return KMeans(k, init=theta, n_init=1, max_iter=n, tol=0, algorithm="lloyd").fit(X).n_iter_


def an_iteration(run: Callable[[int], Any], n: int = 31, rounds: int = 4) -> float:
    """Time one iteration: what n of them take beyond one, so that set-up counts for nothing."""
    best = float("inf")
    for _ in range(rounds):
        times = []
        for most in (1, n):
            time.sleep(0.03)
            start = time.perf_counter()
            done = run(most)
            times.append((time.perf_counter() - start, done))
        (short, few), (long, many) = times
        if many > few:
            best = min(best, (long - short) / (many - few))
    return best
