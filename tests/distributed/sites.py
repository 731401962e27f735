"""Sites for tests, and the law of a federation."""

import numpy as np
import pytest

import duramen as dm
from duramen.distributed import Site
from tests.dynamic.model import rebuilt
from tests.support import PROBLEMS, assert_same_coreset, quietly, weights_of

NAMES = ("berlin", "paris", "quito")
MOST = 300  # rows in all; beyond them none come


def assert_law(federation, rows, settings, n_outliers, given=None):
    """Check that the coreset is that of all rows at once, from the same anchor; or that both refuse."""
    shuffle = np.random.default_rng(0)
    try:
        core = quietly(federation.coreset)
    except ValueError:
        with pytest.raises(ValueError):
            rebuilt(rows, settings, n_outliers, federation.anchor or given, shuffle)
        return None
    assert_same_coreset(core, rebuilt(rows, settings, n_outliers, federation.anchor, shuffle))
    return core


def rows_of(name, n, seed=0, heavy="none", start=0):
    problem, rng = PROBLEMS[name], np.random.default_rng(seed)
    X, y = problem.rows(rng, n, True), problem.labels(rng, n)
    return X, y, weights_of(rng, n, heavy), start + rng.permutation(n)


def two_sites(n=2000, name="logistic", **more):
    """Make two sites with rows, and the settings of a federation of them."""
    settings = {"loss": PROBLEMS[name].loss, "size": 100, "n_outliers": 0.05, "random_state": 3} | more
    both = {place: Site(dm.DynamicCoreset(**settings)) for place in ("berlin", "paris")}
    for seed, site in enumerate(both.values()):
        site.insert(*rows_of(name, n, seed, start=seed * n))
    return both, settings


def together(some):
    return dm.WeightedPoints.concat([site.rows.points() for site in some])


def check(federation, some, settings):
    """Check the law for sites, or for the points of them."""
    settings = {**settings}
    z, given = settings.pop("n_outliers"), settings.pop("anchor", None)
    rows = some if isinstance(some, dm.WeightedPoints) else together(some)
    return assert_law(federation, rows, settings, z, given)
