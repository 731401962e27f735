"""The anchor: a rough solution from a small sample, the reference for losses and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from duramen.arrays import Array
from duramen.losses.base import Anchor, Loss, distance, lengths
from duramen.losses.centres import CentreLoss
from duramen.losses.linear import LinearLoss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.seeds import generator, spawn
from duramen.solvers.problem import Problem, problem_of
from duramen.solvers.starts import Subsampler, check_init, rough

_ANCHORS = 2
_LEAST, _MOST = 600, 3000  # rows per sample
_ROWS_PER_COLUMN = 50  # with fewer, noise on a fifth of the rows draws the fit to itself (docs/solving.md)
_LEAST_LINEAR = 1000  # in a few hundred rows, some theta explains the outliers well (docs/solving.md)


def find_anchor(
    points: WeightedPoints, loss: Loss, n_outliers: float = 0, random_state: Any = None, *, init: Any = None
) -> Anchor:
    """Find a rough solution, robust against outliers, from samples of under 1% of the rows.

    Two samples are drawn independently by weight, together less than 1% of the
    rows but at least 600 each (for linear losses 1000, and 50 per column up to
    3000), and solved, with the weight to set aside in proportion. The anchor is the
    solution with the lower trimmed objective on both samples together; its radius
    is its distance from the other solution, with centres matched in close pairs.

    Parameters
    ----------
    points, loss, n_outliers, random_state
        As in :func:`duramen.solve`.
    init : array, optional
        Where to start; needed for a loss without ``parameter_shape``.

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
    """Find an anchor on points that may be a sample of ``n_rows``."""
    problem = problem_of(points, loss, n_outliers)
    if isinstance(init, str):
        raise TypeError(f"init={init!r} must be a theta for find_anchor, not a name; or leave it out")
    ready = check_init(problem, init)
    rngs = spawn(generator(random_state), _ANCHORS)
    sampler, size = Subsampler(problem), _size(problem, n_rows or len(points))
    samples = [sampler.draw(size, rng) for rng in rngs]
    found = [rough(part, ready, rng) for part, rng in zip(samples, rngs, strict=True)]
    theta = min(found, key=lambda theta: sampler.score(samples, theta))
    radius = max(distance(theta, match_centres(loss, other, theta)) for other in found)
    ids = np.unique(np.concatenate([part.points.ids for part in samples]))
    return Anchor(theta, radius, ids)


def _size(problem: Problem, n_rows: int) -> int:
    """Choose the number of rows of one sample: half of 1%, within bounds."""
    shape = problem.loss.parameter_shape(problem.points.n_columns)
    enough = max(_MOST, 10 * int(np.prod(shape or (1,))))
    least = _LEAST
    if isinstance(problem.loss, LinearLoss):
        least = max(_LEAST_LINEAR, min(_MOST, _ROWS_PER_COLUMN * problem.points.n_columns))
    least = max(least, 10 * int(getattr(problem.loss, "k", 1)))
    return max(least, min(enough, (n_rows - 1) // (100 * _ANCHORS)))


def match_centres(loss: Loss, other: Array, theta: Array) -> Array:
    """Order the centres of ``other`` to match those of ``theta``, in close pairs."""
    if theta.ndim != 2 or not isinstance(loss, CentreLoss):
        return other
    gaps = lengths(theta[:, None] - other[None])
    return other[linear_sum_assignment(gaps)[1]]
