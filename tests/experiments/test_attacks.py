"""The attack suite: attacks change the rows they say, verdicts count as a naive recount does, and the page says so."""

import contextlib
import csv
import io

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.support import tables

pytest.importorskip("matplotlib")
command = pytest.importorskip("experiments.attacks.__main__", reason="not in a checkout")
contenders = pytest.importorskip("experiments.attacks.contenders")
pages = pytest.importorskip("experiments.attacks.pages")
situations = pytest.importorskip("experiments.attacks.situations")

EVERY = [*situations.CORE, *situations.SWEEP]


@pytest.fixture(scope="module")
def data():
    return situations.table("made: separate", 1000)


@pytest.fixture(scope="module")
def clean_fit(data):
    return contenders.plain_fit(data.X, data.y)


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: f"{attack.name} {attack.share}")
def test_an_attack_changes_its_share_of_the_rows_and_no_other(data, clean_fit, attack):
    before = data.X.copy(), data.y.copy()
    (X, y, bad), again, other = (attack.on(data.X, data.y, clean_fit, seed) for seed in (3, 3, 4))
    assert bad.sum() == round(attack.share * 1000)
    for found, expected in (
        *((X[~bad], data.X[~bad]), (y[~bad], data.y[~bad])),
        *zip(before, (data.X, data.y), strict=True),
        *zip((X, y, bad), again, strict=True),
    ):
        np.testing.assert_array_equal(found, expected)
    assert set(np.unique(y)) <= {-1, 1}
    flips = "flipped" in attack.name
    assert (y[bad] == -data.y[bad]).all() if flips else attack.share == 0 or (X[bad] != data.X[bad]).all()
    chance = attack.share > 0 and attack.make not in (situations.surest, situations.leverage)
    assert np.array_equal(bad, other[2]) != chance


def test_attacks_pick_and_place_what_they_say(data, clean_fit):
    made = {(one.name, one.share): one.on(data.X, data.y, clean_fit, 0) for one in EVERY}
    margins = data.y * clean_fit.decision_function(data.X)
    _, _, bad = made["surest labels flipped", 0.1]
    assert margins[bad].min() >= margins[~bad].max()
    lever = np.einsum("ij,jk,ik->i", data.X, np.linalg.inv(data.X.T @ data.X), data.X)
    _, _, bad = made["labels flipped at leverage points", 0.1]
    assert lever[bad].min() >= lever[~bad].max()
    for distance in (3, 30):
        X, y, bad = made[f"cluster at {distance}", 0.1]
        assert np.linalg.norm(X[bad].mean(axis=0)) == pytest.approx(distance, abs=0.05)  # 0.1 sqrt(10 / 100)
        assert (clean_fit.decision_function(X[bad]) > 0).all()
        assert (y[bad] == -1).all()
    X, y, bad = made["planted noise", 0.1]
    assert (X - data.X)[bad].std() == pytest.approx(10, rel=0.1)  # of 1,000 numbers: within 2.3% mostly
    assert y[bad].sum() == data.y[bad].sum()


def test_the_shares_and_distances_are_those_of_the_issue():
    assert [(one.name, one.share) for one in situations.CORE[:3]] == [
        ("clean", 0.0),
        ("planted noise", 0.02),
        ("planted noise", 0.1),
    ]
    assert len(situations.CORE) == 11
    far = {one.name for one in EVERY if one.name.startswith("cluster")}
    assert far == {f"cluster at {distance}" for distance in (3, 5, 8, 12, 20, 30)}
    noise = {one.share for one in EVERY if one.name == "planted noise"}
    assert noise == {0.02, 0.05, 0.1, 0.2, 0.3}
    assert len({(one.name, one.share) for one in EVERY}) == len(EVERY)


def test_trimming_by_hand_and_the_forest_drop_what_is_bad(data, clean_fit):
    attack = situations.Attack("planted noise", 0.1, situations.planted)
    X, y, bad = attack.on(data.X, data.y, clean_fit, 0)
    _, suspicion = contenders.forest(X, y, 0.1, 0)
    assert bad[np.argsort(-suspicion(X, y))[:100]].mean() > 0.9
    model, suspicion = contenders.by_hand(X, y, 0.1, 0)
    right = model.predict_proba(X)[np.arange(1000), (y > 0) * 1]
    np.testing.assert_allclose(np.exp(-suspicion(X, y)), right.clip(1e-12))
    blind, _ = contenders.plain(X, y, 0.1, 0)
    assert isinstance(blind, LogisticRegression)
    loss = {one: contenders.losses(one, data.X_test, data.y_test).mean() for one in (model, blind)}
    assert loss[model] < loss[blind]


def test_the_live_model_ends_with_the_rows_that_others_are_fitted_to(data):
    model, suspicion = contenders.live(data.X, data.y, 0.1, 0)
    points = model.dynamic_.points()
    order = np.lexsort(data.X.T), np.lexsort(points.X.T)
    np.testing.assert_array_equal(points.X[order[1]], data.X[order[0]])
    np.testing.assert_array_equal(points.y[order[1]] > 0, data.y[order[0]] > 0)
    assert suspicion(data.X, data.y).shape == data.y.shape


def test_the_calibration_error_is_that_of_a_naive_sum():
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    truth = rng.random(3000) < p**2
    order = np.argsort(p)
    naive = sum(abs(p[one].mean() - truth[one].mean()) / 15 for one in np.split(order, 15))
    assert contenders.calibration_error(p, truth) == pytest.approx(naive)
    assert contenders.calibration_error(truth * 1.0, truth) == 0


