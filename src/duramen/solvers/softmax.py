"""Newton's method for the softmax of several predictors.

The Hessian has a block for each pair of classes i, j: X' diag(w p_i (1[i = j] - p_j)) X
with p the probabilities of the classes. It is singular: adding the same to all
predictors changes nothing, and steps leave such directions out.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from duramen.chunks import rows_per_chunk, sum_over_chunks
from duramen.losses.multinomial import SoftmaxLoss
from duramen.rows import Array, Rows
from duramen.solvers.newton import DampedNewton
from duramen.solvers.problem import Problem

__all__ = ["SoftmaxFit"]


class SoftmaxFit(DampedNewton):
    """Damped Newton steps on a softmax loss: for each one pass, and a product for each pair of classes."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, SoftmaxLoss)
        assert problem.y is not None
        self.classes = np.arange(problem.loss.n_classes)
        self.labels = problem.y.astype(np.intp)

    @property
    def most_curved(self) -> float:
        return 0.25

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array, float]:
        inside = self.frame.inside(theta)

        def work(chunk: slice) -> tuple[Array, Array, float]:
            block = self._block(chunk)
            shares = _softmax(block @ inside.T)
            pull = shares - (self.labels[chunk, None] == self.classes)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                pull = np.where(kept[chunk, None] > 0, kept[chunk, None] * pull, 0.0)
                bend = _bend(block, shares, kept[chunk])
            return (block.T @ pull).T.ravel(), bend, float(np.abs(pull).sum())

        rows = max(rows_per_chunk(16 * theta.size), 8 * theta.shape[1])
        slope, bend, pulls = sum_over_chunks(work, len(kept), rows)
        return slope, bend, pulls


def _softmax(m: Array) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        shares = np.exp(m - m.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)


def _bend(block: Rows, shares: Array, kept: Array) -> Array:
    """Sum the Hessian over a block: (k, p, k, p), as a matrix."""
    k, p = shares.shape[1], block.shape[1]
    bend = np.empty((k, p, k, p))
    for one in range(k):
        for two in range(one + 1):
            weights = kept * shares[:, one] * ((one == two) - shares[:, two])
            weights = np.where(kept > 0, weights, 0.0)
            if sparse.issparse(block):
                part = (block.T @ block.multiply(weights[:, None]).tocsr()).toarray()
            else:
                part = block.T @ (block * weights[:, None])
            bend[one, :, two], bend[two, :, one] = part, part.T
    return bend.reshape(k * p, k * p)
