"""Bad input to robust_coreset: one clear error that names the value and the way out; odd input: a correct answer."""

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.coreset import cores
from tests.coreset.cores import Absolute, logistic

LOGISTIC, MEANS = dm.LogisticLoss(), dm.KMeansLoss(2)
X0, Y0 = logistic(500, 10)


def build(X=X0, y=Y0, **settings):
    return cores.build(X, y, **{"size": 50, **settings})


class Unknown(Absolute):
    vc_dimension = None


MISSING = (dm.MissingPropertyError, TypeError)
REFUSED = [
    ({"n_outliers": 500}, ValueError, r"n_outliers=500 is not below the total weight 500"),
    ({"n_outliers": 600}, ValueError, r"n_outliers=600 is not below the total weight 500"),
    ({"n_outliers": -1}, ValueError, "n_outliers=-1 must be 0 or more"),
    ({"n_outliers": "many"}, TypeError, "n_outliers='many' is not a number"),
    ({"n_outliers": 300}, ValueError, "could set aside the whole class"),
    ({"size": 0}, ValueError, "size=0 must be a whole number, 1 or more"),
    ({"size": 10.0}, ValueError, "size=10.0 must be a whole number"),
    ({"size": 1, "n_outliers": 10}, ValueError, "size=1 is too small.*take size=2 or more, or suspects=0"),
    ({"size": 15, "n_outliers": 10, "beta": 0}, ValueError, "size=15 is too small for 15 suspected.*beta=0.*size=16"),
    ({"size": None}, TypeError, "size=None, epsilon=None.*pass size=4000, say"),
    ({"size": 50, "epsilon": 0.1}, TypeError, "size=50, epsilon=0.1.*do not go together"),
    ({"size": 50, "beta": 0.5}, TypeError, "size=50.*beta=0.5.*do not go together; .*epsilon, perhaps with beta"),
    ({"size": None, "epsilon": 1.5}, ValueError, "epsilon=1.5 must be above 0 and below 1"),
    ({"size": None, "epsilon": 0.5, "beta": 1}, ValueError, "beta=1 must be 0 or more and below 1"),
    ({"size": None, "epsilon": 0.5, "suspects": 2}, TypeError, "suspects=2 do not go together; pass size=4000, say, perhaps with suspects"),
    ({"size": None, "beta": 0.5}, ValueError, "Theorem 1, which needs both beta and n_outliers above 0"),
    ({"size": None, "beta": 0.5, "n_outliers": 10, "sampler": "layered"}, TypeError, "beta alone means a uniform"),
    ({"size": None, "beta": 0.5, "n_outliers": 50, "loss": Unknown()}, MISSING, "vc_dimension|VC dimension"),
    ({"eta": 0}, ValueError, "eta=0 must be a probability above 0"),
    ({"suspects": -1}, ValueError, "suspects=-1 must be 'auto'"),
    ({"suspects": "few"}, ValueError, "suspects='few' must be 'auto'"),
    ({"suspects": np.array([1, 2])}, ValueError, "suspects=array"),
    ({"sampler": "random"}, ValueError, "sampler='random' is not known; use one of"),
    ({"sampler": dm.UniformSampler}, TypeError, r"sampler=<class .*UniformSampler'> is not known.*such as dm.UniformSampler\(\)"),
    ({"sampler": 7}, TypeError, "sampler=7 is not known.*or pass a Sampler"),
    ({"anchor": np.zeros(3)}, ValueError, r"theta has shape \(3,\).*needs shape \(4,\)"),
    ({"anchor": np.full(4, np.nan)}, ValueError, "theta must be finite"),
    ({"anchor": "here"}, ValueError, "theta='here' must be an array of numbers"),
    ({"anchor": np.zeros(4), "sampler": "sensitivity"}, ValueError, r"dm.Anchor\(theta, radius\)"),
    ({"anchor": np.zeros(4), "size": None, "epsilon": 0.5}, ValueError, "epsilon needs to know how far"),
    ({"calibrate": "no"}, TypeError, "calibrate='no' must be True or False"),
    ({"sample_weight": np.zeros(500)}, ValueError, "all weights are zero"),
    ({"sample_weight": -np.ones(500)}, ValueError, "weights must not be negative"),
    ({"sample_weight": np.ones(3)}, ValueError, "weights has 3 values for 500 rows"),
    ({"ids": np.zeros(500, dtype=int)}, ValueError, "ids must be distinct"),
    ({"ids": np.arange(500.0)}, TypeError, "ids must be integers"),
    ({"y": None}, ValueError, "needs labels; pass y"),
    ({"y": np.zeros(499)}, ValueError, "y has 499 values for 500 rows"),
    ({"y": np.arange(500)}, ValueError, "label"),
    ({"X": np.zeros((0, 3)), "y": np.zeros(0)}, ValueError, "X is empty"),
    ({"X": dm.points(X0, Y0)}, TypeError, "takes X and y, not points"),
    ({"loss": dm.LogisticLoss}, TypeError, "the class LogisticLoss; call it"),
    ({"loss": "logistic"}, TypeError, "loss must be a Loss"),
    ({"random_state": -1}, ValueError, "random_state=-1"),
    ({"X": sparse.csr_array(X0), "y": None, "loss": MEANS, "anchor": X0[:2]}, TypeError, "needs dense rows"),
    ({"X": np.zeros((9, 1)), "y": None, "loss": MEANS, "size": 3}, ValueError, "k=2 is above the number of distinct"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "kind", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_refusals(settings, kind, message):
    with pytest.raises(kind, match=message):
        build(**settings)


@pytest.mark.parametrize("row", [0, 4321, 8999])
@pytest.mark.parametrize("name, value", [("NaN", np.nan), ("inf", np.inf)])
@pytest.mark.parametrize(
    "loss, anchor", [(LOGISTIC, None), (LOGISTIC, np.eye(5)[0]), (dm.KMeansLoss(3), None)], ids=str
)
def test_rows_with_nan_or_infinity_are_named(row, name, value, loss, anchor):
    """By their number in the data, also if an anchor is found first, whether its sample holds them or not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9000, 4)), rng.integers(0, 2, size=9000)
    X[row, 2] = value
    for seed in range(3):
        with pytest.raises(ValueError, match=rf"X has {name} in row {row}, column 2"):
            build(X, y, loss=loss, size=400, n_outliers=9, anchor=anchor, random_state=seed)


def test_anchors_of_other_kinds():
    points = dm.points(X0, Y0)
    solution = dm.solve(points, LOGISTIC, 10)
    plain = build(anchor=solution.theta, n_outliers=10, sampler="leverage")
    theta = solution.theta
    for anchor in (solution, list(theta), dm.Ball(theta, 0.5), dm.Anchor(theta, 0.5)):
        same = build(anchor=anchor, n_outliers=10, sampler="leverage")
        np.testing.assert_array_equal(same.ids, plain.ids)
    assert build(anchor=dm.Ball(solution.theta, 0.5)).anchor.radius == 0.5


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_data_with_nothing_in_it(sampler):
    """One point, copies of one point, constant columns, a perfect fit: a coreset of the right weight each time."""
    for X in (np.ones((1, 2)), np.ones((40, 2)), np.zeros((40, 2))):
        core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=10, sampler=sampler, random_state=0)
        assert core.total_weight == pytest.approx(len(X))
        assert core.objective(np.zeros((1, 2))) == pytest.approx(np.square(X).sum(), rel=1e-9)
        assert core.estimate(core.anchor.theta).value == pytest.approx(0, abs=1e-9)
    y = X0 @ [1.0, 2.0, 3.0]
    asked = {"loss": dm.SquaredLoss(), "n_outliers": 5, "sampler": sampler}
    perfect = build(X0, y, anchor=dm.Anchor([1.0, 2.0, 3.0, 0.0], 0.1), **asked)
    assert perfect.total_weight == pytest.approx(500)
    assert perfect.objective([1.0, 2.0, 3.0, 0.0]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-40, 1e40, 1e100])
@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage"])
def test_the_unit_of_length_does_not_matter(scale, sampler):
    X = np.random.default_rng(0).normal(size=(1000, 3))
    asked = {"loss": dm.KMeansLoss(1), "size": 100, "n_outliers": 10, "sampler": sampler}
    cores = [build(X * s, None, anchor=np.zeros((1, 3)), **asked) for s in (1.0, scale)]
    np.testing.assert_array_equal(cores[0].ids, cores[1].ids)
    np.testing.assert_allclose(cores[0].weights, cores[1].weights, rtol=1e-6)
    theta = np.full((1, 3), 0.3 * scale)
    assert cores[1].estimate(theta).std_error / scale**2 == pytest.approx(
        cores[0].estimate(theta / scale).std_error, rel=1e-5
    )


@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage"])
@pytest.mark.parametrize("heavy", [1e6, 1e12, 1e18, 1e24])
def test_light_points_do_not_drown_beside_heavy_ones(sampler, heavy):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(1000, 2)), rng.uniform(0.5, 1.5, size=1000)
    weights[:50] *= heavy
    asked = {"loss": dm.KMeansLoss(1), "size": 200, "sampler": sampler, "calibrate": False}
    core = build(X, None, sample_weight=weights, anchor=np.zeros((1, 2)), **asked)
    light = core.ids >= 50
    assert (core.weights > 0).all()
    assert core.weights[light].sum() == pytest.approx(weights[50:].sum(), rel=1e-12)


def test_extreme_parameters_have_infinite_error_bars_not_warnings():
    core = dm.robust_coreset(X0, loss=dm.KMeansLoss(1), size=100, anchor=np.zeros((1, 3)), random_state=0)
    far = core.estimate(np.full((1, 3), 1e100))
    assert 0 < far.std_error < 1e-6 * far.value  # from so far all points cost the same
    beyond = core.estimate(np.full((1, 3), 1e200))
    assert beyond.value == np.inf
    assert beyond.std_error == np.inf


def test_a_total_that_no_weights_can_reach():
    """One label of 1e9 that the sample does not have: factors stay in bounds, and the other rows' loss near the truth."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=20_000)
    for label in (1e3, 1e4, 1e6, 1e9, 1e100):
        y[7] = label
        asked = {"loss": dm.SquaredLoss(), "size": 1000, "anchor": [1.0, 2, 3, 0], "sampler": "uniform"}
        sampled, calibrated = (build(X, y, calibrate=c, **asked) for c in (False, True))
        factors = calibrated.weights / sampled.weights
        assert 1 / 3.01 < factors.min() <= factors.max() < 3.01
        rest = np.delete(np.arange(20_000), 7)
        truth = np.square(X[rest] @ [1.0, 2, 3] - y[rest]).sum() / 2
        others = calibrated.ids != 7
        residuals = calibrated.X[others] @ [1.0, 2, 3] - calibrated.y[others]
        found = calibrated.weights[others] @ np.square(residuals) / 2
        assert found == pytest.approx(truth, rel=0.3)


def test_a_divergence_without_a_hessian():
    X = np.abs(np.random.default_rng(0).normal(size=(500, 2)))
    loss = dm.BregmanLoss(1, (lambda rows: np.cosh(rows).sum(axis=1), np.sinh))
    core = dm.robust_coreset(X, loss=loss, size=60, random_state=0)
    assert core.calibrated
    assert np.isfinite(core.estimate(core.anchor.theta).std_error)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda theta, X: X[:, 0] - 100, "gave the loss -.* to id"),
        (lambda theta, X: X[:, :1] ** 2, r"values of shape \(500, 1\)"),
        (lambda theta, X: np.full(len(X), np.nan), "gave the loss nan to id 0"),
    ],
)
def test_custom_losses_are_checked(values, message):
    class Own(dm.Loss):
        def values(self, theta, X, y=None):
            return values(theta, X)

    with pytest.raises(ValueError, match=message):
        dm.robust_coreset(X0, loss=Own(), size=50, anchor=[0.0])


