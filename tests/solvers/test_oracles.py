"""The solver against scikit-learn and SciPy, where they solve the same problem: no outliers."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.cluster import KMeans
from sklearn.linear_model import (
    HuberRegressor,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)

import duramen as dm

N, D = 400, 6


@pytest.fixture(params=range(3))
def data(request):
    rng = np.random.default_rng(request.param)
    X = rng.normal(size=(N, D)) * [1, 10, 0.1, 1, 1, 100] + [0, 0, 0, 0, 5, 100]
    m = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=D) * 0.5
    return rng, X, m


def theta_of(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


def assert_same(solution, theta, X):
    """Compare predictors: coefficients in units of their columns."""
    rows = np.column_stack([X, np.ones(len(X))])
    np.testing.assert_allclose(rows @ solution.theta, rows @ theta, rtol=1e-4, atol=1e-4)
    assert solution.converged


@pytest.mark.parametrize("C", [0.01, 1.0, np.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_regression(data, C, weighted):
    rng, X, m = data
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-m)), 1, -1)
    weights = rng.integers(0, 4, N).astype(float) if weighted else np.ones(N)
    there = weights > 0  # the oldest scikit-learn warns of weights of zero
    peer = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    peer.fit(X[there], y[there], weights[there])
    ours = dm.solve(dm.points(X, y, weights), dm.LogisticLoss(), l2=1 / C, tol=1e-12)
    assert_same(ours, theta_of(peer), X)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
def test_ridge(data, alpha):
    rng, X, m = data
    y = m + rng.normal(size=N)
    weights = rng.random(N)
    peer = Ridge(alpha=alpha, tol=1e-12).fit(X, y, weights)
    ours = dm.solve(dm.points(X, y, weights), dm.SquaredLoss(), l2=alpha, tol=1e-12)
    assert_same(ours, theta_of(peer), X)
    assert ours.penalty == pytest.approx(alpha / 2 * (peer.coef_ @ peer.coef_), rel=1e-6)
    flat = dm.solve(dm.points(X, y, weights), dm.SquaredLoss(fit_intercept=False), l2=alpha, tol=1e-12)
    peer = Ridge(alpha=alpha, fit_intercept=False, tol=1e-12).fit(X, y, weights)
    np.testing.assert_allclose(X @ flat.theta, X @ peer.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_huber_regressor(data, alpha):
    """Where the scale is the one that HuberRegressor found: delta = epsilon sigma, l2 = alpha sigma."""
    rng, X, m = data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = m + rng.standard_t(2, size=N)
    peer = HuberRegressor(alpha=alpha, epsilon=1.35, tol=1e-10, max_iter=10_000).fit(X, y)
    ours = dm.solve(dm.points(X, y), dm.HuberLoss(1.35 * peer.scale_), l2=alpha * peer.scale_, tol=1e-12)
    np.testing.assert_allclose(ours.theta, theta_of(peer), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.filterwarnings(
    "ignore:Line search of Newton solver"
)  # the peer's, at its last digits: it goes on
def test_poisson_regressor(data, alpha):
    rng, X, m = data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = rng.poisson(np.exp(m))
    peer = PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(X, y)
    ours = dm.solve(dm.points(X, y), dm.PoissonLoss(), l2=alpha * N, tol=1e-12)
    assert_same(ours, theta_of(peer), X)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_quantile_regressor(data, quantile, form):
    rng, X, m = data
    y = m + rng.standard_t(2, size=N)
    loss = dm.QuantileLoss(quantile)
    least = loss.values(theta_of(QuantileRegressor(quantile=quantile, alpha=0).fit(X, y)), X, y).sum()
    ours = dm.solve(dm.points(X if form == "dense" else sparse.csr_array(X), y), loss)
    assert least * (1 - 1e-9) <= ours.objective <= least * (1 + 1e-4)


@pytest.mark.parametrize("loss", [dm.SmoothHingeLoss(), dm.HuberLoss(0.5)])
def test_piecewise_losses_against_a_general_optimiser(data, loss):
    rng, X, m = data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-m)), 1, -1)
    points = dm.points(X, y)

    def objective(theta):
        value = loss.values(theta, X, y).sum() + 0.5 * theta[:-1] @ theta[:-1]
        return value, loss.gradient_sum(theta, X, y) + np.append(theta[:-1], 0)

    peer = minimize(objective, np.zeros(D + 1), jac=True, method="BFGS", options={"gtol": 1e-8})
    ours = dm.solve(points, loss, l2=1.0, tol=1e-14)
    assert ours.objective == pytest.approx(peer.fun, rel=1e-10)
    np.testing.assert_allclose(ours.theta, peer.x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_contaminated_losses_against_a_general_optimiser(data, n_classes, form):
    """The likelihood spelled out, with its prior, from a fit of the base."""
    rng, X, m = data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X[:20] *= 10
    y = np.digitize(m + rng.logistic(size=N), [0.0, 1.0][: n_classes - 1])
    y[:20] = rng.integers(n_classes, size=20)
    base = dm.LogisticLoss() if n_classes == 2 else dm.SoftmaxLoss(3)
    points = dm.points(X, y)
    loss = dm.ContaminatedLoss(base).measure(points)
    t, k, p = loss.far(X), n_classes, D + 1

    def objective(theta):
        split = theta.reshape(1 if k == 2 else k, -1)
        w, noise = split[:, :p], split[:, p:].reshape(k, 2)
        scores = X @ w[:, :D].T + w[:, D]
        scores = np.column_stack([np.zeros(N), scores]) if k == 2 else scores
        scores -= np.logaddexp.reduce(scores, axis=1)[:, None]
        odds = 0.01 * np.exp(noise[:, 0] + np.logaddexp(0, noise[:, 1]) * t[:, None])
        at = np.arange(N), y
        chance = (odds[at] + np.exp(scores[at])) / (1 + odds.sum(axis=1))
        return -np.log(chance).sum() + 0.01 * (noise**2).sum() + 0.5 * (w[:, :D] ** 2).sum()

    first = loss.join(dm.solve(points, base, l2=1.0).theta)
    peer = minimize(objective, first.ravel(), method="BFGS", options={"gtol": 1e-4, "maxiter": 2000})
    given = points if form == "dense" else dm.points(sparse.csr_array(X), y)
    ours = dm.solve(given, loss, l2=1.0, tol=1e-12, init=first)
    assert objective(ours.theta.ravel()) == pytest.approx(ours.objective, rel=1e-9)
    assert ours.objective <= peer.fun * (1 + 1e-6)
    assert dm.solve(given, loss, l2=1.0).objective <= peer.fun * (1 + 1e-4)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_very_many_columns(form):
    """Beyond what Newton steps are taken for: the same solution as LogisticRegression's."""
    rng = np.random.default_rng(5)
    X = sparse.csr_array(sparse.random(300, 1200, density=0.05, random_state=5))
    y = np.where(X @ rng.normal(size=1200) > 0, 1, -1)
    rows = X if form == "sparse" else X.toarray()
    peer = LogisticRegression(C=1.0, solver="lbfgs", tol=1e-10, max_iter=10_000).fit(X, y)
    ours = dm.solve(dm.points(rows, y), dm.LogisticLoss(), l2=1.0, tol=1e-12)
    np.testing.assert_allclose(ours.theta, theta_of(peer), atol=2e-4)