def cells(**losses):
    """Make cells by hand: for each contender its loss on clean data, and under two attacks."""
    places = [("clean", 0.0), ("planted noise", 0.02), ("planted noise", 0.1)]
    for contender, three in losses.items():
        for (attack, share), loss in zip(places, three, strict=True):
            figures = (loss, loss, 0.9, 0.9, 0.01, 1.0, 2.0 if contender == "plain" else 6.0)
            yield contenders.Cell("covertype", attack, share, contender.replace("_plus_", " + "), *figures)


def test_verdicts_on_numbers_made_by_hand():
    grid = pages.gridded(
        cells(
            plain=[1.0, 1.0, 1.0],
            forest_plus_plain=[1.0, 0.5, 1.04],
            near=[1.004, 0.509, 1.019],
            far=[1.006, 0.52, 1.06],
            refused=[1.0, np.nan, np.nan],
        )
    )
    near, far, refused, plain = (pages.verdict(grid, name) for name in ("near", "far", "refused", "plain"))
    assert near[:5] == (3, 3, 0, 1, 1)
    assert far[:5] == (3, 1, 1, 1, 0)
    assert refused[:5] == (3, 1, 2, 1, 1)
    assert plain[:5] == (3, 2, 0, 1, 1)
    assert near.ratio == pytest.approx((1.004 * (0.509 / 0.5) * 1.019) ** (1 / 3))
    assert (refused.ratio, near.seconds) == pytest.approx((1, 3))


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Run the suite on a small made-up table, under prose that someone wrote."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "attacks.md").write_text(f"# A title\n\nProse.\n\n{command.MARK}\n\nold figures\n")
    words = ["--core", "--rows", "500", "--tables", "made: separate", "--jobs", "1"]
    with pytest.MonkeyPatch.context() as changed, contextlib.redirect_stdout(io.StringIO()) as printed:
        for slow in ("duramen, 4,000 rows", "duramen, live"):  # which has a test of its own
            changed.setitem(contenders.CONTENDERS, slow, contenders.trimmed)
        command.main([*words, "--out", str(folder / "attacks")])
    with (folder / "attacks" / "cells.csv").open(newline="") as file:
        _, head, *rows = csv.reader(file)
    return folder, printed.getvalue(), [dict(zip(head, row, strict=True)) for row in rows]


def test_the_page_counts_what_a_naive_recount_counts(made_up):
    folder, printed, rows = made_up
    text = (folder / "attacks.md").read_text()
    assert text.startswith(f"# A title\n\nProse.\n\n{command.MARK}\n\n## Counts\n")
    assert "old figures" not in text
    assert "python -m experiments.attacks --core --rows 500 --tables 'made: separate' --jobs 1" in text
    assert len(rows) == 11 * len(contenders.CONTENDERS)
    assert sum(line.startswith("made: separate, ") for line in printed.splitlines()) >= 11
    loss = {(row["contender"], row["attack"], row["share"]): float(row["loss"]) for row in rows}
    situations_ = {(attack, share) for _, attack, share in loss}
    counts, by_attack, others, every_cell = tables(text)
    for name, within, worse, clean, *_ in counts[1:]:
        mine = {one: loss[(name, *one)] for one in situations_}
        plain = {one: loss[("plain", *one)] for one in situations_}
        least = {one: min(plain[one], loss[("forest + plain", *one)]) for one in situations_}
        wins = sum(mine[one] <= 1.02 * least[one] for one in situations_)
        assert within == f"{wins} of 11 ({wins / 11:.0%})"
        assert int(worse) == sum(not mine[one] <= 1.05 * plain[one] for one in situations_)
        assert clean == f"{int(mine['clean', '0.0'] <= 1.005 * plain['clean', '0.0'])} of 1"
    assert [row[0] for row in counts[1:]] == list(contenders.CONTENDERS) == [row[0] for row in others[1:]]
    for column, name in enumerate(by_attack[0][2:], start=2):
        total = sum(int(row[column]) for row in by_attack[1:])
        assert total == int(next(row[1] for row in counts if row[0] == name).split()[0])
    assert len(every_cell) == 12


def test_the_picture_is_there_and_a_redrawn_page_is_the_same(made_up):
    folder, _, _ = made_up
    page, picture = folder / "attacks.md", folder / "attacks" / "losses.svg"
    before = page.read_text(), picture.read_text()
    for name in contenders.CONTENDERS:
        assert f">{name}<" in before[1]
    with contextlib.redirect_stdout(io.StringIO()):
        command.main(["--redraw", "--out", str(folder / "attacks")])
    assert (page.read_text(), picture.read_text()) == before


@pytest.mark.parametrize(
    "words", [["--rows", "10"], ["--seed", "-1"], ["--jobs", "0"], ["--tables", "nothing"]], ids=str
)
def test_arguments_that_make_no_sense_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(words)
    assert stopped.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.data
def test_every_table_is_split_and_in_units_of_standard_deviations(data_folder):
    for name in (*situations.DEVELOPMENT, *situations.HELD_OUT):
        data = situations.table(name, 1000)
        assert len(data.X) == len(data.y) == 1000
        assert len(data.X_test) >= 400
        np.testing.assert_allclose(data.X.std(axis=0), 1)
        assert set(np.unique(data.y)) == set(np.unique(data.y_test)) == {-1, 1}
