"""The contaminated likelihood against its textbook formula in 60 digits, and the robust distance that it keeps."""

import dataclasses
import math
import pickle
import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import sparse

import duramen as dm

TWO, THREE = dm.ContaminatedLoss(), dm.ContaminatedLoss(dm.SoftmaxLoss(3))
UNIT = 2.0**-10  # t is a multiple of it
both = pytest.mark.parametrize("loss", [TWO, THREE], ids=["two classes", "three"])


def rows(n=400, d=3, seed=0):
    """Make correlated rows, of which a tenth are far out."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 * rng.normal(size=d)
    X[: n // 10] *= 20
    return X


def labels(loss, n, seed=0):
    y = np.random.default_rng(seed).integers(loss.n_classes, size=n)
    return 2 * y - 1 if loss.classifies else y


def measured(loss, X, ids=None):
    return loss.measure(dm.points(X, labels(loss, X.shape[0]), ids=ids))


def theta_of(loss, d, seed=0, size=1.0):
    return size * np.random.default_rng(seed).normal(size=loss.parameter_shape(d))


def textbook(loss, m, u, y):
    """Compute -log P, and the part of P that is noise, from predictors and log odds of the noise, in 60 digits."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -(10**9), 10**9
        m, u = [Decimal(float(one)) for one in np.atleast_1d(m)], [Decimal(float(one)) for one in u]
        if loss.classifies:
            m = [Decimal(0), m[0]]
        own = int(y > 0) if loss.classifies else int(y)
        total = 1 + sum(one.exp() for one in u)
        model = m[own].exp() / sum(one.exp() for one in m) / total
        noise = u[own].exp() / total
        return float(-(noise + model).ln()), float(noise / (noise + model))


@both
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_loss_is_the_textbook_s_to_a_few_units(loss, dtype):
    """Within what ``units_off`` promises: half of it, as a change is the difference of two."""
    rng, n = np.random.default_rng(1), 600
    scale = rng.choice([0.1, 3.0, 40.0, 900.0], size=(n, 1))
    m = (scale * rng.normal(size=(n, 1 if loss.classifies else 3))).astype(dtype)
    u = (rng.choice([1.0, 10.0, 60.0], size=(n, 1)) * rng.normal(size=(n, loss.n_classes)) - 4).astype(dtype)
    y = labels(loss, n)
    with np.errstate(all="ignore"):
        found = loss.pointwise(np.column_stack([m, u, np.zeros(n, dtype)]), loss.encode_labels(y, dtype))
    expected = np.array([textbook(loss, *one)[0] for one in zip(m, u, y, strict=True)])
    assert found.dtype == dtype
    assert (np.abs(found - expected) <= loss.units_off / 2 * np.finfo(dtype).eps * (1 + expected)).all()


@both
def test_no_slope_and_no_curvature_exceeds_its_bound(loss):
    rng, n = np.random.default_rng(2), 20_000
    width = (1 if loss.classifies else 3) + loss.n_classes
    m = np.column_stack(
        [rng.choice([1.0, 5.0, 50.0], size=(n, 1)) * rng.normal(size=(n, width)), np.zeros(n)]
    )
    y = labels(loss, n)
    slopes = loss.slope(m, y)[:, :-1]
    assert np.linalg.norm(slopes, axis=1).max() <= loss.max_slope
    bends = loss.curvature(m, y)
    np.testing.assert_allclose(bends, bends.transpose(0, 2, 1), atol=1e-12)
    assert np.abs(np.linalg.eigvalsh(bends)).max() <= (0.5 if loss.classifies else loss.max_curvature)


