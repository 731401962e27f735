"""The split at the threshold is what sorting gives; bins draw from every level of loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.coreset.choose import loss_bins
from duramen.coreset.split import split_at
from tests.coreset.cores import build, logistic


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 7.0]), st.floats(0, 3)), min_size=1, max_size=30),
    st.just(0.0) | st.floats(1e-6, 1),
)
def test_the_split_is_what_sorting_gives(pairs, share):
    losses, weights = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    ids = np.random.default_rng(len(pairs)).permutation(len(pairs))
    points = dm.points(np.zeros((len(pairs), 1)), weights=weights, ids=ids)
    weight = share * weights.sum()
    split = split_at(points, losses, weight)
    order = np.lexsort((ids, losses))[::-1]
    order = order[weights[order] > 0]
    before = np.cumsum(weights[order]) - weights[order]
    slack = 1e-9 * max(weight, 1e-300)
    must, may = order[before < weight - slack], order[before < weight + slack]
    assert set(must) <= set(split.rows) <= set(may)
    inner = np.setdiff1d(np.arange(len(pairs)), split.rows)
    np.testing.assert_array_equal(split.inner[inner], weights[inner])
    assert not split.inner[split.rows].any()
    assert split.weight == pytest.approx(weights[split.rows].sum())
    assert split.n_inner == np.count_nonzero(weights[inner])
    if len(split.rows):
        assert split.threshold == losses[split.rows].min()
        assert losses[inner][weights[inner] > 0].max(initial=0) <= split.threshold


@pytest.mark.parametrize("n", [5000, 30_000])
@pytest.mark.parametrize("order", ["random", "sorted", "periodic"])
def test_the_split_of_many_points(n, order):
    """The level is guessed from some losses; an order that misleads the guess changes nothing."""
    losses = np.random.default_rng(0).exponential(size=n)
    if order == "sorted":
        losses.sort()
    if order == "periodic":
        losses[:: n // 4096] = 0.0
    split = split_at(dm.points(np.zeros((n, 1))), losses, 700.0)
    np.testing.assert_array_equal(split.rows, np.sort(np.argsort(losses, kind="stable")[-700:]))


@given(st.integers(1, 200), st.integers(1, 80), st.integers(0, 100))
def test_bins_draw_from_every_level_of_loss(n, size, seed):
    rng = np.random.default_rng(seed)
    losses, weights = np.exp(5 * rng.normal(size=n)) * (rng.random(n) > 0.1), rng.exponential(size=n) + 0.01
    size = min(size, n)
    groups, sizes, totals = loss_bins(losses, weights, size)
    np.testing.assert_allclose(totals, np.bincount(groups, weights))
    assert sizes.sum() == size
    assert (sizes <= np.bincount(groups)).all()
    assert (sizes >= 1).all()
    order = np.argsort(losses)
    assert (np.diff(groups[order]) >= 0).all()


def test_a_weight_is_as_good_as_copies_in_the_split():
    X, y = logistic(500)
    copies = np.random.default_rng(0).integers(1, 4, size=500)
    rows = np.repeat(np.arange(500), copies)
    asked = {"size": 80, "n_outliers": 60, "anchor": np.r_[1.0, 0, 0, 0]}
    heavy = build(X, y, sample_weight=copies.astype(float), **asked)
    light = build(X[rows], y[rows], **asked)
    assert heavy.threshold == light.threshold
    assert heavy.total_weight == pytest.approx(light.total_weight)
    assert light.weights[light.suspected].sum() <= heavy.weights[heavy.suspected].sum() + 1e-9
