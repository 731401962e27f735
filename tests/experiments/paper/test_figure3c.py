"""Figure 3(c), on made-up rows: the records, and the speed-ups computed from them."""

from importlib.util import find_spec

import numpy as np
import pytest
from experiments.paper.data import Table
from experiments.paper.experiment import Results, run
from experiments.paper.figure3c import Figure3c, _plant

import duramen as dm
from tests.support import tables

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1206, 4))
TABLE = Table("made-up rows", X, np.where(X[:, 0] + RNG.logistic(size=len(X)) > 0, 1, -1))
FIGURE = Figure3c(TABLE, 12, trials=1, heights=(1, 3), size=100)


def test_every_height_is_timed_and_its_bucket_is_the_papers(tmp_path):
    found = run(FIGURE, tmp_path, command="made by a test", plots=find_spec("matplotlib") is not None)
    (trial,) = found.of()
    assert list(trial["updates"]) == ["ranked", "1", "3"]
    for one in trial["updates"].values():
        assert [len(one[part]) for part in ("insert", "delete", "solve")] == [3, 3, 6]
        assert min(one["insert"] + one["delete"] + one["solve"]) > 0
    whole, quarter = (trial["updates"][height]["bucket"] for height in "13")
    assert whole == pytest.approx(1200 + 50 - 1.5 * 12, abs=40)  # all but the suspected, and some room
    assert quarter == -(-whole // 4)
    assert len(trial["everything"]) == len(trial["rebuilt"]) == 3


def test_points_are_put_into_a_tree_at_once():
    dyn = dm.DynamicCoreset(dm.LogisticLoss(), 100, 12, engine="ranked", random_state=0)
    dyn.insert(TABLE.X, TABLE.y)
    ids, anchor, before = dyn.ids, dyn.anchor, dyn.coreset()
    _plant(dyn, 200)
    dyn.check_invariants()
    after = dyn.coreset()
    assert dyn.engine == "tree"
    assert dyn.anchor is anchor
    np.testing.assert_array_equal(dyn.ids, ids)
    np.testing.assert_array_equal(after.ids[after.suspected], before.ids[before.suspected])
    assert not np.array_equal(after.ids, before.ids)
    assert after.total_weight == pytest.approx(len(ids))


def test_speed_ups_are_those_of_the_seconds():
    """An update takes 0.05 s ranked, 0.5 s at height 1, and 0.2 s at height 3."""
    names = ("bucket", "insert", "delete", "solve")
    seconds = {
        "ranked": (None, [0.01, 0.01, 9.0], [0.01, 0.01, 9.0], [0.04] * 6),
        "1": (1000, [0.3] * 3, [0.5] * 3, [0.1] * 6),
        "3": (250, [0.1] * 3, [0.2] * 3, [0.05] * 6),
    }
    updates = {height: dict(zip(names, parts, strict=True)) for height, parts in seconds.items()}
    everything = {"everything": [3.0, 2.0, 4.0], "alternation": 10.0, "rebuilt": [0.3, 0.1, 0.2]}
    results = Results({"trial 0": {**everything, "updates": updates}}, ("a machine",))
    [[head, *found]] = tables(FIGURE.page(results, "c"))
    rows = {row[0]: dict(zip(head, row, strict=True)) for row in found}
    for column, expected in (
        ("over `dm.solve`", ["x 4.0", "x 10.0", "x 40.0"]),
        ("over the paper's solver", ["x 20.0", "x 50.0", "x 200.0"]),
    ):
        assert [rows[height][column] for height in ("1", "3", "ranked")] == expected
    assert rows["3"]["over a rebuild"] == "x 0.7"
    assert rows["3"]["bucket"] == "250"
    parts = ("insert and coreset", "delete and coreset", "solving")
    assert [rows["3"][name] for name in parts] == ["100.0", "200.0", "50.0"]
