"""Coresets of files: the same as the library's, with the encoding beside them; and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

import duramen as dm
from duramen.cli.cores import read_core
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import conforms, numbers, process, table, write

SUFFIXES = (".parquet", ".csv", ".tsv", ".csv.gz", ".feather")


def test_through_the_real_entry_point(files, tmp_path):
    done = process("build", files / "rows.csv", "-o", "c.parquet", *LEARN, *SMALL, "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    assert (done.json["n_rows"], done.json["n_points"], done.json["n_outliers"]) == (400, 3000, 60)
    assert len(dm.load_coreset(tmp_path / "c.parquet")) == 400


def test_it_is_the_coreset_that_the_library_makes(core):
    file = read_core(core)
    rows = table()
    colours = np.array(rows["colour"])
    X = np.column_stack(
        [rows["age"], rows["income"], *(colours == name for name in ("blue", "green", "red"))]
    )
    y = np.array(rows["ill"]) == "yes"
    ids = dm.dynamic.names.numbers_of(rows["name"].to_pylist())
    again = dm.robust_coreset(
        X, y.astype(float), ids=ids, loss=dm.LogisticLoss(), size=400, n_outliers=0.02,
        anchor=file.core.anchor, random_state=0,
    )  # fmt: skip
    assert (
        file.core.columns
        == file.encoding.names
        == ("age", "income", "colour=blue", "colour=green", "colour=red")
    )
    np.testing.assert_array_equal(again.ids, file.core.ids)
    np.testing.assert_allclose(again.weights, file.core.weights, rtol=1e-9)
    place = {int(one): name for one, name in zip(ids, rows["name"].to_pylist(), strict=True)}
    assert all(place[int(one)] == file.name_of(int(one)) for one in file.core.ids)


def test_the_library_loads_the_file_and_sees_no_difference(core):
    plain, file = dm.load_coreset(core), read_core(core)
    np.testing.assert_array_equal(plain.X, file.core.X)
    np.testing.assert_array_equal(plain.weights, file.core.weights)
    assert plain.columns == file.core.columns


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same(suffix, core, run, tmp_path):
    source = write(table(), tmp_path / f"rows{suffix}")
    made = tmp_path / "again.parquet"
    assert run("build", source, "-o", made, *LEARN, *SMALL, "--quiet").code == 0
    one, other = read_core(core), read_core(made)
    np.testing.assert_array_equal(one.core.ids, other.core.ids)
    np.testing.assert_array_equal(one.core.weights, other.core.weights)
    assert one.encoding == other.encoding


def test_npz(run, tmp_path):
    source = write(numbers(), tmp_path / "rows.npz")
    options = (
        "--loss",
        "kmeans",
        "--k",
        "2",
        "--features",
        "a,b",
        "--weight",
        "heavy",
        "--id",
        "key",
        "--size",
        "100",
    )
    assert run("build", source, "-o", tmp_path / "c.parquet", *options).code == 0
    core = dm.load_coreset(tmp_path / "c.parquet")
    assert core.loss == dm.KMeansLoss(2)
    assert core.total_weight == pytest.approx(np.sum(numbers()["heavy"].to_numpy()))
    assert core.ids.min() >= 100


@pytest.mark.parametrize(
    "options, loss",
    [
        (["--loss", "logistic", "--label", "two", "--no-intercept"], dm.LogisticLoss(fit_intercept=False)),
        (["--loss", "hinge", "--label", "two"], dm.SmoothHingeLoss()),
        (["--loss", "softmax", "--label", "three"], dm.SoftmaxLoss(3)),
        (["--loss", "squared", "--label", "value"], dm.SquaredLoss()),
        (["--loss", "huber", "--label", "value", "--huber-delta", "2"], dm.HuberLoss(delta=2.0)),
        (["--loss", "poisson", "--label", "count"], dm.PoissonLoss()),
        (["--loss", "kmedian", "--k", "3"], dm.KMedianLoss(3)),
        (["--loss", "bregman", "--k", "3", "--divergence", "squared"], dm.BregmanLoss(3, "squared")),
        (["--loss", "truth"], dm.TruthDiscoveryLoss()),
    ],
)
def test_every_loss(options, loss, files, run, tmp_path):
    made = tmp_path / "c.parquet"
    done = run("build", files / "numbers.parquet", "-o", made, *options, "--features", "a,b", "--size", "200")
    assert (done.code, done.err) == (0, "")
    assert dm.load_coreset(made).loss == loss


@pytest.mark.parametrize("name", ["uniform", "layered", "leverage", "sensitivity"])
def test_every_sampler(name, files, run, tmp_path):
    made = tmp_path / "c.parquet"
    done = run("build", files / "rows.parquet", "-o", made, *LEARN, *SMALL, "--sampler", name, "--no-calibrate",
               "--suspects", "2", "--seed", "7")  # fmt: skip
    assert done.code == 0
    core = dm.load_coreset(made)
    assert core.sampler.lower().startswith(name)
    assert (core.calibrated, core.n_suspected) == (False, 120)


def test_missing_values_are_refused_or_imputed(run, tmp_path):
    rows = table()
    ages = rows["age"].to_pylist()
    ages[17] = None
    source = write(rows.set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    made = tmp_path / "c.parquet"
    done = run("build", source, "-o", made, *LEARN, *SMALL)
    assert done.code == 2
    assert "'age' has no value in row 17" in done.err
    assert "--impute" in done.err
    assert not made.exists()
    assert run("build", source, "-o", made, *LEARN, *SMALL, "--impute", "mean").code == 0
    mean = np.mean([age for age in ages if age is not None])
    assert read_core(made).encoding.parts[0].fill == pytest.approx(mean, rel=1e-12)


def test_a_bad_line_is_named(run, files, tmp_path):
    lines = (files / "rows.csv").read_text().splitlines()
    lines[700] = lines[700].replace(",", ",x", 1)
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    done = run("build", tmp_path / "bad.csv", "-o", tmp_path / "c.parquet", *LEARN, *SMALL)
    assert done.code == 2
    assert "line 701" in done.err
    assert "'age'" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--loss", "logistic"], "--loss logistic needs labels; name their column by --label"),
        (["--loss", "kmeans"], "--loss kmeans needs the number of centres; pass --k"),
        (["--loss", "kmeans", "--k", "2", "--label", "two"], "--loss kmeans takes no labels"),
        (
            ["--loss", "logistic", "--label", "two", "--k", "2"],
            "--k is for kmeans and kmedian and bregman, not",
        ),
        (["--loss", "logistic", "--label", "tow"], "'tow'"),
        (["--loss", "logistic", "--label", "three"], "has 3 classes, and --loss logistic tells two apart"),
        (["--loss", "softmax", "--label", "three", "--classes", "2"], "has 3 classes, where 2 were expected"),
        (["--loss", "softmax", "--label", "value"], "more than 1,000 values, too many for classes"),
        (["--loss", "kmeans", "--k", "2", "--outliers", "5000"], "n_outliers"),
        (["--loss", "kmeans", "--k", "2", "--features", "a,a"], "'a' is given as features, twice"),
    ],
)
def test_what_cannot_be_is_refused(options, message, files, run, tmp_path):
    done = run("build", files / "numbers.parquet", "-o", tmp_path / "c.parquet", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_outputs_are_checked_before_anything_takes_time(files, core, run, tmp_path):
    source = tmp_path / "rows.parquet"
    source.write_bytes((files / "rows.parquet").read_bytes())
    before = core.read_bytes()
    for output, message in [
        (core, "exists; pass --force to replace it"),
        (source, "is a file that is read; name another"),
        (tmp_path / "no" / "c.parquet", "there is no folder"),
        (tmp_path, "must end in .parquet"),
        (tmp_path / "c.csv", "must end in .parquet"),
    ]:
        done = run("build", source, "-o", output, *LEARN, *SMALL)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
    assert core.read_bytes() == before
    assert run("build", source, "-o", core, *LEARN, *SMALL, "--seed", "1", "--force").code == 0
    assert core.read_bytes() != before


def test_damage_is_an_error_or_does_no_harm(core):
    whole, raw = read_core(core), core.read_bytes()
    start = raw.index(b"duramen-encoding")  # from here on, metadata: the encoding stands there twice
    wrong = []
    for place in np.random.default_rng(0).integers(start, len(raw), 150):
        flipped = bytearray(raw)
        flipped[place] ^= 1 << (place % 8)
        core.write_bytes(flipped)
        try:
            found = read_core(core)
        except ValueError as error:
            wrong.append(str(error))
            continue
        assert (found.encoding, found.names) == (whole.encoding, whole.names)
        np.testing.assert_array_equal(found.core.weights, whole.core.weights)
    assert len(wrong) > 20
    assert all(str(core) in message for message in wrong)
