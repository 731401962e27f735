"""Numbers where it is hard: large margins, zeros, data far from the origin, memory."""

import tracemalloc
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.losses.centres import nearest_squared

getcontext().prec = 400  # enough for 1 + exp(-700)
EPS = np.finfo(float).eps


def exactly(computed, exact, units):
    exact = Decimal(exact)
    return abs(Decimal(float(computed)) - exact) <= abs(exact) * Decimal(units * EPS)


@pytest.mark.parametrize(
    "margin", [1000.0, 745.0, 700.0, 37.0, 1.0, 1e-8, 0.0, -1e-8, -1.0, -37.0, -700.0, -1000.0]
)
@pytest.mark.parametrize("labels", [(-1, 1), (0, 1), (False, True)])
def test_logistic_at_large_margins(margin, labels):
    loss = dm.LogisticLoss(fit_intercept=False)
    value = loss.values([1.0], [[margin]], [labels[1]])[0]
    mirrored = loss.values([1.0], [[-margin]], [labels[0]])[0]
    assert value == mirrored
    exact = (1 + (-Decimal(margin)).exp()).ln()
    if margin >= 745:  # below the smallest number
        assert value <= 5e-324
    else:
        assert exactly(value, exact, 4)
    slope = loss.gradients([1.0], [[margin]], [labels[1]])[0, 0] / margin if margin else -0.5
    if margin < 700:
        assert exactly(slope, -1 / (1 + Decimal(margin).exp()), 8)


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 10**9])
@pytest.mark.parametrize(
    "offset", [-700.0, -30.0, -1.01, -0.99, -1e-3, -1e-9, 0.0, 1e-9, 0.3, 0.99, 1.01, 30.0]
)
def test_poisson_against_exact_arithmetic(count, offset):
    loss = dm.PoissonLoss(fit_intercept=False)
    m = float(np.log(max(count, 1))) + offset
    value = loss.values([1.0], [[m]], [count])[0]
    exact = Decimal(m).exp() - count + (count * (Decimal(count).ln() - Decimal(m)) if count else 0)
    # m is a rounded number: the value may be off by what half a unit of m, and of log y, changes it
    slack = abs(Decimal(m).exp() - count) * Decimal((abs(m) + 25) * EPS)
    assert abs(Decimal(float(value)) - exact) <= 20 * Decimal(EPS) * exact + slack
    assert value >= 0


@pytest.mark.parametrize("seam", [-1.0, -0.5, 0.5, 1.0])
def test_poisson_deviation_where_series_and_formula_meet(seam):
    loss = dm.PoissonLoss(fit_intercept=False)
    rng = np.random.default_rng(7)
    for dtype in (np.float32, np.float64):
        X, y = np.ones((2000, 1), dtype=dtype), np.exp(seam + 1e-6 * rng.normal(size=2000))
        for radius in (4e-8, 1e-6, 1e-3):
            bound = loss.deviation(dm.Ball([0.0], radius), X, y)
            here = loss.values([0.0], X, y)
            for theta in radius * np.linspace(-1, 1, 21):
                assert (np.abs(loss.values([theta], X, y) - here) <= bound).all()


def test_poisson_at_predictors_beyond_the_range():
    loss = dm.PoissonLoss(fit_intercept=False)
    X, y = np.array([[709.0], [1000.0], [-1000.0], [-1000.0]]), [3, 3, 0, 5]
    values = loss.values([1.0], X, y)
    assert values[0] == pytest.approx(np.exp(709.0), rel=1e-12)
    assert values[1] == np.inf
    assert values[2] == 0.0
    assert values[3] == pytest.approx(5 * np.log(5) - 5 + 5000, rel=1e-14)
    assert (loss.deviation(dm.Ball([1.0], 0.1), X, y)[[0, 3]] > 0).all()


def assert_squares(values, exact, units):
    """Compare squared distances with fractions."""
    for value, (square, _) in zip(values, exact, strict=True):
        assert abs(Fraction(float(value)) - square) <= square * Fraction(units)


