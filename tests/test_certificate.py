"""The certificate: right errors, inside the ball, by a search that finds a planted weakness; inputs, repr."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.certificate import Certificate, certify
from tests.coreset.cores import CityBlock

N, SIZE, Z = 3000, 200, 30


class SmoothCityBlock(CityBlock):
    """A custom loss with gradients; that of a kink is 0."""

    def gradients(self, theta, X, y=None):
        return np.sign(theta - X)


def build(X, y=None, *, loss, **options):
    settings = {"size": SIZE, "n_outliers": Z, "random_state": 0, **options}
    return dm.robust_coreset(X, y, loss=loss, **settings)


def naive(theta, X, y, weights, loss, z):
    """Sort, set z aside from the top, one point after the other."""
    total, aside = 0.0, z
    values = loss.values(theta, X, y)
    for row in sorted(range(len(values)), key=lambda row: -values[row]):
        taken = min(aside, weights[row])
        aside -= taken
        total += (weights[row] - taken) * float(values[row])
    return total


X0 = np.random.default_rng(0).normal(size=(N, 4))
X0 += 3 * np.random.default_rng(1).integers(0, 3, size=(N, 1))
X0[:Z] += 40
Y0 = np.where(X0[:, 0] - 3 + np.random.default_rng(2).normal(size=N) > 0, 1, -1)
POSITIVE = np.exp(0.5 * np.random.default_rng(3).normal(size=(N, 3)))
HEAVY = np.random.default_rng(4).uniform(0, 3, size=N)
HEAVY[::50] = 0

CITY = {"anchor": np.full(4, 3.0), "sampler": "layered"}
# X, y, sample_weight, loss, options of the coreset, radius
CASES = {
    "logistic": (X0, Y0, None, dm.LogisticLoss(), {}, None),
    "logistic, sparse": (sparse.csr_array(np.where(X0 > 1, X0, 0)), Y0, None, dm.LogisticLoss(), {}, None),
    "logistic, float32": (X0.astype(np.float32), Y0, None, dm.LogisticLoss(), {}, 0.5),
    "logistic, weighted": (X0, Y0, HEAVY, dm.LogisticLoss(), {}, None),
    "logistic, no outliers": (X0[Z:], Y0[Z:], None, dm.LogisticLoss(), {"n_outliers": 0}, None),
    "squared": (X0, X0[:, 0] + X0[:, 1] / 2, None, dm.SquaredLoss(), {"sampler": "leverage"}, 0.5),
    "k-means": (X0, None, None, dm.KMeansLoss(3), {}, None),
    "k-means, weighted": (X0, None, HEAVY, dm.KMeansLoss(3), {}, 1.0),
    "k-means, float32": (X0.astype(np.float32), None, None, dm.KMeansLoss(3), {}, 1.0),
    "k-median": (X0, None, None, dm.KMedianLoss(3), {}, 1.0),
    "truth discovery": (X0, None, None, dm.TruthDiscoveryLoss(), {}, 1.0),
    "kl": (POSITIVE, None, None, dm.BregmanLoss(2, "kl"), {}, 0.3),
    "itakura-saito": (POSITIVE, None, None, dm.BregmanLoss(2, "itakura-saito"), {}, 0.3),
    "values only": (X0, None, None, CityBlock(), CITY, 1.0),
    "own gradients": (X0, None, None, SmoothCityBlock(), CITY, 1.0),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A coreset with its data and its certificate."""
    X, y, weights, loss, options, radius = CASES[request.param]
    core = build(X, y, loss=loss, sample_weight=weights, **options)
    cert = certify(core, X, y, weights, radius, n_probes=16)
    return request.param, core, X, y, weights, cert


@pytest.fixture(scope="module")
def core():
    return build(X0, Y0, loss=dm.LogisticLoss())


