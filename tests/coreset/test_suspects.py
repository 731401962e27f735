"""How much is suspected, by the formulas, and which points: those that sorting gives, with weights as copies."""

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.theorems import ByTheorem
from duramen.coreset.view import largest_losses
from duramen.trimming import trimmed_sum
from tests.coreset.cores import build, logistic


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_theorem_2_suspects_what_its_formula_says(beta):
    """z-tilde = (1 + 1/epsilon_0) z, with inf f taken at (1 + beta) z outliers: for beta > 0 the proof needs it there."""
    X = np.random.default_rng(0).exponential(size=(5000, 1))
    loss, anchor, z, epsilon = dm.KMedianLoss(1), dm.Anchor([[0.7]], 0.3), 300.0, 0.8
    losses = loss.values(anchor.theta, X)
    deviation = loss.deviation(anchor.ball, X)
    lowest = trimmed_sum(np.maximum(losses - deviation, 0), np.ones(5000), (1 + beta) * z)
    epsilon0 = min(epsilon / 16, epsilon * lowest / (16 * (5000 - z) * deviation.max()))
    anchored = dm.AnchoredPoints(dm.points(X), loss, anchor, losses)
    found = ByTheorem(0.1, epsilon, beta).suspected_of(z, 5000.0, anchored)
    assert epsilon0 < epsilon / 16  # the second term decides, where beta shows
    assert found == pytest.approx((1 + 1 / epsilon0) * z)


@pytest.mark.parametrize("n", [5000, 30_000])
@pytest.mark.parametrize("order", ["random", "sorted", "periodic"])
def test_the_split_of_many_points(n, order):
    """The level is guessed from some losses; an order that misleads the guess changes nothing."""
    losses = np.random.default_rng(0).exponential(size=n)
    if order == "sorted":
        losses.sort()
    elif order == "periodic":
        losses[:: n // 4096] = 0.0
    found = largest_losses(losses, np.arange(n), np.ones(n), 700.0)
    np.testing.assert_array_equal(found, np.sort(np.argsort(losses, kind="stable")[-700:]))


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
