"""Laws of every sampler: total weight, purity, unbiasedness, weights as copies, and nothing changed."""

import pickle

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.samplers.base import Strata

LOGISTIC = dm.LogisticLoss()


def data(n=600, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1)))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    return X, y


ANCHOR = dm.Anchor([1.0, 0.0, 0.0, 0.0], radius=0.1)
SAMPLERS = [dm.UniformSampler(), dm.LayeredSampler(), dm.LeverageSampler(), dm.SensitivitySampler()]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


class OneInSo(dm.Sampler):
    """A black box: every so many points, as they stand."""

    def reduce(self, points, size, rng):
        rows = np.linspace(0, len(points) - 1, size).astype(int)
        part = points.take(np.unique(rows))
        return dm.points(part.X, part.y, np.full(len(part), points.total_weight / len(part)), part.ids)


def reduced(sampler, points, size, seed=0, anchor=ANCHOR):
    return sampler.bind(LOGISTIC, anchor).reduce(points, size, np.random.default_rng(seed))


@every_sampler
@pytest.mark.parametrize("size", [1, 2, 7, 100, 599])
def test_total_weight_is_kept(sampler, size):
    X, y = data()
    weights = np.random.default_rng(1).exponential(size=len(X))
    points = dm.points(X, y, weights)
    core = reduced(sampler, points, size)
    assert len(core) == size
    assert core.total_weight == pytest.approx(points.total_weight, rel=1e-12)
    assert (core.weights > 0).all()
    np.testing.assert_array_equal(core.X, X[core.ids])
    np.testing.assert_array_equal(core.y, y[core.ids])


@every_sampler
def test_no_more_points_than_there_are(sampler):
    X, y = data(20)
    points = dm.points(X, y, np.arange(20.0))
    core = reduced(sampler, points, 50)
    np.testing.assert_array_equal(core.ids, np.arange(1, 20))
    np.testing.assert_array_equal(core.weights, np.arange(1.0, 20))


@every_sampler
def test_the_order_of_the_points_does_not_matter(sampler):
    X, y = data()
    anchor = frozen_anchor(sampler, X, y)
    order = np.random.default_rng(3).permutation(len(X))
    here = reduced(sampler, dm.points(X, y), 50, anchor=anchor)
    there = reduced(sampler, dm.points(X[order], y[order], ids=order), 50, anchor=anchor)
    np.testing.assert_array_equal(here.ids, there.ids)
    np.testing.assert_allclose(here.weights, there.weights, rtol=1e-12)


def frozen_anchor(sampler, X, y):
    return dm.robust_coreset(
        X, y, loss=LOGISTIC, size=10, anchor=ANCHOR, sampler=sampler, random_state=0
    ).anchor


@every_sampler
def test_points_without_weight_are_absent(sampler):
    X, y = data()
    anchor = frozen_anchor(sampler, X, y)
    weights = np.ones(len(X))
    weights[::3] = 0
    live = np.flatnonzero(weights)
    here = reduced(sampler, dm.points(X, y, weights), 50, anchor=anchor)
    there = reduced(sampler, dm.points(X[live], y[live], ids=live), 50, anchor=anchor)
    np.testing.assert_array_equal(here.ids, there.ids)
    np.testing.assert_allclose(here.weights, there.weights, rtol=1e-12)


@every_sampler
def test_a_frozen_anchor_scores_points_by_themselves(sampler):
    """Which other points are there changes neither a point's score nor its stratum."""
    X, y = data()
    anchor = frozen_anchor(sampler, X, y)
    losses = LOGISTIC.values(anchor.theta, X, y)
    whole = dm.AnchoredPoints(dm.points(X, y), LOGISTIC, anchor, losses)
    part = whole.take(np.arange(0, len(X), 7))
    np.testing.assert_allclose(sampler.scores(part), sampler.scores(whole)[::7], rtol=1e-12)
    strata = sampler.strata(whole)
    if strata is not None:
        np.testing.assert_array_equal(sampler.strata(part), strata[::7])


@pytest.mark.slow
@every_sampler
def test_sums_are_unbiased_over_seeds(sampler):
    """2000 seeds: the mean of the estimates is within four of its standard errors of the sum.

    Scaling to the exact total makes a ratio of the estimate, whose bias is of the order of 1/m: here 1/60
    of a standard deviation of one estimate, that of the mean of 2000 being 1/45 of it.
    """
    X, y = data(300)
    weights = np.random.default_rng(5).exponential(size=300)
    points = dm.points(X, y, weights)
    bound = sampler.bind(LOGISTIC, ANCHOR)
    targets = np.stack([X[:, 0], X[:, 1] ** 2, (y > 0).astype(float)], axis=1)
    estimates = []
    for seed in range(2000):
        core = bound.reduce(points, 60, np.random.default_rng(seed))
        estimates.append(core.weights @ targets[core.ids])
    estimates = np.array(estimates)
    error = estimates.std(axis=0) / 2000**0.5
    assert (np.abs(estimates.mean(axis=0) - weights @ targets) < 4 * error).all()


