"""How to fit: what the parameters of an estimator come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from duramen.losses.base import Loss
from duramen.sampling import Sampler
from duramen.seeds import generator
from duramen.solvers.problem import is_linear, is_number

__all__ = ["Recipe", "seed_of"]


@dataclass(frozen=True)
class Recipe:
    """How to fit: what the parameters of an estimator come to.

    ``size`` is a number of rows, "auto", or None for all the data; ``n_rounds``
    how often to build the coreset, each time around the last solution; ``tol``
    the relative standard error that a size chosen here must stay below. The
    rest is as in ``robust_coreset`` and ``solve``.
    """

    loss: Loss
    n_outliers: float
    size: Any = "auto"
    tol: Any = 0.01
    sampler: Sampler | str = "auto"
    l2: float = 0.0
    n_starts: Any = 1
    n_rounds: Any = 2
    max_iter: Any = 300
    random_state: Any = None

    def __post_init__(self) -> None:
        if not (self.size is None or self.is_auto or (_is_whole(self.size) and self.size >= 2)):
            raise ValueError(
                f"coreset_size={self.size!r} must be a whole number of 2 or more, 'auto', or None for all"
            )
        if not (is_number(self.tol) and 0 < self.tol < np.inf):
            raise ValueError(f"tol={self.tol!r} must be a positive number, such as 0.01 for an error of 1%")
        if not _is_whole(self.n_starts):
            raise ValueError(f"n_init={self.n_starts!r} must be a whole number of 1 or more")
        if not _is_whole(self.n_rounds):
            raise ValueError(f"n_rounds={self.n_rounds!r} must be a whole number of 1 or more")

    @property
    def is_auto(self) -> bool:
        """Whether the size is to be chosen here."""
        return isinstance(self.size, str) and self.size == "auto"

    @property
    def is_linear(self) -> bool:
        """Whether the loss is one of linear predictors."""
        return is_linear(self.loss)


def seed_of(random_state: Any) -> int:
    """Make one seed for all that follows; an integer is its own, so that a fit can be retraced by hand."""
    rng = generator(random_state)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(rng.integers(2**63))


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)
