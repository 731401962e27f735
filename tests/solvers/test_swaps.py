"""Local search on few points against what its shortcuts replace: the same centres, bit for bit."""

import numpy as np
import pytest

import duramen as dm
from duramen.arrays import generator
from duramen.losses.centres import first_least, squared_differences
from duramen.solvers import starts
from duramen.solvers.lloyd import NearestCentres
from duramen.trimming import problem_of


def made_up(seed, n=400, d=3, k=6):
    """Clusters of weighted points, a few far off; by turns rounded, offset, tiny, or of single precision."""
    rng = np.random.default_rng(seed)
    X = 10 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    X[: n // 20] *= 30
    X = [X, np.round(X), X + 1e6, 1e-160 * X, X.astype(np.float32)][seed % 5]
    weights = [rng.exponential(size=n) ** 2, rng.integers(0, 4, size=n).astype(float)][seed % 2]
    z = [0, 0.05, 7.3, 20][seed % 4]
    return problem_of(dm.points(X, weights=weights, ids=rng.permutation(n)), dm.KMeansLoss(k), z)


@pytest.mark.parametrize("seed", range(5))
def test_shortcuts_do_not_change_the_centres(seed, monkeypatch):
    problem = made_up(seed)
    quick = starts.seed("local-search", problem, generator(seed))
    monkeypatch.setattr(starts, "_ROUNDING", np.inf)  # no bound excludes a centre
    assert np.array_equal(quick, starts.seed("local-search", problem, generator(seed)))


@pytest.mark.parametrize("seed", range(10))
def test_comparing_finds_the_first_of_the_nearest(seed):
    X, rng = made_up(seed).X, np.random.default_rng(seed)
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
