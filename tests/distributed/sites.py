"""Sites for tests, and the law of a federation."""

import numpy as np
import pytest
from hypothesis import strategies as st

import duramen as dm
from duramen.distributed.site import Site
from tests.dynamic.model import anew
from tests.support import PROBLEMS, SUITS, assert_same_coreset, quietly, weights_of

SEEDS = st.integers(0, 2**32 - 1)
NAMES = ("berlin", "paris", "quito")
MOST = 300  # rows in all; beyond them none come
every_suit = pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)


def assert_law(federation, rows, settings, n_outliers, given=None):
    """See that the coreset is that of all rows at once, from the same anchor; or that both refuse."""
    shuffle = np.random.default_rng(0)
    try:
        core = quietly(federation.coreset)
    except ValueError:
        with pytest.raises(ValueError):
            anew(
                rows, settings, n_outliers, given if federation.anchor is None else federation.anchor, shuffle
            )
        return None
    assert_same_coreset(core, anew(rows, settings, n_outliers, federation.anchor, shuffle))
    return core


def rows_of(name, n, seed=0, heavy="none", start=0):
    problem, rng = PROBLEMS[name], np.random.default_rng(seed)
    X, y = problem.rows(rng, n, True), problem.labels(rng, n)
    return X, y, weights_of(rng, n, heavy), start + rng.permutation(n)


def two_sites(n=2000, name="logistic", **more):
    """Make two sites with rows, and the federation of them with all rows."""
    settings = {"loss": PROBLEMS[name].loss, "size": 100, "n_outliers": 0.05, "random_state": 3} | more
    both = {place: Site(dm.DynamicCoreset(**settings)) for place in ("berlin", "paris")}
    parts = [rows_of(name, n, seed, start=seed * n) for seed in (0, 1)]
    for site, part in zip(both.values(), parts, strict=True):
        site.insert(*part)
    return both, settings, together(both.values())


def together(some):
    points = [site.rows.points() for site in some]
    return dm.WeightedPoints.concat(points)


def check(federation, some, settings):
    settings = {**settings}
    z, given = settings.pop("n_outliers"), settings.pop("anchor", None)
    return assert_law(federation, together(some), settings, z, given)
