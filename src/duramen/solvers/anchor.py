"""The anchor: a rough solution, from a small sample, that everything is measured from."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from duramen.arrays import Array
from duramen.ball import Anchor, distance, lengths
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.seeds import generator, spawn
from duramen.solvers.problem import Problem, is_of_centres, problem_of
from duramen.solvers.starts import Subsampler, check_init, rough

__all__ = ["_find_anchor", "find_anchor", "match_centres"]


_ANCHORS = 2
_LEAST, _MOST = 600, 3000  # rows a sample
_ROWS_A_COLUMN = 50  # with fewer, noise on a fifth of the rows draws the fit to itself (docs/solving.md)
_LEAST_LINEAR = 1000  # of a few hundred, outliers are well explained by some theta (docs/solving.md)


def find_anchor(
    points: WeightedPoints, loss: Loss, n_outliers: float = 0, random_state: Any = None, *, init: Any = None
) -> Anchor:
    """Find a rough solution, robust against outliers, from samples of under 1% of the rows.

    Two samples are drawn independently by weight, of together less than 1% of
    the rows but at least 600 each (for linear losses 1000, and 50 a column up to
    3000), and solved, the weight to set aside in proportion. The anchor is the
    solution with the lower trimmed objective on both samples together; its radius
    is how far the other lies, centres matched in pairs that lie close.

    Parameters
    ----------
    points, loss, n_outliers, random_state
        As in :func:`duramen.solve`.
    init : array, optional
        Where to start; needed for a loss that does not say the shape of theta.

    Returns
    -------
    Anchor

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.random.default_rng(0).normal(size=(50_000, 2))
    >>> X[:1000] += 100
    >>> anchor = dm.find_anchor(dm.points(X), dm.KMeansLoss(1), n_outliers=0.02, random_state=0)
    >>> [0.0, 0.0] in dm.Ball(anchor.theta[0], 0.3)
    True
    """
    return _find_anchor(points, loss, n_outliers, random_state, init=init)


@one_blas_thread()
def _find_anchor(
    points: WeightedPoints,
    loss: Loss,
    n_outliers: float,
    random_state: Any,
    *,
    init: Any = None,
    n_rows: int | None = None,
) -> Anchor:
    """Do what :func:`find_anchor` does, on points that may be a sample of ``n_rows``."""
    problem = problem_of(points, loss, n_outliers)
    if isinstance(init, str):
        raise TypeError(f"init={init!r}: an anchor is sought in its own way; pass a theta, or leave init out")
    ready = check_init(problem, init)
    rngs = spawn(generator(random_state), _ANCHORS)
    sampler, size = Subsampler(problem), _size(problem, n_rows or len(points))
    samples = [sampler.draw(size, rng) for rng in rngs]
    found = [rough(part, ready, rng) for part, rng in zip(samples, rngs, strict=True)]
    theta = min(found, key=lambda theta: sampler.score(samples, theta))
    centres = theta.ndim == 2 and is_of_centres(loss)
    radius = max(distance(theta, match_centres(other, theta, centres)) for other in found)
    ids = np.unique(np.concatenate([part.points.ids for part in samples]))
    return Anchor(theta, radius, ids)


def _size(problem: Problem, n_rows: int) -> int:
    """Choose the rows of one sample: half of 1%, within what it takes."""
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    enough = max(_MOST, 10 * int(np.prod(shape or (1,))))
    least = _LEAST
    if isinstance(problem.loss, LinearLoss):
        least = max(_LEAST_LINEAR, min(_MOST, _ROWS_A_COLUMN * problem.points.n_columns))
    least = max(least, 10 * int(getattr(problem.loss, "k", 1)))
    return max(least, min(enough, (n_rows - 1) // (100 * _ANCHORS)))


def match_centres(other: Array, theta: Array, exchangeable: bool) -> Array:
    """Order the centres of ``other`` like those of ``theta``: in pairs that lie close."""
    if not exchangeable:
        return other
    gaps = lengths(theta[:, None] - other[None])
    return other[linear_sum_assignment(gaps)[1]]
