"""Laws that every engine relies on, run by the plainest one: processes that share nothing, pickles and bytes."""

import pickle
from itertools import repeat

import pytest

import duramen as dm
from duramen.distributed import Plan, Summary, finish, plan, summarize
from tests.distributed.engine_work import merged, summarized
from tests.support import PROBLEMS, SAMPLERS, assert_same_coreset, at_once, cut, data, quietly

SUITS = [
    ("logistic", "layered"),
    ("k-means", "sensitivity"),
    ("huber", "leverage"),
    ("softmax", "uniform"),
    ("k-median", "auto"),
    ("bregman", "own"),
]
every_suit = pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
N = 22_000  # more than the sample for the anchor takes
UNEVEN = (0, 40, 40, 9000, 21_999)  # two parts are empty, and one has one row
CUTS = [(11_000,), UNEVEN, tuple(range(3000, N, 3000))]


def asked_for(name, sampler):
    asked = {"loss": PROBLEMS[name].loss, "sampler": SAMPLERS[sampler]}
    return asked | {"size": 80, "n_outliers": 0.02, "random_state": 3}


def assert_law(points, asked, one_pass):
    """Run passes until there is a coreset, and compare it with that of all points at once."""
    step, passes = plan(**asked), 0
    while isinstance(step, Plan):
        step, passes = quietly(finish, one_pass(step)), passes + 1
    assert passes == 2
    assert_same_coreset(step, at_once(points, **asked))


@pytest.mark.slow
@every_suit
@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_processes_that_are_sent_bytes_and_send_bytes(name, sampler, cuts, two_processes):
    points = data(name, n=N, heavy="none")
    parts = [pickle.dumps(part) for part in cut(points, cuts)()]

    def one_pass(step):
        sent = pickle.dumps(step)
        made = list(two_processes.map(summarized, parts, repeat(sent)))
        while len(made) > 1:  # a tree, merged by the workers
            threes = [made[at : at + 3] for at in range(0, len(made), 3)]
            made = list(two_processes.map(merged, threes, repeat(sent)))
        assert type(made[0]) is bytes
        return Summary.from_bytes(made[0], step)

    assert_law(points, asked_for(name, sampler), one_pass)


@pytest.mark.slow
@every_suit
def test_bytes_are_the_same_in_every_process(name, sampler, two_processes):
    points, step = data(name, n=500), plan(**asked_for(name, sampler))
    for _ in range(2):
        here = summarize(points, step)
        there = two_processes.submit(summarized, pickle.dumps(points), pickle.dumps(step)).result()
        assert there == here.to_bytes()
        step = quietly(finish, here)
    assert isinstance(step, dm.Coreset)
