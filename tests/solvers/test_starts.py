"""Seedings, samples and anchors."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.arrays import spawn
from duramen.solvers import starts
from duramen.solvers.starts import SEEDINGS, draw_sample
from duramen.trimming import problem_of
from tests.conformance.cases import CASES


def blobs(seed, n=3000, k=6, d=3, z=60):
    rng = np.random.default_rng(seed)
    centres = 20 * rng.normal(size=(k, d))
    X = centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    X[:z] = 2000 * rng.normal(size=(z, d))
    return X, centres


CLUSTERINGS = [dm.KMeansLoss(6), dm.KMedianLoss(6), dm.BregmanLoss(6, "squared"), dm.BregmanLoss(6, "kl")]


@pytest.mark.parametrize("name", ["local-search", "thresholded"])
@pytest.mark.parametrize("loss", CLUSTERINGS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_seedings_that_mind_outliers_find_the_clusters(name, loss, seed):
    X, centres = blobs(seed)
    X, centres = (np.abs(X) + 0.1, np.abs(centres) + 0.1) if "KL" in repr(loss) else (X, centres)
    solution = dm.solve(dm.points(X), loss, 60, init=name, random_state=seed)
    assert len(np.intersect1d(solution.outliers, np.arange(60))) >= 58
    truth = dm.solve(dm.points(X), loss, 60, init=centres)
    assert solution.objective <= 1.6 * truth.objective


@pytest.mark.parametrize("name", SEEDINGS)
@pytest.mark.parametrize("case", [case for case in CASES if case.label is None], ids=lambda case: case.name)
def test_every_seeding_serves_every_loss_of_centres(name, case):
    X, _ = case.data(0, 200)
    weights = np.random.default_rng(0).integers(0, 3, 200)
    problem = problem_of(dm.points(X, weights=weights), case.loss, 10)
    theta = starts.seed(name, problem, np.random.default_rng(0))
    assert theta.shape == case.loss.parameter_shape(X.shape[1])
    assert np.isfinite(case.loss.values(theta, X)).all()


def test_zeros_in_data_for_the_kl_divergence():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, size=(500, 8)).astype(float)
    X[:, 3] = 0
    for init in (*SEEDINGS, X[:3] + 0.01):
        solution = dm.solve(dm.points(X), dm.BregmanLoss(3, "kl"), 10, init=init, random_state=0)
        assert (solution.theta > 0).all()
        assert np.isfinite(solution.objective)
        assert (np.diff(solution.history) <= 0).all()


def test_subsets_find_what_zero_misses():
    """Outliers that pull together drag the way from zero along."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = np.where(rng.random(2000) < 1 / (1 + np.exp(-(2 * X[:, 0] + X[:, 1]))), 1, -1)
    X[:300] = [6.0, 3.0] + 0.7 * rng.normal(size=(300, 2))
    y[:300] = -1
    points = dm.points(X, y)
    zero = dm.solve(points, dm.LogisticLoss(), 300, init="zero")
    found = dm.solve(points, dm.LogisticLoss(), 300, random_state=0)
    assert found.objective < 0.95 * zero.objective
    assert np.isin(np.arange(300), found.outliers).mean() > 0.9


