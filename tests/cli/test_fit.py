"""Models from coresets, stores and data: what they hold, what is printed, and what they predict."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist
from scipy.special import softmax

import duramen as dm
from duramen.cli.commands import core_names, encoding_in, read_model
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import conforms, flip_bits, numbers, process, table
from tests.io.files import write


def test_through_the_real_entry_point(core, files, tmp_path):
    done = process("fit", core, "-o", "model.json", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    assert (done.json["kind"], done.json["classes"], done.json["n_points"]) == ("core", ["no", "yes"], 3000)
    assert done.json["low"] < done.json["objective"] < done.json["high"]
    done = process("predict", "model.json", files / "rows.csv", "-o", "said.parquet", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    assert done.json["n_rows"] == 3000
    assert done.json["columns"] == ["id", "class", "probability=no", "probability=yes"]


def test_planted_rows_are_set_aside(core, run):
    done = run("fit", core, "--top", "1000", "--json")
    aside = [one["id"] for one in done.json["set_aside"]]
    assert len(aside) == done.json["n_set_aside"]
    planted = {name for name in core_names(dm.load_coreset(core)).values() if int(name[1:]) < 60}
    assert planted <= set(aside)
    losses = [one["loss"] for one in done.json["set_aside"]]
    assert losses == sorted(losses, reverse=True)
    assert sum(one["weight"] for one in done.json["set_aside"]) == pytest.approx(60)
    printed = run("fit", core, "--top", "2").out
    assert f"id {aside[0]}, weight" in printed
    assert f"n set aside       {len(aside)}" in printed


def test_it_is_the_solution_that_the_library_finds(core, model):
    found, solution = read_model(model), dm.solve(dm.load_coreset(core), random_state=0)
    np.testing.assert_array_equal(found.theta, solution.theta)
    assert json.loads(model.read_text())["objective"] == solution.objective
    assert found.encoding == encoding_in(dm.load_coreset(core).metadata)


def test_of_data_it_is_that_of_the_coreset_built_first(model, files, run, tmp_path):
    assert run("fit", files / "rows.csv", "-o", tmp_path / "two.json", *LEARN, *SMALL).code == 0
    np.testing.assert_array_equal(read_model(model).theta, read_model(tmp_path / "two.json").theta)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_predictions_are_the_library_s_own(model, run, tmp_path, suffix):
    without = table().drop_columns(["ill"])  # labels are not needed
    source, made = write(without, tmp_path / "new.parquet"), tmp_path / f"said{suffix}"
    assert run("predict", model, source, "-o", made).out.startswith("3,000 rows predicted")
    predicted = pa.parquet.read_table(made) if suffix == ".parquet" else pa.csv.read_csv(made)
    theta = read_model(model).theta
    colours = [np.array(without["colour"]) == name for name in ("blue", "green", "red")]
    m = np.column_stack([without["age"], without["income"], *colours]) @ theta[:-1] + theta[-1]
    assert predicted["id"].to_pylist() == without["name"].to_pylist()
    share = 1 / (1 + np.exp(-m))
    np.testing.assert_allclose(predicted["probability=yes"].to_numpy(), share, rtol=1e-12, atol=1e-300)
    assert predicted["class"].to_pylist() == np.where(m > 0, "yes", "no").tolist()


@pytest.mark.parametrize(
    "words",
    ["logistic --label two", "softmax --label three", "logistic --label two --outliers 0",
     "softmax --label three --outliers 2% --no-intercept", "logistic --label two --no-intercept", "huber --label value", "quantile --label value", "poisson --label count",
     "kmeans --k 3", "kmedian --k 3"],
)  # fmt: skip
def test_every_kind_predicts_as_its_formula_says(words, files, run, tmp_path):
    source, made = files / "numbers.parquet", tmp_path / "m.json"
    fit = run("fit", source, "-o", made, *f"--loss {words} --features a,b --size 300".split())
    assert fit.code == 0, fit.err
    assert run("predict", made, source, "-o", tmp_path / "s.parquet").code == 0
    frame, model = pa.parquet.read_table(tmp_path / "s.parquet"), read_model(made)
    X, theta = np.column_stack([numbers()["a"], numbers()["b"]]), model.theta
    if "--k" in words:
        distances = cdist(X, theta)
        np.testing.assert_array_equal(frame["cluster"].to_numpy(), distances.argmin(axis=1))
        np.testing.assert_allclose(frame["distance"].to_numpy(), distances.min(axis=1), rtol=1e-12)
        return
    if isinstance(model.loss, dm.ContaminatedLoss):
        shares = contaminated_shares(json.loads(made.read_text()), X, theta)
        assert_probabilities(frame, model, shares)
        return
    m = X @ theta[..., :2].T + theta[..., 2:].sum(axis=-1)
    if model.classes is None:
        values = np.exp(m) if words.startswith("poisson") else m
        np.testing.assert_allclose(frame["value"].to_numpy(), values, rtol=1e-12)
        return
    shares = softmax(m if m.ndim == 2 else np.column_stack([np.zeros_like(m), m]), axis=1)
    assert_probabilities(frame, model, shares)


def assert_probabilities(frame, model, shares):
    found = np.column_stack([frame[f"probability={name}"] for name in model.classes])
    np.testing.assert_allclose(found, shares, rtol=1e-9)
    np.testing.assert_array_equal(frame["class"].to_numpy(), np.array(model.classes)[shares.argmax(axis=1)])


def contaminated_shares(state, X, theta):
    """Compute the probabilities from the file alone, as docs/losses.md says."""
    fields = state["loss"]["fields"]
    p = X.shape[1] + fields["base"]["fields"]["fit_intercept"]
    weights, noise = theta[..., :p], theta[..., p:].reshape(-1, 2)
    m = X @ weights[..., :2].T + weights[..., 2:].sum(axis=-1)
    model = softmax(m if m.ndim == 2 else np.column_stack([np.zeros_like(m), m]), axis=1)
    frame = np.reshape(fields["frame"]["values"], fields["frame"]["shape"])
    square = ((X @ frame[:-1] + frame[-1]) ** 2).sum(axis=1)
    t = np.clip(np.floor(1024 * np.log(square)) / 1024, 0, fields["farthest"])
    found = 0
    for part, at in ((0.25, 0 * t), (0.75, t)):
        odds = np.exp(noise[:, 0] + np.log(0.01) + np.log1p(np.exp(noise[:, 1])) * at[:, None])
        found = found + part * (odds + model) / (1 + odds.sum(axis=1, keepdims=True))
    return found


def test_without_a_number_of_outliers_classification_learns_what_is_noise(files, run, tmp_path):
    """The rows that were planted far out and mislabelled do not bend the model, and nothing is set aside."""
    rows, made = files / "rows.parquet", tmp_path / "m.json"
    learned = run("fit", rows, "-o", made, *LEARN, "--size", "1000", "--json").json
    conforms(learned)
    assert learned["loss"] == "ContaminatedLoss(base=LogisticLoss(fit_intercept=True))"
    assert (learned["n_outliers"], learned["n_set_aside"], learned["set_aside"]) == (0, 0, [])
    assert 0.01 < learned["noise_share"] < 0.1  # 2% are planted
    asked = run("fit", rows, *LEARN, "--size", "1000", "--outliers", "2%", "--json").json
    plain = run("fit", rows, *LEARN, "--size", "1000", "--outliers", "0", "--json").json
    assert asked["noise_share"] is plain["noise_share"] is None
    slopes = [one["theta"][0] for one in (learned, asked, plain)]
    assert slopes[0] == pytest.approx(2.0, abs=0.4)
    assert slopes[1] == pytest.approx(2.0, abs=0.4)
    assert slopes[2] < 0.5
    again = run("fit", rows, *LEARN, "--size", "1000", "--outliers", "auto", "--json").json
    assert again["theta"] == learned["theta"]
    assert "noise share       0.0" in run("fit", rows, *LEARN, "--size", "1000").out
    found = read_model(made)
    core = run("build", rows, "-o", tmp_path / "c.parquet", *LEARN, "--size", "1000", "--json").json
    assert core["loss"] == learned["loss"]
    assert run("fit", tmp_path / "c.parquet", "--json").json["theta"] == learned["theta"]
    np.testing.assert_array_equal(found.loss.frame, dm.load_coreset(tmp_path / "c.parquet").loss.frame)


@pytest.mark.parametrize(
    "change",
    [
        {"frame": None},
        {"frame": {"shape": [2, 2], "values": [1.0] * 4}},
        {"frame": {"shape": [3], "values": [1.0] * 3}},
        {"base": {"class": "SoftmaxLoss", "fields": {"n_classes": 3}}},
        {"base": {"class": "KMeansLoss", "fields": {"k": 2}}},
        {"farthest": -2},
    ],
    ids=str,
)
def test_a_contaminated_model_changed_by_hand_is_checked(change, files, run, tmp_path):
    made = tmp_path / "m.json"
    words = ["--loss", "logistic", "--label", "two", "--features", "a,b", "--size", "100"]
    assert run("fit", files / "numbers.parquet", "-o", made, *words).code == 0
    state = json.loads(made.read_text())
    state["loss"]["fields"].update(change)
    del state["crc32"]
    made.write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"is damaged"):
        read_model(made)


def test_minus_one_and_one_stay_what_they_are(run, tmp_path):
    rows = numbers()
    signs = pa.array(2 * rows["two"].to_numpy() - 1)
    source = write(rows.append_column("sign", signs), tmp_path / "n.parquet")
    learn = ("--loss", "hinge", "--label", "sign", "--features", "a,b", "--size", "300")
    assert run("fit", source, "-o", tmp_path / "m.json", *learn).code == 0
    assert run("predict", tmp_path / "m.json", source, "-o", tmp_path / "s.parquet").code == 0
    predicted = pa.parquet.read_table(tmp_path / "s.parquet")
    assert predicted.column_names == ["id", "class", "score"]
    assert set(predicted["class"].to_pylist()) == {-1, 1}
    assert np.array_equal(predicted["class"].to_numpy() > 0, predicted["score"].to_numpy() > 0)


def test_classes_that_are_true_or_false(run, refuse, tmp_path):
    rows = numbers()
    source = write(rows.append_column("flag", pa.array(rows["two"].to_numpy() > 0)), tmp_path / "n.parquet")
    learn = ("--loss", "softmax", "--label", "flag", "--features", "a,b", "--size", "300")
    assert run("fit", source, "-o", tmp_path / "m.json", *learn).code == 0
    lines = run("predict", tmp_path / "m.json", source, "-o", "-").out.splitlines()
    assert lines[0] == "id,class,probability=false,probability=true"
    assert {line.split(",")[1] for line in lines[1:]} == {"False", "True"}
    assert "has 2 classes (False, True), but 3 were expected" in refuse(
        "fit", source, *learn, "--classes", "3"
    )


def test_a_coreset_of_the_library_s_own_making_will_do(run, refuse, tmp_path):
    rows = numbers()
    X = np.column_stack([rows["a"], rows["b"]])
    dm.robust_coreset(X, loss=dm.KMeansLoss(2), size=100, random_state=0).save(tmp_path / "c.parquet")
    assert run("fit", tmp_path / "c.parquet", "-o", tmp_path / "m.json").code == 0
    np.savez(tmp_path / "new.npz", X=X)
    done = run("predict", tmp_path / "m.json", tmp_path / "new.npz", "-o", "-")
    assert done.code == 0
    assert done.out.splitlines()[0] == "id,cluster,distance"
    assert done.err == "3,000 rows predicted\n"
    error = refuse("predict", tmp_path / "m.json", write(rows, tmp_path / "n.parquet"), "-o", "-")
    assert "has 8 columns, but the model has 2" in error


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("@core --label ill", "is a coreset, whose loss, columns and size are fixed; leave --label out"),
        ("@core --loss kmeans --k 2", "leave --loss and --k out"),
        ("@core --no-intercept", "leave --no-intercept out"),
        ("@rows", "is data, so a loss is needed; pass --loss"),
        ("@core --outliers 5000", "n_outliers=5000"),
        ("@core --l2 -1", "l2=-1"),
        ("@core -o model.txt", "model.txt must end in .json"),
        ("@core -o no/model.json", "no/model.json: there is no folder "),
    ],
)
def test_wrong_options_are_refused(arguments, message, core, files, refuse, tmp_path):
    places = {"@core": core, "@rows": files / "rows.parquet"}
    assert message in refuse("fit", *(places.get(one, one) for one in arguments.split()))


def test_predict_refuses(model, files, refuse, tmp_path):
    columns = ["name", "years", "income", "colour", "ill"]
    renamed = write(table().rename_columns(columns), tmp_path / "r.parquet")
    colours = ["violet", *table()["colour"].to_pylist()[1:]]
    violet = write(table().set_column(3, "colour", pa.array(colours)), tmp_path / "v.parquet")
    for arguments, message in [
        ((model, renamed, "-o", "-"), "'age'"),
        ((model, violet, "-o", "-"), "'violet'"),
        ((files / "rows.csv", files / "rows.csv", "-o", "-"), "is not a model"),
        ((model, files / "rows.csv", "-o", "-", "--json"), "name a file"),
        ((model, files / "rows.csv", "-o", model), "must end in .parquet or .csv"),
        ((model, tmp_path / "absent.csv", "-o", "-"), "no such file"),
    ]:
        assert message in refuse("predict", *arguments)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_all_classes_decide_the_type_of_a_prediction(run, tmp_path, suffix, monkeypatch):
    x = np.r_[np.full(600, -5.0), np.full(400, 5.0)] + np.random.default_rng(0).normal(size=1000)
    path = write(pa.table({"x": x, "y": np.where(x < 0, 1, 2.5)}), tmp_path / "mix.parquet")
    model, target = tmp_path / "mix.json", tmp_path / f"said.{suffix}"
    assert run("fit", path, "--loss", "softmax", "--label", "y", "--size", "200", "-o", model).code == 0
    monkeypatch.setattr("duramen.io.encoding.rows_in_memory", lambda _: 256)
    assert run("predict", model, path, "-o", target)[::2] == (0, "")
    found = pa.parquet.read_table(target) if suffix == "parquet" else pa.csv.read_csv(target)
    np.testing.assert_array_equal(found["class"].to_numpy(), np.where(x < 0, 1, 2.5))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_error_after_the_first_batch_leaves_one_line_and_no_file(model, tmp_path, suffix):
    rows = table(70_000)
    age = rows["age"].to_numpy().copy()
    age[69_000] = np.nan
    path = write(rows.set_column(1, "age", pa.array(age)), tmp_path / "bad.parquet")
    before = sorted(tmp_path.iterdir())
    done = process("predict", model, path, "-o", f"p.{suffix}", cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "in row 69000" in done.err
    assert sorted(tmp_path.iterdir()) == before


def test_any_changed_byte_of_a_model_is_an_error_or_does_no_harm(model):
    whole, places = read_model(model), np.random.default_rng(0).integers(0, model.stat().st_size, 300)
    harmless, errors = flip_bits(model, places, read_model)
    for found in harmless:
        np.testing.assert_array_equal(found.theta, whole.theta)
        assert (found.loss, found.classes, found.encoding) == (whole.loss, whole.classes, whole.encoding)
    assert len(errors) > 200


def test_a_model_cut_short_is_refused(model):
    raw = model.read_bytes()
    for end in range(0, len(raw) - 2, 40):
        model.write_bytes(raw[:end])
        with pytest.raises(ValueError, match=r"is damaged|is not a model"):
            read_model(model)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": 2}, "newer than this library reads"),
        ({"format": "other"}, "is not a model"),
        ({"theta": [1.0]}, r"theta has shape \(1,\)"),
        ({"theta": [1.0, None, 2.0]}, "damaged"),
        ({"classes": [1, 2, 3]}, "classes and encoding do not fit"),
        ({"columns": ["a"]}, "damaged"),
        ({"loss": {"class": "DanceLoss", "fields": {}}}, "DanceLoss"),
    ],
)
def test_a_model_changed_by_hand_is_checked(model, change, message):
    state = {**json.loads(model.read_text()), **change}
    if not {"version", "format"} & set(change):
        model.write_text(json.dumps(state))
        with pytest.raises(ValueError, match="checksum differs"):
            read_model(model)
    del state["crc32"]
    model.write_text(json.dumps(state))
    with pytest.raises(ValueError, match=message):
        read_model(model)


def test_a_model_without_its_checksum_is_read(model):
    state = {**json.loads(model.read_text()), "theta": [7.0, 0, 0, 0, 0, 0]}
    del state["crc32"]
    model.write_text(json.dumps(state))
    assert read_model(model).theta[0] == 7
