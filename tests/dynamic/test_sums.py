"""Sums that do not drift: against Fractions, where a plain sum fails, in any mixture of single and joint moves."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.dynamic import sums
from duramen.dynamic.sums import ExactSum, ExactTotals

FINITE = st.floats(-1e290, 1e290)
BATCHES = st.lists(st.tuples(st.booleans(), st.booleans(), st.lists(FINITE, max_size=6)), max_size=8)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Let few rows reach every path; smaller blocks are split at the same power of two, so they stay exact."""
    monkeypatch.setattr(sums, "_BLOCK", 7)


def held(total):
    return Fraction(float(total.high)) + Fraction(float(total.low))


def wide(rng, shape, decades=8):
    """Positive numbers of all magnitudes from 10^-decades to 10^decades."""
    return 10 ** rng.uniform(-decades, decades, size=shape)


def billionfold(rng, shape):
    """Numbers of either sign within a factor of a billion, and zeros: what the second promise covers."""
    return rng.choice([-1.0, 0.0, 1.0], size=shape) * wide(rng, shape, 4.4)


@given(BATCHES)
def test_a_sum_keeps_its_first_promise(batches):
    """The error against fractions is at most k 2^-103 times the mass, for moves of any size and sign."""
    total, exact, mass, moves = ExactSum(), Fraction(0), Fraction(0), 0
    for adding, jointly, values in batches:
        signed = np.array(values) if adding else -np.array(values)
        if jointly:
            total.add_many(signed)
        else:
            for value in signed.tolist():
                total.add(value)
        moves += len(values)
        exact += sum(map(Fraction, signed.tolist()))
        mass += sum(abs(Fraction(value)) for value in values)
        total.check_invariants()
        assert abs(held(total) - exact) <= moves * mass / 2**103
        assert total.value == total.high


@given(SEEDS, st.integers(1, 60))
def test_totals_are_sums_column_by_column(seed, m):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, 3)) * wide(rng, (m, 3), 150)
    totals, columns = ExactTotals(3), [ExactSum() for _ in range(3)]
    for start in range(0, m, 10):
        batch = rows[start : start + 10]
        totals.add_many(batch)
        totals.add(-batch[0])
        for column, total in enumerate(columns):
            total.add_many(batch[:, column])
            total.add(-batch[0, column])
    totals.check_invariants()
    assert totals.high.tolist() == [total.value for total in columns]
    assert totals.low.tolist() == [total.low for total in columns]


def test_little_is_left_of_much_and_plain_sums_have_lost_it():
    values = wide(np.random.default_rng(9), (200_000, 3))  # plain sums err by three times what is asserted
    keep = np.zeros(len(values), dtype=bool)
    keep[np.flatnonzero((values < 1).all(axis=1))[:100]] = True
    totals = ExactTotals(3)
    totals.add_many(values)
    totals.add_many(-values[~keep])
    rest = [math.fsum(column) for column in values[keep].T]
    assert min(rest) > 1
    np.testing.assert_allclose(totals.high, rest, rtol=1e-12)
    plain = np.cumsum(values, axis=0)[-1] - np.cumsum(values[~keep], axis=0)[-1]  # one after the other
    assert (np.abs(plain - rest) > 1e-5).all()


@given(SEEDS, st.integers(1, 300))
def test_what_came_and_went_leaves_exactly_nothing(seed, n):
    """The second promise: added one by one and in batches, removed in another order and in other batches."""
    rng = np.random.default_rng(seed)
    rows = billionfold(rng, (n, 2))
    totals, one = ExactTotals(2), ExactSum()
    half = n // 2
    totals.add_many(rows[:half])
    one.add_many(rows[:half, 0])
    for row in rows[half:]:
        totals.add(row)
        one.add(row[0])
    assert totals.high.tolist() == [math.fsum(column) for column in rows.T]
    shuffled = rng.permutation(rows)
    for row in shuffled[:half]:
        totals.add(-row)
        one.add(-row[0])
    assert totals.high.tolist() == [math.fsum(column) for column in shuffled[half:].T]
    totals.add_many(-shuffled[half:])
    one.add_many(-shuffled[half:, 0])
    assert not totals.high.any()
    assert not totals.low.any()
    assert one.high == one.low == 0.0


