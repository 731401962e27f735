"""Laws that every engine relies on, run by the plainest one: processes that share nothing, pickles and bytes."""

import pickle
from functools import reduce
from itertools import repeat

import pytest

from duramen.distributed import Plan, Summary, finish, merge, plan, summarize
from tests.support import PROBLEMS, SAMPLERS, assert_same_coreset, at_once, cut, data, quietly

SUITS = [
    ("logistic", "layered"),
    ("k-means", "sensitivity"),
    ("huber", "leverage"),
    ("softmax", "uniform"),
    ("k-median", "auto"),
    ("bregman", "own"),
]
N = 22_000  # more than the sample for the anchor takes
UNEVEN = (0, 40, 40, 9000, 21_999)  # two parts are empty, and one has one row
CUTS = [(11_000,), UNEVEN, tuple(range(3000, N, 3000))]


def summarized(points, plan):
    """Make the bytes of a summary, from points and a plan that are bytes themselves."""
    return summarize(pickle.loads(points), pickle.loads(plan)).to_bytes()


def merged(summaries, plan):
    """Merge summaries that come and go as bytes; of none, an empty one."""
    step = pickle.loads(plan)
    parts = (Summary.from_bytes(summary, step) for summary in summaries)
    return reduce(merge, parts, summarize([], step)).to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_processes_that_are_sent_bytes_and_send_the_bytes_made_here(name, sampler, cuts, two_processes):
    points = data(name, n=N, heavy="none")
    parts = list(cut(points, cuts)())
    asked = {"loss": PROBLEMS[name].loss, "sampler": SAMPLERS[sampler]}
    asked |= {"size": 80, "n_outliers": 0.02, "random_state": 3}
    step, passes = plan(**asked), 0
    while isinstance(step, Plan):
        sent = pickle.dumps(step)
        made = list(two_processes.map(summarized, map(pickle.dumps, parts), repeat(sent)))
        assert made == [summarize(part, step).to_bytes() for part in parts]
        while len(made) > 1:  # a tree, merged by the workers
            threes = [made[at : at + 3] for at in range(0, len(made), 3)]
            made = list(two_processes.map(merged, threes, repeat(sent)))
        step, passes = quietly(finish, Summary.from_bytes(made[0], step)), passes + 1
    assert passes == 2
    assert_same_coreset(step, at_once(points, **asked))
