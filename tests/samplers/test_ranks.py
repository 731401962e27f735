"""Ranks: the numbers, the selection against a full sort, and how a size is shared out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import duramen as dm
from duramen.samplers.base import (
    RankedRows,
    apportion,
    draw_by_rank,
    smallest,
    smallest_of_groups,
    uniforms,
)
from tests.golden.oracle import uniform

IDS = hnp.arrays(np.int64, st.integers(1, 50), elements=st.integers(-(2**63), 2**63 - 1), unique=True)


@given(IDS, st.integers(0, 2**63 - 1))
def test_uniforms_are_the_mix_of_seed_and_id(ids, seed):
    numbers = uniforms(seed, ids)
    assert [uniform(seed, int(id_)) for id_ in ids] == numbers.tolist()
    assert ((numbers > 0) & (numbers < 1)).all()


@pytest.mark.parametrize("step", [1, 2, 1024, 2**32, 2**40])
def test_uniforms_look_uniform_and_independent_of_seed_and_neighbour(step):
    """200,000 numbers: means of u, u^2 and products have standard deviations below 0.3 / sqrt(200,000) = 7e-4."""
    ids = np.arange(200_000) * step
    one, two = uniforms(1, ids), uniforms(2, ids)
    assert one.mean() == pytest.approx(0.5, abs=3e-3)
    assert np.square(one).mean() == pytest.approx(1 / 3, abs=3e-3)
    assert (one * two).mean() == pytest.approx(0.25, abs=3e-3)
    assert (one[1:] * one[:-1]).mean() == pytest.approx(0.25, abs=3e-3)
    counts = np.histogram(one, bins=100, range=(0, 1))[0]
    assert abs(counts - 2000).max() < 5 * 2000**0.5
    assert len(np.unique(one)) == len(one)


def assert_smallest(ranks, ids, m):
    """Compare the m smallest ranks with those of a sort."""
    rows, threshold = smallest(ranks, ids, m)
    order = np.lexsort((ids, ranks))
    order = order[ranks[order] < np.inf]
    assert rows.tolist() == order[:m].tolist()
    assert threshold == (ranks[order[m]] if len(order) > m else np.inf)


@given(
    hnp.arrays(np.float64, st.integers(0, 60), elements=st.sampled_from([0.1, 0.25, 0.5, 2.0, np.inf])),
    st.integers(0, 70),
)
def test_the_smallest_are_those_of_a_sort(ranks, m):
    assert_smallest(ranks, np.random.default_rng(len(ranks)).permutation(len(ranks)), m)


@pytest.mark.parametrize("m", [0, 1, 10, 5000, 29_999, 30_000, 40_000])
@pytest.mark.parametrize("how", ["random", "sorted", "reversed", "tied", "mostly absent"])
def test_the_smallest_of_many(m, how):
    """Long arrays take the guess from every so many ranks; an order made to mislead it costs time alone."""
    rng = np.random.default_rng(0)
    ranks, absent = rng.random(30_000), rng.random(30_000) < 0.9
    ranks = {
        "random": ranks,
        "sorted": np.sort(ranks),
        "reversed": np.sort(ranks)[::-1],
        "tied": np.round(ranks, 2),
        "mostly absent": np.where(absent, np.inf, ranks),
    }[how]
    assert_smallest(ranks, rng.permutation(30_000), m)


@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_draw_takes_each_groups_own_share(n):
    rng = np.random.default_rng(0)
    groups = rng.choice([-1, 0, 1, 2, 3], p=[0.1, 0.5, 0.2, 0.1999, 0.0001], size=n).astype(np.int16)
    measures, ids = rng.random(n) + 0.1, rng.permutation(n)
    ranks, sizes = uniforms(7, ids) / measures, np.array([5, 0, 2 * n, 3])
    rows, mine, _ = smallest_of_groups(ranks, ids, groups, sizes)
    assert np.bincount(mine, minlength=4).tolist()[:2] == [5, 0]
    sizes[1] = 1

    class Given(dm.UniformSampler):
        def allocate(self, strata, size):
            return np.arange(len(strata.numbers)), sizes[strata.numbers]

    points = dm.points(np.zeros((n, 1)), weights=groups >= 0, ids=ids)
    found = draw_by_rank(Given(), RankedRows(points, ranks, groups), 4 * n, 7)
    assert set(rows) == set(found.rows[found.groups != 1])
    counts = [5, 1, np.count_nonzero(groups == 2), min(3, np.count_nonzero(groups == 3))]
    assert np.bincount(found.groups, minlength=4).tolist() == counts
    assert (groups[found.rows] == found.groups).all()
    assert (found.inclusion[found.groups == 2] == 1).all()
    mine = np.flatnonzero(groups == 0)
    order = mine[np.argsort(ranks[mine])]
    here = found.groups == 0
    assert sorted(found.rows[here]) == sorted(order[:5])
    expected = np.minimum(1, measures[found.rows[here]] * ranks[order[5]])
    np.testing.assert_allclose(found.inclusion[here], expected, rtol=1e-12)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 50)), min_size=1, max_size=8), st.integers(8, 300)
)
def test_apportioning_keeps_the_sum_and_the_limits(pairs, size):
    shares, room = map(np.array, zip(*pairs, strict=True))
    parts = apportion(shares, room, size)
    assert parts.sum() == min(size, room.sum())
    assert (parts >= 1).all()
    assert (parts <= room).all()
    if 2 * len(room) <= size:
        assert (parts >= np.minimum(room, 2)).all()


def test_apportioning_is_in_proportion():
    assert apportion([1.0, 2.0, 5.0], [10**6] * 3, 8000).tolist() == [1000, 2000, 5000]
    assert apportion([1.0, 1.0, 8.0], [100, 100, 3], 10).tolist() == [4, 3, 3]
    with pytest.raises(ValueError, match="size=2 is below 3, one for each group"):
        apportion([1.0, 1.0, 1.0], [5, 5, 5], 2)