def test_a_black_box_draws_by_the_seed_alone():
    class Random(dm.Sampler):
        def reduce(self, points, size, rng):
            part = points.take(np.sort(rng.choice(len(points), size, replace=False)))
            return dm.points(part.X, part.y, part.weights, part.ids)

    first = build(sampler=Random(), n_outliers=10)
    np.testing.assert_array_equal(first.ids, build(sampler=Random(), n_outliers=10, anchor=first.anchor).ids)
    assert len(build(X0[:2], Y0[:2], sampler=Random(), n_outliers=1, size=2, anchor=np.zeros(4))) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda points, size: None, "must return points from reduce; found NoneType"),
        (
            lambda points, size: points.with_parts(weights=np.zeros(500)).take(slice(0, size)),
            r"with weights \[0.0, 0.0, 0.0\].*positive weights",
        ),
        (lambda points, size: points, "returned 500 points for size=50"),
        (
            lambda points, size: dm.points(points.X[:size], points.y[:size], ids=-1 - np.arange(size)),
            r"Odd\(\) returned 50 points .* with their ids",
        ),
    ],
)
def test_a_black_box_that_answers_wrongly(answer, message):
    class Odd(dm.Sampler):
        def reduce(self, points, size, rng):
            return answer(points, size)

    with pytest.raises((TypeError, ValueError), match=message):
        build(sampler=Odd(), anchor=np.zeros(4))