def exact_square(x, c):
    return sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, c, strict=True))


def exact_nearest(X, centres):
    return [min((exact_square(x, c), number) for number, c in enumerate(centres)) for x in X]


@pytest.mark.parametrize("columns", [1, 4, 20])  # differences, and the screening product
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_k_means_far_from_the_origin(columns, offset, dtype):
    """The textbook |x|^2 - 2 x.c + |c|^2 has no correct digit left at an offset of 1e8."""
    rng = np.random.default_rng(1)
    X = (offset + rng.normal(size=(60, columns))).astype(dtype)
    centres = (offset + rng.normal(size=(5, columns))).astype(dtype)
    X[0], X[1] = centres[3], np.nextafter(centres[2], np.inf, dtype=dtype)
    exact = exact_nearest(X, centres)
    values = dm.KMeansLoss(5).values(centres, X)
    assert_squares(values, exact, (columns + 3) * float(np.finfo(dtype).eps))


def test_a_tie_goes_to_the_first_centre_in_both_kernels():
    for columns in (2, 20):
        centres = np.zeros((4, columns))
        centres[[1, 2, 3], 0] = [5.0, 1.0, 5.0]
        X = np.zeros((3, columns))
        X[:, 0] = [3.0, 6.0, 5.0]
        _, numbers = nearest_squared(X, centres)
        assert numbers.tolist() == [1, 1, 1]


def test_centres_so_close_that_the_product_cannot_tell_them():
    rng = np.random.default_rng(2)
    centres = np.repeat(rng.normal(size=(1, 20)), 6, axis=0) + 1e-9 * rng.normal(size=(6, 20))
    X = np.concatenate([centres + 1e-10 * rng.normal(size=(6, 20)), 1e6 * rng.normal(size=(20, 20))])
    exact = exact_nearest(X, centres)
    squared, numbers = nearest_squared(X, centres)
    assert_squares(squared, exact, 30 * EPS)
    near = [(number, first) for number, (square, first) in zip(numbers, exact, strict=True) if square < 1]
    assert all(number == first for number, first in near)  # far away all six are equally far, as computed


def test_close_centres_beside_a_far_one():
    """The far centre makes the product's numbers so large that it cannot tell the close ones apart."""
    rng = np.random.default_rng(5)
    centres = np.concatenate([1e-7 * rng.normal(size=(5, 20)), np.full((1, 20), 1e6)])
    X = centres[rng.integers(5, size=100)] + 1e-8 * rng.normal(size=(100, 20))
    exact = exact_nearest(X, centres)
    for loss in (dm.KMeansLoss(6), dm.BregmanLoss(6, "squared")):
        assert_squares(loss.values(centres, X), exact, 30 * EPS)
        assert loss.nearest(centres, X).tolist() == [first for _, first in exact]


