"""Coresets of files: the same as the library's, with the encoding beside them; and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import duramen as dm
from duramen.cli.commands import core_names, encoding_in
from duramen.cli.options import LOSSES
from duramen.coreset.view import SAMPLERS
from duramen.points import numbers_of
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import conforms, flip_bits, numbers, process, table
from tests.io.files import write
from tests.support import assert_identical_coreset, assert_same_coreset

LINEAR = ("--loss", "squared", "--label", "y", "--json")


def test_through_the_real_entry_point(files, tmp_path):
    done = process("build", files / "rows.csv", "-o", "c.parquet", *LEARN, *SMALL, "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    assert (done.json["n_rows"], done.json["n_points"], done.json["n_outliers"]) == (400, 3000, 60)
    assert len(dm.load_coreset(tmp_path / "c.parquet")) == 400


def test_it_is_the_coreset_that_the_library_makes(core):
    file, rows = dm.load_coreset(core), table()
    colours = np.array(rows["colour"])
    one_hot = (colours == name for name in ("blue", "green", "red"))
    X = np.column_stack([rows["age"], rows["income"], *one_hot])
    y = np.array(rows["ill"]) == "yes"
    names = rows["name"].to_pylist()
    ids = numbers_of(names)
    again = dm.robust_coreset(
        X, y.astype(float), ids=ids, loss=dm.LogisticLoss(), size=400, n_outliers=0.02,
        anchor=file.anchor, random_state=0,
    )  # fmt: skip
    assert file.columns == encoding_in(file.metadata).names
    assert file.columns == ("age", "income", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_array_equal(again.ids, file.ids)
    np.testing.assert_allclose(again.weights, file.weights, rtol=1e-9)
    assert_identical_coreset(dm.load_coreset(core), file)
    place = dict(zip(ids.tolist(), names, strict=True))
    assert all(place[int(one)] == core_names(file)[int(one)] for one in file.ids)


def test_a_folder_or_a_pattern_gives_the_same(core, run, tmp_path):
    rows, made = table(), tmp_path / "again.parquet"
    (tmp_path / "parts").mkdir()
    for number, start in enumerate((0, 1000, 1001)):
        write(rows.slice(start, (1000, 1, 1999)[number]), tmp_path / "parts" / f"{number}.parquet")
    for source in (tmp_path / "parts", tmp_path / "parts" / "*.parquet"):
        assert run("build", source, "-o", made, *LEARN, *SMALL, "--force", "--quiet").code == 0
        assert_same_coreset(dm.load_coreset(core), dm.load_coreset(made))
    assert "absent: no such file" in run("build", tmp_path / "absent", "-o", made, *LEARN, "--force").err


def test_every_command_reads_folders_and_patterns_with_text_ids(core, store, run, tmp_path):
    (tmp_path / "parts").mkdir()
    rows = table()
    for number in range(3):
        write(rows.slice(1000 * number, 1000), tmp_path / "parts" / f"{number}.parquet")
    names = set(core_names(dm.load_coreset(core)).values())
    for number, source in enumerate((tmp_path / "parts", tmp_path / "parts" / "*.parquet")):
        model, new = tmp_path / f"{number}.json", tmp_path / f"{number}.duramen"
        fitted = run("fit", source, "-o", model, *LEARN, *SMALL, "--json").json
        assert {one["id"] for one in fitted["set_aside"]} <= names
        assert run("predict", model, source, "-o", tmp_path / f"{number}.csv").code == 0
        lines = (tmp_path / f"{number}.csv").read_text().splitlines()
        assert [line.partition(",")[0] for line in lines[1:]] == rows["name"].to_pylist()
        certified = run("certify", core, source, "--probes", "2", "--steps", "0", "--json").json
        assert certified["n_points"] == 3000
        assert run("report", core, "-o", tmp_path / f"{number}.html", "--data", source).code == 0
        assert run("store", "init", new, *LEARN, *SMALL, "--from", source).code == 0
        assert run("store", "insert", new, source, "--json").json["n_inserted"] == 3000
        assert run("store", "update", new, source, "--skip", "2990", "--json").json["n_updated"] == 10
        assert run("store", "delete", new, "r1999", "--json").json["n_points"] == 2999


def test_files_of_version_0_1_are_read(run, tmp_path):
    folder = Path(__file__).parent / "data"
    core, model = folder / "core-0.1.parquet", folder / "model-0.1.json"
    loaded = dm.load_coreset(core)
    assert encoding_in(loaded.metadata).names == loaded.columns
    assert set(core_names(loaded)) == set(loaded.ids.tolist())
    found, saved = run("fit", core, "-o", tmp_path / "m.json", "--json").json, json.loads(model.read_text())
    assert found["objective"] == pytest.approx(saved["objective"], rel=1e-9)
    assert [one["id"] for one in found["set_aside"]] == ["r0", "r1", "r35"]
    write(table(120), tmp_path / "rows.parquet")
    for name, made in (("old", model), ("new", tmp_path / "m.json")):
        assert run("predict", made, tmp_path / "rows.parquet", "-o", tmp_path / f"{name}.csv").code == 0
    old, new = (pa.csv.read_csv(tmp_path / f"{name}.csv").to_pandas() for name in ("old", "new"))
    pd.testing.assert_frame_equal(old, new, rtol=1e-6)


def test_npz(run, tmp_path):
    source = write(numbers(), tmp_path / "rows.npz")
    learn = ("--loss", "kmeans", "--k", "2", "--features", "a,b", "--weight", "heavy", "--id", "key")
    assert run("build", source, "-o", tmp_path / "c.parquet", *learn, "--size", "100").code == 0
    core = dm.load_coreset(tmp_path / "c.parquet")
    assert core.loss == dm.KMeansLoss(2)
    assert core.total_weight == pytest.approx(np.sum(numbers()["heavy"].to_numpy()))
    assert core.ids.min() >= 100


EVERY_LOSS = {
    "logistic --label two --no-intercept": dm.ContaminatedLoss(dm.LogisticLoss(fit_intercept=False)),
    "logistic --label two --outliers auto": dm.ContaminatedLoss(),
    "logistic --label two --outliers 0": dm.LogisticLoss(),
    "hinge --label two": dm.SmoothHingeLoss(),
    "softmax --label three": dm.ContaminatedLoss(dm.SoftmaxLoss(3)),
    "softmax --label three --outliers 2%": dm.SoftmaxLoss(3),
    "squared --label value": dm.SquaredLoss(),
    "huber --label value --huber-delta 2": dm.HuberLoss(delta=2.0),
    "quantile --label value --quantile 0.9": dm.QuantileLoss(0.9),
    "poisson --label count": dm.PoissonLoss(),
    "kmeans --k 3": dm.KMeansLoss(3),
    "kmedian --k 3": dm.KMedianLoss(3),
    "bregman --k 3 --divergence squared": dm.BregmanLoss(3, "squared"),
    "truth": dm.TruthDiscoveryLoss(),
}


def test_the_table_has_every_loss():
    assert {words.split()[0] for words in EVERY_LOSS} == set(LOSSES)


@pytest.mark.parametrize("options, loss", EVERY_LOSS.items())
def test_every_loss(options, loss, files, run, tmp_path):
    made, words = tmp_path / "c.parquet", f"--loss {options} --features a,b --size 200".split()
    done = run("build", files / "numbers.parquet", "-o", made, *words)
    assert (done.code, done.err) == (0, "")
    assert dm.load_coreset(made).loss == loss


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler(name, files, run, tmp_path):
    made = tmp_path / "c.parquet"
    more = ("--sampler", name, "--no-calibrate", "--suspects", "2", "--seed", "7")
    assert run("build", files / "rows.parquet", "-o", made, *LEARN, *SMALL, *more).code == 0
    core = dm.load_coreset(made)
    assert core.sampler.lower().startswith(name)
    assert (core.calibrated, core.n_suspected) == (False, 120)


def test_missing_values_are_refused_or_imputed(run, refuse, tmp_path):
    rows = table()
    ages = rows["age"].to_pylist()
    ages[17] = None
    source = write(rows.set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    made = tmp_path / "c.parquet"
    error = refuse("build", source, "-o", made, *LEARN, *SMALL)
    assert "'age' has no value in row 17" in error
    assert "--impute" in error
    assert not made.exists()
    assert run("build", source, "-o", made, *LEARN, *SMALL, "--impute", "mean").code == 0
    mean = np.mean([age for age in ages if age is not None])
    assert encoding_in(dm.load_coreset(made).metadata).parts[0].fill == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    "options, message",
    [
        ("logistic", "--loss logistic needs labels; name their column with --label"),
        ("kmeans", "--loss kmeans needs the number of centres; pass --k"),
        ("kmeans --k 2 --label two", "--loss kmeans does not take all of these options; leave --label out"),
        ("logistic --label two --k 2", "--loss logistic does not take all of these options; leave --k out"),
        ("logistic --label tow", "'tow'"),
        ("logistic --label three", "has 3 classes (1, 2, 3), but 2 were expected"),
        ("softmax --label three --classes 2", "has 3 classes (1, 2, 3), but 2 were expected"),
        ("softmax --label value", "more than 1,000 different values; use a loss for numbers"),
        ("kmeans --k 2 --outliers 5000", "n_outliers"),
        ("kmeans --k 2 --features a,a", "'a' is given as features and features"),
    ],
)
def test_wrong_options_are_refused(options, message, files, refuse, tmp_path):
    words = f"--loss {options}".split()
    assert message in refuse("build", files / "numbers.parquet", "-o", tmp_path / "c.parquet", *words)
    assert not list(tmp_path.iterdir())


def test_outputs_are_checked_before_anything_takes_time(files, core, run, refuse, tmp_path):
    source = tmp_path / "rows.parquet"
    source.write_bytes((files / "rows.parquet").read_bytes())
    before = core.read_bytes()
    for output, message in [
        (core, "already exists; pass --force to replace it, or choose another name"),
        (source, "is one of the inputs; choose another name"),
        (tmp_path / "no" / "c.parquet", "there is no folder"),
        (tmp_path, "must end in .parquet"),
        (tmp_path / "c.csv", "must end in .parquet"),
    ]:
        assert message in refuse("build", source, "-o", output, *LEARN, *SMALL)
    assert core.read_bytes() == before
    assert run("build", source, "-o", core, *LEARN, *SMALL, "--seed", "1", "--force").code == 0
    assert core.read_bytes() != before


def test_damage_is_an_error_or_does_no_harm(core):
    whole, raw = dm.load_coreset(core), core.read_bytes()
    start = raw.index(b'{"anchor"')  # from here on, metadata
    places = np.random.default_rng(0).integers(start, len(raw), 150)
    harmless, errors = flip_bits(core, places, dm.load_coreset)
    for found in harmless:
        assert found.metadata == whole.metadata
        np.testing.assert_array_equal(found.weights, whole.weights)
    assert len(errors) > 20


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_losses_for_numbers_refuse_labels_of_text(refuse, tmp_path, loss):
    path = tmp_path / "g.csv"
    path.write_text("a;y\n1;9,5\n2;10,5\n3;11,5\n4;12,5\n")
    error = refuse("fit", path, "--loss", loss, "--label", "y")
    assert "the label 'y' holds text ('9,5' in line 2 (row 0, counting from 0)), but " in error
    write(pa.table({"a": [1.0, 2.0], "y": ["neg", "pos"]}), tmp_path / "t.parquet")
    assert "holds text ('neg'), but" in refuse("fit", tmp_path / "t.parquet", "--loss", loss, "--label", "y")


def test_labels_that_are_categories_or_flags_are_taken_as_numbers(run, tmp_path):
    a = np.random.default_rng(0).normal(size=200)
    y = np.round(3 * a + 10)
    write(pa.table({"a": a, "y": y}), tmp_path / "plain.parquet")
    write(pa.table({"a": a, "y": pa.array(y).dictionary_encode()}), tmp_path / "coded.feather")
    plain, coded = (run("fit", tmp_path / name, *LINEAR).json for name in ("plain.parquet", "coded.feather"))
    assert plain["theta"] == coded["theta"]
    assert coded["theta"][-1] == pytest.approx(10, abs=0.1)
    write(pa.table({"a": a, "y": np.ones(200, dtype=bool)}), tmp_path / "true.parquet")
    assert run("fit", tmp_path / "true.parquet", *LINEAR).json["theta"] == pytest.approx([0, 1], abs=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "softmax"])
@pytest.mark.parametrize("label", ["yes", True, 3.0])
def test_a_single_class_is_refused(refuse, tmp_path, loss, label):
    path = write(pa.table({"a": [1.0, 2.0], "y": [label, label]}), tmp_path / "one.parquet")
    error = refuse("fit", path, "--loss", loss, "--label", "y")
    assert f"the label 'y' has 1 classes ({3 if label == 3.0 else label!r}), but" in error


@pytest.mark.parametrize("most", [20_000_000, 2000])
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("row", [1, 900, 2999])
def test_duplicate_ids_are_named_with_their_rows(run, tmp_path, names, row, most, monkeypatch):
    monkeypatch.setattr("duramen.io.encoding.rows_in_memory", lambda _: 256)
    monkeypatch.setattr("duramen.io.scan._MOST_IDS", most)
    rows = numbers()
    ids = rows["key"].to_numpy().copy()
    ids[row] = ids[0]
    column = pa.array([f"k{one}" for one in ids]) if names else pa.array(ids)
    path = write(rows.set_column(0, "key", column), tmp_path / "twice.parquet")
    learn = ("--loss", "logistic", "--label", "two", "--features", "a,b", "--id", "key", "--size", "200")
    done = run("build", path, "-o", tmp_path / "core.parquet", *learn)
    if row >= most:  # beyond the bound on memory, ids are not compared
        assert "(column 'key')" not in done.err
        return
    assert done.code == 2
    shown = "'k100'" if names else "100"
    assert f"id {shown} (column 'key') is in row 0 (counting from 0) and in row {row} (counting" in done.err
    assert not (tmp_path / "core.parquet").exists()


def test_our_own_files_are_not_data(core, store, model, refuse, tmp_path):
    for path, kind in ((core, "coreset"), (store, "store"), (model, "model")):
        for words in (
            ("build", path, "-o", tmp_path / "new.parquet", *LEARN),
            ("predict", model, path, "-o", tmp_path / "new.parquet"),
            ("certify", core, path),
            ("store", "insert", store, path),
        ):
            assert f"{path} is a {kind}, but data are needed" in refuse(*words)
    assert "is an already fitted model" in refuse("fit", model)
    assert "is neither a store nor a coreset" in refuse("report", model, "-o", tmp_path / "r.html")
