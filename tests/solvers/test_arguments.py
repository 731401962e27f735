"""Bad input gets one clear error that names the value and the way out; and what the options do."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import duramen as dm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 3))
Y = np.where(X[:, 0] + RNG.normal(size=100) > 0, 1, -1)
POINTS, PLAIN = dm.points(X, Y), dm.points(X)
LOGISTIC = dm.LogisticLoss()

TWICE = np.repeat(X[:3], 20, axis=0)
RARE = np.where(np.arange(100) < 5, 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dm.solve(dm.points(X, np.ones(100)), LOGISTIC), r"have the labels \[1.0\]; LogisticLoss.* needs 2 classes"),
        (lambda: dm.solve(dm.points(X, np.zeros(100)), LOGISTIC), r"have the labels \[0.0\]; LogisticLoss.* needs 2 classes"),
        (lambda: dm.solve(dm.points(X, Y, weights=(Y > 0).astype(float)), dm.SmoothHingeLoss()), r"positive weight have the labels \[1\]; SmoothHingeLoss.* needs 2 classes"),
        (lambda: dm.solve(dm.points(X, RARE), LOGISTIC, 5), r"n_outliers=5 could .* class 1, of weight 5; take fewer"),
        (lambda: dm.solve(dm.points(X, RARE), LOGISTIC, 0.06), r"n_outliers=6 could set aside the whole class 1"),
        (lambda: dm.solve(dm.points(X, 1 - RARE, weights=np.where(RARE, 0.5, 1.0)), LOGISTIC, 2.5), r"the whole class 0, of weight 2.5"),
        (lambda: dm.solve(dm.points(TWICE), dm.KMeansLoss(4)), r"k=4 is above .* distinct .*, 3; take k=3 or less"),
        (lambda: dm.solve(dm.points(TWICE), dm.BregmanLoss(4, "squared")), r"k=4 is above the number of distinct"),
        (lambda: dm.solve(dm.points(X, weights=np.arange(100) < 2), dm.KMedianLoss(3)), r"k=3 is above the number of distinct points of positive weight, 2"),
        (lambda: dm.solve(dm.points(X, weights=np.zeros(100)), dm.KMeansLoss(2)), r"all weights are zero"),
        (lambda: dm.solve(PLAIN.take([]), dm.KMeansLoss(2)), r"there are no points"),
        (lambda: dm.solve(PLAIN, LOGISTIC), r"LogisticLoss\(.*\) needs labels; pass y, one label per row"),
        (lambda: dm.solve(POINTS, dm.PoissonLoss()), r"PoissonLoss takes labels of 0 or more"),
        (lambda: dm.solve(POINTS, LOGISTIC, 100), r"n_outliers=100 is not below the total weight 100"),
        (lambda: dm.solve(POINTS, LOGISTIC, -1), r"n_outliers=-1 must be 0 or more"),
        (lambda: dm.solve(POINTS, LOGISTIC, l2=-1), r"l2=-1 must be zero or a positive finite number"),
        (lambda: dm.solve(POINTS, LOGISTIC, l2=np.nan), r"l2=nan must be"),
        (lambda: dm.solve(PLAIN, dm.KMeansLoss(2), l2=1.0), r"l2=1.0 penalises linear predictors"),
        (lambda: dm.solve(POINTS, LOGISTIC, n_starts=0), r"n_starts=0 must be a whole number, 1 or more"),
        (lambda: dm.solve(POINTS, LOGISTIC, max_iter=2.5), r"max_iter=2.5 must be a whole number"),
        (lambda: dm.solve(POINTS, LOGISTIC, tol=-1e-3), r"tol=-0.001 must be zero or a positive"),
        (lambda: dm.solve(POINTS, LOGISTIC, random_state=-3), r"random_state=-3 must be None, a seed"),
        (lambda: dm.solve(POINTS, LOGISTIC, random_state="a"), r"random_state='a' must be"),
        (lambda: dm.solve(POINTS, LOGISTIC, init=np.zeros(3)), r"init has shape \(3,\); .* needs shape \(4,\)"),
        (lambda: dm.solve(POINTS, LOGISTIC, init=[0, 0, 0, np.nan]), r"init must be finite"),
        (lambda: dm.solve(POINTS, LOGISTIC, init="k-means++"), r"init='k-means\+\+' is not known .*'subsets', 'zero'"),
        (lambda: dm.solve(PLAIN, dm.KMeansLoss(2), init="zero"), r"init='zero' is not known .*'local-search'"),
        (lambda: dm.find_anchor(dm.points(X, weights=np.zeros(100)), dm.KMeansLoss(2)), r"all weights are zero"),
        (lambda: dm.find_anchor(dm.points(X, np.ones(100)), LOGISTIC), r"needs 2 classes"),
        (lambda: dm.solve(PLAIN, dm.KMeansLoss(2), init=[[1, 2, 3], [4]]), r"init=\[\[1, 2, 3\], \[4\]\] must be an array of numbers"),
        (lambda: dm.solve(PLAIN, dm.KMeansLoss(2), init={"a": 1}), r"init=\{'a': 1\} must be an array of numbers"),
        (lambda: dm.solve(dm.points((1e25 * X).astype(np.float32)), dm.KMeansLoss(3)), r"the objective overflows"),
        (lambda: dm.solve(dm.points(X, 1e160 * X[:, 0]), dm.SquaredLoss()), r"overflows: .*; scale them down"),
        (lambda: dm.Anchor("a", radius=1), r"theta='a' must be an array of numbers"),
        (lambda: dm.Anchor([1.0], radius=-1), r"radius=-1 must be zero or a positive"),
        (lambda: dm.Anchor([np.nan], radius=1), r"theta must be finite"),
        (lambda: dm.Anchor([1.0], 1.0, ids=[0.5]), r"ids must be a vector of integers"),
    ],
)  # fmt: skip
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dm.solve(X, LOGISTIC), r"make them with dm.points"),
        (lambda: dm.solve(POINTS, "logistic"), r"loss must be a Loss"),
        (lambda: dm.solve(POINTS, dm.LogisticLoss), r"the class LogisticLoss; call it"),
        (lambda: dm.solve(POINTS, LOGISTIC, "many"), r"n_outliers='many' is not a number"),
        (lambda: dm.solve(POINTS, LOGISTIC, callback=3), r"callback=3 must be a function"),
        (lambda: dm.solve(dm.points(sparse.csr_array(X)), dm.KMeansLoss(2)), r"KMeansLoss needs dense rows"),
        (lambda: dm.find_anchor(dm.points(sparse.csr_array(X)), dm.BregmanLoss(2)), r"BregmanLoss needs dense"),
        (lambda: dm.find_anchor(POINTS, LOGISTIC, init="zero"), r"init='zero' must be a theta for find_anchor"),
    ],
)  # fmt: skip
def test_bad_types_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


class Flat(dm.Loss):
    def values(self, theta, X, y=None):
        return np.square(X - theta).sum(axis=1)


class Bowl(Flat):
    def gradients(self, theta, X, y=None):
        return 2 * (theta - X)


def test_what_a_custom_loss_lacks_is_named():
    with pytest.raises(ValueError, match="does not define parameter_shape; pass init="):
        dm.solve(PLAIN, Flat())
    with pytest.raises(dm.MissingPropertyError, match=r"Flat has no gradients; define Flat\.gradients"):
        dm.solve(PLAIN, Flat(), init=np.zeros(3))


@pytest.mark.parametrize(
    ("name", "message"),
    [("newtn", "names the fitter 'newtn'; expected one of"), ("newton", "needs 'fit_intercept'")],
)
def test_a_fitter_that_does_not_suit_is_named(name, message):
    class Misnamed(Bowl):
        fitter = name

    with pytest.raises(TypeError, match=message):
        dm.solve(PLAIN, Misnamed(), init=np.zeros(3))


@pytest.mark.parametrize("loss", [dm.LogisticLoss(), dm.SoftmaxLoss(2), dm.SquaredLoss()], ids=repr)
def test_columns_whose_squares_overflow_are_refused(loss):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    labels = (rows[:, 0] > 0).astype(int)
    with pytest.raises(ValueError, match=r"squares of the rows overflow float64.*; scale the columns"):
        dm.solve(dm.points(rows * 1e160, labels), loss, 2, random_state=0)
    far = np.vstack([rows, [[1e200, 0.0, 0.0]]])
    assert dm.solve(dm.points(far, np.append(labels, 0)), loss, 1, l2=1.0, random_state=0).theta.any()


def test_a_warning_when_there_was_more_to_gain():
    message = r"after 1 iterations \(max_iter\), .* still gained .*; raise max_iter, or tol"
    with pytest.warns(ConvergenceWarning, match=message):
        solution = dm.solve(PLAIN, dm.KMeansLoss(5), 3, init="random", max_iter=1, random_state=0)
    assert not solution.converged
    assert solution.status is dm.Status.MAX_ITER
    assert "NOT CONVERGED" in repr(solution)


@pytest.mark.parametrize("z", [0, 5, 10])
@pytest.mark.parametrize("loss, y", [(LOGISTIC, X[:, 0] > 0), (dm.PoissonLoss(), np.zeros(100))], ids=repr)
def test_a_warning_where_there_is_no_minimum(loss, y, z):
    points = dm.points(X, y.astype(int))
    with pytest.warns(ConvergenceWarning, match="no minimum; pass l2 above 0"):
        solution = dm.solve(points, loss, z, random_state=0)
    assert solution.status is dm.Status.UNBOUNDED
    assert loss != LOGISTIC or dm.solve(points, loss, z, l2=1e-3, random_state=0).converged


def test_perfect_fits_are_no_reason_to_warn():
    y = X @ [1.0, 2.0, 3.0] + 4
    y[:10] += 100
    solution = dm.solve(dm.points(X, y), dm.SquaredLoss(), 10, random_state=0)
    np.testing.assert_allclose(solution.theta, [1, 2, 3, 4], atol=1e-6)
    assert set(solution.outliers) == set(range(10))
    spots = dm.solve(dm.points(TWICE), dm.KMeansLoss(3), 2, random_state=0)
    assert spots.objective == pytest.approx(0, abs=1e-12)


def test_a_callback_sees_every_iteration_and_can_stop():
    seen = []

    def watch(step):
        seen.append(step)
        return step.n_iter == 3

    solution = dm.solve(PLAIN, dm.KMeansLoss(5), 3, init=X[:5], n_starts=4, tol=0, callback=watch)
    assert [step.n_iter for step in seen] == [1, 2, 3]
    assert [step.start for step in seen] == [0, 0, 0]
    assert [step.objective for step in seen] == pytest.approx(solution.history[1:])
    np.testing.assert_array_equal(seen[-1].theta, solution.theta)
    assert solution.status is dm.Status.STOPPED
    with pytest.raises(ZeroDivisionError):
        dm.solve(PLAIN, dm.KMeansLoss(5), 3, init=X[:5], callback=lambda step: 1 / 0)
    with pytest.raises(ValueError, match="read-only"):
        dm.solve(PLAIN, dm.KMeansLoss(5), 3, init=X[:5], callback=lambda step: step.theta.fill(0))


@pytest.mark.parametrize("seed", range(5))
def test_no_false_alarm_where_the_hinge_reaches_zero(seed):
    rows = np.random.default_rng(seed).normal(size=(100, 3))
    apart = dm.solve(dm.points(rows, np.where(rows[:, 0] > 0, 1, 0)), dm.SmoothHingeLoss(), random_state=0)
    assert apart.converged
    assert apart.objective == pytest.approx(0, abs=1e-6)


def test_custom_losses_start_around_the_given_theta():
    solution = dm.solve(PLAIN, Bowl(), 5, init=np.zeros(3), n_starts=4, random_state=0)
    assert len(solution.start_objectives) == 4
    assert len(set(solution.start_objectives)) > 1


def test_a_given_theta_is_the_first_of_several_starts():
    seen = []
    several = {"n_starts": 3, "random_state": 0, "callback": lambda step: seen.append(step.start)}
    solution = dm.solve(PLAIN, dm.KMeansLoss(5), 3, init=X[:5], **several)
    assert set(seen) <= {0, 1, 2}
    assert len(solution.start_objectives) == 3
    alone = dm.solve(PLAIN, dm.KMeansLoss(5), 3, init=X[:5])
    assert solution.start_objectives[0] == pytest.approx(alone.objective)
    assert solution.objective <= alone.objective


def test_init_is_not_changed_and_may_be_a_list():
    init = X[:2].copy()
    dm.solve(PLAIN, dm.KMeansLoss(2), init=init)
    np.testing.assert_array_equal(init, X[:2])
    listed = dm.solve(PLAIN, dm.KMeansLoss(2), init=init.tolist())
    np.testing.assert_array_equal(listed.theta, dm.solve(PLAIN, dm.KMeansLoss(2), init=init).theta)


@pytest.mark.parametrize("seed", [3, np.int64(3), np.random.default_rng(3), np.random.RandomState(3)])
def test_forms_of_randomness(seed):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert dm.solve(PLAIN, dm.KMeansLoss(3), 2, random_state=seed).converged
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_solutions_and_anchors_survive_pickling():
    solution = dm.solve(POINTS, LOGISTIC, 5, random_state=0)
    again = pickle.loads(pickle.dumps(solution))
    np.testing.assert_array_equal(again.theta, solution.theta)
    assert not again.theta.flags.writeable
    assert again.status is solution.status
    anchor = dm.find_anchor(POINTS, LOGISTIC, 5, random_state=0)
    again = pickle.loads(pickle.dumps(anchor))
    np.testing.assert_array_equal(again.theta, anchor.theta)
    np.testing.assert_array_equal(again.ids, anchor.ids)
    assert again.radius == anchor.radius
    with pytest.raises(ValueError, match="read-only"):
        again.theta[0] = 0


def test_a_progress_bar(capfd):
    pytest.importorskip("rich")
    dm.solve(PLAIN, dm.KMeansLoss(5), 3, init="random", n_starts=2, random_state=0, progress=True)
    shown = capfd.readouterr().out
    assert "start 2 of 2" in shown
    assert "objective" in shown


def test_a_progress_bar_without_rich_names_the_extra():
    code = (
        "import sys; sys.modules['rich.progress'] = None; sys.modules['rich'] = None\n"
        "import duramen as dm\n"
        "try: dm.solve(dm.points([[0.0], [1.0]]), dm.KMeansLoss(1), progress=True)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'duramen[progress]'" in done.stdout


def test_representations():
    text = repr(dm.solve(POINTS, LOGISTIC, 5, l2=2.0, n_starts=2, random_state=0))
    for part in ("LogisticLoss", "100 points", "of it the penalty", "5 points set aside", "best of 2 starts"):
        assert part in text
    anchor = dm.Anchor([[1.0, 2.0]], 0.25, ids=[3, 4])
    assert repr(anchor) == "Anchor: theta (1, 2), radius 0.25, from 2 points"
