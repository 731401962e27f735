"""Laws of every loss, over one table."""

import dataclasses
import pickle

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from tests.conformance.cases import CASES, LINEAR

every_loss = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_predictor = pytest.mark.parametrize(
    "case",
    [case for case in LINEAR if not isinstance(case.loss, dm.SoftmaxLoss | dm.ContaminatedLoss)],
    ids=lambda case: case.name,
)
every_linear_loss = pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


def at(y, rows):
    return None if y is None else y[rows]


def everything_of(case, theta, ball, X, y):
    """Compute all that a loss says about rows: values, gradients, their sum, the deviation, constants or None."""
    loss = case.loss
    constants = (method(X, y) for method in (loss.lipschitz, loss.smoothness, loss.hessian_lipschitz))
    values, gradients = loss.values(theta, X, y), loss.gradients(theta, X, y)
    return values, gradients, loss.gradient_sum(theta, X, y), loss.deviation(ball, X, y), *constants


@every_loss
def test_values_are_the_definition(case):
    X, y = case.data()
    for seed in range(5):
        theta = case.theta(np.random.default_rng(seed))
        expected = [case.naive(theta, X[i], at(y, i)) for i in range(len(X))]
        # the naive Bregman sums cancel; nothing else loses more than a few units
        np.testing.assert_allclose(case.loss.values(theta, X, y), expected, rtol=1e-11, atol=1e-13)


@every_loss
def test_values_are_non_negative(case):
    X, y = case.data(n=500)
    for seed in range(20):
        theta = case.theta(np.random.default_rng(seed)) * 10.0 ** (seed % 4 - 2)
        values = case.loss.values(theta, X, y)
        assert values.shape == (500,)
        assert np.isfinite(values).all()
        assert (values >= 0).all()


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_is_kept(case, dtype):
    X, y = case.data()
    X = X.astype(dtype)
    ball = case.ball(np.random.default_rng(0), 0.3)
    values, gradients, total, *others = everything_of(case, ball.theta, ball, X, y)
    assert total.dtype == np.float64
    assert all(one is None or one.dtype == dtype for one in (values, gradients, *others))


@every_loss
def test_float32_agrees_with_float64(case):
    X, y = case.data()
    theta = case.theta(np.random.default_rng(2)).astype(np.float32)
    exact = case.loss.values(theta.astype(float), X.astype(np.float32).astype(float), y)
    np.testing.assert_allclose(case.loss.values(theta, X.astype(np.float32), y), exact, rtol=2e-5, atol=2e-6)


@every_loss
def test_gradients_match_finite_differences(case):
    X, y = case.data()
    for seed in range(3):
        theta = case.theta(np.random.default_rng(seed))
        gradients = case.loss.gradients(theta, X, y)
        assert gradients.shape == (len(X), *theta.shape)
        h = 1e-6
        for place in np.ndindex(theta.shape):
            ahead, behind = theta.copy(), theta.copy()
            ahead[place] += h
            behind[place] -= h
            slope = (case.loss.values(ahead, X, y) - case.loss.values(behind, X, y)) / (2 * h)
            # truncation h^2 f'''/6 and rounding eps f / h are both below 1e-7 for f below 100
            np.testing.assert_allclose(gradients[(slice(None), *place)], slope, rtol=1e-5, atol=1e-6)


