"""The theorems' sizes: by hand, as laws, and by drawing samples of those sizes."""

import functools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import duramen as dm
from duramen import theory
from duramen.losses import LinearLoss
from tests.coreset.cores import CityBlock

errors = st.floats(0.001, 0.999)
dimensions = st.floats(1, 1000)
totals = st.floats(1, 1000)
LN10 = math.log(10)


# by hand


def test_epsilon0_by_hand():
    known = {"n_points": 1100, "n_outliers": 100, "deviation": 2.0}
    assert theory.epsilon0(0.32, lowest_objective=1000.0, **known) == pytest.approx(0.32 * 1000 / 32000)
    assert theory.epsilon0(0.32, lowest_objective=1e9, **known) == 0.02
    assert theory.epsilon0(0.32, lowest_objective=0.0, **known) == 0.0
    still = {"n_points": 10.5, "n_outliers": 0, "lowest_objective": 0.0}
    assert theory.epsilon0(0.16, deviation=0, **still) == 0.01
    assert theory.epsilon0(0.16, deviation=math.inf, **still) == 0.0
    tiny = {"n_points": 1e-3, "n_outliers": 0, "lowest_objective": 1}
    assert theory.epsilon0(0.16, deviation=5e-324, **tiny) == 0.01


def test_suspected_and_delta_by_hand():
    assert theory.n_suspected(30, 0.02) == 30 * 51
    assert theory.n_suspected(2.5, 0.25) == 12.5
    assert theory.n_suspected(0, 0.0) == theory.n_suspected(0, 0.01) == 0.0
    assert theory.n_suspected(1, 0.0) == math.inf
    assert theory.delta(0.2, 0.25) == pytest.approx(0.04)
    assert theory.delta(0.0, 0.25) == theory.delta(0.2, 0.0) == 0.0


def test_delta_sample_by_hand():
    assert theory.delta_sample_size(0.1, 3) == math.ceil(100 * (3 + LN10)) == 531
    assert theory.delta_sample_size(0.1, 3, eta=0.01) == math.ceil(100 * (3 + 2 * LN10)) == 761
    assert theory.delta_sample_size(0.0, 3) == theory.delta_sample_size(0.1, math.inf) == math.inf
    assert isinstance(theory.delta_sample_size(0.1, 3), int)
    for beta, z, size in ((0.5, 200, 531), (0.0, 200, math.inf), (0.5, 0, math.inf)):  # delta is beta z / n
        assert theory.uniform_size(beta, n_points=1000, n_outliers=z, vc_dimension=3) == size


def test_importance_by_hand():
    by_vc = functools.partial(theory.importance_size, vc_dimension=5)
    assert by_vc(20, 0.1) == math.ceil(2 * 20 * 100 * (5 * math.log(20) + LN10))
    assert by_vc(1 - 1e-9, 0.1) == by_vc(1, 0.1) == math.ceil(200 * (5 + LN10))
    doubling = functools.partial(theory.importance_size, 20, 0.2, doubling_dimension=3)
    still = math.ceil(200 * 100 * (3 * LN10 + math.log(20)))
    assert doubling() == still
    # 0.2 x 300 / (6 x 100 x 5) = 0.02, below 0.2 / 2
    known = {"lowest_objective": 300, "n_points": 100, "deviation": 5}
    assert doubling(**known) == math.ceil(200 * 2500 * (3 * math.log(50) + math.log(20)))
    for size, changes in (
        (still, ({"deviation": 0}, {"lowest_objective": 1e9})),
        (math.inf, ({"deviation": math.inf}, {"lowest_objective": 0})),
    ):
        assert [doubling(**{**known, **change}) for change in changes] == [size, size]


def test_layered_by_hand():
    layered = functools.partial(theory.layered_size, doubling_dimension=3)
    # floor(log2(1025)) + 1 = 11 layers, of 0.4 / 4 = 0.1 each
    still = layered(1024, 0.4)
    assert still == 11 * math.ceil(50 * (3 * LN10 + math.log(220)))
    # 0.4 x 7 / (14 x 4 x 1) = 0.05, below 0.1; floor(log2(5)) + 1 = 3
    moved = layered(4, 0.4, lowest_objective=7, deviation=1)
    assert moved == 3 * math.ceil(200 * (3 * math.log(20) + math.log(60)))
    assert layered(1024, 0.4, lowest_objective=0, deviation=0) == still
    assert layered(4, 0.4, lowest_objective=0, deviation=1) == math.inf


