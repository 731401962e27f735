"""Laws of exact sums: those of fractions, in whatever groups and order."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.coreset.exact import ExactSums

floats = st.floats(allow_nan=False, allow_infinity=False)


def summed(values, n=1):
    sums = ExactSums(n)
    for value in values:
        sums.add(np.full(n, value))
    return sums


@given(st.lists(floats, max_size=30))
def test_a_sum_is_that_of_fractions_rounded_once(values):
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        wanted = float(exact)
    except OverflowError:
        wanted = math.inf if exact > 0 else -math.inf
    assert summed(values).values[0] == wanted
    column = ExactSums(1)
    column.add_column(0, np.array(values))
    assert column == summed(values)


@given(st.lists(floats, min_size=1, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
def test_neither_groups_nor_order_show(values, cut, random):
    whole = summed(values)
    random.shuffle(values)
    parts = summed(values[:cut])
    parts.absorb(summed(values[cut:]))
    assert parts == whole
    assert ExactSums.from_bytes(whole.to_bytes()) == whole
    assert whole.less([0], np.array(values[:cut])) == summed(values[cut:]).values[0]


def test_many_rows_at_once():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 3)) * 10.0 ** rng.integers(-30, 30, size=(5000, 3))
    sums = ExactSums(3)
    sums.add_rows(rows)
    np.testing.assert_array_equal(sums.values, [math.fsum(column) for column in rows.T])
    one_by_one = ExactSums(3)
    for row in rows[::-1]:
        one_by_one.add(row)
    assert one_by_one == sums


@pytest.mark.parametrize("odd", [[np.inf, 1.0], [np.nan], [np.inf, -np.inf], [-np.inf, -5.0]])
def test_what_is_no_number_stays_so(odd):
    with np.errstate(invalid="ignore"):
        wanted = np.sum(odd)
    for sums in (summed(odd), ExactSums.from_bytes(summed(odd).to_bytes())):
        np.testing.assert_array_equal(sums.values, [wanted])
    column = ExactSums(1)
    column.add_column(0, np.array(odd))
    np.testing.assert_array_equal(column.values, [wanted])


def test_sums_can_grow():
    sums, other = summed([0.1, 0.2], n=2), summed([0.1, 0.2], n=2)
    other.grow(3)
    other.absorb(sums, [2, 0])
    assert len(sums) == 2
    np.testing.assert_array_equal(
        other.values, [0.6000000000000001, 0.30000000000000004, 0.30000000000000004]
    )
    assert sums.values[0] == math.fsum([0.1, 0.2])
    assert sums != "a sum"
