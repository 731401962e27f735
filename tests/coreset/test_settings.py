"""How much is suspected, and how large each side is: by the formulas, computed by hand."""

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.settings import ByTheorem
from duramen.trimming import trimmed_sum
from tests.coreset.cores import build, logistic


@pytest.mark.parametrize(
    ("suspects", "expected"), [(1, 400), (1.5, 600), (2.3, 920), (100, 1200), (0.5, 200)]
)
def test_how_many_are_suspected(suspects, expected):
    """z = 400 of 2000, each of weight 1; half of the others at most are suspected too, so that some are left."""
    X, y = logistic(2000, 40)
    core = build(X, y, n_outliers=400, suspects=suspects, anchor=np.eye(4)[0])
    assert core.n_suspected == expected


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
    found = ByTheorem(epsilon, beta, 0.1).suspected_weight(anchored, z)
    assert epsilon0 < epsilon / 16  # the second term decides, where beta shows
    assert found == pytest.approx((1 + 1 / epsilon0) * z)