def test_sparse_rows_solve_like_dense_ones(data):
    rng, X, m = data
    X = np.where(np.abs(X) > 1, X, 0.0)
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-m)), 1, -1)
    dense, thin = (
        dm.solve(dm.points(rows, y), dm.LogisticLoss(), 20, l2=1.0, init="zero", tol=1e-10)
        for rows in (X, sparse.csr_array(X))
    )
    np.testing.assert_allclose(dense.theta, thin.theta, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(dense.outliers, thin.outliers)
    dm.find_anchor(dm.points(sparse.csr_array(X), y), dm.LogisticLoss(), 20, random_state=0)


@pytest.mark.parametrize("shape", [(2000, 2), (1000, 30)])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_k_means_from_the_same_seeds(shape, k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=shape) + 4 * rng.normal(size=(5, shape[1]))[rng.integers(0, 5, shape[0])]
    seeds = X[rng.choice(len(X), k, replace=False)]
    weights = rng.random(len(X)) + 0.1
    for heavy in (None, weights):
        peer = KMeans(k, init=seeds, n_init=1, tol=0, max_iter=1000).fit(X, sample_weight=heavy)
        ours = dm.solve(dm.points(X, weights=heavy), dm.KMeansLoss(k), init=seeds, tol=0, max_iter=1000)
        assert ours.objective == pytest.approx(peer.inertia_, rel=1e-9)
        np.testing.assert_allclose(ours.theta, peer.cluster_centers_, rtol=1e-6, atol=1e-8)


def test_k_means_as_a_bregman_clustering(data):
    """The squared divergence takes the same steps as k-means--."""
    _, X, _ = data
    points, seeds = dm.points(X), X[:4]
    one = dm.solve(points, dm.KMeansLoss(4), 10, init=seeds, tol=0)
    two = dm.solve(points, dm.BregmanLoss(4, "squared"), 10, init=seeds, tol=0)
    np.testing.assert_allclose(one.history, two.history, rtol=1e-9)
    np.testing.assert_allclose(one.theta, two.theta, rtol=1e-9)


def test_one_median_against_a_general_optimiser(data):
    _, X, _ = data
    cost = lambda c: np.linalg.norm(X - c, axis=1).sum()  # noqa: E731
    peer = minimize(cost, X.mean(axis=0), method="BFGS", options={"gtol": 1e-8})
    ours = dm.solve(dm.points(X), dm.KMedianLoss(1), tol=1e-14, max_iter=5000)
    assert ours.objective == pytest.approx(peer.fun, rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e-9, 1e-4])