def test_a_bound_sampler_is_the_sampler():
    anchor = dm.Anchor(np.eye(4)[0], 0.1)
    bound = dm.LayeredSampler().bind(LOGISTIC, anchor)
    one, other = (build(sampler=sampler, anchor=anchor) for sampler in (bound, "layered"))
    np.testing.assert_array_equal(one.ids, other.ids)


class ByParity(dm.RankedSampler):
    """Strata far apart, each with its share by weight."""

    def scores(self, anchored):
        return np.ones(len(anchored))

    def strata(self, anchored):
        return (anchored.points.ids % 2) * 10**9


class Forgetful(ByParity):
    def allocate(self, strata, size):
        return np.array([0, 1]), np.array([size, 0])


def test_custom_strata_have_their_share_and_none_may_be_forgotten():
    core = build(sampler=ByParity(), anchor=np.zeros(4), calibrate=False)
    assert core.weights[core.ids % 2 == 0].sum() == pytest.approx(250)
    assert np.bincount(core.groups).tolist() == [25, 25]
    with pytest.raises(ValueError, match=r"shared size=50 out as \[50, 0\]"):
        build(sampler=Forgetful(), anchor=np.zeros(4))


@pytest.mark.parametrize(
    "ids", [np.arange(500) - 250, np.arange(500) * 2**53, np.arange(500).astype(np.uint64)]
)
def test_ids_of_all_kinds(ids):
    core = build(ids=ids, n_outliers=10)
    assert set(core.ids.tolist()) <= set(ids.tolist())
    assert core.ids.dtype == np.int64