@pytest.mark.slow
@every_sampler
def test_a_weight_is_as_good_as_copies(sampler):
    """Over 1500 seeds a point of weight 3 has the share of the sample that its three copies have."""
    X, y = data(100)
    weights = np.where(np.arange(100) < 10, 3.0, 1.0)
    rows = np.repeat(np.arange(100), weights.astype(int))
    anchor = frozen_anchor(sampler, X[rows], y[rows])
    bound = sampler.bind(LOGISTIC, anchor)
    heavy, copied = [], []
    for seed in range(1500):
        core = bound.reduce(dm.points(X, y, weights), 20, np.random.default_rng(seed))
        heavy.append(core.weights[core.ids < 10].sum())
        core = bound.reduce(dm.points(X[rows], y[rows]), 20, np.random.default_rng(10_000 + seed))
        copied.append(core.weights[rows[core.ids] < 10].sum())
    error = np.hypot(np.std(heavy), np.std(copied)) / 1500**0.5
    assert np.mean(heavy) == pytest.approx(np.mean(copied), abs=4 * error)


@every_sampler
def test_inputs_are_not_changed(sampler):
    X, y = data()
    weights, ids = np.ones(len(X)), np.arange(len(X)) * 5
    before = [array.copy() for array in (X, y, weights, ids)]
    reduced(sampler, dm.points(X, y, weights, ids), 50)
    for array, copy in zip((X, y, weights, ids), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@every_sampler
def test_float32_and_sparse_rows_and_other_layouts(sampler):
    X, y = data()
    X = X.astype(np.float32).astype(np.float64)
    anchor = frozen_anchor(sampler, X, y)
    plain = reduced(sampler, dm.points(X, y), 50, anchor=anchor)
    for rows, close in (
        (np.asfortranarray(X), 1e-12),
        (np.repeat(X, 2, axis=1)[:, ::2], 1e-12),
        (sparse.csr_array(X), 1e-12),
        (X.astype(np.float32), 1e-4),
    ):
        core = reduced(sampler, dm.points(rows, y), 50, anchor=anchor)
        np.testing.assert_array_equal(core.ids, plain.ids)
        np.testing.assert_allclose(core.weights, plain.weights, rtol=close)


@every_sampler
def test_samplers_are_values(sampler):
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    assert repr(sampler).startswith(type(sampler).__name__)


def test_uniform_and_leverage_work_alone():
    X, y = data()
    for sampler in (dm.UniformSampler(), dm.LeverageSampler()):
        assert len(sampler.reduce(dm.points(X), 20, np.random.default_rng(0))) == 20
    for sampler in (dm.LayeredSampler(), dm.SensitivitySampler()):
        with pytest.raises(ValueError, match=r"bind\(loss, anchor\)"):
            sampler.reduce(dm.points(X, y), 20, np.random.default_rng(0))


def test_the_leverage_score_is_the_length_of_a_row_of_q():
    """Without a projection, and up to the ridge of one row in 600: sqrt(n / p) |Q_i| by QR of all rows."""
    X, y = data(600, d=8)
    sampler = dm.LeverageSampler(directions=9)
    points = dm.points(X, y)
    anchor = dm.Anchor(np.zeros(9), 0.0)
    anchored = dm.AnchoredPoints(
        points,
        LOGISTIC,
        anchor.freeze(**sampler.freeze(dm.AnchoredPoints(points, LOGISTIC, anchor, X[:, 0]))),
        X[:, 0],
    )
    Q = np.linalg.qr(np.column_stack([X, np.ones(600)]))[0]
    oracle = 1 + np.linalg.norm(Q, axis=1) * (600 / 9) ** 0.5
    np.testing.assert_allclose(sampler.scores(anchored), oracle, rtol=0.02)
    assert np.square(sampler.scores(anchored) - 1).mean() == pytest.approx(1, rel=0.02)


def test_leverage_does_not_depend_on_the_units_of_columns():
    X, y = data(600)
    units = np.array([1e-6, 1.0, 1e9])
    cores = [
        dm.robust_coreset(
            rows, y, loss=LOGISTIC, size=50, anchor=np.zeros(4), calibrate=False, random_state=1
        )
        for rows in (X, X * units)
    ]
    np.testing.assert_array_equal(cores[0].ids, cores[1].ids)


def test_leverage_finds_rare_columns():
    """A column that 3 rows of 20,000 have. By QR their scores are 37, of a mean of 2: each is in 18% of samples of 200,
    so 11 are expected in 20 samples (standard deviation 3); a uniform sample expects 0.6.
    """
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(20_000, 3)), np.zeros(20_000)])
    X[[5, 500, 15_000], 3] = 1
    found = 0
    for seed in range(20):
        core = dm.LeverageSampler(directions=5).reduce(dm.points(X), 200, np.random.default_rng(seed))
        found += np.isin([5, 500, 15_000], core.ids).sum()
    assert 4 <= found <= 20


