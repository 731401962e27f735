"""Axes and drawings: order, limits, shares that add up, round ticks."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.report.charts import axis_of, bars_of, environment, linear_ticks, percent, short
from tests.report.cores import Page

VALUES = st.lists(st.floats(0, 1e12) | st.floats(0, 1) | st.just(0.0), min_size=1, max_size=30)


@given(VALUES, st.none() | st.floats(0, 1e9))
def test_an_axis_keeps_order_and_limits(values, also):
    values = np.sort(np.array(values))
    axis = axis_of(values, also)
    places = axis.place(values)
    assert (np.diff(places) >= 0).all()
    assert places.min() >= 0
    assert places.max() <= 1
    assert values.max() <= axis.high
    if also is not None and not axis.log:
        assert axis.low <= also <= axis.high
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 40
    assert all(axis.low - 1e-6 * axis.high <= tick <= axis.high * (1 + 1e-2) for tick in ticks)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_round_and_within(low, width, n):
    high = low + width
    ticks = linear_ticks(low, high, n)
    if len(ticks) > 2:
        step = np.diff(ticks)
        np.testing.assert_allclose(step, step[0], rtol=1e-6)
        assert len(ticks) <= n + 2
        assert low - 1e-6 * width <= ticks[0] <= ticks[-1] <= high + 1e-6 * width
        lead = f"{step[0]:.3e}"[0]
        assert lead in "1259" or lead == "4"  # 9 and 4: what rounding makes of 10 and 5


def histogram(values, weights, marked, title, name, threshold=math.inf):
    charts = environment().get_template("charts.html").module
    return charts.histogram(bars_of(values, weights, marked, threshold), title, name)


BAR = re.compile(r'<rect class="(\w+)" x="([\d.]+)" y="[\d.]+" width="[\d.]+" height="([\d.]+)"')


def bars(drawing):
    return [(kind, float(x), float(height)) for kind, x, height in BAR.findall(drawing)]


def test_bars_are_the_weights_of_their_values():
    values = np.repeat([0.5, 5.0, 9.9], [1, 2, 3])
    heavy = np.array([4.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    drawing = histogram(values, heavy, values > 9, "title", "loss", threshold=9.0)
    Page(drawing)
    (one, _, tall), (two, _, middle), (three, _, last) = sorted(bars(drawing), key=lambda each: each[1])
    assert (one, two, three) == ("usual", "usual", "suspect")
    assert tall == pytest.approx(2 * middle, abs=0.2)
    assert middle == pytest.approx(last, abs=0.2)
    assert "suspected from 9" in drawing
    (_, _, tall), (_, _, low) = bars(histogram(values[:2], np.array([1e9, 1.0]), values[:2] > 2, "t", "x"))
    assert tall > 100
    assert low == 2.0  # little weight is still seen


@given(VALUES)
def test_any_histogram_is_well_formed(values):
    values = np.array(values)
    drawing = histogram(values, np.ones(len(values)), values > 3, "a<b", "x", threshold=float(values[0]))
    Page(drawing)
    assert "nan" not in drawing
    assert len(bars(drawing)) >= 1


@given(st.floats(0, 2), st.floats(-1e300, 1e300))
def test_numbers_are_shown_closely(share, value):
    text = percent(share)
    if not text.startswith("<"):
        assert float(text[:-1].replace(",", "")) / 100 == pytest.approx(share, rel=0.06, abs=1e-300)
    assert float(short(value).replace(",", "").replace("−", "-")) == pytest.approx(value, rel=6e-4)