@pytest.mark.parametrize("name", ["kl", "squared"])
def test_bregman_at_zeros_of_the_data(name):
    loss = dm.BregmanLoss(2, name)
    centres = np.array([[1.0, 2.0], [4.0, 0.5]])
    X = np.array([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    values, gradients = loss.values(centres, X), loss.gradients(centres, X)
    assert np.isfinite(values).all()
    assert np.isfinite(gradients).all()
    if name == "kl":
        np.testing.assert_allclose(values, [3.0, 1.0, 2.0], rtol=1e-15)


def test_bregman_outside_its_domain_names_row_and_column():
    loss = dm.BregmanLoss(1, "itakura-saito")
    X = np.ones((20_000, 2))
    X[18_000, 1] = 0.0
    with pytest.raises(ValueError, match=r"itakura-saito .* more than 0; row 18000 has 0.0 in column 1"):
        loss.values([[1.0, 1.0]], X)
    with pytest.raises(ValueError, match=r"kl .* row 0 has -1.0 in column 1"):
        dm.BregmanLoss(1, "kl").values([[1.0, 1.0]], [[0.0, -1.0]])
    with pytest.raises(ValueError, match=r"centre 1 has 0.0 in column 0"):
        dm.BregmanLoss(2, "kl").values([[1.0, 1.0], [0.0, 1.0]], [[1.0, 1.0]])


def test_bregman_deviation_is_infinite_where_the_ball_leaves_the_domain():
    X = [[1.0, 2.0]]
    for name in ("kl", "itakura-saito"):
        loss = dm.BregmanLoss(1, name)
        assert np.isfinite(loss.deviation(dm.Ball([[0.5, 0.5]], 0.49), X)).all()
        assert np.isinf(loss.deviation(dm.Ball([[0.5, 0.5]], 0.5), X)).all()


def with_peak(call, X, y):
    """Call it on all rows; returns the result, and the most memory beside it. Caches are filled by a few rows."""
    call(X[:100], y[:100])
    tracemalloc.start()
    try:
        result = call(X, y)
        return result, tracemalloc.get_traced_memory()[1] - result.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_memory_does_not_grow_with_the_rows():
    """Twice two chunks of scratch; an (n, k) array would take 128 MB here, an (n, k, d) array 1.5 GB."""
    rng = np.random.default_rng(3)
    n = 400_000
    X = rng.normal(size=(n, 20)).astype(np.float32)
    y = rng.choice([-1, 1], size=n)
    centres = rng.normal(size=(40, 20))
    calls = {
        "k-means": lambda X, y: dm.KMeansLoss(40).values(centres, X),
        "kl": lambda X, y: dm.BregmanLoss(40, "squared").values(centres, X),
        "logistic": lambda X, y: dm.LogisticLoss().values(np.ones(21), X, y),
        "gradient": lambda X, y: dm.LogisticLoss().gradients(np.ones(21), X, y),
        "few columns": lambda X, y: dm.KMedianLoss(40).values(centres[:, :4], X[:, :4]),
        "deviation": lambda X, y: dm.KMeansLoss(40).deviation(dm.Ball(centres, 1.0), X),
        "bregman deviation": lambda X, y: dm.BregmanLoss(40, "squared").deviation(dm.Ball(centres, 1.0), X),
    }
    for name, call in calls.items():
        # beside the scratch: a few columns of n numbers (labels' checks, distances), never a matrix
        _, peak = with_peak(call, X, y)
        assert peak < 20e6 + 8 * n * 2, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", [dm.KMeansLoss(100), dm.BregmanLoss(100, "squared"), dm.BregmanLoss(100, "kl")], ids=repr
)
@pytest.mark.usefixtures("two_threads")
def test_one_far_centre_does_not_defeat_the_screening(loss):
    """A bound on rounding shared by all centres would leave every pair: ninety times the memory."""
    rng = np.random.default_rng(6)
    n = 60_000
    X = np.exp(rng.normal(size=(n, 30))).astype(np.float32)
    centres = np.exp(rng.normal(size=(100, 30)))
    centres[17] = 1e6
    found, peak = with_peak(lambda X, _: loss.values(centres, X), X, X)
    assert peak < 30e6
    expected = [loss.values(centres, X[row : row + 1])[0] for row in range(0, n, 9_999)]
    assert found[::9_999].tolist() == expected


def test_gradient_sums_are_taken_in_float64():
    X = np.full((1_000_000, 1), 1.1, dtype=np.float32)
    loss, y = dm.SquaredLoss(fit_intercept=False), np.zeros(len(X))
    exact = len(X) * float(np.float32(1.1)) ** 2
    for rows in (X, sparse.csr_array(X)):
        assert loss.gradient_sum([1.0], rows, y)[0] == pytest.approx(exact, rel=1e-7)


OVERFLOWING = [
    (dm.PoissonLoss(fit_intercept=False), [1.0], [[1000.0]], [3], np.float64),
    (dm.SquaredLoss(), [1.0, 0.0], [[1e20]], [3], np.float32),
    (dm.KMedianLoss(1), [[0.0, 0.0]], [[1e20, 0.0]], None, np.float32),
    (dm.KMeansLoss(1), [[0.0]], [[1e200]], None, np.float64),
]


@pytest.mark.parametrize("loss, theta, X, y, dtype", OVERFLOWING)
def test_where_the_loss_overflows_there_is_no_bound(loss, theta, X, y, dtype):
    X = np.array(X, dtype=dtype)
    assert loss.values(theta, X, y)[0] == np.inf
    assert loss.deviation(dm.Ball(theta, 0.1), X, y)[0] == np.inf
    assert not np.isnan(loss.gradients(theta, X, y)).any()


def test_constants_of_extreme_rows():
    huge, logistic = np.array([[1e20]], dtype=np.float32), dm.LogisticLoss()
    assert logistic.lipschitz(huge)[0] == np.float32(1e20)
    assert logistic.smoothness(huge)[0] == np.inf
    assert dm.SquaredLoss().hessian_lipschitz(np.array([[1e13]], dtype=np.float32))[0] == 0
    small = sparse.csr_array(np.array([[1e-40]], dtype=np.float32))
    assert dm.LogisticLoss(fit_intercept=False).lipschitz(small)[0] == np.float32(1e-40)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="row 1, column 0"):
            logistic.lipschitz([[1.0], [bad]])