def test_doubling_dimension_by_hand():
    exact = math.log2(math.comb(1000, 7)) + 7 * math.log2(5)
    assert theory.doubling_dimension(1000, 7) == pytest.approx(exact, rel=1e-12)
    assert theory.doubling_dimension(10**6, 10) < 300 < theory.doubling_dimension(10**6)


def test_solution_quality():
    assert theory.solution_quality(0.1) == pytest.approx(1.3)
    for epsilon in np.linspace(0.001, 0.333, 50):
        assert theory.solution_quality(epsilon) >= (1 + epsilon) / (1 - epsilon)


# laws


SIZES = {
    "delta sample": lambda epsilon, dimension, eta, total: theory.delta_sample_size(epsilon, dimension, eta),
    "importance, VC": lambda epsilon, dimension, eta, total: theory.importance_size(
        total, epsilon, vc_dimension=dimension, eta=eta
    ),
    "importance, doubling": lambda epsilon, dimension, eta, total: theory.importance_size(
        total, epsilon, doubling_dimension=dimension, eta=eta, lowest_objective=3, n_points=7, deviation=0.4
    ),
    "layered": lambda epsilon, dimension, eta, total: theory.layered_size(
        total, epsilon, doubling_dimension=dimension, eta=eta
    ),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@given(one=errors, two=errors, dimension=dimensions, eta=errors, total=totals)
def test_sizes_fall_with_what_is_allowed_and_grow_with_dimension_and_data(
    size, one, two, dimension, eta, total
):
    low, high = sorted((one, two))
    assert size(low, dimension, eta, total) >= size(high, dimension, eta, total) >= 1
    assert size(one, dimension, low, total) >= size(one, dimension, high, total)
    assert size(one, dimension, eta, total) <= size(one, dimension + 1, eta, total)
    assert size(one, dimension, eta, total) <= size(one, dimension, eta, 2 * total)
    # no fewer than Hoeffding's inequality needs for one range
    assert size(one, dimension, eta, total) >= math.log(2 / eta) / (2 * one**2)


sizes = st.just(0.0) | st.floats(1e-6, 1e6)


@given(errors, sizes, sizes, st.floats(1e-3, 1e6), st.just(0.0) | st.floats(1e-3, 0.99))
def test_epsilon0_keeps_the_proof_s_budget(epsilon, lowest, deviation, n, share):
    """Theorem 2: 4 epsilon_0 f + 8 epsilon_0 (n - z) xi is within epsilon f less the coreset's quarter."""
    z = share * n
    value = theory.epsilon0(epsilon, lowest_objective=lowest, n_points=n, n_outliers=z, deviation=deviation)
    spent = 4 * value * lowest + 8 * value * (n - z) * deviation
    assert 0 <= value <= epsilon / 16
    assert spent <= 0.75 * epsilon * lowest * (1 + 1e-12)
    if value * z > 0:  # delta times the weight of the suspected is the error that beta allows
        assert theory.n_suspected(z, value) * theory.delta(0.5, value) == pytest.approx(z / 2)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_sparse_parameters_have_no_larger_dimension(one, two):
    few, full = sorted((one, two))
    dense = theory.doubling_dimension(full)
    assert few <= theory.doubling_dimension(full, few) <= dense == full * math.log2(5)
    assert theory.doubling_dimension(full, full) == dense
    assert theory.doubling_dimension(few) <= dense


@given(st.floats(1e-9, 0.5), st.integers(1, 50), st.integers(1, 50))
def test_nets_in_the_ball_are_as_small_as_the_paper_says(inner, one, two):
    few, full = sorted((one, two))
    room = 1e-9
    packed = full * math.log(1 + 2 / inner)
    assert packed <= theory.doubling_dimension(full) * math.log(1 / inner) + room
    # a net for each support, or one for all
    packed = min(packed, math.log(math.comb(full, few)) + few * math.log(1 + 2 / inner))
    assert packed <= theory.doubling_dimension(full, few) * math.log(1 / inner) + room


@given(
    st.lists(st.integers(0, 40).map(lambda power: 2.0**power) | st.floats(0, 1e6), min_size=1, max_size=80)
)
def test_no_more_layers_than_counted(losses):
    losses = np.array(losses)
    assume(losses.mean() > 0)
    layers = layers_of(losses)
    assert len(np.unique(layers)) <= math.floor(math.log2(len(losses) + 1)) + 1


def test_the_count_of_layers_is_reached():
    """Losses 0, 1 and 2 with mean 1 fill three layers, more than the paper's log2(3) + 1."""
    assert layers_of(np.array([0.0, 1.0, 2.0])).tolist() == [0, 1, 2]
    assert theory.layered_size(3, 0.4, doubling_dimension=0) == 3 * math.ceil(50 * math.log(60))


@given(st.integers(2, 1000), st.integers(1, 1000))
def test_the_bound_on_k_sets_follows_from_counting(k, d):
    """No more than (e N / D)^(k D) of the 2^N subsets of N points are cut out (Sauer's lemma)."""
    n = theory.vc_dimension(dm.KMeansLoss(k), d)
    assert k * (d + 1) * math.log2(math.e * n / (d + 1)) < n


# errors


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: theory.epsilon0(1.5, lowest_objective=1, n_points=9, n_outliers=1, deviation=1), r"epsilon=1\.5 .*such as 0\.1"),
        (lambda: theory.epsilon0(0.1, lowest_objective=-1, n_points=9, n_outliers=1, deviation=1), "lowest_objective=-1 must be 0 or more"),
        (lambda: theory.epsilon0(0.1, lowest_objective=1, n_points=9, n_outliers=9, deviation=1), "n_outliers=9 must be below n_points=9"),
        (lambda: theory.epsilon0(0.1, lowest_objective=1, n_points=0, n_outliers=0, deviation=1), "n_points=0 must be a total weight"),
        (lambda: theory.epsilon0(0.1, lowest_objective=1, n_points=9, n_outliers=1, deviation=math.nan), "deviation=nan"),
        (lambda: theory.n_suspected(-1, 0.1), "n_outliers=-1 must be a weight"),
        (lambda: theory.n_suspected(1, "0.1"), r"epsilon0='0\.1'"),
        (lambda: theory.delta(1, 0.1), "beta=1 must be 0 or more and below 1"),
        (lambda: theory.delta(True, 0.1), "beta=True"),
        (lambda: theory.delta_sample_size(1.0, 3), r"delta=1\.0"),
        (lambda: theory.delta_sample_size(0.1, None), "vc_dimension=None .*doubling dimension"),
        (lambda: theory.delta_sample_size(0.1, 3, eta=0), "eta=0 must be a probability"),
        (lambda: theory.uniform_size(0.1, n_points=5, n_outliers=6, vc_dimension=3), "n_outliers=6"),
        (lambda: theory.importance_size(0.5, 0.1, vc_dimension=3), r"total_sensitivity=0\.5 must be 1 or more"),
        (lambda: theory.importance_size(5, 0.1), "pass exactly one"),
        (lambda: theory.importance_size(5, 0.1, vc_dimension=3, doubling_dimension=3), "pass exactly one"),
        (lambda: theory.importance_size(5, 0.1, doubling_dimension=3, deviation=1), "lowest_objective=None; pass all of"),
        (lambda: theory.layered_size(5, 0.1, doubling_dimension=-1), "doubling_dimension=-1"),
        (lambda: theory.layered_size(5, 0.1, doubling_dimension=1, lowest_objective=1), "deviation=None; pass all of"),
        (lambda: theory.layered_size(math.inf, 0.1, doubling_dimension=1), "n_points=inf"),
        (lambda: theory.doubling_dimension(0), "n_parameters=0 must be a whole number"),
        (lambda: theory.doubling_dimension(5, 2.5), r"sparsity=2\.5 must be a whole number"),
        (lambda: theory.doubling_dimension(5, 6), "sparsity=6 must not exceed n_parameters=5"),
        (lambda: theory.vc_dimension(dm.LogisticLoss(), 0), "n_columns=0"),
        (lambda: theory.solution_quality(0.34), r"epsilon=0\.34 must be below 1/3"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# VC dimensions


class Knowing(CityBlock):
    def vc_dimension(self, n_columns):
        return 2 * n_columns


class SquaredMargin(LinearLoss):
    """Of two classes, but not monotone: (1 - y m)^2 is small on a slab."""

    classifies = True

    def pointwise(self, m, y):
        return (1 - y * m) ** 2

    def slope(self, m, y):
        return -2 * y * (1 - y * m)

    def curvature(self, m, y):
        return np.full_like(m, 2)


TWO = 4 * math.log2(6)


@pytest.mark.parametrize(
    "loss, expected",
    [
        (dm.LogisticLoss(), 5),
        (dm.SmoothHingeLoss(fit_intercept=False), 4),
        (SquaredMargin(), 5 * TWO),
        (dm.SquaredLoss(), 4 * TWO),
        (dm.HuberLoss(fit_intercept=False), 4 * TWO),
        (dm.PoissonLoss(), None),
        (dm.KMeansLoss(1), 4),
        (dm.KMedianLoss(2), 4 * TWO),
        (dm.TruthDiscoveryLoss(), 4),
        (dm.BregmanLoss(1, divergence="kl"), 4),
        (dm.BregmanLoss(2, divergence="kl"), 4 * TWO),
        (CityBlock(), None),
        (Knowing(), 6),
    ],
)
def test_vc_dimensions_with_three_columns(loss, expected):
    assert theory.vc_dimension(loss, 3) == (None if expected is None else pytest.approx(expected))


def test_a_custom_vc_dimension_as_a_number():
    loss = CityBlock()
    loss.vc_dimension = 7
    assert theory.vc_dimension(loss, 3) == 7
    loss.vc_dimension = 0.5
    with pytest.raises(ValueError, match=r"vc_dimension=0\.5"):
        theory.vc_dimension(loss, 3)
    for other in (dm.LogisticLoss, "logistic"):
        with pytest.raises(TypeError, match="must be a Loss, such as"):
            theory.vc_dimension(other, 3)


def shattered(loss, thetas, X, y=None):
    """Whether every subset of the rows is {x : f(theta, x) <= r} for one of the thetas and some r."""
    found = {0}
    for theta in thetas:
        values = loss.values(theta, X, y)
        found |= {int((values <= r) @ (1 << np.arange(len(X)))) for r in values}
    return len(found) == 1 << len(X)


TIGHT = [
    (dm.KMeansLoss(1), [[0.0], [1.0]], None),
    (dm.KMedianLoss(1), [[0.0, 0.0], [1.0, 0.0], [0.3, 1.0]], None),
    (dm.TruthDiscoveryLoss(), [[0.0, 0.0], [1.0, 0.0], [0.3, 1.0]], None),
    (dm.LogisticLoss(fit_intercept=False), [[1.0], [2.0]], [1, 1]),
    (dm.LogisticLoss(), [[0.0], [1.0], [0.5]], [1, 1, -1]),
    (dm.SmoothHingeLoss(), [[0.0], [1.0], [0.5]], [1, 1, -1]),
]


@pytest.mark.parametrize("loss, X, y", TIGHT, ids=lambda value: type(value).__name__)
def test_one_half_space_or_ball_has_exactly_its_dimension(loss, X, y):
    """So many points can be shattered, and no more: tried on twenty sets of one more point."""
    d = len(X[0])
    dimension = theory.vc_dimension(loss, d)
    shape, rng = loss.parameter_shape(d), np.random.default_rng(1)
    scales = 10 ** rng.uniform(-1, 2, size=1500)  # half-spaces need steep parameters, balls far centres
    thetas = rng.normal(size=(1500, *shape)) * scales.reshape(-1, *(1 for _ in shape))
    labels = None if y is None else np.array(y)
    assert len(X) == dimension
    assert shattered(loss, thetas, np.array(X), labels)
    rng = np.random.default_rng(2)
    for _ in range(20):
        more = rng.normal(size=(len(X) + 1, d))
        signs = None if y is None else rng.choice([-1, 1], len(more))
        assert not shattered(loss, thetas[:300], more, signs)


def layers_of(losses):
    """Number the layers as the proof of Theorem 6 does: layer i > 0 from 2^(i-1) T to 2^i T above the least."""
    above = (losses - losses.min()) / losses.mean()
    return np.where(above < 1, 0, np.floor(np.log2(np.maximum(above, 1))).astype(int) + 1)
