"""The functions that would cancel, against arithmetic with four hundred digits."""

from decimal import Decimal, getcontext

import numpy as np
import pytest

from duramen.losses.bregman import ItakuraSaitoDivergence, KLDivergence
from duramen.losses.linear import exp_excess_near

getcontext().prec = 400
EPS = np.finfo(float).eps
relative_entropy, itakura_saito = KLDivergence().terms, ItakuraSaitoDivergence().terms

RATIOS = [
    *(1 + sign * 10.0**-k for k in range(1, 16) for sign in (1, -1)),
    *(1.2, 0.8, 1.499, 1.501, 0.667, 0.666, 1.5, 2 / 3, 2.0, 0.5, 10.0, 1e-10, 1e10, 1e150, 1e-150),
]


def entropy(x, c):
    x, c = Decimal(float(x)), Decimal(float(c))
    return (x * (x / c).ln() if x else Decimal(0)) - x + c


def spectral(x, c):
    x, c = Decimal(float(x)), Decimal(float(c))
    return x / c - (x / c).ln() - 1


def excess(u):
    u = Decimal(float(u))
    return u.exp() - 1 - u


def relative_error(computed, exact):
    return float(abs(Decimal(float(computed)) - exact) / abs(exact)) if exact else abs(float(computed))


@pytest.mark.parametrize("centre", [1.0, 0.3, 7e5, 1e-120, 1e120])
@pytest.mark.parametrize("function, exact", [(relative_entropy, entropy), (itakura_saito, spectral)])
def test_divergences_keep_their_digits(function, exact, centre):
    x = np.array(RATIOS) * centre
    c = np.full_like(x, centre)
    for one, computed in zip(x, function(x, c), strict=True):
        # next to the join of series and formula a factor of about 20 is lost; elsewhere a few units
        assert relative_error(computed, exact(one, centre)) < 60 * EPS


def test_divergences_in_float32():
    x = np.array([1 + 1e-3, 0.9, 2.0, 1e-20], dtype=np.float32)
    for function, exact in ((relative_entropy, entropy), (itakura_saito, spectral)):
        values = function(x, np.float32(1) * np.ones_like(x))
        assert values.dtype == np.float32
        assert all(relative_error(v, exact(o, 1.0)) < 60 * 1.2e-7 for o, v in zip(x, values, strict=True))


def test_zeros_and_equal_arguments():
    assert relative_entropy(np.array([0.0, 0.0]), np.array([3.0, 1e300])).tolist() == [3.0, 1e300]
    same = np.geomspace(1e-300, 1e300, 50)
    assert not relative_entropy(same, same).any()
    assert not itakura_saito(same, same).any()


def test_extremes_that_would_overflow():
    huge = relative_entropy(np.array([1e308]), np.array([1e-308]))
    assert np.isinf(huge[0])
    assert itakura_saito(np.array([1e-308]), np.array([1e308]))[0] == pytest.approx(
        616 * np.log(10) - 1, rel=1e-14
    )


@pytest.mark.parametrize("u", [0.0, *(s * 10.0**-k for k in range(16) for s in (1, -1)), 0.4999, 0.5, -0.5])
def test_exp_excess_keeps_its_digits(u):
    assert relative_error(exp_excess_near(np.array([u]))[0], excess(u)) < 30 * EPS
