"""What once went wrong between one machine and many, kept so that it does not again."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import duramen as dm
from duramen import parallel as chunks
from duramen.coreset.build import streamed_coreset
from duramen.distributed import Summary, finish, merge, plan, summarize
from tests.conformance.cases import CASES
from tests.coreset.test_passes import one_way_and_another
from tests.support import assert_same_coreset, at_once, cut, data


@pytest.mark.parametrize("sampler", ["leverage", "uniform"])
@pytest.mark.parametrize("scale", [1e-295, 1e-300, 1e-290])
def test_weights_that_are_next_to_nothing(sampler, scale):
    points = data("logistic", n=3000, heavy="real")
    points = points.with_weights(points.weights * scale)
    chosen = {"loss": dm.LogisticLoss(), "size": 40, "random_state": 1, "sampler": sampler}
    one_way_and_another(points, range(0, 3000, 500), **chosen, anchor=dm.Anchor([1.0, 0.0, 0.0], 0.1))


class Cubed(dm.LeverageSampler):
    """Scores that what is inherited knows nothing of."""

    def scores(self, seen):
        return super().scores(seen) ** 3


class Shifted(dm.LayeredSampler):
    """Freezes more than what is inherited tells."""

    def freeze(self, seen):
        return {**super().freeze(seen), "shift": np.array([float(seen.points.X[:, 0].mean())])}

    def scores(self, seen):
        return 1 + np.abs(seen.points.X[:, 0] - seen.anchor.frozen["shift"][0])


@pytest.mark.parametrize("n_outliers", [0, 600])
@pytest.mark.parametrize("sampler", [Cubed(), Shifted()])
def test_a_sampler_that_inherits_promises_is_not_held_to_them(sampler, n_outliers):
    points = data("logistic", n=6000, heavy="none")
    chosen = {"loss": dm.LogisticLoss(), "size": 100, "random_state": 1, "sampler": sampler}
    chosen["n_outliers"] = n_outliers
    one_way_and_another(points, range(0, 6000, 300), **chosen)
    layers = dm.robust_coreset(points.X, points.y, **chosen | {"sampler": "layered"}).anchor
    given = dm.Anchor(layers.theta, layers.radius, frozen=dict(layers.frozen))
    one_way_and_another(points, (100,), **chosen, anchor=given)


class Spread(dm.RankedSampler):
    """Makes more strata than a small number has room for."""

    def scores(self, seen):
        return np.ones(len(seen))

    def strata(self, seen):
        return seen.points.ids % 40_000

    def allocate(self, strata, size):
        return (np.asarray(strata.numbers) >= 36_000).astype(int), np.array([size // 2, size - size // 2])


def test_any_number_of_strata_goes_through_bytes():
    points = dm.points(np.random.default_rng(0).normal(size=(41_000, 1)))
    chosen = {"loss": dm.KMeansLoss(1), "size": 40, "anchor": np.zeros((1, 1)), "sampler": Spread()}
    chosen |= {"random_state": 0, "calibrate": False}
    step = finish(summarize(points, plan(**chosen)))
    parts = [summarize(part, step).to_bytes() for part in cut(points, (30_000,))()]
    core = finish(merge(*(Summary.from_bytes(part, step) for part in parts)))
    assert_same_coreset(core, at_once(points, **chosen))


@pytest.mark.parametrize(
    "one, other",
    [
        ({"loss": dm.HuberLoss(1.0)}, {"loss": dm.HuberLoss(5.0)}),
        ({"loss": dm.KMeansLoss(2)}, {"loss": dm.KMeansLoss(3)}),
        ({"n_outliers": 5}, {"n_outliers": 6}),
        ({"sampler": dm.LeverageSampler(2)}, {"sampler": dm.LeverageSampler(3)}),
        ({"size": 10}, {"size": 11}),
    ],
)
def test_plans_of_different_problems_do_not_go_together(one, other):
    chosen = {"loss": dm.SquaredLoss(), "size": 10, "random_state": 0}
    marks = {plan(**chosen | which).fingerprint for which in (one, other)}
    assert len(marks) == 2
    assert plan(**chosen | one).fingerprint in marks


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage", "sensitivity"])
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_merging_in_any_tree_gives_the_same_bytes_for_every_loss(case, sampler):
    """Whoever is dropped from the suspected is ranked then, alone or with others."""
    X, y = case.data(n=300)
    ball = case.ball(np.random.default_rng(3), 0.01)
    points = dm.points(X, y, np.random.default_rng(0).choice([0.1, 0.3, 1.0], 300))
    anchor = dm.Anchor(ball.theta, ball.radius)
    step = plan(loss=case.loss, size=60, n_outliers=12, sampler=sampler, anchor=anchor, random_state=1)
    for _ in range(2):
        found = set()
        for seed in range(4):
            rng = np.random.default_rng(seed)
            parts = [summarize(part, step) for part in cut(points, (1, 2, 3, 40, 41, 100, 170, 171))()]
            while len(parts) > 1:
                one, other = (parts.pop(int(rng.integers(len(parts)))) for _ in range(2))
                parts.append(merge(one, other))
            found.add(parts[0].to_bytes())
        assert len(found) == 1
        step = finish(parts[0])


def test_many_small_batches_cost_no_more_than_their_number():
    """Twice the batches take about twice the time: not what is held, at every one."""
    points = dm.points(np.random.default_rng(0).normal(size=(8000, 2)))

    def seconds(n):
        start = time.process_time()
        summarize((points.take(slice(at, at + 1)) for at in range(n)), step)
        return time.process_time() - start

    step = plan(loss=dm.KMeansLoss(1), size=10, random_state=0)
    seconds(500)
    assert min(seconds(8000) for _ in range(2)) < 8 * min(seconds(2000) for _ in range(2))


def test_what_is_wrong_with_the_question_is_said_before_anything_is_read():
    def unread():
        raise AssertionError("it was read")

    for error, match, wrong in (
        (ValueError, "n_outliers=-1", {"n_outliers": -1}),
        (TypeError, "n_outliers='5%'", {"n_outliers": "5%"}),
        (ValueError, "needs to know how far", {"anchor": [0.0, 0.0], "sampler": "sensitivity"}),
        (ValueError, "NaN|finite", {"anchor": [np.nan]}),
    ):
        with pytest.raises(error, match=match):
            streamed_coreset(unread, loss=dm.SquaredLoss(), size=10, **wrong)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_while_others_work_waits_for_them(monkeypatch):
    """The caller may be interrupted while it waits: no thread goes on behind its back."""
    ended, main = [], threading.main_thread()
    if threading.current_thread() is not main:
        pytest.skip("only the main thread is interrupted")

    def work(number):
        if threading.current_thread() is main:
            return
        time.sleep(0.2)
        if not ended:
            os.kill(os.getpid(), signal.SIGINT)  # the caller has nothing left to do, and waits
            time.sleep(0.2)
        ended.append(number)

    monkeypatch.setattr(chunks, "n_threads", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        chunks.side_by_side(work, range(2))
    assert len(ended) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "duramen"]
