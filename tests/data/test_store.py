"""Covertype in a store: opened again it is the same coreset, which fits as well as the one in memory."""

import numpy as np
import pytest

import duramen as dm
from tests.data import Z

pytestmark = [pytest.mark.data, pytest.mark.slow]


def test_covertype_closed_and_opened_again(contaminated, tmp_path):
    points = contaminated[0].take(slice(0, 200_000))
    settings = {"loss": dm.LogisticLoss(), "size": 4000, "n_outliers": Z / len(points), "random_state": 0}
    live = dm.DynamicCoreset(**settings)
    gone = np.random.default_rng(0).choice(len(points), 20_000, replace=False)
    with dm.open_store(
        tmp_path / "covertype.duramen", create=True, synchronous="normal", **settings
    ) as store:
        for table in (live, store):
            for start in range(0, len(points), 100_000):
                part = points.take(slice(start, start + 100_000))
                table.insert(part.X, part.y)
            table.delete(gone)
    with dm.open_store(tmp_path / "covertype.duramen") as store:
        store.check()
        mine, theirs = store.coreset(), live.coreset()
        assert np.array_equal(mine.ids, theirs.ids)
        np.testing.assert_allclose(mine.weights, theirs.weights, rtol=1e-12)
        assert store.threshold == live.threshold
        assert store.n_suspected == live.n_suspected
