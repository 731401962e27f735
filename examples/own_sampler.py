"""A custom sampler: it favours the rows of a rare group, so that a small coreset still represents it.

Half a percent of the rows have a mark in the last column, and its coefficient is of interest. A sampler that
scores points is a class with ``scores``; error bars, calibration and deletion come for free. What it needs to
know about the data as a whole, here how rare the group is, it learns once, in ``freeze``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import duramen as dm


class RareGroup(dm.RankedSampler):
    """Give the marked rows of a column the share ``share`` of all scores."""

    def __init__(self, column: int, share: float = 0.3) -> None:
        self.column, self.share = column, share

    def freeze(self, anchored: dm.AnchoredPoints) -> dict[str, Any]:
        marked = anchored.points.X[:, self.column] > 0
        weight = anchored.points.weights
        return {"rarity": float(weight[marked].sum() / weight.sum())}

    def scores(self, anchored: dm.AnchoredPoints) -> np.ndarray:
        rarity = float(anchored.anchor.frozen["rarity"])
        up = self.share / (1 - self.share) * (1 - rarity) / rarity
        return np.where(anchored.points.X[:, self.column] > 0, up, 1.0)


def main() -> None:
    """Compare what samplers make of the rare column, over six seeds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 4))
    X[:, 3] = rng.random(60_000) < 0.005
    y = np.where(X @ [1.0, -1.0, 0.0, 2.0] + rng.logistic(size=60_000) > 0, 1, -1)
    X[:600, 0], y[:600] = 25.0, -1  # 1% are planted
    loss = dm.LogisticLoss()
    full = dm.solve(dm.points(X, y), loss, n_outliers=600, random_state=0).theta

    print(f"the rare column's coefficient, fitted on all 60,000 rows: {full[3]:.2f}; on 600 rows:")
    for sampler in ("uniform", "leverage", RareGroup(column=3)):
        asked = {"loss": loss, "size": 600, "n_outliers": 600, "sampler": sampler}
        cores = [dm.robust_coreset(X, y, **asked, random_state=seed) for seed in range(6)]
        found = np.array([dm.solve(core).theta[3] for core in cores])
        error = np.sqrt(np.mean((found - full[3]) ** 2))
        rows = np.mean([np.count_nonzero(core.X[:, 3]) for core in cores])
        name = sampler if isinstance(sampler, str) else type(sampler).__name__
        print(f"  {name:<10} off by {error:.2f} (root mean square); {rows:.0f} of its rows have the mark")

    there = dm.trimmed_objective(dm.points(X, y), full, loss=loss, n_outliers=600)
    print(f"its error bars: {cores[0].estimate(full)}; the truth: {there:,.0f}")


if __name__ == "__main__":
    main()