class TestEveryLoss:
    def test_errors_are_those_of_the_definition(self, case):
        _, core, X, y, weights, cert = case
        heavy = np.ones(X.shape[0]) if weights is None else weights
        for theta, error in list(zip(cert.probes, cert.errors, strict=True))[::3]:
            truth = naive(theta, X, y, heavy, core.loss, core.n_outliers)
            value = naive(theta, core.X, core.y, core.weights, core.loss, core.n_outliers)
            assert error == pytest.approx(abs(value / truth - 1), abs=1e-9)

    def test_every_probe_lies_in_the_ball(self, case):
        name, core, _, _, _, cert = case
        assert cert.radius == (CASES[name][-1] or core.anchor.radius)
        ball = dm.Ball(core.anchor.theta, cert.radius)
        assert cert.probes.shape == (len(cert.errors), *core.anchor.theta.shape)
        assert all(theta in ball for theta in cert.probes)

    def test_kinds_are_what_was_asked_for(self, case):
        _, core, _, _, _, cert = case
        kinds = cert.kinds.tolist()
        assert kinds[0] == "anchor"
        np.testing.assert_array_equal(cert.probes[0], core.anchor.theta)
        assert cert.n_refused == 0
        assert (kinds.count("anchor"), kinds.count("random"), kinds.count("sphere")) == (1, 8, 8)
        away = np.linalg.norm(cert.probes[cert.kinds == "sphere"] - core.anchor.theta, axis=-1)
        shares = (away / cert.radius).reshape(8, -1)  # of each centre
        np.testing.assert_allclose(shares, np.resize([0.25, 0.5, 1.0], 8)[:, None] + np.zeros_like(shares))

    def test_ascent_finds_no_less_than_chance(self, case):
        name, _, _, _, _, cert = case
        adversarial = cert.errors[cert.kinds == "adversarial"]
        if name == "values only":
            assert not adversarial.size
            assert "CityBlock has no gradients" in repr(cert)
        else:
            assert adversarial.max() >= cert.errors[cert.kinds != "adversarial"].max()
            assert "gradient ascents: " in repr(cert)

    def test_summary_numbers(self, case):
        _, _, X, _, weights, cert = case
        assert cert.max_error == cert.errors.max()
        worst = (cert.probes == cert.worst).reshape(len(cert.probes), -1).all(axis=1)
        assert cert.errors[worst].max() == cert.max_error
        assert cert.mean_error == pytest.approx(cert.errors[1:17].mean())
        assert cert.n_points == (X.shape[0] if weights is None else np.count_nonzero(weights))
        assert 0 <= cert.covered <= 1
        assert 0 < cert.max_error < 0.5


@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize("loss", [dm.LogisticLoss(), dm.KMeansLoss(3)])
def test_all_the_data_has_no_error(loss, calibrate):
    y = Y0 if isinstance(loss, dm.LogisticLoss) else None
    core = build(X0, y, loss=loss, size=N, calibrate=calibrate)
    order = np.random.default_rng(9).permutation(N)  # sums in another order: rounding is covered too
    for rows in (np.arange(N), order):
        cert = certify(core, X0[rows], None if y is None else y[rows], n_probes=16)
        assert cert.max_error <= 1e-9
        assert cert.covered == 1


def test_z_below_one_is_a_weight_and_no_fraction():
    """All weights are tiny: z = 0.3 is what is set aside, not 30% of everything."""
    weights = np.full(N, 0.01)
    core = build(X0, loss=dm.KMeansLoss(3), sample_weight=weights, n_outliers=0.01)
    assert core.n_outliers == pytest.approx(0.3)
    cert = certify(core, X0, None, weights, radius=0.5, n_probes=2, ascent_steps=0)
    truth = naive(cert.worst, X0, None, weights, core.loss, core.n_outliers)
    assert cert.max_error == pytest.approx(abs(core.objective(cert.worst) / truth - 1), abs=1e-9)


def test_ascent_finds_a_planted_weakness():
    """Move weight from one side of a direction to the other: off that direction the error stays small.

    In 20 dimensions a random probe has a cosine of about 0.22 with it: the ascent should go there.
    """
    X = np.random.default_rng(5).normal(size=(N, 20))
    core = build(X, loss=dm.KMeansLoss(1), n_outliers=0, size=600)
    side = core.X[:, 0] > 0
    weights = np.where(side, 0.7 * core.weights, core.weights)
    weights[~side] *= (core.total_weight - weights[side].sum()) / weights[~side].sum()
    weak = dataclasses.replace(core, points=core.points.with_parts(weights=weights))
    cert = certify(weak, X, radius=4.0)
    chance = cert.errors[cert.kinds != "adversarial"].max()
    step = (cert.worst - core.anchor.theta)[0]
    assert cert.max_error > 1.5 * chance
    assert abs(step[0]) > 0.9 * np.linalg.norm(step)
    assert cert.kinds[cert.errors.argmax()] == "adversarial"
    along = [core.anchor.theta + reach * np.eye(1, 20) for reach in np.linspace(-4, 4, 81)]
    truth = [dm.trimmed_objective(dm.points(X), theta, loss=weak.loss) for theta in along]
    there = [abs(weak.objective(theta) / f - 1) for theta, f in zip(along, truth, strict=True)]
    assert cert.max_error > 0.98 * max(there)