def anchor_beside_a_cluster(seed, d, z, far):
    """Plant a tight cluster of the wrong label among points of two classes, and find an anchor."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, d))
    y = np.where(2 * X[:, 0] + rng.logistic(size=20_000) > 0, 1, -1)
    X[:z] = far * np.eye(d)[0] + 0.1 * rng.normal(size=(z, d))
    y[:z] = -1
    points = dm.points(X, y)
    return points, dm.find_anchor(points, dm.LogisticLoss(), z, random_state=seed)


@pytest.mark.parametrize(("d", "share"), [(3, 0.15), (10, 0.15), (30, 0.05)])
@pytest.mark.parametrize("far", [10.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_anchors_withstand_a_tight_cluster_far_out(d, share, far):
    """In however many columns: the central half holds none of it. From zero, all of these end in it."""
    found = [anchor_beside_a_cluster(seed, d, int(share * 20_000), far)[1] for seed in range(4)]
    assert sum(anchor.theta[0] > 1 for anchor in found) >= 3


def test_subsets_find_an_anchor_where_outliers_lie_among_the_others():
    found = []
    for seed in range(4):
        points, anchor = anchor_beside_a_cluster(seed, 3, 3000, 2.0)
        at_anchor, at_truth = (
            dm.trimmed_objective(points, theta, loss=dm.LogisticLoss(), n_outliers=3000)
            for theta in (anchor.theta, [2.0, 0.0, 0.0, 0.0])
        )
        found.append(at_anchor < 1.1 * at_truth)
    assert sum(found) >= 2


def test_centres_of_an_anchor_are_not_put_on_a_tight_cluster_far_out():
    """One sample may hold more of it than may be set aside there; both together hardly do."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = 20 * rng.normal(size=(6, 3))[rng.integers(0, 6, 20_000)] + rng.normal(size=(20_000, 3))
        X[:400] = 600 + rng.normal(size=(400, 3))
        anchor = dm.find_anchor(dm.points(X), dm.KMeansLoss(6), 400, random_state=seed)
        assert np.abs(anchor.theta).max() < 300


def test_a_sample_stands_for_the_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2))
    y = np.where(np.arange(5000) < 50, 1, 0)
    weights = np.where(np.arange(5000) % 2, 3.0, 0.0)
    problem = problem_of(dm.points(X, y, weights, ids=np.arange(5000) + 7), dm.LogisticLoss(), 30)
    draws = [draw_sample(problem, 500, rng) for rng in spawn(np.random.default_rng(1), 200)]
    for part in draws:
        assert part.points.total_weight == 500
        assert part.points.weights[part.points.y > 0].sum() == 5  # its share of the rare class, exactly
        assert (part.points.ids % 2 == 0).all()  # never a row of weight zero
    # 500 of 7500 drawn, 2500 rows of equal weight: each 0.2 times on average, over 200 draws 40 +- 6.3
    counts = np.zeros(5000)
    for part in draws:
        np.add.at(counts, part.points.ids - 7, part.points.weights)
    assert np.abs(counts[1::2] - 40).max() < 6 * 6.3


def test_an_anchor_takes_under_one_percent_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 2))
    anchor = dm.find_anchor(dm.points(X), dm.KMeansLoss(2), 100, random_state=0)
    assert 300 < len(anchor.ids) < 2000
    few = dm.find_anchor(dm.points(X[:1000]), dm.KMeansLoss(1), 10, random_state=0)
    assert len(few.ids) >= 300


@pytest.mark.parametrize("n", [2, 5, 40])
def test_anchors_of_few_points(n):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 2)), np.arange(n) % 2
    for loss in (dm.LogisticLoss(), dm.SquaredLoss(), dm.KMeansLoss(2), dm.KMedianLoss(1)):
        anchor = dm.find_anchor(dm.points(X, y), loss, 0, random_state=0)
        assert np.isfinite(anchor.theta).all()
        assert np.isfinite(anchor.radius)


