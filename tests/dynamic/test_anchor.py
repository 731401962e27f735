"""The anchor of changing data: when it is made, how it is handed over, and what the report says of it."""

import warnings

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.dynamic.model import LOGISTIC, ROW, assert_same, every_engine, refused, rows
from tests.support import Heaviest

NEEDED = 41  # one more than the size


def new(**settings):
    return dm.DynamicCoreset(
        settings.pop("loss", LOGISTIC), **{"size": 40, "n_outliers": 0.05, "random_state": 0, **settings}
    )


def fed(dyn, n, step=None, start=0):
    """Insert rows start to n, step at a time."""
    X, y = rows(1000)
    step = step or n
    for first in range(start, n, step):
        part = slice(first, min(n, first + step))
        one = part.start if step == 1 else part
        dyn.insert(
            X[one],
            y[one] if dyn.loss == LOGISTIC else None,
            ids=part.start if step == 1 else range(part.start, part.stop),
        )
    return dyn


# when it is made


@every_engine
def test_until_there_are_enough_the_coreset_is_all_points(engine):
    dyn = fed(new(engine=engine), NEEDED - 1)
    core = dyn.coreset()
    assert (dyn.anchor, core.anchor, dyn.anchor_after) == (None, None, NEEDED)
    np.testing.assert_array_equal(core.ids, np.arange(NEEDED - 1))
    np.testing.assert_array_equal(core.weights, 1.0)
    np.testing.assert_array_equal(core.X, rows(1000)[0][: NEEDED - 1])
    assert not core.suspected.any()
    assert core.n_outliers == pytest.approx(0.05 * (NEEDED - 1))
    assert core.estimate(np.zeros(4)).std_error == 0
    report = dyn.anchor_report()
    assert (report.radius, report.distance, report.holds, report.advised) == (None, None, True, False)
    assert repr(report) == "AnchorReport: no anchor yet; 41 points are needed for a first one"
    dyn.insert(ROW, 1)
    assert dyn.anchor is not None
    assert len(dyn.coreset()) == 40


@pytest.mark.parametrize(
    "size, loss, needed",
    [
        (40, LOGISTIC, 41),
        (10, LOGISTIC, 20),
        (20, LOGISTIC, 21),
        (500, LOGISTIC, 501),
        (10, dm.KMeansLoss(2), 30),
    ],
)
def test_the_number_of_rows_needed_is_reported(size, loss, needed):
    dyn = fed(new(size=size, loss=loss), 3)
    assert dyn.anchor_after == needed
    fed(dyn, needed - 1, start=3)
    assert dyn.anchor is None
    fed(dyn, needed, start=needed - 1)
    assert dyn.anchor is not None


@every_engine
@pytest.mark.parametrize("step", [1, 7, 40, 41, 42])
def test_it_is_the_same_however_rows_come(engine, step):
    whole, parts = fed(new(engine=engine), 120), fed(new(engine=engine), 120, step)
    np.testing.assert_array_equal(whole.anchor.theta, parts.anchor.theta)
    assert whole.anchor.radius == parts.anchor.radius
    assert whole.anchor_report() == parts.anchor_report()
    assert whole.anchor_report().n_sample == NEEDED
    assert whole.anchor_report().n_late == 79
    assert_same(whole, parts)


@every_engine
def test_points_that_weigh_nothing_do_not_count(engine):
    X, y = rows(1000)
    dyn = new(engine=engine)
    dyn.insert(X[500:700], y[500:700], np.zeros(200), ids=np.arange(500, 700))
    assert dyn.anchor is None
    fed(dyn, 120)
    np.testing.assert_array_equal(dyn.anchor.theta, fed(new(engine=engine), 120).anchor.theta)
    dyn.check_invariants()


@every_engine
def test_points_that_left_do_not_count(engine):
    dyn = fed(new(engine=engine), 30)
    dyn.delete(range(0, 30, 2))
    fed(dyn, 55, start=30)
    assert (len(dyn), dyn.anchor) == (40, None)
    fed(dyn, 56, start=55)
    assert dyn.anchor is not None
    assert dyn.anchor_report().n_sample == 41


@every_engine
@pytest.mark.parametrize("step", [1, 50, 400])
def test_rows_of_one_class_postpone_it(engine, step):
    X, y = rows(1000)
    dyn, same = new(engine=engine), np.flatnonzero(y == 1)[:200]
    for first in range(0, 200, step):
        some = same[first : first + step]
        dyn.insert(X[some[0] if step == 1 else some], np.ones(len(some)), ids=some)
    assert dyn.anchor is None
    assert "class" in dyn.anchor_report().reason
    assert len(dyn.coreset()) == 200
    other = np.flatnonzero(y == -1)[:150]
    dyn.insert(X[other], y[other], ids=other)
    assert dyn.anchor is not None
    assert len(dyn.coreset()) == 40
    assert dyn.anchor_report().n_sample == 328  # 41, doubled three times
    dyn.check_invariants()


