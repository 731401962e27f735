"""Coresets of the real data with planted outliers: calibration, error bars, and solutions found on them."""

import time

import numpy as np
import pytest

import duramen as dm
from tests.data import Z
from tests.statistical.seeds import coresets

pytestmark = [pytest.mark.data, pytest.mark.slow]

SEEDS = range(5)


def test_calibration_at_least_halves_the_error_near_the_anchor(
    contaminated, covertype_anchor, record_property
):
    """Mean error over the anchor and 8 parameters within a tenth of its radius, leverage sampler, 4,000 rows."""
    points, loss, anchor = contaminated[0], dm.LogisticLoss(), covertype_anchor
    near = dm.Ball(anchor.theta, 0.1 * anchor.radius).sample(8, np.random.default_rng(0))
    thetas = [anchor.theta, *near]
    truth = np.array([dm.trimmed_objective(points, theta, loss=loss, n_outliers=Z) for theta in thetas])
    settings = {"loss": loss, "size": 4000, "n_outliers": Z, "sampler": "leverage"}
    errors = {}
    for calibrate in (False, True):
        found = []
        for core in coresets(SEEDS, points.X, points.y, anchor=anchor, calibrate=calibrate, **settings):
            assert (core.weights > 0).all()
            found.append(np.abs([core.objective(theta) for theta in thetas] / truth - 1))
        errors[calibrate] = float(np.mean(found))
    text = f"error near the anchor {errors[False]:.3%}, calibrated {errors[True]:.3%}"
    record_property("figures", f"covertype, 4,000 rows by leverage: {text}")
    assert errors[True] <= errors[False] / 2


def test_a_solution_on_covertypes_coreset(contaminated, covertype_anchor, trimmed_fit, record_property):
    points, loss, full = contaminated[0], dm.LogisticLoss(), trimmed_fit
    settings = {"loss": loss, "size": 4000, "n_outliers": Z, "anchor": covertype_anchor}
    ratios, covered = [], 0
    for core in coresets(SEEDS, points.X, points.y, **settings):
        theta = dm.solve(core).theta
        ratios.append(dm.trimmed_objective(points, theta, loss=loss, n_outliers=Z) / full.objective)
        estimate = core.estimate(full.theta)
        covered += estimate.low <= full.objective <= estimate.high
    text = f"loss ratio {np.mean(ratios):.4f} (worst {max(ratios):.4f}); {covered} of 5 intervals cover"
    record_property("figures", f"covertype, 4,000 rows: {text}")
    assert np.mean(ratios) <= 1.025  # the paper's best at this size; 1.010 belongs to the estimators


def test_all_sensitivities_of_covertype_take_seconds(contaminated, covertype_anchor, record_property):
    points = contaminated[0]
    start = time.perf_counter()
    bounds = dm.SensitivitySampler().sensitivities(points, dm.LogisticLoss(), covertype_anchor)
    seconds = time.perf_counter() - start
    text = f"{len(points):,} sensitivities in {seconds:.1f} s, in sum {bounds.sum():.1f}"
    record_property("figures", f"covertype: {text}")
    assert np.isfinite(bounds).all()
    assert seconds < 30
