"""What the k-means iteration remembers, against computing everything afresh after every move."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import duramen as dm
from duramen.losses.centres import first_least, squared_differences
from duramen.solvers.lloyd import KMeansFit, NearestCentres
from duramen.trimming import kept_weights, problem_of


def naive(X, centres):
    squared = np.square(X[:, None].astype(np.float64) - centres[None]).sum(axis=2)
    return squared.min(axis=1), squared


class MovingCentres(RuleBasedStateMachine):
    """Move centres in every way; nearest centres, trimming and sums must be those of a fresh computation."""

    @initialize(
        seed=st.integers(0, 10_000),
        n=st.integers(8, 300),
        d=st.sampled_from([1, 3, 20]),
        k=st.integers(1, 6),
        share=st.sampled_from([0.0, 0.1, 0.5]),
        offset=st.sampled_from([0.0, 1e6]),
        rounded=st.booleans(),
    )
    def set_up(self, seed, n, d, k, share, offset, rounded):
        self.rng = np.random.default_rng(seed)
        X = self.rng.normal(size=(n, d)) * 3
        X = np.round(X) if rounded else X  # many ties
        X[: n // 20] *= 50
        self.X = X + offset
        self.weights = self.rng.integers(0, 3, size=n) + 0.5 * self.rng.random(n)
        self.points = dm.points(self.X, weights=self.weights)
        self.z = share * self.points.total_weight
        # the checks of a problem are not at stake here: there may be fewer distinct points than centres
        problem = problem_of(self.points, dm.KMeansLoss(1), share)
        self.fit = KMeansFit(problem)
        self.centres = self.X[self.rng.choice(n, k)] + 0.0
        self.place = self.fit.evaluate(self.centres)

    @rule(scale=st.sampled_from([1e-9, 1e-3, 0.3, 10.0, 1000.0]))
    def drift(self, scale):
        step = scale * self.rng.normal(size=self.centres.shape)
        self.to(self.centres + step)

    @rule(scale=st.sampled_from([1e-3, 3.0]))
    def move_one(self, scale):
        centres = self.centres.copy()
        centres[self.rng.integers(len(centres))] += scale * self.rng.normal(size=centres.shape[1])
        self.to(centres)

    @rule()
    def jump_to_a_point(self):
        centres = self.centres.copy()
        centres[self.rng.integers(len(centres))] = self.X[self.rng.integers(len(self.X))]
        self.to(centres)

    @rule()
    def stay(self):
        self.to(self.centres)

    @rule()
    def refit(self):
        before = self.place.objective
        self.to(self.fit.refit(self.place).theta)
        assert self.place.objective <= before * (1 + 1e-9) + 1e-9

    def to(self, centres):
        self.centres = centres
        self.place = self.fit.evaluate(centres)

    @invariant()
    def all_is_as_computed_from_scratch(self):
        if not hasattr(self, "fit"):
            return
        least, squared = naive(self.X, self.centres)
        slack = 1e-9 * (1 + squared.max() * 1e-4)
        found = self.fit.nearest
        chosen = squared[np.arange(len(self.X)), found.numbers]
        np.testing.assert_allclose(chosen, least, rtol=1e-7, atol=slack)
        self.check_bounds(found, least, squared)
        kept = kept_weights(chosen, self.weights, self.z)
        total = kept @ chosen
        assert self.place.objective == pytest.approx(total, rel=1e-6, abs=slack * len(self.X))
        assert self.place.kept.sum() == pytest.approx(self.weights.sum() - self.z)
        mass, total, _, _ = self.fit.sums
        means = self.fit.origins + total / np.where(mass > 0, mass, 1)[:, None]
        for number in range(len(self.centres)):
            mine = (found.numbers == number) & (self.place.kept > 0)
            assert mass[number] == pytest.approx(self.place.kept[mine].sum(), rel=1e-9, abs=1e-9)
            if mine.any():
                mean = np.average(self.X[mine], axis=0, weights=self.place.kept[mine])
                np.testing.assert_allclose(means[number], mean, rtol=1e-9, atol=1e-6)

    def check_bounds(self, found, least, squared):
        reach = found.reach + found.moved[found.numbers]
        assert (reach >= np.sqrt(least) * (1 - 1e-9) - 1e-6).all()
        others = squared.copy()
        others[np.arange(len(self.X)), found.numbers] = np.inf
        bound = found.slack + found.reach - found.travelled
        assert (bound <= np.sqrt(others.min(axis=1)) * (1 + 1e-9) + 1e-6).all()


TestMovingCentres = pytest.mark.slow(MovingCentres.TestCase)
TestMovingCentres.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_late_iterations_look_at_few_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)) + 8 * rng.normal(size=(6, 4))[rng.integers(0, 6, 20_000)]
    found = NearestCentres(X)
    centres = X[:6].copy()
    found.move(centres)
    looked = []
    settle = found._settle
    monkeypatch.setattr(found, "_settle", lambda rows: looked.append(len(rows)) or settle(rows))
    found.move(centres + 1e-6)
    found.move(centres + 1.0)
    assert looked[0] < 0.01 * len(X) < looked[1]


def test_empty_clusters_are_refilled():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal([30.0, 0.0], 1.0, size=(100, 2))])
    everywhere = [[0.0, 0.0], [1000.0, 1000.0], [1001.0, 1001.0]]
    for loss in (dm.KMeansLoss(3), dm.KMedianLoss(3), dm.BregmanLoss(3, "squared")):
        solution = dm.solve(dm.points(X), loss, 5, init=everywhere)
        owned = np.bincount(loss.nearest(solution.theta, X), minlength=3)
        assert (owned > 0).all()
        assert solution.objective < dm.solve(dm.points(X), dm.KMeansLoss(1), 5).objective / 10


def test_a_cluster_of_outliers_alone_gives_its_centre_back():
    """A centre whose points are all set aside costs nothing where it is, and could serve elsewhere."""
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(size=(200, 2)), rng.normal([8.0, 0.0], 1.0, size=(200, 2)), [[500.0, 500.0]] * 5]
    )
    solution = dm.solve(dm.points(X), dm.KMeansLoss(2), 5, init=[[4.0, 0.0], [300.0, 300.0]])
    assert set(solution.outliers) == set(range(400, 405))
    assert np.abs(np.sort(solution.theta[:, 0]) - [0, 8]).max() < 0.5


def made_up(seed, n=400, d=3, k=6):
    """Clusters of points, a few far off; by turns rounded, offset, tiny, or of single precision."""
    rng = np.random.default_rng(seed)
    X = 10 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    X[: n // 20] *= 30
    return [X, np.round(X), X + 1e6, 1e-160 * X, X.astype(np.float32)][seed % 5]


@pytest.mark.parametrize("seed", range(10))
def test_comparing_finds_the_first_of_the_nearest(seed):
    X, rng = made_up(seed), np.random.default_rng(seed)
    found = NearestCentres(X)
    centres = X[rng.choice(len(X), 6)].astype(np.float64)  # with repetition: some coincide
    for step in (0.0, 0.0, 1e-9, 0.1, 3.0):
        some = rng.random((6, 1)) < 0.5
        centres = centres + some * step * np.abs(X).max() * rng.normal(size=centres.shape)
        found.move(centres)
        least, first = first_least(squared_differences(X.astype(np.float64), centres))
        assert np.array_equal(found.numbers, first)
        own = found.squared()
        np.testing.assert_allclose(own, least, rtol=1e-12)
        for level in np.quantile(own, [0.0, 0.5, 0.9]):
            rows, squared = found.beyond(level)
            assert np.array_equal(rows, np.flatnonzero(own >= level))
            assert np.array_equal(squared, own[rows])
