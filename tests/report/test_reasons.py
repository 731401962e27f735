"""Which rows have the largest losses and why: parts against loops by the definition, wholes against the losses."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.coreset.plot import usual_rows
from duramen.report.page import largest_losses, reasons_of
from tests.conformance.cases import CASES
from tests.coreset.cores import kmeans_core, sparse_core
from tests.report.cores import case_of, core_of

COLUMNS = tuple("abcdefghijklmnopqrst")


def taken_apart(core, rows):
    return reasons_of(core, np.asarray(rows), COLUMNS[: core.points.n_columns])


def usual_mean(core, column):
    """Average by the definition, over rows that are not suspected."""
    rows = [row for row in range(len(core)) if not core.suspected[row]]
    total = math.fsum(float(core.weights[row]) for row in rows)
    return math.fsum(float(core.weights[row]) * float(column[row]) for row in rows) / total


# the oracles: one part at a time, from theta, a row and the usual means


def predictor_part(core, row, j, means):
    y, theta, x = core.y[row], core.anchor.theta, core.X[row]
    if core.loss.classifies:
        upward = -1.0 if y > 0 else 1.0
    else:
        m = math.fsum(theta[k] * x[k] for k in range(len(x))) + theta[-1]
        expected = math.exp(m) if isinstance(core.loss, dm.PoissonLoss) else m
        upward = 1.0 if expected >= y else -1.0
    if j == len(x):
        return -upward * (y - usual_mean(core, core.y))
    return upward * theta[j] * (x[j] - means[j])


def class_part(core, row, j, means):
    theta, x, y = core.anchor.theta, core.X[row], int(core.y[row])
    last = theta[:, len(x)] if theta.shape[1] > len(x) else np.zeros(len(theta))
    m = [math.fsum(one[k] * x[k] for k in range(len(x))) + b for one, b in zip(theta, last, strict=True)]
    other = max((k for k in range(len(m)) if k != y), key=lambda k: m[k])
    return (theta[other, j] - theta[y, j]) * (x[j] - means[j])


def nearest_centre(core, row):
    naive = next(case.naive for case in CASES if case.loss == core.loss)
    theta = np.atleast_2d(core.anchor.theta)
    return min(theta, key=lambda c: naive(c if core.anchor.theta.ndim == 1 else [c], core.X[row], None))


def distance_part(core, row, j, means):
    return (core.X[row, j] - nearest_centre(core, row)[j]) ** 2


def divergence_part(core, row, j, means):
    x, c = float(core.X[row, j]), float(nearest_centre(core, row)[j])
    return {
        "kl": lambda: x * math.log(x / c) - x + c,
        "itakura-saito": lambda: x / c - math.log(x / c) - 1,
        "squared": lambda: (x - c) ** 2,
    }[core.loss.divergence.name]()


def spread_part(core, row, j, means):
    deviation = math.sqrt(usual_mean(core, (core.X[:, j] - means[j]) ** 2))
    return ((core.X[row, j] - means[j]) / deviation) ** 2


ORACLES = {
    **dict.fromkeys(("margin", "residual", "predictor"), predictor_part),
    "classes": class_part,
    "distance": distance_part,
    "divergence": divergence_part,
    "spread": spread_part,
}
# what the loss is, given the whole that was taken apart
LOSS_OF_WHOLE = {
    **dict.fromkeys(("logistic", "logistic, no intercept"), lambda t: np.logaddexp(0, t)),
    "smooth hinge": lambda t: np.where(t >= 0, t + 0.5, np.maximum(1 + t, 0) ** 2 / 2),
    "squared": lambda t: t**2 / 2,
    "huber": lambda t: np.where(np.abs(t) <= 0.7, t**2 / 2, 0.7 * (np.abs(t) - 0.35)),
    **dict.fromkeys(("one mean", "k-means", "k-means, many columns"), lambda t: t),
    **dict.fromkeys(("k-median", "k-median, many columns"), np.sqrt),
    **dict.fromkeys(
        ("truth discovery", "truth discovery, close"), lambda t: np.minimum(t, 1) + np.log(np.maximum(t, 1))
    ),
    **dict.fromkeys(("bregman, one centre, squared", "bregman, squared"), lambda t: t),
    **dict.fromkeys(("bregman, kl", "bregman, itakura-saito"), lambda t: t),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_parts_are_those_of_the_definition(case):
    core = core_of(case)
    rows = largest_losses(core.loss.values(core.anchor.theta, core.X, core.y), core.ids, 6)
    reasons = taken_apart(core, rows)
    means = [usual_mean(core, core.X[:, j]) for j in range(core.points.n_columns)]
    expected = [
        [ORACLES[reasons.kind](core, row, j, means) for j in range(len(reasons.features))] for row in rows
    ]
    np.testing.assert_allclose(reasons.parts, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(reasons.values[:, : core.points.n_columns], core.X[rows])


def test_float32_rows_are_taken_apart_in_float64():
    reasons = taken_apart(core_of(case_of("squared"), dtype=np.float32), [0, 1])
    assert reasons.parts.dtype == reasons.whole.dtype == np.float64


@pytest.mark.parametrize("name", LOSS_OF_WHOLE)
def test_the_whole_gives_the_loss_and_is_the_sum_of_its_parts(name):
    core = core_of(case_of(name))
    reasons = taken_apart(core, np.arange(len(core)))
    losses = core.loss.values(core.anchor.theta, core.X, core.y)
    np.testing.assert_allclose(LOSS_OF_WHOLE[name](reasons.whole), losses, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(reasons.parts.sum(axis=1) + reasons.rest, reasons.whole, rtol=1e-12)
    if not reasons.signed:
        assert (reasons.parts >= 0).all()
        np.testing.assert_array_equal(reasons.rest, 0)


def test_a_residual_names_the_label_that_made_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X @ [3, -2, 0, 1] + rng.normal(size=300)
    y[0], X[1, 1] = y[0] + 500, 300.0
    core = dm.robust_coreset(X, y, loss=dm.SquaredLoss(), size=100, n_outliers=2, random_state=0)
    rows = np.searchsorted(core.ids, [0, 1])
    reasons = reasons_of(core, rows, ("a", "b", "c", "d"), "price")
    assert [reasons.why(row, 1)[0][0][0] for row in (0, 1)] == ["price", "b"]


def test_sparse_rows_are_taken_apart_as_dense_ones():
    core, columns = sparse_core(), tuple(f"x{j}" for j in range(40))
    points = dm.points(core.X.toarray(), core.y, weights=core.weights, ids=core.ids)
    for loss, kind in ((core.loss, "margin"), (Nothing(), "spread")):
        one = dataclasses.replace(core, loss=loss)
        two = dataclasses.replace(one, points=points)
        one, two = (reasons_of(each, np.arange(5), columns) for each in (one, two))
        assert one.kind == two.kind == kind
        np.testing.assert_allclose(one.parts, two.parts, rtol=1e-12, atol=1e-12 * (kind == "spread"))


class Nothing(dm.Loss):
    """A loss of which nothing is known."""

    def values(self, theta, X, y=None):
        return np.zeros(X.shape[0])


def test_a_constant_column_and_huge_numbers_give_numbers():
    X = np.random.default_rng(0).normal(size=(100, 3))
    X[:, 1], X[0, 2] = 5.0, 1e200
    core = dm.robust_coreset(X, loss=Nothing(), size=100, anchor=np.zeros(1), random_state=0)
    reasons = taken_apart(core, np.arange(3))
    assert not np.isnan(reasons.parts).any()
    np.testing.assert_allclose(reasons.parts[:, 1], 0, atol=1e-25)


def test_usual_rows_are_all_where_none_is_left():
    core = kmeans_core(n_outliers=20)
    np.testing.assert_array_equal(usual_rows(core.suspected), ~core.suspected)
    assert usual_rows(np.ones(len(core), dtype=bool)).all()


LOSSES = st.sampled_from([0.0, 1.0, 2.5, math.inf, math.nan])


@given(st.lists(LOSSES, min_size=1, max_size=12), st.integers(1, 9))
def test_largest_losses_are_those_of_a_sort(losses, n):
    ids = np.arange(len(losses))[::-1] * 3

    def key(k):
        return math.isnan(losses[k]), 0 if math.isnan(losses[k]) else -losses[k], ids[k]

    order = sorted(range(len(losses)), key=key)
    assert largest_losses(np.array(losses), ids, n).tolist() == order[:n]
