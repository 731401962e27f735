"""Where to start: a given theta, a named seeding, or what suits the loss.

Which solution the alternation ends in is decided by where it starts. All starts
but the blind ones are sought on a sample and refined there, so that the full data
are left with a few iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.rows import Array
from duramen.solvers.alternating import Stopping, alternate
from duramen.solvers.problem import Problem, is_linear, is_of_centres
from duramen.solvers.sample import Sampler
from duramen.solvers.seeding import SEEDINGS, thresholded
from duramen.solvers.subsets import QUICK, THOROUGH, search

__all__ = ["check_init", "rough", "start"]

_ROUNDS = 2  # of seeding, for an anchor: with one, a tight far cluster is taken for a good one more often
_BLIND = ("k-means++", "random")  # as everybody does them: on all points, no refining


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
    try:
        given = np.array(init)
    except ValueError:  # NumPy's, of a ragged list
        given = np.array(None)
    if given.dtype.kind not in "biuf":
        raise ValueError(
            f"init={init!r} is no theta: it must be an array of numbers, or the name of a seeding"
        )
    theta = given.astype(np.float64)
    shape = loss.parameter_shape(d)
    if shape is not None and theta.shape != tuple(shape):
        raise ValueError(f"init has shape {theta.shape}; {loss!r} on {d} columns needs shape {tuple(shape)}")
    if not np.isfinite(theta).all():
        raise ValueError("init must hold finite numbers; it has NaN or infinity")
    return theta


def start(problem: Problem, init: Any, rng: np.random.Generator, number: int = 0) -> Array:
    """Choose where start ``number`` begins, as :func:`check_init` allowed it."""
    loss = problem.loss
    if isinstance(init, np.ndarray) and number == 0:
        return init.copy()
    if not (is_linear(loss) or is_of_centres(loss)):
        about = init if isinstance(init, np.ndarray) else _zero(problem)
        return about + (number > 0) * (1 + np.abs(about)) * rng.normal(size=about.shape)
    if isinstance(init, np.ndarray) or (init == "zero" and number > 0):
        init = None
    if init in _BLIND:
        return SEEDINGS[init](problem, rng)
    if init == "zero":
        return _zero(problem)
    if is_linear(loss):
        return _linear_start(problem, init, rng, number)
    part = _part(problem, max(5000, 100 * getattr(loss, "k", 1)), rng)
    return alternate(part, SEEDINGS[init or "local-search"](part, rng), Stopping()).theta


def rough(part: Problem, init: Any, rng: np.random.Generator) -> Array:
    """Solve a sample roughly, in little time."""
    if isinstance(init, np.ndarray):
        return alternate(part, init, Stopping(max_iter=30)).theta
    if is_linear(part.loss):
        return search(part, rng, QUICK).best.theta
    if is_of_centres(part.loss):
        return alternate(part, thresholded(part, rng, _ROUNDS), Stopping()).theta
    return alternate(part, _zero(part), Stopping(max_iter=30)).theta


def _names(problem: Problem) -> list[str]:
    if is_linear(problem.loss):
        return ["subsets", "zero"]
    return list(SEEDINGS) if is_of_centres(problem.loss) else []


def _zero(problem: Problem) -> Array:
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    assert shape is not None
    return np.zeros(shape)


def _part(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw a sample, unless that would not save much."""
    return Sampler(problem).draw(size, rng) if len(problem.points) > 2 * size else problem


def _linear_start(problem: Problem, init: Any, rng: np.random.Generator, number: int) -> Array:
    """Begin at zero unless a handful does clearly better; later starts begin at handfuls anyhow."""
    if problem.z == 0:  # nothing to mistake: one minimum, and zero is where Newton steps are at their best
        return _zero(problem)
    part = _part(problem, max(5000, 20 * problem.ridge().size), rng)
    found = search(part, rng, THOROUGH)
    if number > 0 or init == "subsets":
        return (found.from_handful or found.from_centre or found.from_zero).theta
    return _zero(problem) if found.best is found.from_zero else found.best.theta