@every_linear_loss
def test_curvatures_match_finite_differences_of_slopes(case):
    loss, (X, y), h = case.loss, case.data(), 1e-6
    m, y = (
        loss._chunk_predictors(X, case.theta(np.random.default_rng(5)), None),
        loss.encode_labels(y, np.float64),
    )
    bends = loss.curvature(m, y)
    width = 1 if bends.ndim == 1 else bends.shape[1]  # a contaminated loss passes one more number along
    for place in range(width):
        step = (h * np.eye(1, m.size // len(m), place)).reshape(m.shape[1:])
        ahead, behind = m + step, m - step
        gap = loss.curvature(ahead, y) - loss.curvature(behind, y)
        smooth = (
            (np.abs(gap) <= 1e-3).reshape(len(m), -1).all(axis=1)
        )  # the others are at a kink of the slope
        assert smooth.mean() > 0.9
        change = ((loss.slope(ahead, y) - loss.slope(behind, y)) / (2 * h)).reshape(len(m), -1)[:, :width]
        # truncation, by h^2 and a third derivative, and rounding, eps slope / h, are below 1e-7 for slopes
        # below 100
        bend = bends.reshape(len(m), width, width)[:, place]
        np.testing.assert_allclose(bend[smooth], change[smooth], rtol=1e-5, atol=1e-6)


@every_predictor
def test_only_losses_of_the_residual_stay_when_predictor_and_label_move(case):
    loss, (_, y) = case.loss, case.data()
    m, y = np.random.default_rng(5).normal(size=len(y)), loss.encode_labels(y, np.float64)
    moved = loss.pointwise(m + 0.7, y + 0.7)
    assert np.allclose(moved, loss.pointwise(m, y), rtol=1e-9, atol=1e-12) == loss.of_residual


@every_loss
def test_gradient_sum_is_the_weighted_sum_of_gradients(case):
    X, y = case.data()
    rng = np.random.default_rng(3)
    theta, weights = case.theta(rng), rng.random(len(X))
    gradients = case.loss.gradients(theta, X, y)
    expected = np.tensordot(weights, gradients, axes=1)
    for given, sums in ((weights, expected), (None, gradients.sum(axis=0))):
        np.testing.assert_allclose(case.loss.gradient_sum(theta, X, y, given), sums, rtol=1e-9, atol=1e-12)


@every_loss
def test_a_row_has_the_same_loss_wherever_it_stands(case, monkeypatch):
    """Bit for bit: in any order, slice, memory layout, chunk and number of threads."""
    n = 140_000  # more than two chunks
    X, y = case.data(n=n)
    rng = np.random.default_rng(4)
    theta = case.theta(rng)
    values = case.loss.values(theta, X, y)
    order = rng.permutation(n)
    np.testing.assert_array_equal(case.loss.values(theta, X[order], at(y, order)), values[order])
    np.testing.assert_array_equal(case.loss.values(theta, np.asfortranarray(X), y), values)
    odd = slice(12_345, 12_345 + 74_567)
    np.testing.assert_array_equal(case.loss.values(theta, X[odd], at(y, odd)), values[odd])
    for row in range(0, n, 10_007):
        assert case.loss.values(theta, X[[row]], at(y, [row])) == [values[row]]
    wide = np.repeat(X, 2, axis=1)[:, ::2]  # strided columns
    np.testing.assert_array_equal(case.loss.values(theta, wide, y), values)
    for threads in ("1", "5"):
        monkeypatch.setenv("DURAMEN_NUM_THREADS", threads)
        np.testing.assert_array_equal(case.loss.values(theta, X, y), values)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wide_row_has_the_same_loss_wherever_it_stands(case, dtype):
    """Beyond 8192 columns NumPy's sums depend on the shape, unless they are taken in groups."""
    case = dataclasses.replace(case, columns=10_000)
    X, y = case.data(n=6)
    X = (X / 30 if not case.positive else X).astype(dtype)
    theta = case.theta(np.random.default_rng(4))
    theta = theta if case.positive else theta / 30
    values = case.loss.values(theta, X, y)
    unaligned = np.frombuffer(b"x" + X.tobytes(), dtype=np.uint8)[1:].view(dtype).reshape(X.shape)
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(case.loss.values(theta, unaligned, y), values)
    for row in range(6):
        assert case.loss.values(theta, X[[row]], at(y, [row])) == [values[row]]


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 2000.0])
def test_no_floating_point_flag_is_raised(case, dtype, scale):
    X, y = case.data()
    X = (X * scale).astype(dtype)
    theta = case.theta(np.random.default_rng(19))
    ball = dm.Ball(theta, 0.1 * np.abs(theta).min())
    with np.errstate(all="raise"):
        everything_of(case, theta, ball, X, y)


@every_loss
def test_inputs_are_never_changed(case):
    X, y = case.data()
    theta = case.theta(np.random.default_rng(5))
    before = X.copy(), None if y is None else y.copy(), theta.copy()
    for array in (X, y, theta):
        if array is not None:
            array.flags.writeable = False
    everything_of(case, theta, case.ball(np.random.default_rng(5), 0.1), X, y)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(theta, before[2])
    assert y is None or (y == before[1]).all()


