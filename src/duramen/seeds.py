"""Randomness: nothing touches NumPy's global random state."""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.arrays import Array, is_whole


def generator(random_state: Any) -> np.random.Generator:
    """Convert None, a seed, a Generator or scikit-learn's RandomState to a Generator.

    Examples
    --------
    >>> int(generator(7).integers(100)) == int(generator(7).integers(100))
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if random_state is not None and not (is_whole(random_state) and random_state >= 0):
        raise ValueError(
            f"random_state={random_state!r} must be None, a seed of 0 or more, or a NumPy random generator"
        )
    return np.random.default_rng(random_state)


def spawn(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Make ``n`` independent generators."""
    return [np.random.default_rng(seed) for seed in rng.integers(0, 2**63, size=(n, 2))]


def draw_rows(steps: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows with replacement; ``steps`` are the cumulative sums of their weights."""
    picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
    return np.minimum(picks, np.searchsorted(steps, steps[-1]))  # rounding must not lead beyond the last


def draw_distinct_rows(weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows by weight, without replacement, or as many as have weight."""
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    return rng.choice(heavy, size=min(n, heavy.size), replace=False, p=share)