def test_the_radius_tells_how_far_anchors_lie_apart():
    """Distances between independent anchors, and between an anchor and the solution, are of its size."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=50_000)
    y[:1000] += 50
    points, loss = dm.points(X, y), dm.SquaredLoss()
    anchors = [dm.find_anchor(points, loss, 1000, seed) for seed in range(8)]
    radius = np.median([anchor.radius for anchor in anchors])
    apart = [np.linalg.norm(a.theta - b.theta) for a in anchors for b in anchors if a is not b]
    solution = dm.solve(points, loss, 1000, random_state=0)
    away = [np.linalg.norm(anchor.theta - solution.theta) for anchor in anchors]
    assert 0.3 < np.median(apart) / radius < 3
    assert np.median(away) < 1.5 * radius


def test_anchors_of_centres_are_matched():
    """The two sets of centres come in any order; the radius must not count that."""
    X, _ = blobs(0, n=20_000)
    radii = [dm.find_anchor(dm.points(X), dm.KMeansLoss(6), 400, seed).radius for seed in range(5)]
    assert np.median(radii) < 1.0  # clusters have radius 1 and lie some 20 apart


FORMS = [(form, kind) for form in ("C", "F", "float32") for kind in ("linear", "means", "medians", "bregman")]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind"), [*FORMS, ("csr", "linear")])
def test_rows_are_never_copied(form, kind, two_threads):
    """Scratch memory is a few chunks, and a few numbers per row: far below what X takes."""
    rng = np.random.default_rng(0)
    n, d = 40_000, 200
    X = np.abs(rng.normal(size=(n, d)))
    y = np.where(rng.random(n) < 0.5, 1, -1)
    make = {"F": np.asfortranarray, "float32": np.float32, "csr": lambda X: sparse.csr_array(X * (X > 0.7))}
    X = make.get(form, np.asarray)(X)
    size = X.data.nbytes + X.indices.nbytes if form == "csr" else X.nbytes
    centres = {"means": dm.KMeansLoss(3), "medians": dm.KMedianLoss(3), "bregman": dm.BregmanLoss(3, "kl")}
    loss = centres.get(kind, dm.LogisticLoss())
    init = np.asarray(X[:3]) if kind in centres else np.zeros(d + 1)
    points = dm.points(X, y)
    tracemalloc.start()
    try:
        dm.solve(points, loss, 100, init=init, tol=1e-2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    chunks, columns = 2 * 6 * (4 << 20), 12 * 8 * n
    assert peak < min(0.8 * size, chunks + columns), (peak, size)


@pytest.mark.parametrize(
    "loss", [dm.LogisticLoss(), dm.SquaredLoss(), dm.PoissonLoss(), dm.SoftmaxLoss(3)], ids=repr
)
def test_a_damped_start_obeys_the_laws_of_weights(loss):
    """Weight w is w copies, in any units; zero weight is absent; the order does not matter."""
    n, rng = 1000, np.random.default_rng(0)  # coordinates are measured on so many: with more, order counts
    X = rng.normal(size=(n, 3)) * np.where(np.arange(n) < n // 5, 10, 1)[:, None]
    y = rng.integers(3 if isinstance(loss, dm.SoftmaxLoss) else 2, size=n)
    ids = np.arange(n)

    def found(X, y, weights, ids):
        points = dm.points(X, y, weights=weights, ids=ids)
        return starts.damped_start(problem_of(points, loss, weights.sum() / 5))

    once = found(X, y, np.ones(n), ids)
    assert np.abs(once).max() > 0.01
    np.testing.assert_allclose(found(X, y, np.full(n, 142.753), ids), once, rtol=1e-8, atol=1e-10)
    copies = found(np.repeat(X, 2, axis=0), np.repeat(y, 2), np.ones(2 * n), np.arange(2 * n))
    np.testing.assert_allclose(copies, once, rtol=1e-8, atol=1e-10)
    more = found(np.concatenate([X, 1e3 + X]), np.append(y, y), np.repeat([1.0, 0.0], n), np.arange(2 * n))
    np.testing.assert_allclose(more, once, rtol=1e-8, atol=1e-10)
    mixed = rng.permutation(n)
    np.testing.assert_allclose(found(X[mixed], y[mixed], np.ones(n), ids[mixed]), once, rtol=1e-8, atol=1e-10)


def test_a_damped_start_where_most_rows_are_alike():
    X = np.zeros((100, 2))
    X[80:] = np.random.default_rng(0).normal(size=(20, 2))
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    for rows in (X, sparse.csr_array(X), np.zeros((100, 2))):
        theta = starts.damped_start(problem_of(dm.points(rows, y), dm.LogisticLoss(), 3))
        assert np.isfinite(theta).all()
        assert theta[:2].any() == bool(abs(rows).sum() > 0)


def test_a_stopped_solve_of_a_coreset_has_no_further_starts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.where(X[:, 0] + rng.logistic(size=3000) > 0, 1, -1)
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=500, n_outliers=60, random_state=0)
    seen = []
    assert len(dm.solve(core, callback=lambda step: seen.append(step.start)).start_objectives) == 2
    assert sorted(set(seen)) == [0, 1]
    for last in (0, 1):
        seen.clear()
        dm.solve(core, callback=lambda step, last=last: seen.append(step.start) or step.start == last)
        assert max(seen) == last
        assert seen.count(last) == 1
