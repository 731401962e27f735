"""Trimming: against a full sort, NumPy's own selection, and copying the losses."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.timing import ratio, report
from duramen.trimming import kept_weights


def main() -> None:
    """Print the ratios, and how the cost grows with the number of points."""
    rng = np.random.default_rng(0)
    n, z = 571_012, 10_000.0
    losses, ones, weights = rng.exponential(size=n), np.ones(n), rng.random(n)
    print(f"kept_weights, {n:,} points")
    for name, heavy in (("unit", ones), ("random", weights)):
        ours = partial(kept_weights, losses, heavy, z)
        report(f"{name} weights, over np.argsort", ratio(ours, partial(np.argsort, losses)), 1)
        report(f"{name} weights, over np.partition", ratio(ours, partial(np.partition, losses, n - 10_000)))
        report(f"{name} weights, over copying the losses", ratio(ours, losses.copy))
    many = rng.exponential(size=10 * n)
    grown = partial(kept_weights, many, np.ones(10 * n), 10 * z)
    report("10 times as many points, over once", ratio(grown, partial(kept_weights, losses, ones, z), 5), 15)