@pytest.mark.parametrize("count", [60, 200, 400])
def test_a_large_count_does_not_stand_in_its_way(count):
    dyn = fed(new(n_outliers=count), 500)
    assert dyn.anchor is not None
    assert dyn.coreset().n_outliers == count
    dyn.check_invariants()


# handed in


@every_engine
def test_an_anchor_with_all_that_is_frozen_is_used_at_once(engine):
    whole = fed(new(engine=engine, sampler="leverage"), 300)
    dyn = fed(new(engine=engine, sampler="leverage", anchor=whole.anchor), 1)
    assert dyn.anchor.theta.tolist() == whole.anchor.theta.tolist()
    fed(dyn, 300, start=1)
    assert_same(dyn, whole)


@every_engine
def test_an_anchor_without_is_completed_when_there_are_enough(engine):
    given = dm.Anchor([1.0, 0.0, 0.0, 0.0], 0.5)
    dyn = fed(new(engine=engine, sampler="leverage", anchor=given), 40)  # as many as the size
    assert dyn.anchor is None
    fed(dyn, 300, start=40)
    np.testing.assert_array_equal(dyn.anchor.theta, given.theta)
    assert set(dyn.anchor.frozen) > set(given.frozen)
    assert_same(dyn, fed(new(engine=engine, sampler="leverage", anchor=dyn.anchor), 300))


@pytest.mark.parametrize("kind", ["theta", "list", "Ball", "Anchor", "Solution"])
def test_anchors_of_every_kind_are_taken(kind):
    theta = np.array([1.0, 0.0, 0.0, 0.0])
    solution = dm.solve(dm.points(*rows(1000)), LOGISTIC, init=theta)
    given = {
        "theta": theta,
        "list": theta.tolist(),
        "Ball": dm.Ball(theta, 0.5),
        "Anchor": dm.Anchor(theta, 0.5),
        "Solution": solution,
    }[kind]
    expected = solution.theta if kind == "Solution" else theta
    dyn = fed(new(anchor=given), 300)
    later = fed(new(), 300)
    later.reanchor(given)
    for one in (dyn, later):
        np.testing.assert_array_equal(one.anchor.theta, expected)
        assert one.anchor.radius == (0.5 if kind in ("Ball", "Anchor") else 0.0)
        one.check_invariants()


@every_engine
def test_a_new_anchor_before_the_first_is_possible(engine):
    dyn = fed(new(engine=engine), 60)
    dyn.reanchor()
    assert dyn.anchor is not None
    assert len(dyn.coreset()) == 40
    fed(dyn, 200, start=60)
    assert dyn.anchor_report().n_late == 140
    dyn.check_invariants()
    early = fed(new(engine=engine, sampler="uniform"), 60)
    early.reanchor(np.zeros(4))
    assert len(early.coreset()) == 40


@every_engine
def test_points_of_one_class_allow_for_no_new_anchor(engine):
    dyn = fed(new(engine=engine), 300)
    points = dyn.points()
    dyn.delete(points.ids[points.y < 0])
    with refused(dyn, ValueError, "class"):
        dyn.reanchor()


# the report


@every_engine
def test_the_report_counts_who_came_and_went(engine):
    dyn = fed(new(engine=engine), 200)
    seen = dyn.anchor_report()
    assert (seen.n_points, seen.n_late, seen.n_sample, seen.n_sample_gone) == (200, 159, 41, 0)
    assert seen.late_share == 0.795
    assert "159 of 200 points (80%) were inserted or updated since" in repr(seen)
    dyn.delete(range(10))  # of the sample
    dyn.delete([150, 151])  # of the late
    dyn.update([20, 21], rows(2)[0])
    dyn.update(160, ROW)  # late already
    dyn.update(20, ROW)  # changed already
    dyn.insert(ROW, 1, ids=0)  # another of that name
    seen = dyn.anchor_report()
    assert (seen.n_points, seen.n_late, seen.n_sample, seen.n_sample_gone) == (189, 160, 41, 12)
    assert repr(seen).endswith("12 of the 41 points it was made from were deleted or updated")
    dyn.reanchor()
    seen = dyn.anchor_report()
    assert (seen.n_points, seen.n_late, seen.n_sample, seen.n_sample_gone) == (189, 0, 189, 0)
    assert (seen.distance, seen.advised) == (None, False)


def test_the_report_measures_the_latest_solution():
    dyn = fed(new(anchor=dm.Anchor([1.0, 0, 0, 0], 3.0), size=200), 1000)
    assert "no solution yet" in repr(dyn.anchor_report())
    solution = dyn.fit()
    report = dyn.anchor_report()
    assert report.distance == pytest.approx(np.linalg.norm(solution.theta - [1.0, 0, 0, 0]))
    assert (report.radius, report.holds, report.is_outside) == (3.0, True, False)
    dyn.reanchor(solution.theta)
    assert dyn.anchor_report().distance == 0
    assert "bounds hold within its radius of 0" in repr(dyn.anchor_report())


