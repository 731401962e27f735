"""A window over a stream that drifts: rows come, old ones are deleted, and the coreset follows.

Four clusters, one of which wanders off; 2% of the rows are far-off noise. After every few batches the centres
are refitted on 400 rows and compared with a fit of the whole window. A new anchor is found when that is
advised; with ``--keep-anchor`` the first one is kept, and the error bars grow.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import duramen as dm

CORNERS = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]])
LOSS = dm.KMeansLoss(4)
BATCH, WINDOW = 500, 10_000


def batch(step: int, rng: np.random.Generator) -> np.ndarray:
    """Make the rows of one step; the last cluster moves a little with each."""
    centres = CORNERS + np.array([[0, 0], [0, 0], [0, 0], [0.5 * step, 0.5 * step]])
    X = centres[rng.integers(4, size=BATCH)] + rng.normal(size=(BATCH, 2))
    X[: BATCH // 50] = rng.uniform(-500, 500, size=(BATCH // 50, 2))
    return X


def main(seed: int, keep_anchor: bool) -> None:
    """Let 60 batches come and 40 go."""
    rng = np.random.default_rng(seed)
    dyn = dm.DynamicCoreset(LOSS, size=400, n_outliers=0.02, random_state=seed)
    arrived: list[np.ndarray] = []
    seconds = 0.0
    for step in range(60):
        rows = batch(step, rng)
        start = time.perf_counter()
        arrived.append(dyn.insert(rows))
        if len(dyn) > WINDOW:
            dyn.delete(arrived.pop(0))
        seconds += time.perf_counter() - start
        if step % 15 == 14:
            advised = dyn.anchor_report().advised and not keep_anchor
            if advised:
                dyn.reanchor()
            show(step, dyn)
            print("; a new anchor" if advised else "")
    changes = BATCH * (60 + 40)
    print(f"{changes:,} changes, {1e6 * seconds / changes:.0f} microseconds each")


def show(step: int, dyn: dm.DynamicCoreset) -> None:
    """Refit, and print how good the centres are and how accurate their estimated cost is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a fit far from the anchor, which was kept
        centres = dyn.fit().theta
    window = dyn.points()
    cost = dm.trimmed_objective(window, centres, loss=LOSS, n_outliers=0.02)
    full = dm.solve(window, LOSS, n_outliers=0.02, random_state=0).objective
    found = dyn.coreset().estimate(centres)
    far = centres[np.argmax(centres.sum(axis=1))]
    print(f"step {step + 1}: {len(dyn):,} rows, the far centre near {far.round().astype(int)}, ", end="")
    print(
        f"{cost / full:.4f} times the cost of a full fit, error bars {found.std_error / found.value:.1%}",
        end="",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--keep-anchor", action="store_true", help="never find a new anchor")
    given = parser.parse_args()
    main(given.seed, given.keep_anchor)