def test_ascent_goes_both_ways():
    """Where the coreset is too high somewhere and too low elsewhere, both are climbed."""
    X = np.random.default_rng(6).normal(size=(N, 3))
    core = build(X, loss=dm.KMeansLoss(1), n_outliers=0)
    cert = certify(core, X, radius=2.0, n_probes=16)
    assert cert.search == "gradient ascents: 2"
    truth = np.array([naive(theta, X, None, np.ones(N), core.loss, 0.0) for theta in cert.probes])
    signed = np.array([core.objective(theta) for theta in cert.probes]) / truth - 1
    adversarial = cert.kinds == "adversarial"
    assert signed[adversarial].max() > signed[~adversarial].max()
    assert signed[adversarial].min() < signed[~adversarial].min()


def test_zero_objectives():
    """Where f_z(theta, X) is 0: error 0 if the coreset's is 0 too, else infinity."""
    X = np.ones((50, 2))
    X[0] = 5
    core = build(X, loss=dm.KMeansLoss(1), size=10, n_outliers=1, anchor=[[1.0, 1.0]])
    assert certify(core, X, radius=0.0, n_probes=1).errors.tolist() == [0, 0]
    moved = dataclasses.replace(core, points=dm.points(core.X + 1, weights=core.weights, ids=core.ids))
    cert = certify(moved, X, radius=0.0, n_probes=1)
    assert cert.max_error == np.inf
    assert certify(moved, X, radius=0.1, n_probes=4).max_error == np.inf


@pytest.mark.parametrize("divergence", ["kl", "itakura-saito"])
def test_probes_outside_the_domain_are_counted(divergence):
    core = build(POSITIVE, loss=dm.BregmanLoss(2, divergence))
    cert = certify(core, POSITIVE, radius=1.5, n_probes=32)
    assert 0 < cert.n_refused < 32
    assert np.count_nonzero(cert.kinds != "adversarial") == 33 - cert.n_refused
    assert (cert.probes > 0).all()
    assert f"{cert.n_refused} refused" in repr(cert)
    none = certify(core, POSITIVE, radius=1e6, n_probes=6)
    assert none.n_refused == 6
    assert np.isnan(none.mean_error)
    assert none.kinds[0] == "anchor"
    assert "nan" in repr(none)
    with pytest.raises(ValueError, match=r"row 5 has -1\.0"):  # bad data is not a refused probe
        certify(core, np.where(np.arange(N)[:, None] == 5, -1.0, POSITIVE), radius=0.1)


def test_where_everything_overflows():
    cert = certify(build(X0, loss=dm.KMeansLoss(2)), X0, radius=1e200, n_probes=6)
    assert cert.n_refused == 6
    assert np.isfinite(cert.max_error)


def test_a_divergence_without_hessian_has_no_adversarial_probes():
    loss = dm.BregmanLoss(1, dm.CustomDivergence(lambda X: np.cosh(X).sum(axis=1), np.sinh))
    X = np.random.default_rng(7).normal(size=(500, 2))
    core = build(X, loss=loss, anchor=np.zeros((1, 2)), calibrate=False, n_outliers=5)
    cert = certify(core, X, radius=0.5, n_probes=4)
    assert "adversarial" not in cert.kinds
    assert "BregmanLoss has no gradients" in cert.search


class TestSettings:
    def test_radius_zero_is_the_anchor_alone(self, core):
        cert = certify(core, X0, Y0, radius=0, n_probes=3)
        np.testing.assert_array_equal(cert.probes, np.stack([core.anchor.theta] * 4))
        assert "the radius is 0" in repr(cert)

    def test_no_more_ascent_than_asked_for(self, core):
        cert = certify(core, X0, Y0, n_probes=3, ascent_steps=0)
        assert cert.kinds.tolist() == ["anchor", "random", "random", "sphere"]
        assert "ascent_steps is 0" in repr(cert)
        one = certify(core, X0, Y0, n_probes=np.int64(1), ascent_steps=0)
        assert one.kinds.tolist() == ["anchor", "random"]
        few = certify(core, X0, Y0, n_probes=4, ascent_steps=3)
        assert 0 < np.count_nonzero(few.kinds == "adversarial") <= 6

    def test_coverage_is_unknown_without_standard_errors_and_falls_where_intervals_miss(self, core):
        """Weights in the wrong order, of a coreset that claims to have been certain of each, miss."""
        blind = dataclasses.replace(core, inclusion=np.full(len(core), np.nan))
        cert = certify(blind, X0, Y0, n_probes=2)
        assert np.isnan(cert.covered)
        assert "intervals: unknown" in repr(cert)
        points = core.points.with_parts(weights=core.weights[::-1].copy())
        sure = dataclasses.replace(core, points=points, inclusion=np.ones(len(core)), calibrated=False)
        assert certify(sure, X0, Y0, n_probes=4).covered == 0

    @pytest.mark.parametrize("seed", [{}, {"random_state": 3}])
    def test_seeds_reproduce(self, core, seed):
        one, two = (certify(core, X0, Y0, n_probes=8, **seed) for _ in range(2))
        other = certify(core, X0, Y0, n_probes=8, random_state=np.random.default_rng(4))
        np.testing.assert_array_equal(one.probes, two.probes)
        np.testing.assert_array_equal(one.errors, two.errors)
        assert not np.array_equal(one.probes[1:9], other.probes[1:9])

    def test_lists_other_labels_and_rounded_weights_will_do(self, core):
        cert = certify(core, X0.tolist(), (Y0 > 0).astype(int).tolist(), n_probes=2)
        np.testing.assert_allclose(cert.errors, certify(core, X0, Y0, n_probes=2).errors)
        assert certify(core, X0, Y0, np.full(N, 1 + 1e-8), n_probes=1).max_error < 0.5