@pytest.mark.parametrize("weight", [1e-300, 1e-310, 1e160])
def test_weights_of_any_size(weight):
    asked = {"loss": dm.KMeansLoss(1), "anchor": np.zeros((1, 3))}
    core = build(y=None, sample_weight=np.full(500, weight), **asked)
    assert len(core) == 50
    assert core.total_weight == pytest.approx(500 * weight, rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "size", "sampler"),
    [
        (dm.LogisticLoss(), 199, "SensitivitySampler"),  # four parameters: fewer than 50 rows for each
        (dm.LogisticLoss(), 200, "LeverageSampler"),
        (dm.SmoothHingeLoss(), 100, "SensitivitySampler"),
        (dm.SquaredLoss(), 400, "SensitivitySampler"),
        (dm.SoftmaxLoss(2), 100, "LeverageSampler"),
        (dm.KMeansLoss(2), 100, "LayeredSampler"),
    ],
)
def test_the_sampler_is_chosen_by_the_loss_and_the_size(loss, size, sampler):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 3)), rng.integers(2, size=1000)
    labels = None if isinstance(loss, dm.KMeansLoss) else y
    asked = {"loss": loss, "size": size, "n_outliers": 10}
    core = build(X, labels, **asked)
    assert core.sampler.startswith(sampler)
    bare = build(X, labels, anchor=core.anchor.theta, **asked)
    assert not bare.sampler.startswith("Sensitivity")  # which needs a radius
    again = build(X, labels, anchor=bare.anchor, **asked)
    assert again.sampler == bare.sampler
    np.testing.assert_array_equal(again.ids, bare.ids)