@both
def test_blame_is_bayes_rule_and_probabilities_add_up(loss):
    X = rows()
    bound, theta, y = measured(loss, X), theta_of(loss, 3), labels(loss, 400)
    base, noise = bound.split(theta, 3)
    t = bound.far(X)
    u = noise[:, 0] + math.log(0.01) + np.log1p(np.exp(noise[:, 1])) * t[:, None]
    m = X @ np.transpose(base)[:3] + np.transpose(base)[3]
    expected = [textbook(loss, *one) for one in zip(m, u, y, strict=True)]
    np.testing.assert_allclose(bound.values(theta, X, y), [loss for loss, _ in expected], rtol=1e-9)
    np.testing.assert_allclose(bound.blame(theta, X, y), [blame for _, blame in expected], rtol=1e-9)
    shares = np.exp(u) / (1 + np.exp(u).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(bound.shares(theta, X), shares, rtol=1e-9)
    found = bound.predictions(theta, X)
    np.testing.assert_allclose(found["probability"].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(found["class"], found["probability"].argmax(axis=1))
    inner = t == 0
    names = range(3) if loss is THREE else (-1, 1)
    likely = [np.exp(-bound.values(theta, X, np.full(400, name))) for name in names]
    np.testing.assert_allclose(found["probability"][inner], np.transpose(likely)[inner], rtol=1e-9)


# the robust distance


def mahalanobis(frame, X):
    """Compute t from the centre and the inverse of the scatter that a frame stands for."""
    directions, shift = frame[:-1], frame[-1]
    centre = np.linalg.lstsq(directions.T, -shift, rcond=None)[0]
    gaps = X - centre
    square = np.einsum("ij,jk,ik->i", gaps, directions @ directions.T, gaps)
    return np.log(np.maximum(square, 1.0))


def test_far_is_the_logarithm_of_a_mahalanobis_distance():
    X = rows()
    bound = measured(TWO, X)
    t = bound.far(X)
    np.testing.assert_array_equal(t % UNIT, 0)
    gap = mahalanobis(bound.frame, X) - t
    assert ((gap >= -1e-9) & (gap <= UNIT)).all()
    assert 0.7 <= (t == 0).mean() <= 0.8  # the inner three quarters
    assert t[:40].min() > t[40:].max() / 2  # rows that are 20 times as far out


def test_far_matches_a_naive_minimum_covariance_determinant():
    """The core is where a search from many starts finds it."""
    X = rows(600, 2, seed=3)
    X[:60] = 50.0 + np.random.default_rng(0).normal(size=(60, 2))  # a tight cluster far out
    best, rng = (np.inf, None), np.random.default_rng(1)
    for _ in range(20):
        inside = rng.choice(600, 3, replace=False)
        for _ in range(30):
            scatter = np.cov(X[inside].T, bias=True)
            scatter += 0.05 * np.diag(np.maximum(np.diag(scatter), 0.1 * X.var(axis=0)))
            gaps = X - X[inside].mean(axis=0)
            square = np.einsum("ij,jk,ik->i", gaps, np.linalg.inv(scatter), gaps)
            inside = np.argsort(square)[:300]
        best = min(best, (np.linalg.det(scatter), tuple(square)))
    square = np.array(best[1])
    naive = np.log(np.maximum(square / np.quantile(square, 0.75), 1))
    t = measured(TWO, X).far(X)
    assert np.abs(t - naive).max() < 0.4
    assert t[:60].min() > 2.0


def on_the_edge(frame, n=3000, seed=0):
    """Make rows whose t is as close to the next multiple of its unit as float64 allows, on either side."""
    rng = np.random.default_rng(seed)
    directions, shift = frame[:-1], frame[-1]
    centre = np.linalg.solve(directions.T, -shift)
    steps = rng.normal(size=(n, len(centre)))
    steps /= np.linalg.norm(steps @ directions, axis=1)[:, None]
    return centre + steps * np.exp(rng.integers(0, 9000, size=n) * UNIT / 2)[:, None]


def test_far_is_that_of_the_row_whichever_rows_accompany_it(monkeypatch):
    bound = dataclasses.replace(measured(TWO, rows()), farthest=64.0)
    X = on_the_edge(bound.frame)
    t, n = bound.far(X), len(X)
    assert (np.abs((mahalanobis(bound.frame, X) + UNIT / 2) % UNIT - UNIT / 2) < 1e-9 * UNIT).mean() > 0.2
    order = np.random.default_rng(5).permutation(n)
    np.testing.assert_array_equal(bound.far(X[order]), t[order])
    np.testing.assert_array_equal(bound.far(np.asfortranarray(X)), t)
    np.testing.assert_array_equal(bound.far(np.repeat(X, 2, axis=1)[:, ::2]), t)
    np.testing.assert_array_equal(bound.far(np.tile(X, (5, 1))), np.tile(t, 5))
    for row in range(0, n, 7):
        assert bound.far(X[[row]]) == t[row]
        assert bound.far(X[row : row + 13])[0] == t[row]
    for threads in ("1", "5"):
        monkeypatch.setenv("DURAMEN_NUM_THREADS", threads)
        np.testing.assert_array_equal(bound.far(np.tile(X, (9, 1))), np.tile(t, 9))
    short = X.astype(np.float32)
    np.testing.assert_array_equal(bound.far(short), bound.far(short.astype(np.float64)))


def test_far_of_sparse_rows_is_that_of_dense_ones():
    X = rows(2000, 30)
    X[np.random.default_rng(1).random(X.shape) < 0.8] = 0.0
    thin, bound = sparse.csr_array(X), measured(TWO, X)
    np.testing.assert_array_equal(measured(TWO, thin).frame.shape, bound.frame.shape)
    np.testing.assert_array_equal(bound.far(thin), bound.far(X))
    np.testing.assert_array_equal(bound.far(thin[500:700]), bound.far(X)[500:700])


def test_the_frame_is_that_of_the_points_in_any_order():
    X, ids = rows(30_000), np.random.default_rng(2).permutation(90_000)[:30_000]
    order = np.argsort(ids)
    one, two = (measured(TWO, X[part], ids[part]) for part in (order, order[::-1]))
    np.testing.assert_allclose(one.frame, two.frame, rtol=1e-9, atol=1e-12)


def test_the_distance_follows_the_units_of_the_columns_and_nearly_every_affine_map():
    X, rng = rows(3000), np.random.default_rng(3)
    t = measured(TWO, X).far(X)
    scaled = X * [1e-6, 1.0, 1e8] + [5.0, -1e3, 1e9]
    assert np.abs(measured(TWO, scaled).far(scaled) - t).max() <= 2 * UNIT
    turned = X @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + rng.normal(size=3)
    there = measured(TWO, turned).far(turned)
    # the ridge is of the columns: at a condition number of 11, it can change a square by a factor of 1.5 in the
    # core, and the quartile by as much
    assert np.abs(there - t).max() < 1.0
    assert np.median(np.abs(there - t)) < 0.05


AWKWARD = {
    "a constant column": np.column_stack([rows(300), np.full(300, 7.0)]),
    "two constant columns": np.column_stack([np.zeros(300), np.full(300, -1e12), rows(300)]),
    "a rare column": np.column_stack([rows(300), np.arange(300) == 17]),
    "a column twice": rows(300)[:, [0, 1, 1, 2]],
    "fewer rows than columns": rows(5, 12),
    "one row": np.ones((1, 4)),
    "all rows equal": np.full((200, 3), 2.5),
    "all zero": np.zeros((200, 3)),
    "mostly equal": np.concatenate([np.full((180, 2), 0.1), rows(20, 2)]),
    "huge": rows(300) * 1e150,
    "tiny": rows(300) * 1e-150,
    "300 columns": rows(500, 300),
    "300 columns, all equal": np.ones((50, 300)),
    "sparse": sparse.csr_array(rows(300) * (np.random.default_rng(0).random((300, 3)) < 0.2)),
    "sparse zero": sparse.csr_array((60, 3)),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_rows_have_a_distance(name):
    X = AWKWARD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = measured(TWO, X)
        t = bound.far(X)
    assert np.isfinite(bound.frame).all()
    assert ((t >= 0) & (t <= 64)).all()
    assert (t == 0).mean() >= min(0.7, 1 - 1 / X.shape[0])
    theta = theta_of(TWO, X.shape[1], size=0.0)
    y = np.arange(X.shape[0]) % 2
    assert np.isfinite(bound.values(theta, X, y)).all()
    if X.shape[0] > 1:
        assert np.isfinite(dm.solve(dm.points(X, y), TWO, l2=1.0).objective)


def test_a_column_that_was_constant_says_nothing_and_beyond_the_farthest_row_nothing_is_known():
    X = AWKWARD["a constant column"]
    bound = measured(TWO, X)
    off = X + np.array([0.0, 0.0, 0.0, 1e6])
    np.testing.assert_array_equal(bound.far(off), bound.far(X))
    assert bound.far(1e9 * X).max() == bound.far(X).max() == bound.farthest


# what it refuses, and what it keeps


def test_a_base_that_is_no_likelihood_of_classes_is_refused():
    for wrong in (dm.SquaredLoss(), TWO, dm.LogisticLoss, "logistic", dm.SmoothHingeLoss()):
        with pytest.raises(TypeError, match=r"base=.* must be a LogisticLoss or a SoftmaxLoss"):
            dm.ContaminatedLoss(wrong)


@pytest.mark.parametrize(
    "frame, message",
    [
        (np.zeros(3), r"frame must be \(n_columns \+ 1, q\); found shape \(3,\)"),
        (np.zeros((1, 2)), "found shape"),
        (np.zeros((3, 0)), "found shape"),
        (np.zeros((2, 2, 2)), "found shape"),
        ([[np.nan, 0.0], [0.0, 1.0]], "frame must be finite"),
        ([[1.0, 2.0], [3.0]], "must be an array of numbers"),
        ("far", "must be an array of numbers"),
    ],
    ids=str,
)
def test_a_wrong_frame_is_refused(frame, message):
    with pytest.raises(ValueError, match=message):
        dm.ContaminatedLoss(frame=frame)


def test_a_loss_without_its_distance_or_with_another_s_says_so():
    X, y = rows(), labels(TWO, 400)
    with pytest.raises(ValueError, match=r"has no robust distance yet; use .*\.measure\(points\)"):
        TWO.values(np.zeros(8), X, y)
    bound = measured(TWO, X)
    for call in (bound.values, bound.gradients):
        with pytest.raises(ValueError, match="was measured on 3 columns; X has 2"):
            call(np.zeros(7), X[:, :2], y)
    with pytest.raises(ValueError, match="was measured on 3 columns; X has 2"):
        bound.far(X[:, :2])


def test_a_pickle_has_the_distance_and_not_the_rows_it_was_prepared_for():
    X = rows(5000)
    ready = measured(THREE, X).prepared(X)
    assert ready.far(X) is ready.far(X)
    raw = pickle.dumps(ready)
    again = pickle.loads(raw)
    assert len(raw) < 2000
    assert again == ready
    assert again.farthest == ready.farthest
    np.testing.assert_array_equal(again.frame, ready.frame)
    assert not again.frame.flags.writeable
    np.testing.assert_array_equal(again.far(X), ready.far(X))


def test_what_was_measured_is_kept_and_is_no_part_of_the_problem():
    X, y = rows(), labels(TWO, 400)
    bound = measured(TWO, X)
    assert bound == TWO
    assert hash(bound) == hash(TWO)
    assert (TWO.measured, bound.measured) == (False, True)
    np.testing.assert_array_equal(bound.measure(dm.points(10 * X, y)).frame, bound.frame)
    core = dm.robust_coreset(10 * X, y, loss=bound, size=50, random_state=0)
    np.testing.assert_array_equal(core.anchor.frozen["distance"], bound.frame)
    np.testing.assert_array_equal(core.loss.frame, bound.frame)
    with pytest.raises(ValueError, match="read-only"):
        bound.frame[0] = 1