def test_what_overflows_the_type_is_named():
    row = np.array([[0.0]], dtype=np.float32)
    with pytest.raises(ValueError, match="theta is too large for the type of X, float32; pass X as float64"):
        dm.LogisticLoss().values([1e39, 0.0], row, [1])
    with pytest.raises(ValueError, match=r"y has 1e\+39 in row 0, too large"):
        dm.SquaredLoss().values([1.0, 0.0], row, [1e39])
    with pytest.raises(ValueError, match="the predictor of row 0 overflows float64; scale the columns"):
        dm.LogisticLoss().values([1e200, -1e200, 0.0], [[1e200, 1e200]], [1])


def test_centres_opposite_at_the_edge_of_float32():
    signs = np.where(np.arange(20) % 2, 1e19, -1e19).astype(np.float32)
    centres = np.stack([signs, -signs])
    assert dm.KMeansLoss(2).values(centres, centres).tolist() == [0.0, 0.0]
    assert dm.KMeansLoss(2).nearest(centres, centres).tolist() == [0, 1]


def test_bregman_deviation_is_not_infinite_without_need():
    wide = dm.Ball([[1e-3, 1.0, 1000.0]], 0.0)
    row = np.ones((1, 3), dtype=np.float32)
    kl = dm.BregmanLoss(1, "kl")
    # all that is left is rounding: four times (d + 64) units of the value, and a little for the centre's own
    units = 5 * (3 + 64) * np.finfo(np.float32).eps
    assert kl.deviation(wide, row)[0] < units * kl.values(wide.theta, row)[0]
    two = dm.Ball([[0.5, 0.5], [5.0, 5.0]], 0.6)  # it leaves the domain around the first centre only
    assert np.isfinite(dm.BregmanLoss(2, "kl").deviation(two, [[1.0, 2.0], [0.5, 0.5], [4.9, 5.0]])).all()


@pytest.mark.parametrize("loss", [dm.LogisticLoss(), dm.SquaredLoss(), dm.HuberLoss(0.7), dm.PoissonLoss()])
def test_slopes_and_curvatures_are_derivatives_in_the_predictor(loss):
    X, y, step = np.linspace(-1, 1, 8)[:, None], np.arange(8) % 2, 1e-5
    below, above = np.array([0.8, 0.3 - step]), np.array([0.8, 0.3 + step])
    slopes = (loss.values(above, X, y) - loss.values(below, X, y)) / (2 * step)
    bends = (loss.slopes(above, X, y) - loss.slopes(below, X, y)) / (2 * step)
    np.testing.assert_allclose(loss.slopes([0.8, 0.3], X, y), slopes, rtol=1e-6)
    np.testing.assert_allclose(loss.curvatures([0.8, 0.3], X, y), bends, rtol=1e-6, atol=1e-9)
