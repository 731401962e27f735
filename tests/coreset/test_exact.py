"""Laws of exact sums: those of fractions, in whatever groups and order, over the whole range of floats."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.coreset import exact
from duramen.coreset.exact import ExactSums

ENDS = [5e-324, -5e-324, 2.2e-308, 1.7e308, -1.7e308, 1e40, 1.0, -1e-6]
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(ENDS)


def summed(values, n=1):
    sums = ExactSums(n)
    for value in values:
        sums.add(np.full(n, value))
    return sums


def again(sums):
    return ExactSums.of_parts(sums.parts(), len(sums))


@given(st.lists(floats, max_size=30))
@example([1.0, 9007199254740994.0, -2.2250738585e-313])
@example([1.7976931348623157e308, 2.0**970, -5e-324])
def test_a_sum_is_that_of_fractions_rounded_once(values):
    whole = sum(map(Fraction, values), Fraction(0))
    try:
        wanted = float(whole)
    except OverflowError:
        wanted = math.inf if whole > 0 else -math.inf
    assert summed(values).values[0] == wanted
    column, one, many = ExactSums(1), ExactSums(), ExactSums()
    column.add_rows(np.array(values)[:, None])
    many.add_rows(np.array(values))
    for value in values:
        one.add(value)
    assert column == one == many == summed(values)
    assert one.values == many.values == wanted


@given(st.lists(floats, min_size=1, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
def test_neither_groups_nor_order_show(values, cut, random):
    whole = summed(values)
    random.shuffle(values)
    parts = summed(values[:cut])
    parts.absorb(summed(values[cut:]))
    columns = ExactSums(0)
    for place, value in enumerate(values):
        columns.grow(place + 1)
        columns.absorb(summed([value]), at=[place])
    some = columns.take(np.arange(len(values)) >= cut).total()
    some.absorb(columns.take(np.arange(min(cut, len(values)))).total())
    assert parts == whole == columns.total() == some
    assert again(whole) == whole == pickle.loads(pickle.dumps(whole))


def test_many_rows_at_once_and_none_at_all():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 3)) * 10.0 ** rng.integers(-30, 30, size=(5000, 3))
    sums, one_by_one, nothing = ExactSums(3), ExactSums(3), ExactSums()
    sums.add_rows(rows)
    sums.add_rows(np.empty((0, 3)))
    np.testing.assert_array_equal(sums.values, [math.fsum(column) for column in rows.T])
    for row in rows[::-1]:
        one_by_one.add(row)
    assert pickle.loads(pickle.dumps(one_by_one)) == one_by_one == sums
    ExactSums(0).add_rows(np.empty((5, 0)))
    nothing.add_rows(np.empty(0))
    assert nothing.values == 0.0


@given(st.lists(st.tuples(floats, st.floats(-1e9, 1e9)), min_size=1, max_size=40), st.integers(0, 40))
def test_what_came_and_went_leaves_exactly_nothing(pairs, cut):
    """Rows are added together and one by one, and subtracted in other groups; the heaviest leave no trace."""
    rows = np.array(pairs)
    sums, one = ExactSums(2), ExactSums()
    sums.add_rows(rows[:cut])
    for row in rows[cut:]:
        sums.add(row)
    one.add_rows(rows[:, 0])
    for row in rows[:cut]:
        sums.add(row, -1)
    np.testing.assert_array_equal(sums.values[1:], [math.fsum(rows[cut:, 1])])
    sums.add_rows(rows[cut:], -1)
    one.add_rows(rows[::-1, 0], -1)
    assert sums == ExactSums(2)
    assert one.values == 0.0


@pytest.mark.parametrize("layout", ["C", "F", "float32", "integers", "reversed", "read-only"])
def test_blocks_and_layouts_do_not_matter_and_the_input_remains(layout, monkeypatch):
    monkeypatch.setattr(exact, "_BLOCK", 7)
    rows = np.round(np.random.default_rng(2).normal(size=(50, 4)) * 1e6)
    changed = {
        "F": np.asfortranarray(rows),
        "float32": rows.astype(np.float32),
        "integers": rows.astype(np.int64),
        "reversed": rows[::-1, ::-1],
    }.get(layout, rows.copy())
    changed.flags.writeable = layout != "read-only"
    before = changed.copy()
    sums, one = ExactSums(4), ExactSums()
    sums.add_rows(changed)
    one.add_rows(changed.ravel())
    np.testing.assert_array_equal(changed, before)
    assert sums.values.tolist() == [math.fsum(column) for column in changed.T]
    assert one.values == math.fsum(changed.ravel())


@pytest.mark.parametrize("top", [1e300, 1.6e308, 5e-324, 1e-300])
def test_the_ends_of_the_range(top):
    """A column near the top is added up value by value; beside it, the smallest numbers keep all their bits."""
    shares = np.array([0.5, -0.25, -0.5, 0.75, -0.5, 1.0, 2.0**-30, -0.125])
    rows = np.column_stack([top * shares, 5e-324 * np.arange(8), 1e5 * shares])
    sums = ExactSums(3)
    sums.add_rows(rows)
    assert sums.values.tolist() == [math.fsum(column) for column in rows.T]
    for row in rows[::-1]:
        sums.add(row, -1)
    assert sums == ExactSums(3)


def test_infinities_can_be_subtracted_and_overflow_is_not_final():
    sums = ExactSums(2)
    for row in ([np.inf, 1.7e308], [np.nan, 1.7e308], [2.0, 1.0]):
        sums.add(np.array(row))
    np.testing.assert_array_equal(again(sums).values, [np.nan, np.inf])
    sums.add_rows(np.array([[np.nan, 1.7e308]]), -1)
    np.testing.assert_array_equal(sums.values, [np.inf, 1.7e308])
    sums.add(np.array([np.inf, 1.7e308]), -1)
    np.testing.assert_array_equal(sums.values, [2.0, 1.0])


@pytest.mark.parametrize("odd", [[np.inf, 1.0], [np.nan], [np.inf, -np.inf], [-np.inf, -5.0]])
def test_what_is_no_number_stays_so(odd):
    with np.errstate(invalid="ignore"):
        wanted = np.sum(odd)
    column, one = ExactSums(1), ExactSums()
    column.add_rows(np.array(odd)[:, None])
    one.add_rows(np.array(odd))
    for sums in (summed(odd), again(summed(odd)), column):
        np.testing.assert_array_equal(sums.values, [wanted])
    np.testing.assert_equal(one.values, wanted)


def test_sums_absorb_others_and_leave_them_as_they_were():
    sums, twice = summed([0.1, 0.2], n=1), ExactSums(1)
    twice.absorb(sums)
    twice.absorb(sums)
    assert twice.values == [0.6000000000000001]
    assert sums.values[0] == math.fsum([0.1, 0.2])
    assert sums != "a sum"
