"""Planted outliers in real data: what the solver finds of them, and what that is worth."""

import numpy as np
import pytest

import duramen as dm
from tests.data import Z

pytestmark = [pytest.mark.data, pytest.mark.slow]

LOGISTIC = dm.LogisticLoss()


@pytest.fixture(scope="module")
def fits(contaminated, informed_fit, trimmed_fit):
    ordinary = dm.solve(contaminated[0], LOGISTIC, random_state=0)
    return {"informed": informed_fit, "ordinary": ordinary, "trimmed": trimmed_fit}


def mean_loss(points, which, solution):
    return LOGISTIC.values(solution.theta, points.X, points.y)[which].mean()


def test_the_trimmed_fit_sets_harmful_rows_of_covertype_aside(contaminated, fits, harmful, record_property):
    points, planted = contaminated
    aside = np.zeros(len(points), dtype=bool)
    aside[fits["trimmed"].outliers] = True
    found = aside[harmful].mean()
    clean = {name: mean_loss(points, ~planted, fit) for name, fit in fits.items()}
    text = ", ".join(f"{name} {loss:.4f}" for name, loss in clean.items())
    record_property(
        "figures", f"covertype: {found:.1%} of {harmful.sum()} harmful rows set aside; clean loss {text}"
    )
    assert found >= 0.8
    assert clean["informed"] < clean["trimmed"] < clean["ordinary"] - 0.005
    assert fits["trimmed"].converged
    assert (np.diff(fits["trimmed"].history) <= 0).all()


def test_a_penalty_brings_the_trimmed_fit_closer_to_the_clean_one(contaminated, fits, record_property):
    """Rare kinds of rows, once set aside, pull no more: their coefficients drift. A penalty holds them."""
    points, planted = contaminated
    held = dm.solve(points, LOGISTIC, Z, l2=1000.0, random_state=0)
    loss = mean_loss(points, ~planted, held)
    record_property("figures", f"covertype with l2=1000: clean loss {loss:.4f}")
    assert loss < mean_loss(points, ~planted, fits["trimmed"]) - 0.005


def test_an_anchor_on_covertype_is_robust(contaminated, covertype_anchor, fits):
    points, anchor = contaminated[0], covertype_anchor
    assert len(anchor.ids) < 0.01 * len(points)
    at_anchor = dm.trimmed_objective(points, anchor.theta, loss=LOGISTIC, n_outliers=Z)
    at_ordinary = dm.trimmed_objective(points, fits["ordinary"].theta, loss=LOGISTIC, n_outliers=Z)
    assert at_anchor < 1.1 * fits["trimmed"].objective
    assert at_anchor < at_ordinary


@pytest.mark.parametrize("loss", [dm.KMeansLoss(10), dm.KMedianLoss(10)], ids=repr)
def test_clustering_sets_the_planted_points_of_the_survey_aside(contaminated_survey, loss, record_property):
    points, planted = contaminated_survey
    solution = dm.solve(points, loss, Z, random_state=0)
    found = np.isin(planted, solution.outliers).mean()
    record_property("figures", f"survey, {loss!r}: {found:.1%} of the planted points set aside")
    assert found >= 0.95


def test_seedings_on_the_survey(contaminated_survey, record_property):
    """Over ten seeds, one start each: at least 15% below plain k-means++ seeds and the same k-means--."""
    points, loss = contaminated_survey[0], dm.KMeansLoss(10)
    means = {}
    for name in ("k-means++", "thresholded", "local-search"):
        starts = {"init": name, "n_outliers": Z}
        runs = [dm.solve(points, loss, random_state=seed, **starts).objective for seed in range(10)]
        means[name] = np.mean(runs)
        text = f"survey, seeds by {name}: mean objective {np.mean(runs):,.0f}, from {min(runs):,.0f} to {max(runs):,.0f}"
        record_property("figures", text)
    assert means["thresholded"] < 0.85 * means["k-means++"]
    assert means["local-search"] < 0.85 * means["k-means++"]
    assert means["local-search"] <= 1.01 * means["thresholded"]
