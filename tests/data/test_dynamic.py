"""Covertype with half of its rows replaced: the live coreset is the one built from scratch, and fits as well."""

import numpy as np
import pytest

import duramen as dm
from tests.data import Z
from tests.support import assert_same_coreset

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the solution is"),  # how far from the anchor is not the matter here
]


def replaced(points, rows, engine, rng):
    """Fill a dynamic coreset with as many rows that go again as rows that stay; then put others in for them."""
    stay, come = np.array_split(rng.permutation(rows), 2)
    start = rng.permutation(np.concatenate([stay, len(points) + stay]))  # twice, under two ids
    settings = {"size": 4000, "n_outliers": Z / len(points), "random_state": 0}
    dyn = dm.DynamicCoreset(dm.LogisticLoss(), engine=engine, **settings)
    dyn.insert(points.X[start % len(points)], points.y[start % len(points)], ids=start)
    go = rng.permutation(len(points) + stay)
    for going, coming in zip(np.array_split(go, 20), np.array_split(come, 20), strict=True):
        dyn.delete(going)
        dyn.insert(points.X[coming], points.y[coming], ids=coming)
    dyn.reanchor()
    return dyn


@pytest.mark.parametrize(("engine", "share"), [("ranked", 1.0), ("tree", 0.1)])  # a tree takes its time
def test_half_of_the_rows_replaced(contaminated, record_property, engine, share):
    """Ranked: the same ids and weights, hence the same fit. A tree is at most 3% worse."""
    points, _ = contaminated
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(points))[: int(share * len(points))])
    dyn, live = replaced(points, rows, engine, rng), points.take(rows)
    settings = {"loss": dyn.loss, "n_outliers": Z / len(points)}
    fresh = {"size": 4000, "anchor": dyn.anchor, "ids": live.ids, "random_state": 0}
    again = dm.robust_coreset(live.X, live.y, **settings, **fresh)
    costs = [dm.trimmed_objective(live, dm.solve(core).theta, **settings) for core in (dyn.coreset(), again)]
    if engine == "ranked":
        assert_same_coreset(dyn.coreset(), again)
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    assert costs[0] < 1.03 * costs[1]
    text = f"loss {costs[0] / costs[1]:.4f} of a fresh coreset's"
    record_property("figures", f"half replaced, {engine}: {text}")


def test_a_store_closed_and_opened_again(contaminated, tmp_path):
    points, path = contaminated[0].take(slice(0, 200_000)), tmp_path / "covertype.duramen"
    settings = {"loss": dm.LogisticLoss(), "size": 4000, "n_outliers": Z / len(points), "random_state": 0}
    live = dm.DynamicCoreset(**settings)
    gone = np.random.default_rng(0).choice(len(points), 20_000, replace=False)
    with dm.open_store(path, create=True, synchronous="normal", **settings) as store:
        for table in (live, store):
            for start in range(0, len(points), 100_000):
                part = points.take(slice(start, start + 100_000))
                table.insert(part.X, part.y)
            table.delete(gone)
    with dm.open_store(path) as store:
        store.check()
        assert_same_coreset(store.coreset(), live.coreset(), rtol=1e-12)
        assert store.threshold == live.threshold
