"""Error bars: 95% intervals cover the truth about 95% of the time, and errors fall with the root of the size."""

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.statistical.seeds import coresets

pytestmark = pytest.mark.slow  # theorems over many seeds

SEEDS = 400


def logistic(n=20_000, z=400):
    """Two classes; the outliers are far out with the wrong label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    X[:z] = np.sign(X[:z]) * (20 + rng.exponential(size=(z, 3)))
    y[:z] = np.where(X[:z, 0] > 0, -1, 1)
    return X, y, dm.LogisticLoss(), z


def clusters(n=20_000, z=400):
    """Four clusters, and a tight far one of outliers."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(4, 2))
    X = centres[rng.integers(4, size=n)] + rng.normal(size=(n, 2))
    X[:z] = 40 + rng.normal(size=(z, 2))
    return X, None, dm.KMeansLoss(4), z


def probes(X, y, loss, z, n_outliers):
    """Find an anchor; parameters at it, in its ball and on its border; and the objective at each."""
    points = dm.points(X, y)
    anchor = dm.find_anchor(points, loss, z, random_state=0)
    rng = np.random.default_rng(1)
    inside = list(anchor.ball.sample(2, rng))
    step = rng.normal(size=anchor.theta.shape)
    step *= anchor.radius / np.linalg.norm(step, axis=-1, keepdims=True)
    thetas = [anchor.theta, *inside, anchor.theta + step]
    truth = [dm.trimmed_objective(points, theta, loss=loss, n_outliers=n_outliers) for theta in thetas]
    return anchor, thetas, np.array(truth)


@pytest.mark.parametrize("make", [logistic, clusters])
@pytest.mark.parametrize("calibrate", [False, True])
def test_intervals_cover_the_truth(make, calibrate, record_property):
    """Between 92% and 98% of 400 seeds, at every theta; the standard deviation of a share of 95% is 1.1%."""
    X, y, loss, z = make()
    anchor, thetas, truth = probes(X, y, loss, z, n_outliers=z)
    covered = np.zeros(len(thetas))
    settings = {"loss": loss, "size": 1000, "n_outliers": z, "calibrate": calibrate}
    for core in coresets(range(SEEDS), X, y, anchor=anchor, **settings):
        estimates = [core.estimate(theta) for theta in thetas]
        covered += [low <= exact <= high for (_, _, low, high), exact in zip(estimates, truth, strict=True)]
    share = covered / SEEDS
    how = "calibrated" if calibrate else "as drawn"
    shown = ", ".join(f"{s:.1%}" for s in share)
    record_property("figures", f"95% intervals, {loss!r}, {how}: cover {shown}")
    assert ((share >= 0.92) & (share <= 0.98)).all()


@pytest.mark.parametrize("make", [logistic, clusters])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_estimates_are_unbiased_over_seeds(make, sampler):
    """Without outliers to trim: the mean of 300 estimates is within four standard errors of the sum.

    (f_z is convex in the weights, so that of a sample lies above on average, by the order of 1/m; the
    coverage above holds all the same.)
    """
    X, y, loss, z = make(6000, 120)
    anchor, thetas, truth = probes(X, y, loss, z, n_outliers=0)
    settings = {"loss": loss, "size": 400, "n_outliers": z, "sampler": sampler, "calibrate": False}
    found = [
        [core.objective(theta, n_outliers=0) for theta in thetas]
        for core in coresets(range(300), X, y, anchor=anchor, **settings)
    ]
    error = np.std(found, axis=0) / 300**0.5
    assert (np.abs(np.mean(found, axis=0) - truth) <= 4 * error).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_errors_fall_with_the_root_of_the_size(sampler, record_property):
    """Slope of log error over log size from 1,000 to 16,000 rows, as drawn, between -0.6 and -0.4.

    No outliers here: the whole size is the sampler's, of 200,000 points, so that few are taken whole. Errors
    are root mean squares over 40 seeds and four thetas: each to about 8%, the slope to about 0.04.
    """
    X, y, loss, _ = logistic(200_000, 0)
    anchor, thetas, truth = probes(X, y, loss, 0, n_outliers=0)
    sizes = [1000, 2000, 4000, 8000, 16_000]
    seeds = range(40 if sampler != "sensitivity" else 25)
    errors = []
    for size in sizes:
        settings = {"loss": loss, "size": size, "sampler": sampler, "calibrate": False}
        cores = coresets(seeds, X, y, anchor=anchor, **settings)
        off = [[core.objective(theta) for theta in thetas] / truth - 1 for core in cores]
        errors.append(np.sqrt(np.mean(np.square(off))))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    shown = f"slope {slope:.2f}, {errors[0]:.2%} to {errors[-1]:.2%}"
    record_property("figures", f"error over size, {sampler}: {shown}")
    assert -0.6 <= slope <= -0.4
