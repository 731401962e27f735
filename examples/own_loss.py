"""A custom loss: expectiles, where running short costs nine times as much as having too much.

``values`` is enough for an objective; ``gradients`` let the solver work; a constant of smoothness bounds how
far losses move, which the sensitivity sampler needs. The two checks at the end are those that the library
applies to its own losses: gradients against finite differences, bounds against many parameters of a ball.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import duramen as dm


class ExpectileLoss(dm.Loss):
    """tau r^2 / 2 where r = y - <theta, x> is positive, and (1 - tau) r^2 / 2 where it is not."""

    def __init__(self, tau: float) -> None:
        self.tau = tau

    @property
    def convex(self) -> bool:
        return True

    def _residuals(self, theta: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        r = y - X @ theta
        return r, np.where(r > 0, self.tau, 1 - self.tau)

    def values(self, theta: Any, X: Any, y: Any = None) -> np.ndarray:
        r, share = self._residuals(theta, X, y)
        return share * r**2 / 2

    def gradients(self, theta: Any, X: Any, y: Any = None) -> np.ndarray:
        r, share = self._residuals(theta, X, y)
        return -(share * r)[:, None] * X

    def smoothness(self, X: Any, y: Any = None) -> np.ndarray:
        return max(self.tau, 1 - self.tau) * (X**2).sum(axis=1)

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns,)


def main() -> None:
    """Fit demand so that one seldom runs short, with 1% of the records damaged."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(30_000), rng.normal(size=(30_000, 2))])
    y = X @ [10.0, 2.0, -1.0] + rng.normal(size=30_000)
    damaged = rng.choice(30_000, size=300, replace=False)
    y[damaged] += 200.0

    for tau in (0.5, 0.9):
        loss = ExpectileLoss(tau)
        asked = {"loss": loss, "size": 800, "n_outliers": 300, "sampler": "sensitivity"}
        theta = dm.solve(dm.robust_coreset(X, y, **asked, random_state=0)).theta
        best = dm.solve(dm.points(X, y), loss, n_outliers=300).objective
        cost = dm.trimmed_objective(dm.points(X, y), theta, loss=loss, n_outliers=300)
        short = np.mean(np.delete(y - X @ theta, damaged) > 0)
        print(f"tau {tau}: theta {theta.round(2)}, short in {short:.0%} of honest rows; ", end="")
        print(f"it costs {cost / best:.4f} times what a fit of all rows does")

    theta, h = np.array([10.0, 2.0, -1.0]), 1e-6
    ahead, behind = ([loss.values(theta + s * h * e, X, y) for e in np.eye(3)] for s in (1, -1))
    gap = np.abs(np.subtract(ahead, behind).T / (2 * h) - loss.gradients(theta, X, y)).max()
    print(f"gradients against finite differences: off by {gap:.0e} at most")
    ball = dm.Ball(theta, radius=0.5)
    moved = [np.abs(loss.values(one, X, y) - loss.values(theta, X, y)) for one in ball.sample(50, rng)]
    held = (np.max(moved, axis=0) <= loss.deviation(ball, X, y)).all()
    print(f"no loss moves further in the ball than its bound: {held}")


if __name__ == "__main__":
    main()