def test_centres_are_compared_whatever_their_order():
    X = np.random.default_rng(0).normal(size=(900, 2)) + 20 * (np.arange(900) % 3)[:, None]
    dyn = dm.DynamicCoreset(
        dm.KMeansLoss(3), 200, random_state=0, anchor=dm.Anchor([[40, 40], [0, 0], [20, 20]], 3.0)
    )
    dyn.insert(X)
    dyn.fit(init=np.array([[0.0, 0], [20, 20], [40, 40]]))
    assert dyn.anchor_report().distance < 1


def test_a_solution_far_outside_warns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.where(X[:, 0] + rng.normal(size=3000) > 0, 1, -1)
    dyn = new(size=500)
    dyn.insert(X, y)
    dyn.reanchor()
    dyn.delete(dyn.ids[100:])
    dyn.insert(X, -y)
    outside = r"from the anchor, outside the radius of .*reanchor\(\) moves the anchor closer"
    for solve in (dm.solve, dm.DynamicCoreset.fit):
        with pytest.warns(UserWarning, match=outside) as warned:
            solve(dyn)
        assert warned[0].filename == __file__
    report = dyn.anchor_report()
    assert report.is_outside
    assert report.advised
    assert not report.holds
    assert "reanchor() is advised" in repr(report)
    dyn.reanchor()
    assert dyn.anchor_report().distance < report.distance / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", [LOGISTIC, dm.SquaredLoss(), dm.KMeansLoss(2)], ids=["logistic", "squared", "k-means"]
)
def test_data_that_do_not_drift_seldom_warn(loss):
    """Of ten streams of one distribution, at most one may seem to leave the ball."""
    warned = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(6000, 3)) + (
            4 * rng.integers(2, size=(6000, 1)) if loss == dm.KMeansLoss(2) else 0
        )
        y = X[:, 0] + rng.normal(size=6000)
        dyn = dm.DynamicCoreset(loss, 1000, random_state=seed)
        dyn.insert(X, np.where(y > 0, 1, -1) if loss == LOGISTIC else y if loss == dm.SquaredLoss() else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dyn.fit()
        warned += dyn.anchor_report().is_outside
    assert warned <= 1


# which engine


@pytest.mark.parametrize("sampler", ["auto", *SAMPLERS, dm.UniformSampler()])
def test_ranked_where_the_sampler_scores(sampler):
    assert new(sampler=sampler).engine == "ranked"
    assert new(sampler=sampler, engine="tree").engine == "tree"


def test_a_tree_for_a_black_box():
    dyn = fed(new(sampler=Heaviest()), 500)
    assert dyn.engine == "tree"
    core = dyn.coreset()
    assert core.total_weight == pytest.approx(500)
    assert core.sampler == "Heaviest()"
    fitted = fed(new(sampler=Heaviest(), height=3), 500)
    assert fitted.coreset().total_weight == pytest.approx(500)
    assert fed(new(sampler=Heaviest(), bucket_size=30), 500).coreset().total_weight == pytest.approx(500)


class CityBlock(dm.Loss):
    """A loss without a gradient, and without a shape."""

    def values(self, theta, X, y=None):
        return np.abs(X - theta).sum(axis=1)


class WithGradient(CityBlock):
    def gradients(self, theta, X, y=None):
        return np.sign(theta - X)


@pytest.mark.parametrize("sampler", ["auto", "uniform", Heaviest()], ids=str)
def test_losses_of_your_own_need_an_anchor_of_yours(sampler):
    dyn = fed(new(loss=CityBlock(), anchor=np.zeros(3), sampler=sampler), 300)
    core = dyn.coreset()
    assert core.total_weight == pytest.approx(300)
    theta = np.full(3, 0.1)
    truth = dm.trimmed_objective(dyn.points(), theta, loss=dyn.loss, n_outliers=0.05)
    assert core.objective(theta) == pytest.approx(truth, rel=0.3)
    dyn.delete(range(100))
    dyn.update(150, ROW)
    dyn.check_invariants()


def test_a_custom_loss_without_a_shape_is_solved_again_after_many_changes():
    dyn = fed(new(loss=WithGradient(), anchor=dm.Anchor(np.zeros(3), 99.0), sampler="uniform"), 300)
    first = dyn.fit()
    dyn.insert(rows(600)[0] + 5, ids=range(1000, 1600))
    assert np.linalg.norm(dyn.fit().theta - first.theta) > 2


def test_custom_losses_need_an_anchor():
    dyn = new(loss=CityBlock())
    with pytest.raises((TypeError, ValueError), match="as anchor="):
        fed(dyn, 1)
    assert len(dyn) == 0
