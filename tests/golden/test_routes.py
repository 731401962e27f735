"""Laws that hold on every route to a coreset: each is a row of one table."""

from dataclasses import replace

import numpy as np
import pytest

from tests.golden.cases import PROBLEMS, ROUTES, make_data
from tests.golden.oracle import Asked
from tests.golden.test_oracle import assert_is_expected, given_anchor, quietly, settings_of
from tests.support import assert_same_coreset

TABLE = [name for name in ROUTES if "tree" not in name]  # a tree depends on the order of insertion
SUITS = [("logistic", "leverage"), ("k-means", "layered"), ("squared", "sensitivity")]


@pytest.fixture(params=SUITS, ids=lambda suit: "-".join(suit))
def problem(request):
    """Make weighted points, and what is asked of them, with an anchor that has all that is frozen."""
    name, sampler = request.param
    asked = Asked(name, sampler, size=60, n_outliers=16, random_state=4)
    data = make_data(PROBLEMS[name], weighted=True, seed=8)
    anchor = quietly("memory", data, settings_of(asked, given_anchor(name))).anchor
    return asked, data, settings_of(asked, anchor)


@pytest.mark.parametrize("route", TABLE)
def test_the_coreset_is_that_of_the_oracle(route, problem):
    asked, data, chosen = problem
    assert_is_expected(quietly(route, data, chosen), asked, data)


@pytest.mark.parametrize("route", TABLE)
def test_weights_add_up_on_both_sides(route, problem):
    asked, data, chosen = problem
    core = quietly(route, data, chosen)
    losses = PROBLEMS[asked.loss].loss.values(core.anchor.theta, data.X, data.y)
    outer = (losses >= core.threshold) & (data.weights > 0)
    assert outer.sum() == core.n_suspected
    np.testing.assert_allclose(core.weights[core.suspected].sum(), data.weights[outer].sum(), rtol=1e-12)
    np.testing.assert_allclose(core.weights.sum(), data.weights.sum(), rtol=1e-12)


@pytest.mark.parametrize("route", TABLE)
def test_order_does_not_matter_and_zero_weight_is_absence(route, problem):
    _, data, chosen = problem
    core = quietly(route, data, chosen)
    mixed = data.take(np.random.default_rng(1).permutation(len(data.ids)))
    assert_same_coreset(quietly(route, mixed, chosen), core)
    nothing = np.arange(len(data.ids)) % 5 == 0
    without = quietly(route, data.take(np.flatnonzero(~nothing)), chosen)
    zeros = replace(data, weights=np.where(nothing, 0.0, data.weights))
    assert_same_coreset(quietly(route, zeros, chosen), without)
