"""Solving with outliers: against scikit-learn's fits of the same problem, in the same run."""

from __future__ import annotations

import time
import warnings
from functools import partial

import numpy as np
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import duramen as dm
from benchmarks.data import Z, contaminated_rows, contaminated_survey
from benchmarks.timing import peak_bytes, ratio, report
from duramen.solvers.alternate import Stopping, alternate
from duramen.solvers.newton import GradientFit, NewtonFit, with_frame
from duramen.trimming import Problem, problem_of

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
    problem = with_frame(problem_of(points, LOGISTIC, Z))
    theta = alternate(problem, np.zeros(X.shape[1] + 1), Stopping(max_iter=5)).theta
    fit = NewtonFit(problem)
    here = fit.evaluate(theta)

    def iteration() -> None:
        fit.refit(here)

    for solver in ("lbfgs", "newton-cholesky"):
        peer = partial(warm_fit, X, y, theta, here.kept, solver)
        report(f"an outer iteration, over a warm {solver} fit", ratio(iteration, peer, 3), 1.3)
    one_pass = partial(np.matmul, X, theta[:-1].copy())
    report("an outer iteration, over one X @ theta", ratio(iteration, one_pass, 5))
    by_gradients = GradientFit(problem)

    def iteration_by_gradients() -> None:
        by_gradients.refit(here)

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
        print(f"k-means--, {what}, {rows.shape[0]:,} x {rows.shape[1]}, k = {k}, z = {Z:,}: an iteration")
        problem = problem_of(dm.points(rows), dm.KMeansLoss(k), Z)
        whole, last = [], []
        for seed in range(3):
            seeds = kmeans_plusplus(rows[:-Z], k, random_state=seed)[0]
            ours, theirs = iterations(problem, seeds), lloyd(rows, seeds)
            whole.append(ours.mean() / theirs)
            last.append(ours[-10:].mean() / theirs)
            if seed == 0:
                early = ours[:10].mean() / theirs
        report("mean of a whole run from k-means++ seeds, over Lloyd's", float(np.mean(whole)), 1.5)
        report("  its last ten", float(np.mean(last)), 1.0)
        report("  its first ten", float(early))
    print("seeding and all, over KMeans(n_init=1) with its own")
    points, loss = dm.points(X), dm.KMeansLoss(10)
    solve = partial(dm.solve, points, loss, Z, random_state=0)
    plain = partial(KMeans(10, n_init=1, random_state=0).fit, X)
    report("k-means--, whole", ratio(solve, plain, 2))
    report("find_anchor, over one whole solve", ratio(partial(dm.find_anchor, points, loss, Z, 0), solve, 2))


def iterations(problem: Problem, seeds: np.ndarray, rounds: int = 3) -> np.ndarray:
    """Time each iteration until nothing moves: the shortest of a few runs, which all do the same."""
    runs = []
    for _ in range(rounds):
        times = [time.perf_counter()]
        alternate(
            problem, seeds, Stopping(tol=0, callback=lambda _, times=times: times.append(time.perf_counter()))
        )
        runs.append(np.diff(times))
    return np.min(runs, axis=0)


def lloyd(X: np.ndarray, seeds: np.ndarray, rounds: int = 3) -> float:
    """Time a mean iteration of scikit-learn's, without what it takes to set up."""
    best = {1: (np.inf, 0), 300: (np.inf, 0)}
    for _ in range(rounds):
        for most in best:
            time.sleep(0.03)
            start = time.perf_counter()
            done = (
                KMeans(len(seeds), init=seeds, n_init=1, max_iter=most, tol=0, algorithm="lloyd")
                .fit(X)
                .n_iter_
            )
            best[most] = min(best[most], (time.perf_counter() - start, done))
    (short, few), (long, many) = best[1], best[300]
    return (long - short) / max(1, many - few)
