"""Attacks: the planted rows, the fits, and how far each method holds."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from experiments.paper.attacks import ATTACKS, MEASURES, PAIRS, Attacks, Sheet, contaminated
from experiments.paper.data import Table, made_up_covertype, with_planted_rows
from experiments.paper.experiment import run

from experiments.paper import attacks, fits

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
    data = contaminated(table, attack, 0.1, HELD_OUT, 3)
    assert not clean.planted.any()
    assert len(data.X) == 5700
    assert data.planted.sum() == 570
    np.testing.assert_array_equal(data.X[~data.planted], clean.X[~data.planted])
    np.testing.assert_array_equal(data.y[~data.planted], clean.y[~data.planted])
    np.testing.assert_array_equal(data.X_test, clean.X_test)
    np.testing.assert_array_equal(data.y_test, clean.y_test)
    np.testing.assert_array_equal(table.X, before[0])
    np.testing.assert_array_equal(table.y, before[1])
    assert set(np.unique(data.y)) == {-1, 1}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_seed_decides_everything(table, attack):
    one, same, other = (contaminated(table, attack, 0.05, HELD_OUT, seed) for seed in (1, 1, 2))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.X, other.X)


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


@pytest.fixture(scope="module")
def small(table):
    return Attacks(
        table._replace(X=table.X[:2500], y=table.y[:2500]), HELD_OUT, 1, shares=(0, 0.05), size=300
    )


@pytest.mark.slow
def test_every_step_leaves_a_record_and_none_is_done_again(small, tmp_path):
    first = run(small, tmp_path, command="the command", plots=find_spec("matplotlib") is not None)
    assert list(first.records) == ["noise 0.05 0", "flips 0.05 0", "cluster 0.05 0", "none 0 0"]
    assert all(list(record["fits"]) == WAYS for record in first.of())
    untouched = first.records["none 0 0"]
    assert untouched["fits"]["everything, trimmed"]["loss"] == pytest.approx(untouched["least"], rel=1e-3)
    assert "the command" in (tmp_path / "attacks.md").read_text()

    kept = json.loads((tmp_path / "attacks.json").read_text())
    kept["steps"].pop("none 0 0")
    (tmp_path / "attacks.json").write_text(json.dumps(kept))
    again = run(small, tmp_path, command="the command", plots=False)
    now = json.loads((tmp_path / "attacks.json").read_text())["steps"]
    assert all(now[name] == one for name, one in kept["steps"].items())
    assert _without_times(again.records) == _without_times(first.records)


def _without_times(records):
    dropped = {"building", "solving"}
    return {
        name: {way: {k: v for k, v in fit.items() if k not in dropped} for way, fit in record["fits"].items()}
        for name, record in records.items()
    }


SHARES = (0, 0.01, 0.1)


def records(lost):
    """Make two trials; ``lost`` says what a way to fit loses at a share under an attack, in the worse one."""
    made = {}
    for seed in range(2):
        for attack in ("none", *(one.name for one in ATTACKS)):
            for share in SHARES if attack != "none" else (0,):
                if (attack == "none") == (share == 0):
                    fits = {way: _fit(lost(attack, share, way) * (0.5 + 0.5 * seed), share) for way in WAYS}
                    informed = {"accuracy": 0.8, "clean": 0.5}
                    made[f"{attack} {share:g} {seed}"] = {"informed": informed, "least": 100.0, "fits": fits}
    return made


def _fit(lost, share):
    found = {"found": 0.25} if share else {}
    figures = {"accuracy": 0.8 - lost, "clean": 0.5 * (1 + lost), "loss": 100 * (1 + lost)}
    return {**figures, "rows": 4000, "building": 0.2, "solving": 0.3, **found}


def test_a_fit_holds_while_its_worst_trial_does():
    shown = records(lambda attack, share, way: {0: 0.0, 0.01: 0.019, 0.1: 0.025}[share])
    sheet = Sheet(shown, SHARES, 2)
    for measure in MEASURES:
        assert sheet.reach(measure, "plain", "noise") == 0.01
        np.testing.assert_allclose(
            sheet.lost(measure, "plain", "flips"), [[0, 0.0095, 0.0125], [0, 0.019, 0.025]]
        )
    comes_back = records(lambda attack, share, way: {0: 0.03, 0.01: 0.0, 0.1: 0.0}[share])
    assert Sheet(comes_back, SHARES, 2).reach(MEASURES[0], "plain", "noise") is None


def test_pairs_differ_in_the_hybrid_alone(monkeypatch):
    asked = []
    fit = fits.Fit(np.zeros(1), 1, 0.0, 1.0)
    monkeypatch.setattr(fits, "on_coreset", lambda *_, **settings: asked.append(settings) or fit)
    monkeypatch.setattr(fits, "on_everything", lambda *_: fit)
    monkeypatch.setattr(attacks, "_blind", lambda _: fit)
    data = with_planted_rows(made_up_covertype(200), 10, 10, 0)
    names = [name for name, _ in attacks._fits(data, 10, 50, 0) if not name.startswith("everything")]
    built = dict(zip(names, asked, strict=True))
    for plain, robust in PAIRS.values():
        assert built[plain] == {**built[robust], "suspects": 0}
        assert "suspects" not in built[robust]