def test_inputs_are_not_changed_and_results_are_frozen(core):
    X, y, weights = X0.copy(), Y0.copy(), np.ones(N)
    for array in (X, y, weights):
        array.flags.writeable = False  # as those of the coreset are
    cert = certify(core, X, y, weights, n_probes=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cert.radius = 2.0
    with pytest.raises(ValueError, match="read-only"):
        cert.errors[0] = 0
    assert isinstance(cert, Certificate)
    assert cert != certify(core, X, y, weights, n_probes=4)


@pytest.mark.usefixtures("two_threads")
def test_data_is_not_copied():
    """X is 48 MB; a pass takes a few MB for each thread."""
    X = np.random.default_rng(8).normal(size=(20_000, 300))
    core = build(X, loss=dm.KMeansLoss(1), size=50, anchor=np.zeros((1, 300)), calibrate=False)
    tracemalloc.start()
    certify(core, X, radius=1.0, n_probes=2, ascent_steps=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_the_repr_says_what_it_is(core):
    first, second, _ = repr(certify(core, X0, Y0, radius=0.25, n_probes=4)).splitlines()
    ending = "the largest found on 3,000 points, is a lower bound on the worst case within 0.25 of the anchor"
    assert first.startswith("Certificate: max_error 0.")
    assert first.endswith(ending)
    assert second.startswith("  probes: 1 anchor, 2 random, 2 sphere, ")


BAD = {
    "radius -1": ({"radius": -1.0}, r"radius=-1.0 must be zero or a positive finite number"),
    "n_probes 0": ({"n_probes": 0}, r"n_probes=0 must be a whole number, 1 or more"),
    "n_probes 1.5": ({"n_probes": 1.5}, r"n_probes=1.5 must be a whole number, 1 or more"),
    "n_probes True": ({"n_probes": True}, r"n_probes=True must be a whole number"),
    "ascent_steps": ({"ascent_steps": -1}, r"ascent_steps=-1 must be a whole number, 0 or more"),
    "seed": ({"random_state": "x"}, r"random_state='x' must be None, a seed"),
    "columns": (
        {"X": X0[:, :3]},
        r"X has 3 columns, .*; the coreset has 4 columns, .*: it was built from other data; pass the X and",
    ),
    "rows": (
        {"X": X0[1:], "y": Y0[1:]},
        r"X has .*total weight 2,999; the coreset has .*total weight 3,000: it was built from other data; pass the X and",
    ),
    "weights": (
        {"sample_weight": np.full(N, 0.5)},
        r"X has .*total weight 1,500; the coreset has .*total weight 3,000",
    ),
    "no labels": ({"y": None}, r"the coreset has labels, and y is None; pass y, one label per row"),
    "short labels": ({"y": Y0[1:]}, r"y has 2999"),
    "labels": ({"y": np.full(N, 7)}, r"row 0 has 7|found.* 7"),
    "missing": ({"X": np.where(np.isin(X0, X0[7, 1]), np.nan, X0)}, r"X has NaN in row 7, column 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(core, name):
    changed, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        certify(**{"core": core, "X": X0, "y": Y0, **changed})


def test_bad_coresets_are_refused(core):
    with pytest.raises(
        TypeError, match=r"core must be a Coreset, as dm.robust_coreset returns; found ndarray"
    ):
        certify(X0, X0, Y0)
    with pytest.raises(ValueError, match="the coreset has no labels; leave y out"):
        certify(build(X0, loss=dm.KMeansLoss(2)), X0, Y0)
    with pytest.raises(ValueError, match=r"core.anchor is None; pass a core with an anchor"):
        certify(dataclasses.replace(core, anchor=None), X0, Y0, radius=1.0)
    still = build(X0, loss=dm.KMeansLoss(1), anchor=np.zeros((1, 4)))
    with pytest.raises(ValueError, match=r"core.anchor.radius is 0; pass radius"):
        certify(still, X0)
    assert certify(still, X0, radius=1.0, n_probes=1).radius == 1.0