def test_a_median_leaves_a_point_that_does_not_hold_it(offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(101, 3))
    far = X[np.argmax(np.linalg.norm(X, axis=1))]
    free = dm.solve(dm.points(X), dm.KMedianLoss(1), init=[X.mean(axis=0)], tol=1e-13, max_iter=5000)
    stuck = dm.solve(dm.points(X), dm.KMedianLoss(1), init=[far + offset], tol=1e-13, max_iter=5000)
    assert stuck.objective == pytest.approx(free.objective, rel=1e-8)


def test_a_median_stays_on_a_point_that_holds_it():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    heavy = dm.points(X, weights=[10.0, 1.0, 1.0, 1.0])
    for init in ([[0.0, 0.0]], [[0.3, 0.2]], [[1.0, 0.0]]):
        theta = dm.solve(heavy, dm.KMedianLoss(1), init=init, tol=0, max_iter=5000).theta
        np.testing.assert_allclose(theta, [[0.0, 0.0]], atol=1e-9)


def test_truth_discovery_against_a_general_optimiser():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(80, 3)), 30 + rng.normal(size=(30, 3))])
    loss = dm.TruthDiscoveryLoss()
    peer = minimize(lambda t: loss.values(t, X).sum(), np.median(X, axis=0), method="BFGS")
    ours = dm.solve(dm.points(X), loss, random_state=0, tol=1e-14, max_iter=5000)
    assert ours.objective <= peer.fun * (1 + 1e-9)