def test_leverage_refuses_a_frame_of_other_columns():
    X, y = data()
    anchor = frozen_anchor(dm.LeverageSampler(), X, y)
    with pytest.raises(
        ValueError, match=r"frame has shape \(4, 4\); it is not for 4 directions of 2 columns"
    ):
        dm.LeverageSampler().scores(dm.AnchoredPoints(dm.points(X[:, :2], y), LOGISTIC, anchor, X[:, 0]))


@pytest.mark.parametrize("directions", [0, -1, 2.5, "8"])
def test_directions_are_a_whole_number(directions):
    with pytest.raises(ValueError, match="directions"):
        dm.LeverageSampler(directions)


def test_layers_are_those_of_the_paper():
    """Against a direct computation: with r the least and T the mean of f - r, by powers of two of (f - r) / T."""
    losses = np.random.default_rng(0).exponential(size=2000) ** 3
    anchor = dm.Anchor([[0.0]], 1.0)
    loss = dm.KMedianLoss(1)
    points = dm.points(losses[:, None])
    sampler = dm.LayeredSampler()
    anchor = anchor.freeze(**sampler.freeze(dm.AnchoredPoints(points, loss, anchor, losses)))
    low, mean = losses.min(), losses.mean() - losses.min()
    np.testing.assert_allclose(anchor.frozen["layers"], [low, mean])
    strata = sampler.strata(dm.AnchoredPoints(points, loss, anchor, losses))
    inside = losses > low
    np.testing.assert_array_equal(strata[inside], np.floor(np.log2((losses[inside] - low) / mean)))


def test_layer_0_ends_at_the_mean():
    """Exponents whose range ends at or below the mean are pooled; each above it is its own layer.

    Middles are 1.5 times 2^e: the mean of these is (0.1875 * 8 + 1.5 * 4 + 3 * 2 + 12) / 15 = 1.7, between 2^0 and 2^1.
    """
    strata = Strata(np.array([-3, 0, 1, 3]), np.array([8, 4, 2, 1]), np.array([8.0, 4.0, 2.0, 1.0]))
    groups, sizes = dm.LayeredSampler().allocate(strata, 12)
    assert groups.tolist() == [0, 1, 2, 3]
    heavier = strata._replace(
        weights=np.array([8.0, 4.0, 2.0, 10.0])
    )  # the mean is 5.6: 2^2 and below are pooled
    assert dm.LayeredSampler().allocate(heavier, 12)[0].tolist() == [0, 0, 0, 1]
    assert sizes.sum() == 12
    assert (sizes <= strata.counts).all()


def test_layers_draw_more_where_the_loss_is():
    """1% of the points carry most of the loss: layers see them, a uniform sample mostly does not."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=9900), 300 + 10 * rng.normal(size=100)])[:, None]
    loss, anchor = dm.KMedianLoss(1), dm.Anchor([[0.0]], 1.0)
    truth = np.abs(X).sum()
    errors = {}
    for sampler in (dm.LayeredSampler(), dm.UniformSampler()):
        bound = sampler.bind(loss, anchor)
        cores = [bound.reduce(dm.points(X), 200, np.random.default_rng(seed)) for seed in range(30)]
        errors[sampler] = np.mean([abs(core.weights @ np.abs(core.X[:, 0]) / truth - 1) for core in cores])
    assert errors[dm.LayeredSampler()] < errors[dm.UniformSampler()] / 5


@pytest.mark.parametrize("losses", [np.zeros(50), np.full(50, 3.0), np.r_[np.zeros(49), 1e-300]])
def test_layers_of_equal_losses(losses):
    loss, anchor = dm.KMedianLoss(1), dm.Anchor([[0.0]], 1.0)
    core = (
        dm.LayeredSampler()
        .bind(loss, anchor)
        .reduce(dm.points(losses[:, None]), 10, np.random.default_rng(0))
    )
    assert len(core) == 10
    assert core.total_weight == pytest.approx(50)


def test_wrong_scores_are_refused():
    class Wrong(dm.RankedSampler):
        def __init__(self, scores):
            self.given = scores

        def scores(self, anchored):
            return self.given

    points = dm.points(np.zeros((3, 1)))
    for scores, message in (
        (np.array([1.0, 0.0, 2.0]), "score 0.0 to id 1"),
        (np.array([1.0, np.nan, 2.0]), "score nan to id 1"),
        (np.ones(2), r"shape \(2,\) for 3 points"),
    ):
        with pytest.raises(ValueError, match=message):
            Wrong(scores).reduce(points, 2, np.random.default_rng(0))


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_size_is_a_whole_number(size):
    with pytest.raises(ValueError, match="size"):
        dm.UniformSampler().reduce(dm.points(np.zeros((3, 1))), size, np.random.default_rng(0))
