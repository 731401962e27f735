"""Laws of every bound: it holds against an adversary, in float32, and where rounding rules."""

import dataclasses
import itertools

import numpy as np
import pytest

import duramen as dm
from duramen.losses.base import dual_norms
from tests.conformance import search
from tests.conformance.cases import CASES

every_loss = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ROWS = [0, 8, 16, 24, 32]  # the rows that the adversary works on


def reported(record_property, case, bound, ratios):
    record_property("looseness", [case.name, bound, float(np.median(ratios)), float(np.max(ratios))])


def assert_holds(case, ball, X, y, n, rng):
    """Check the deviation against parameters drawn from the ball, and return it."""
    bound, anchor = case.loss.deviation(ball, X, y), case.loss.values(ball.theta, X, y)
    for theta in ball.sample(n, rng):
        assert theta in ball
        assert (np.abs(case.loss.values(theta, X, y) - anchor) <= bound).all()
    return bound


# linear and distance losses promise the supremum: a search must come close to it
EXACT = [case for case in CASES if not isinstance(case.loss, dm.BregmanLoss | dm.ContaminatedLoss)]


@every_loss
@pytest.mark.parametrize(
    "radius", [0.5, *(pytest.param(radius, marks=pytest.mark.slow) for radius in (0.01, 5.0, 20.0))]
)
def test_deviation_bounds_every_change_in_the_ball(case, radius, record_property):
    X, y = case.data()
    ratios = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        ball = case.ball(rng, radius)
        bound = assert_holds(case, ball, X, y, 200, rng)
        assert (bound >= 0).all()
        for row in ROWS:
            found = search.largest_change(case.loss, ball, X, y, row, rng)
            assert found <= bound[row]
            assert case not in EXACT or found >= 0.99 * bound[row] - 1e-300
            if bound[row] > 1e-12:  # not a row whose loss is flat over the whole ball
                ratios.append(bound[row] / found if found > 0 else np.inf)
    reported(record_property, case, f"deviation({radius:g})", ratios)


@every_loss
def test_deviation_holds_in_float32(case):
    X, y = case.data()
    X = X.astype(np.float32)
    rng = np.random.default_rng(11)
    for radius in (1e-6, 1e-3, 1.0):
        assert_holds(case, case.ball(rng, radius), X, y, 100, rng)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 54])
@pytest.mark.parametrize(
    "scale", [pytest.param(1e-3, marks=pytest.mark.slow), 1.0, pytest.param(30.0, marks=pytest.mark.slow)]
)
def test_deviation_holds_where_rounding_rules(case, dtype, columns, scale):
    """In a ball so small that its parameters differ in their last digits."""
    case = dataclasses.replace(case, columns=columns)
    X, y = case.data(n=200)
    rng = np.random.default_rng(18)
    theta = case.theta(rng)
    if case.label is None:
        shift = 0 if case.positive or "cosh" in case.name else 10 * scale
        X, theta = scale**0.5 * X + shift, scale**0.5 * theta + shift
        X[: len(X) // 2] = np.atleast_2d(theta)[0]  # rows at a centre
    X = X.astype(dtype)
    for radius in (0.0, 1e-12, 1e-8, 1e-6, 1e-4):
        assert_holds(case, dm.Ball(theta, radius), X, y, 10, rng)


@every_loss
def test_deviation_grows_with_the_ball_and_ends_at_nothing(case):
    X, y = case.data()
    theta = case.theta(np.random.default_rng(12))
    bounds = [case.loss.deviation(dm.Ball(theta, radius), X, y) for radius in (0.0, 0.01, 0.02, 0.1)]
    assert all((small <= large).all() for small, large in itertools.pairwise(bounds))
    assert (bounds[0] <= 1e-12 * (1 + case.loss.values(theta, X, y)) * (1 + np.abs(theta).max())).all()


@every_loss
@pytest.mark.parametrize("radius", [0.01, 0.5, 5.0])
def test_deviation_is_no_worse_than_any_of_the_papers_three(case, radius):
    X, y = case.data()
    ball = case.ball(np.random.default_rng(13), radius)
    bound = case.loss.deviation(ball, X, y)
    slope, bend, twist = (getattr(case.loss, name)(X, y) for name in QUOTIENTS)
    steep = dual_norms(case.loss.gradients(ball.theta, X, y))
    reach, slack = ball.radius, 1 + 1e-9
    if slope is not None:
        assert (bound <= slope * reach * slack).all()
    if bend is not None:
        assert (bound <= (steep * reach + bend * reach**2 / 2) * slack + 1e-12).all()
    if twist is not None:
        curved = case.loss.hessian_norms(ball.theta, X, y)
        assert (bound <= (steep * reach + curved * reach**2 / 2 + twist * reach**3 / 6) * slack + 1e-12).all()


QUOTIENTS = {
    "lipschitz": search.value_quotient,
    "smoothness": search.gradient_quotient,
    "hessian_lipschitz": search.curvature_quotient,
}
HAVE = [
    (case, name)
    for name in QUOTIENTS
    for case in CASES
    if getattr(case.loss, name)(case.data()[0]) is not None
]


def test_the_losses_have_the_constants_that_the_theory_gives_them():
    have = {name: [case.name for case, one in HAVE if one == name] for name in QUOTIENTS}
    logistic = ["logistic", "logistic, no intercept"]
    assert have["lipschitz"] == [
        *logistic, "smooth hinge", "softmax", "softmax, no intercept", "contaminated", "contaminated softmax",
        "huber", "quantile", "k-median",
        "k-median, many columns",
        "truth discovery", "truth discovery, close",
    ]  # fmt: skip
    assert have["smoothness"] == [
        *logistic, "smooth hinge", "softmax", "softmax, no intercept", "contaminated", "contaminated softmax",
        "squared", "huber", "one mean",
        "truth discovery", "truth discovery, close", "bregman, one centre, squared",
    ]  # fmt: skip
    assert have["hessian_lipschitz"] == [*logistic, "squared"]


@pytest.mark.slow
@pytest.mark.parametrize("case, name", HAVE, ids=[f"{case.name}: {name}" for case, name in HAVE])
def test_constants_bound_every_quotient(case, name, record_property):
    X, y = case.data()
    constant = getattr(case.loss, name)(X, y)
    # quotients are rounded, and a third difference loses its digits with the cube of the distance
    rounding = 1e-2 if name == "hessian_lipschitz" else 1e-7 * constant.max()
    rng = np.random.default_rng(14)
    found = np.array(
        [search.largest_quotient(QUOTIENTS[name], case.loss, X, y, row, case, rng) for row in ROWS]
    )
    assert (found <= constant[ROWS] + rounding).all()
    if constant.any():
        reported(record_property, case, name, constant[ROWS] / found)


@every_loss
@pytest.mark.parametrize("size", [1e19, 1e38])
def test_huge_parameters_give_no_warning(case, size):
    X, y = case.data()
    theta = np.full(case.theta(np.random.default_rng(21)).shape, size)
    for dtype in (np.float32, np.float64):
        for radius in (1.0, 1e37, 1e200):
            assert not np.isnan(case.loss.deviation(dm.Ball(theta, radius), X.astype(dtype), y)).any()
