"""The split at the threshold is what sorting gives, and weights count as copies in it."""

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.split import split_at
from tests.coreset.cores import build, logistic


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