@every_loss
def test_weights_are_copies_and_zero_weight_is_absence(case):
    X, y = case.data()
    rng = np.random.default_rng(6)
    theta, weights = case.theta(rng), rng.integers(0, 4, size=len(X))
    again = np.repeat(np.arange(len(X)), weights)
    weighted = dm.points(X, y, weights)
    copied = dm.points(X[again], at(y, again))
    for z in (0, 0.2, 3, 7.5):
        scores = [dm.trimmed_objective(p, theta, loss=case.loss, n_outliers=z) for p in (weighted, copied)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-12)


@every_loss
def test_pickling_keeps_the_loss(case):
    X, y = case.data()
    theta = case.theta(np.random.default_rng(7))
    again = pickle.loads(pickle.dumps(case.loss))
    assert again == case.loss
    assert hash(again) == hash(case.loss)
    assert repr(again) == repr(case.loss)
    np.testing.assert_array_equal(again.values(theta, X, y), case.loss.values(theta, X, y))


@every_loss
@pytest.mark.parametrize("bad", [np.nan, slow(np.inf), slow(-np.inf)])
def test_a_row_with_nan_or_infinity_is_named(case, bad):
    X, y = case.data(n=80_000)
    X[70_003, 1] = bad
    X[78_000, 0] = bad
    theta = case.theta(np.random.default_rng(8))
    for method in (case.loss.values, case.loss.gradients):
        with pytest.raises(ValueError, match="70003"):
            method(theta, X, y)
    with pytest.raises(ValueError, match="70003"):
        case.loss.deviation(case.ball(np.random.default_rng(8), 0.1), X, y)


@every_loss
def test_wrong_parameters_are_named(case):
    X, y = case.data()
    theta = case.theta(np.random.default_rng(9))
    with pytest.raises(ValueError, match=r"theta has shape \(77,\); .* needs shape"):
        case.loss.values(np.zeros(77), X, y)
    broken = theta.copy()
    broken.flat[0] = np.nan
    with pytest.raises(ValueError, match="theta must be finite"):
        case.loss.values(broken, X, y)


@every_loss
def test_lists_are_accepted(case):
    X, y = case.data(n=5)
    theta = case.theta(np.random.default_rng(10))
    listed = case.loss.values(theta.tolist(), X.tolist(), None if y is None else y.tolist())
    np.testing.assert_array_equal(listed, case.loss.values(theta, X, y))


@every_loss
def test_no_rows_have_no_losses(case):
    X, y = case.data()
    none = at(y, slice(0))
    ball = case.ball(np.random.default_rng(20), 0.1)
    values, gradients, total, deviation, *_ = everything_of(case, ball.theta, ball, X[:0], none)
    assert values.shape == deviation.shape == (0,)
    assert gradients.shape == (0, *ball.theta.shape)
    assert not total.any()


@every_linear_loss
@pytest.mark.parametrize(
    "form", [sparse.csr_array, slow(sparse.csr_matrix), slow(sparse.csc_array), slow(sparse.coo_matrix)]
)
def test_sparse_rows_give_what_dense_ones_give(case, form):
    X, y = case.data(n=70_000)
    X[np.random.default_rng(16).random(X.shape) < 0.6] = 0
    rows = form(X)
    ball = case.ball(np.random.default_rng(16), 0.2)
    thin, dense = (everything_of(case, ball.theta, ball, form, y) for form in (rows, X))
    tolerances = [(1e-12, 0), (1e-9, 1e-12), (1e-9, 0), (1e-9, 0), (1e-12, 0), (1e-12, 0), (1e-12, 0)]
    for one, two, (rtol, atol) in zip(thin, dense, tolerances, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            one = one.toarray() if sparse.issparse(one) else one
            np.testing.assert_allclose(one, two, rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", [case for case in CASES if case not in LINEAR], ids=lambda case: case.name)
def test_sparse_rows_are_refused_by_the_others(case):
    X, _ = case.data()
    theta = case.theta(np.random.default_rng(17))
    with pytest.raises(TypeError, match=r"needs dense rows.*toarray"):
        case.loss.values(theta, sparse.csr_array(X))
