"""Where to start: a given theta, a named seeding, or what suits the loss.

Which solution the alternation ends in is decided by where it starts. All starts
but the blind ones are sought on a sample and refined there, so that the full data
are left with a few iterations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from duramen.losses.bregman import BregmanLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.rows import Array
from duramen.solvers.alternating import Run, Stopping, alternate, fit_of
from duramen.solvers.fit import Place
from duramen.solvers.problem import Problem
from duramen.solvers.sample import sampled
from duramen.solvers.seeding import SEEDINGS

__all__ = ["check_init", "rough", "start"]

_BLIND = ("k-means++", "random")  # as everybody does them: on all points, no refining
_SUBSETS, _REFINED = 30, 2
_SHRINKAGE = 0.03  # of the curvature: keeps a start from fitting the rare rows of a sample


def check_init(problem: Problem, init: Any) -> Any:
    """Check a theta, or the name of a seeding; return it ready for use.

    Raises
    ------
    ValueError
        Naming what is wrong with it, and what there is.
    """
    loss, d = problem.loss, problem.points.n_columns
    if init is None or isinstance(init, str):
        names = _names(problem)
        if init is not None and init not in names:
            raise ValueError(f"init={init!r} is not known for {loss!r}; take a theta, or one of {names}")
        if init is None and not names and loss.parameter_shape(d) is None:
            raise ValueError(f"{loss!r} does not give the shape of theta; pass init=, a theta to start from")
        return init
    theta = np.array(init, dtype=np.float64)
    shape = loss.parameter_shape(d)
    if shape is not None and theta.shape != tuple(shape):
        raise ValueError(f"init has shape {theta.shape}; {loss!r} on {d} columns needs shape {tuple(shape)}")
    if not np.isfinite(theta).all():
        raise ValueError("init must hold finite numbers; it has NaN or infinity")
    return theta


def start(problem: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Choose where to start, as :func:`check_init` allowed it."""
    loss = problem.loss
    if isinstance(init, np.ndarray):
        return init.copy()
    if init in _BLIND:
        return SEEDINGS[init](problem, rng)
    if init == "zero":
        return _zero(problem)
    if isinstance(loss, LinearLoss):
        return _from_subsets(_part(problem, max(5000, 20 * problem.ridge().size), rng), rng, _SUBSETS)
    if isinstance(loss, (DistanceLoss, BregmanLoss)):
        part = _part(problem, max(5000, 100 * getattr(loss, "k", 1)), rng)
        return alternate(part, SEEDINGS[init or "local-search"](part, rng), Stopping()).theta
    return _zero(problem)


def rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    if isinstance(init, np.ndarray):
        return alternate(part, init, Stopping(max_iter=30)).theta
    if isinstance(part.loss, LinearLoss):
        return _from_subsets(part, rng, _SUBSETS // 4)
    if isinstance(part.loss, (DistanceLoss, BregmanLoss)):
        return alternate(part, SEEDINGS[init or "local-search"](part, rng), Stopping()).theta
    return alternate(part, _zero(part), Stopping(max_iter=30)).theta


def _names(problem: Problem) -> list[str]:
    if isinstance(problem.loss, LinearLoss):
        return ["subsets", "zero"]
    return list(SEEDINGS) if isinstance(problem.loss, (DistanceLoss, BregmanLoss)) else []


def _zero(problem: Problem) -> Array:
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    assert shape is not None
    return np.zeros(shape)


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return sampled(problem, size, rng) if len(problem.points) > 2 * size else problem


def _from_subsets(part: Problem, rng: np.random.Generator, tries: int) -> Array:
    """Fit handfuls of points, some of which hold no outlier, and refine the best of them on a sample.

    As in FAST-LTS (Rousseeuw and Van Driessen 2006). Zero is among the candidates. Everything is shrunken
    a little towards zero: a sample has a few rows of each rare kind only, and a start that fits those
    perfectly, or sets them aside, stays stuck there on the full data (docs/solving.md).
    """
    p = part.ridge().size
    part = _shrunken(part)
    zero = np.zeros(p)
    if part.z == 0:
        return alternate(part, zero, Stopping()).theta
    judge = fit_of(part)
    candidates = []
    for _ in range(tries):
        few = _handful(part, p + 5, rng)
        theta = alternate(few, zero, Stopping(max_iter=3)).theta
        candidates.append(judge.evaluate(theta))
    best = sorted(candidates, key=_objective)[:_REFINED]
    thetas = [zero, *(place.theta for place in best)]
    return min((alternate(part, theta, Stopping(max_iter=30)) for theta in thetas), key=_objective).theta


def _objective(run: Run | Place) -> float:
    return run.objective


def _handful(part: Problem, size: int, rng: np.random.Generator) -> Problem:
    weights = part.points.weights
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    rows = rng.choice(heavy, size=min(size, heavy.size), replace=False, p=share)
    few = part.points.take(rows)
    scale = few.total_weight / part.points.total_weight
    return replace(part, points=few, z=0.0, l2=part.l2 * scale)


def _shrunken(part: Problem) -> Problem:
    """Add a ridge, in units of each column's spread, that counts as a small share of all the data."""
    loss = part.loss
    assert isinstance(loss, LinearLoss)
    assert part.y is not None
    zeros = np.zeros(len(part.points))
    curvature = loss.curvature(zeros, loss.encode_labels(part.y, np.float64))
    bend = float(part.points.weights @ curvature)
    spread = np.append(_spreads(part), 0.0)[: part.ridge().size]
    return replace(part, l2=1.0, scales=part.ridge() + _SHRINKAGE * bend * spread**2)


def _spreads(part: Problem) -> Array:
    """Measure each column's standard deviation without its most extreme values, a share of z of them."""
    X = part.X
    if hasattr(X, "multiply"):
        mean = np.asarray(X.mean(axis=0)).ravel()
        return np.sqrt(np.maximum(np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2, 0.0))
    kept = max(1, int(len(X) * (1 - part.z / part.points.total_weight)))
    far = np.square(X - np.median(X, axis=0), dtype=np.float64)
    inner = np.partition(far, kept - 1, axis=0)[:kept].mean(axis=0)
    return np.sqrt(np.where(inner > 0, inner, far.mean(axis=0)))