def test_a_custom_loss():
    class Cauchy(dm.Loss):
        def values(self, theta, X, y=None):
            return np.log1p(np.square(X - theta).sum(axis=1))

        def gradients(self, theta, X, y=None):
            gap = theta - X
            return 2 * gap / (1 + np.square(gap).sum(axis=1, keepdims=True))

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:30] += 50
    solution = dm.solve(dm.points(X), Cauchy(), n_outliers=30, init=np.array([1.0, -1.0]), tol=1e-10)
    assert set(solution.outliers) == set(range(30))
    peer = minimize(lambda t: Cauchy().values(t, X[30:]).sum(), np.zeros(2))
    np.testing.assert_allclose(solution.theta, peer.x, atol=1e-4)
    anchor = dm.find_anchor(dm.points(X), Cauchy(), 30, 0, init=np.zeros(2))
    assert np.linalg.norm(anchor.theta - peer.x) < 1


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
def test_columns_far_from_zero(offset):
    """Years, map coordinates: large numbers that differ little."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=500)
    shifted = (dm.points(X + shift, y) for shift in (0.0, offset))
    near, far = (dm.solve(points, dm.SquaredLoss(), 10, random_state=0) for points in shifted)
    assert far.objective == pytest.approx(near.objective, rel=1e-5)
    np.testing.assert_allclose(far.theta[:-1], near.theta[:-1], rtol=1e-4)


def test_polynomials_of_high_degree():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 500)
    X, y = np.vander(x, 12)[:, :-1], np.sin(20 * x) + 0.1 * rng.normal(size=500)
    rows = np.column_stack([X, np.ones(500)])
    best = np.square(rows @ np.linalg.lstsq(rows, y, rcond=None)[0] - y).sum() / 2
    assert dm.solve(dm.points(X, y), dm.SquaredLoss()).objective < 1.01 * best


@pytest.mark.parametrize("far", [1e7, 1e20, 1e160])  # the square of the last is infinite
@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (dm.SquaredLoss(), "real"), (dm.HuberLoss(1.0), "real"), (dm.LogisticLoss(), "sign"), (dm.SmoothHingeLoss(), "sign"),
        (dm.PoissonLoss(), "count"), (dm.KMeansLoss(2), None), (dm.KMedianLoss(2), None), (dm.TruthDiscoveryLoss(), None),
    ],
    ids=repr,
)  # fmt: skip
def test_however_far_a_row_lies_set_aside_it_does_not_matter(loss, label, far):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    m = X @ [1.0, -0.5]
    y = {
        "real": m + rng.normal(size=300),
        "sign": np.where(rng.random(300) < 1 / (1 + np.exp(-m)), 1, -1),
        "count": rng.poisson(np.exp(m)),
        None: np.zeros(300),
    }[label]
    worse = np.append(y, {"real": 1e3, "sign": -1, "count": 0, None: 0}[label])
    init = X[:2] if hasattr(loss, "k") else np.zeros(loss.parameter_shape(2))
    clean = dm.solve(dm.points(X, y), loss, init=init, tol=1e-8)
    outlier = np.concatenate([X, [[far, 0.0]]])
    absent = dm.points(outlier, worse, weights=np.append(np.ones(300), 0.0))
    assert dm.solve(absent, loss, init=init, tol=1e-8).objective == pytest.approx(clean.objective, rel=1e-6)
    start = None if label else init
    present = dm.solve(dm.points(outlier, worse), loss, 1, random_state=0, init=start, tol=1e-8)
    assert present.objective <= clean.objective * (1 + 1e-3)


def test_counts_in_the_billions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = rng.poisson(1e12 * np.exp(0.2 * X[:, 0]))
    solution = dm.solve(dm.points(X, y), dm.PoissonLoss())
    np.testing.assert_allclose(solution.theta, [0.2, np.log(1e12)], atol=1e-5)
    assert solution.objective < 300


def test_seeds_far_from_all_points():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1.0, size=(200, 2)) for c in ([0, 0], [10, 0], [0, 10])])
    lost = dm.solve(dm.points(X), dm.KMeansLoss(3), init=[[1e7, 1e7], [1e7, -1e7], [-1e7, 1e7]])
    assert lost.objective < 1.01 * dm.solve(dm.points(X), dm.KMeansLoss(3), random_state=0).objective


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_many_columns_far_from_zero(form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1050))
    y = X @ rng.normal(size=1050) * 0.03 + rng.normal(size=1500)
    X = X + 100 if form == "dense" else sparse.csr_array(np.where(np.abs(X) > 1, X, 0.0))
    rows = np.column_stack([X if form == "dense" else X.toarray(), np.ones(1500)])
    best = np.square(rows @ np.linalg.lstsq(rows, y, rcond=None)[0] - y).sum() / 2
    solution = dm.solve(dm.points(X, y), dm.SquaredLoss())
    assert solution.objective < 1.001 * best