@pytest.mark.parametrize("layout", ["C", "F", "float32", "integers", "reversed", "read-only"])
def test_blocks_and_layouts_are_no_matter_and_the_input_remains(layout, small_blocks):
    rows = np.round(billionfold(np.random.default_rng(2), (50, 4)) * 100)
    changed = {
        "F": np.asfortranarray(rows),
        "float32": rows.astype(np.float32),
        "integers": rows.astype(np.int64),
        "reversed": rows[::-1, ::-1],
    }.get(layout, rows.copy())
    changed.flags.writeable = layout != "read-only"
    before = changed.copy()
    totals, one = ExactTotals(4), ExactSum()
    totals.add_many(changed)
    one.add_many(changed)
    np.testing.assert_array_equal(changed, before)
    assert totals.high.tolist() == [math.fsum(column) for column in changed.T]
    assert one.value == math.fsum(changed.ravel())


@pytest.mark.parametrize("top", [1e300, 1.6e308, 5e-324, 1e-300])
def test_the_ends_of_the_range(top):
    """Near the top a column is summed at another scale; beside it, the smallest numbers keep all their bits."""
    shares = np.array([0.5, -0.25, -0.5, 0.75, -0.5, 1.0, 2.0**-30, -0.125])
    rows = np.column_stack([top * shares, 5e-324 * np.arange(8), 1e5 * shares])
    totals, one = ExactTotals(3), ExactSum()
    totals.add_many(rows)
    one.add_many(rows[:, 0])
    assert totals.high.tolist() == [math.fsum(column) for column in rows.T]
    assert one.value == totals.high[0]
    for row in rows[::-1]:
        totals.add(-row)
    assert not totals.high.any()


@pytest.mark.parametrize("value", [1e308, np.inf, np.nan])
@pytest.mark.parametrize("jointly", [False, True])
def test_what_leaves_the_range_is_refused_and_nothing_changes(value, jointly):
    total, totals = ExactSum(), ExactTotals(2)
    total.add(1.7e308)
    totals.add(np.array([1.0, 1.7e308]))
    row = np.array([1.0, value])
    with pytest.raises(OverflowError, match=r"the sum left the range of float64.*scale them down"):
        total.add_many(row) if jointly else total.add(value)
    with pytest.raises(OverflowError, match="the sum of column 1 left the range"):
        totals.add_many(row[None]) if jointly else totals.add(row)
    assert (total.high, total.low) == (1.7e308, 0.0)
    assert totals.high.tolist() == [1.0, 1.7e308]


def test_the_last_bit_before_infinity():
    """The high part alone is finite; only rounding the low part into it overflows."""
    largest = np.finfo(float).max
    total = ExactSum()
    total.add(largest)
    total.add(math.ulp(largest) / 4)
    with pytest.raises(OverflowError):
        total.add(math.ulp(largest) / 4)
    total.check_invariants()


def test_pickled_sums_keep_every_bit():
    total, totals = ExactSum(), ExactTotals(2)
    for number in (1e16, 1.0):
        total.add(number)
        totals.add(np.array([number, -number]))
    other, others = pickle.loads(pickle.dumps((total, totals)))
    other.add(-1e16)
    others.add(np.array([-1e16, 1e16]))
    assert other.value == 1.0
    assert others.high.tolist() == [1.0, -1.0]
    assert total.value == 1e16 + 1


def test_none_at_all():
    total, totals = ExactSum(), ExactTotals(3)
    total.add_many(np.empty(0))
    totals.add_many(np.empty((0, 3)))
    ExactTotals(0).add_many(np.empty((5, 0)))
    assert total.value == 0.0
    assert totals.high.tolist() == [0.0, 0.0, 0.0]


def test_broken_invariants_are_named():
    total, totals = ExactSum(), ExactTotals(2)
    total.high, total.low = 1.0, 1.0
    totals.low[1] = np.nan
    with pytest.raises(AssertionError, match=r"high=1\.0 is not the sum"):
        total.check_invariants()
    with pytest.raises(AssertionError, match="column 1: high="):
        totals.check_invariants()
