"""Attacks: the planted rows, the fits, and how far each method holds."""

import itertools
from importlib.util import find_spec

import numpy as np
import pytest
from experiments.paper.attacks import ATTACKS, MEASURES, Attacks, Sheet, contaminated
from experiments.paper.data import Table
from experiments.paper.experiment import run

NOISE, FLIPS, CLUSTER = ATTACKS
WAYS = [
    *("everything, blind", "everything, trimmed", "plain, blind", "plain", "robust", "plain, uniform"),
    *("robust, uniform", "plain, calibrated", "robust, calibrated", "robust, z = 5%"),
]
HELD_OUT = 300


@pytest.fixture(scope="module")
def table():
    """Make six columns that tell the classes well apart, and one of two values that tells nothing."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(6000, 6)), rng.integers(2, size=6000) * 2.0 - 1])
    odds = 3 * X[:, 0] + 2 * X[:, 1]
    return Table("a table", X, np.where(rng.random(6000) < 1 / (1 + np.exp(-odds)), 1, -1))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_as_many_rows_are_planted_as_asked_and_no_other_is_touched(table, attack):
    before = table.X.copy(), table.y.copy()
    clean = contaminated(table, None, 0, HELD_OUT, 3)
    data, same, other = (contaminated(table, attack, 0.1, HELD_OUT, seed) for seed in (3, 3, 2))
    honest = ~data.planted
    assert not clean.planted.any()
    assert len(data.X) == 5700
    assert data.planted.sum() == 570
    for found, expected in (
        (data.X[honest], clean.X[honest]),
        (data.y[honest], clean.y[honest]),
        (data.X_test, clean.X_test),
        (data.y_test, clean.y_test),
        (table.X, before[0]),
        (table.y, before[1]),
        *zip(data, same, strict=True),
    ):
        np.testing.assert_array_equal(found, expected)
    assert set(np.unique(data.y)) == {-1, 1}
    assert not np.array_equal(data.X, other.X)


def test_flips_are_at_the_rows_of_largest_leverage_and_turn_their_labels(table):
    clean = contaminated(table, None, 0, HELD_OUT, 0)
    data = contaminated(table, FLIPS, 0.1, HELD_OUT, 0)
    np.testing.assert_array_equal(data.X, clean.X)
    np.testing.assert_array_equal(data.y != clean.y, data.planted)
    spread = clean.X - clean.X.mean(axis=0)
    leverage = np.square(np.linalg.qr(spread)[0]).sum(axis=1)
    assert leverage[data.planted].min() >= leverage[~data.planted].max()


def test_the_cluster_is_tight_and_far_where_the_clean_model_is_sure_of_the_other_label(table):
    clean = contaminated(table, None, 0, HELD_OUT, 0)
    data = contaminated(table, CLUSTER, 0.1, HELD_OUT, 0)
    rows = data.X[data.planted]
    middle = rows[:, :6].mean(axis=0)
    assert np.linalg.norm(middle) == pytest.approx(30, abs=0.1)
    np.testing.assert_allclose(middle[:2] / 30, np.array([3, 2]) / 13**0.5, atol=0.05)  # where the odds grow
    np.testing.assert_allclose(rows[:, :6].std(axis=0), 0.1, rtol=0.1)
    assert (data.y[data.planted] == -1).all()
    np.testing.assert_array_equal(rows[:, 6], clean.X[data.planted, 6])


@pytest.mark.slow
def test_robust_holds_where_a_tight_cluster_breaks_plain(table):
    attack = Attacks(table, HELD_OUT, trials=2, shares=(0.05,), size=400)
    found = [step.run() for step in attack.steps() if step.name.startswith("cluster")]
    lost = {
        way: [one["informed"]["accuracy"] - one["fits"][way]["accuracy"] for one in found]
        for way in ("plain", "robust", "everything, blind", "everything, trimmed")
    }
    assert max(lost["robust"]) < 0.03
    assert max(lost["everything, trimmed"]) < 0.01
    assert max(lost["plain"]) > 0.3  # in whose sample the cluster weighs more than z
    assert min(lost["everything, blind"]) > 0.3
    assert all(one["fits"]["robust"]["found"] == 1 for one in found)


@pytest.mark.slow
def test_every_step_leaves_a_record(table, tmp_path):
    first_rows = table._replace(X=table.X[:2500], y=table.y[:2500])
    small = Attacks(first_rows, HELD_OUT, 1, shares=(0, 0.05), size=300)
    results = run(small, tmp_path, command="the command", plots=find_spec("matplotlib") is not None)
    assert list(results.records) == ["noise 0.05 0", "flips 0.05 0", "cluster 0.05 0", "none 0 0"]
    assert all(list(record["fits"]) == WAYS for record in results.of())
    untouched = results.records["none 0 0"]
    assert untouched["fits"]["everything, trimmed"]["loss"] == pytest.approx(untouched["least"], rel=1e-3)
    assert "the command" in (tmp_path / "attacks.md").read_text()


def test_a_fit_holds_while_its_worst_trial_does():
    """Of two trials, the second loses twice as much."""

    def sheet(**lost):
        records = {}
        for (name, much), seed in itertools.product(lost.items(), (1, 2)):
            part = much * seed / 2
            fit = {"accuracy": 0.8 - part, "clean": 0.5 * (1 + part), "loss": 100 * (1 + part)}
            informed = {"accuracy": 0.8, "clean": 0.5}
            key = {"untouched": "none 0", "few": "noise 0.01", "many": "noise 0.1"}[name]
            records[f"{key} {seed - 1}"] = {"informed": informed, "least": 100.0, "fits": {"plain": fit}}
        return Sheet(records, (0, 0.01, 0.1), 2)

    for measure in MEASURES:
        holds = sheet(untouched=0.0, few=0.019, many=0.025)
        assert holds.reach(measure, "plain", "noise") == 0.01
        expected = [[0, 0.0095, 0.0125], [0, 0.019, 0.025]]
        np.testing.assert_allclose(holds.lost(measure, "plain", "noise"), expected)
    comes_back = sheet(untouched=0.03, few=0.0, many=0.0)
    assert comes_back.reach(MEASURES[0], "plain", "noise") is None
