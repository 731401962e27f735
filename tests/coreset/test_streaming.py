"""Laws of streaming selection: the smallest ranks of each stratum, with ties, in little memory."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.coreset.streaming import BottomK


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=40), max_size=30))
def test_the_smallest_numbers_are_held_with_those_that_tie(parts):
    lowest, came, start = BottomK(4), [], 0
    for part in parts:
        ids = start + np.arange(len(part))
        start += len(part)
        came += [(number, place, name) for (number, place), name in zip(part, ids.tolist(), strict=True)]
        columns = np.array(part, dtype=float).reshape(-1, 2)
        points = dm.points(np.zeros((1, 1))).take([]) if not part else dm.points(ids[:, None], ids=ids)
        lowest.add(points, columns[:, 0], columns[:, 1].astype(int))
    held = lowest.kept()
    wanted = []
    for at in range(3):
        mine = sorted(number for number, place, _ in came if place == at)
        limit = mine[min(4, len(mine)) - 1] if mine else -1
        wanted += [name for number, place, name in came if place == at and number <= limit]
    assert sorted(wanted) == ([] if held is None else sorted(held.points.ids.tolist()))


def test_no_more_than_twice_the_smallest_are_ever_held():
    rng, lowest = np.random.default_rng(0), BottomK(50)
    for start in range(0, 40_000, 40):
        points = dm.points(np.zeros((40, 1)), ids=start + np.arange(40))
        falling = rng.random(40) - start  # each is smaller than all before
        lowest.add(points, falling, rng.integers(3, size=40))
        assert len(lowest) <= 2 * 3 * 50 + 40
