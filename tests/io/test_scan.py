"""Laws of scans: the coreset of data that is read in parts is that of all of it at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duramen as dm
from duramen.coreset.view import SAMPLERS
from duramen.io import open_table
from duramen.io.scan import TableScan
from duramen.points import numbers_of
from tests.io.files import write
from tests.support import assert_same_coreset

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
dataset = pytest.importorskip("pyarrow.dataset")
parquet = pytest.importorskip("pyarrow.parquet")

CHOSEN = {"loss": dm.LogisticLoss(), "size": 80, "n_outliers": 0.02, "random_state": 3}


def table(n=3000, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(dtype)
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(np.int64)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})


def rows_of(whole, features=("a", "b", "c")):
    return np.column_stack([whole[name] for name in features])


def at_once(whole, **chosen):
    return dm.robust_coreset(rows_of(whole), whole["y"].to_numpy(), **CHOSEN | chosen)


def files(folder, whole, cuts, suffix="parquet", rows=400):
    for number, (start, end) in enumerate(pairwise([0, *cuts, len(whole)])):
        path, part = folder / f"part-{number:02}.{suffix}", whole.slice(start, end - start)
        if suffix == "parquet":
            parquet.write_table(part, path, row_group_size=rows)
        else:
            write(part, path)


@pytest.mark.usefixtures("two_threads", "few_sampled")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_parquet_files_give_the_coreset_of_all_rows(tmp_path, sampler, dtype):
    whole = table(dtype=dtype)
    files(tmp_path, whole, (5, 6, 1700))
    for source in (tmp_path, tmp_path / "*.parquet", str(tmp_path / "part-*"), sorted(tmp_path.iterdir())):
        core = dm.robust_coreset(dm.scan(source, label="y"), sampler=sampler, **CHOSEN)
        assert_same_coreset(core, at_once(whole, sampler=sampler))
        assert core.columns == ("a", "b", "c")
        assert core.X.dtype == dtype


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("suffix", ["csv", "arrow"])
def test_files_of_other_formats_give_the_coreset_of_all_rows(tmp_path, suffix):
    whole = table()
    files(tmp_path, whole, (5, 5, 1700), suffix)
    (tmp_path / "readme.txt").write_text("what the columns mean")
    for source in (tmp_path / f"*.{suffix}", tmp_path):
        core = dm.robust_coreset(dm.scan(source, label="y"), **CHOSEN)
        assert_same_coreset(core, at_once(whole))


def test_a_folder_stands_for_its_parquet_files_if_it_has_some(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files of a known format"):
        dm.scan(tmp_path, label="y")
    whole = table()
    write(whole.slice(0, 9), tmp_path / "example.csv")
    assert sum(len(batch) for batch in open_table(tmp_path).batches()) == 9
    files(tmp_path, whole, (10,))
    assert sum(len(batch) for batch in open_table(tmp_path).batches()) == len(whole)


def test_datasets_and_arrow_tables_give_the_coreset_of_all_rows(tmp_path):
    whole = table()
    files(tmp_path, whole, (1000, 1001))
    listed = dataset.dataset(sorted(map(str, tmp_path.iterdir())))
    for source in (dataset.dataset(tmp_path), listed, whole, dataset.dataset(whole)):
        core = dm.robust_coreset(dm.scan(source, label="y", features=["c", "a"]), **CHOSEN)
        both = rows_of(whole, ("c", "a"))
        assert_same_coreset(core, dm.robust_coreset(both, whole["y"].to_numpy(), **CHOSEN))
        assert core.columns == ("c", "a")


def test_folders_may_name_a_column(tmp_path):
    whole = table(600)
    for year in (2024, 2025):
        (tmp_path / f"year={year}").mkdir()
        part = whole.slice(300 * (year - 2024), 300)
        parquet.write_table(part, tmp_path / f"year={year}" / "part.parquet")
    found = dm.scan(dataset.dataset(tmp_path, partitioning="hive"), label="y")
    assert found.names == ("a", "b", "c", "year")
    core = dm.robust_coreset(found, **CHOSEN | {"size": 30})
    assert set(np.unique(core.X[:, 3])) == {2024, 2025}
    deep = dm.robust_coreset(dm.scan(tmp_path / "**" / "*.parquet", label="y"), **CHOSEN | {"size": 30})
    assert_same_coreset(deep, at_once(whole, size=30))


@pytest.mark.parametrize("form", ["arrays", "tuples", "frames", "record batches", "points", "function"])
def test_batches_of_every_form(form):
    whole = table()
    X, y = rows_of(whole), whole["y"].to_numpy()
    cuts = [slice(0, 0), slice(0, 1), slice(1, 2000), slice(2000, 3000)]
    named = {"label": "y"} if form in ("frames", "record batches") else {}
    if form == "arrays":
        batches = [X[cut] for cut in cuts]
    elif form in ("tuples", "function"):
        batches = [(X[cut], y[cut]) for cut in cuts]
    elif form == "frames":
        pytest.importorskip("pandas")
        batches = [whole.slice(cut.start, cut.stop - cut.start).to_pandas() for cut in cuts]
    elif form == "record batches":
        batches = whole.to_batches(max_chunksize=700)
    else:
        batches = [dm.points(X[cut], y[cut], ids=np.arange(3000)[cut]) for cut in cuts[1:]]
    source = (lambda: iter(batches)) if form == "function" else batches
    chosen = CHOSEN | ({"loss": dm.KMeansLoss(2)} if form == "arrays" else {})
    core = dm.robust_coreset(dm.scan(source, **named), **chosen)
    assert_same_coreset(core, dm.robust_coreset(X, None if form == "arrays" else y, **chosen))
    assert core.columns == (("a", "b", "c") if named else None)


def test_weights_and_ids_are_columns(tmp_path):
    rng, whole = np.random.default_rng(1), table()
    weights, ids = rng.integers(0, 4, size=3000), rng.permutation(9000)[:3000]
    files(tmp_path, whole.append_column("w", pa.array(weights)).append_column("id", pa.array(ids)), (800,))
    core = dm.robust_coreset(dm.scan(tmp_path, label="y", weight="w", id="id"), **CHOSEN)
    assert_same_coreset(core, at_once(whole, sample_weight=weights, ids=ids))


@pytest.mark.usefixtures("two_threads")
def test_ids_may_be_text(tmp_path):
    whole, names = table(), [f"n{row}" for row in range(3000)]
    files(tmp_path, whole.append_column("id", pa.array(names)), (800,))
    found = dm.scan(tmp_path, label="y", id="id")
    core = dm.robust_coreset(found, **CHOSEN)
    assert_same_coreset(core, at_once(whole, ids=numbers_of(names)))
    rows = [int(name[1:]) for name in found.names_of(core.ids)]
    np.testing.assert_array_equal(core.X, rows_of(whole)[rows])
    for other in (dm.scan(tmp_path, label="y", features=["a"]), dm.scan([core.X])):
        with pytest.raises(KeyError):
            other.names_of([0])


def test_text_becomes_numbers(tmp_path):
    whole = table(500)
    answers = pa.array(np.where(whole["y"].to_numpy() == 1, "yes", "no"))
    colours = pa.array(["red", "blue"] * 250)
    whole = whole.drop_columns(["y"]).append_column("y", answers).append_column("colour", colours)
    files(tmp_path, whole, (100,))
    found = dm.scan(tmp_path, label="y", one_hot="auto")
    assert found.classes == ["no", "yes"]
    assert found.names == ("a", "b", "c", "colour=blue", "colour=red")
    core = dm.robust_coreset(found, **CHOSEN)
    assert set(core.y) == {0.0, 1.0}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.integers(0, 600), max_size=5), st.integers(1, 300))
def test_the_coreset_does_not_depend_on_files_or_row_groups(tmp_path_factory, cuts, rows):
    folder, whole = tmp_path_factory.mktemp("cut"), table(600)
    files(folder, whole, sorted(cuts), rows=rows)
    core = dm.robust_coreset(dm.scan(folder, label="y"), **CHOSEN | {"size": 40})
    assert_same_coreset(core, at_once(whole, size=40))


@pytest.mark.usefixtures("two_threads")
def test_shards_are_the_rows_of_the_table(tmp_path, monkeypatch):
    from duramen.io import arrow as module

    monkeypatch.setattr(module, "_SHARD", 900)
    whole = table()
    files(tmp_path, whole, (1, 1500))
    opened = open_table(tmp_path)
    shards = opened.shards()
    assert len(shards) == 5
    read = [
        (batch.first, batch.column("a").numbers())
        for shard in shards
        for batch in opened.batches(3000, ["a"], shard=shard)
    ]
    np.testing.assert_array_equal(np.concatenate([part for _, part in read]), whole["a"].to_numpy())
    assert [first for first, _ in read] == [0, 1, 801, 1500, 2300]


def test_progress_of_both_passes(tmp_path, capsys):
    files(tmp_path, table(), (1000,))
    calls = []
    dm.robust_coreset(dm.scan(tmp_path, label="y", progress=lambda *one: calls.append(one)), **CHOSEN)
    assert [number for number, _, _ in calls] == sorted(number for number, _, _ in calls)
    assert {number for number, _, _ in calls} == {1, 2}
    for number in (1, 2):
        steps = [one[1:] for one in calls if one[0] == number]
        assert steps == sorted(steps)
        assert steps[-1] == (1, 3000)
    dm.robust_coreset(dm.scan(tmp_path, label="y", progress=True), **CHOSEN)
    assert capsys.readouterr().out == ""


def test_a_bar_is_shown_for_what_takes_long(monkeypatch, capsys):
    pytest.importorskip("rich")
    from duramen import progress as bars

    monkeypatch.setattr(bars, "_PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    X = rows_of(table())
    dm.robust_coreset(dm.scan([X[:1000], X[1000:]], progress=True), **CHOSEN | {"loss": dm.KMeansLoss(2)})
    assert "pass" in capsys.readouterr().err


def test_files_with_other_columns_are_refused_before_a_row_is_read(tmp_path):
    whole = table(100)
    parquet.write_table(whole, tmp_path / "1.parquet")
    other = tmp_path / "2.parquet"
    more, text = whole.append_column("d", whole["a"]), whole.set_column(0, "a", pa.array(["x"] * 100))
    single = whole.set_column(0, "a", whole["a"].cast("float"))
    for part, match in (
        (whole.drop_columns(["b"]), r"2.parquet: column 'b' is absent, in .*1.parquet it is double"),
        (more, r"2.parquet: column 'd' is double, in .*1.parquet it is absent"),
        (text, "2.parquet: column 'a' is string, in .* double"),
        (single, "column 'a' is float, in .* double"),
    ):
        parquet.write_table(part, other)
        with pytest.raises(ValueError, match=match):
            dm.scan(tmp_path, label="y")
        with pytest.raises(ValueError, match=r"\d.parquet: column '[abd]'"):
            dm.scan(dataset.dataset(tmp_path), label="y")
    csv.write_csv(whole, tmp_path / "1.csv")
    csv.write_csv(whole.drop_columns(["b"]), tmp_path / "2.csv")
    with pytest.raises(ValueError, match=r"2.csv: column 'b' is absent"):
        dm.scan(tmp_path / "*.csv", label="y")
    csv.write_csv(whole.set_column(1, "b", pa.array(["x"] * 100)), tmp_path / "2.csv")
    with pytest.raises(ValueError, match=r"2.csv: column 'b' is text, in .*1.csv it is numbers"):
        dm.scan(tmp_path / "*.csv", label="y")


@pytest.mark.usefixtures("two_threads")
def test_bad_values_are_refused_with_file_and_row(tmp_path):
    whole = table()
    values = np.array(whole["a"]).copy()
    values[2100] = np.nan
    files(tmp_path, whole.set_column(0, "a", pa.array(values)), (1000, 2000))
    with pytest.raises(ValueError, match=r"column 'a' has no value in part-02.parquet, row 100 "):
        dm.robust_coreset(dm.scan(tmp_path, label="y"), **CHOSEN)
    labels = np.where(np.arange(3000) == 2200, 7, whole["y"])
    files(tmp_path, whole.set_column(3, "y", pa.array(labels)), (1000, 2000))
    with pytest.raises(ValueError, match="row 2200 has 7"):
        dm.robust_coreset(dm.scan(tmp_path, label="y"), **CHOSEN)


def test_a_file_that_changes_is_noticed(tmp_path):
    files(tmp_path, table(), (1000,))
    found = dm.scan(tmp_path, label="y")
    files(tmp_path, table(seed=1), (1100,))
    with pytest.raises(ValueError, match="changed after it was opened"):
        dm.robust_coreset(found, **CHOSEN)


def refused(error, match, source, **named):
    with pytest.raises(error, match=match):
        dm.robust_coreset(dm.scan(source, **named), **CHOSEN)


def test_what_cannot_be_scanned_is_refused(tmp_path):
    whole = table(100)
    X, y = rows_of(whole), whole["y"].to_numpy()
    refused(TypeError, "found list_iterator; pass a list of batches, or a function", iter([X]))
    refused(TypeError, "found generator; pass a list", (batch for batch in [X]))
    refused(TypeError, "found int; pass a list", 3)
    refused(FileNotFoundError, "No such file", tmp_path / "none.parquet")
    refused(FileNotFoundError, "no files match", tmp_path / "*.csv")
    refused(ValueError, "batch 1: X has NaN in row 0", [(X, y), (X * np.nan, y)])
    refused(TypeError, "batch 0: label=.* this batch has no names", [X], label="y")
    refused(TypeError, "one_hot= and impute= are for files", [X], impute="mean")
    refused(TypeError, "progress=3", [X], progress=3)
    refused(ValueError, "no points", [])
    refused(TypeError, "has 4 parts; for rows with ids pass dm.points", [(X, y, y, y)])
    refused(TypeError, "features='ab' is a string", whole, features="ab")
    refused(TypeError, "DataFrame is already in memory", whole.to_pandas(), label="y")
    refused(TypeError, "ndarray is already in memory", X)
    refused(TypeError, "not both", [str(tmp_path), X])
    refused(TypeError, "must return an iterable; found None", lambda: None)
    refused(ValueError, "is a folder; name its files", [tmp_path, tmp_path])
    refused(ValueError, "has no rows", dataset.dataset([], schema=whole.schema), label="y")
    refused(ValueError, "2 columns of float64.*3 columns", [(X[:, :2], y), (X, y)])
    refused(ValueError, "did you mean", whole, label="Y ")
    good = dm.scan([(X, y)])
    for beside in ({"y": y}, {"sample_weight": y}, {"ids": y}, {"epsilon": 0.1}):
        message = f"{next(iter(beside))} cannot be passed with scanned data"
        with pytest.raises(TypeError, match=message):
            dm.robust_coreset(good, **CHOSEN, **beside)
    with pytest.raises(TypeError, match="needs size="):
        dm.robust_coreset(good, loss=dm.LogisticLoss(), n_outliers=5, beta=0.1)


def test_paths_and_datasets_need_a_scan(tmp_path):
    for X in ("data/*.parquet", tmp_path, dataset.dataset(table(10)), list):
        with pytest.raises(TypeError, match=r"X is .*; pass dm.scan"):
            dm.robust_coreset(X, loss=dm.KMeansLoss(2), size=10)


def test_frames_may_have_their_columns_in_any_order():
    pd = pytest.importorskip("pandas")
    frame = table(400).to_pandas()
    batches = [frame[:100], frame[100:][["y", "c", "a", "b"]]]
    core = dm.robust_coreset(dm.scan(batches, label="y"), **CHOSEN)
    assert_same_coreset(core, dm.robust_coreset(frame[["a", "b", "c"]], frame["y"], **CHOSEN))
    message, rest = r"batch 1: its columns are .* but earlier batches have", frame[100:]
    for second in (rest.rename(columns={"b": "d"}), rest.drop(columns="b"), frame.assign(d=1.0)):
        refused(ValueError, message, [batches[0], second], label="y")
    empty = pd.DataFrame({"a": [], "b": [], "c": [], "y": []})
    assert_same_coreset(dm.robust_coreset(dm.scan([empty, *batches], label="y"), **CHOSEN), core)


@pytest.mark.usefixtures("two_threads")
def test_rows_are_named_by_their_place_whatever_their_ids(tmp_path):
    whole = table()
    labels = np.where(np.arange(3000) == 2777, 7, whole["y"])
    whole = whole.set_column(3, "y", pa.array(labels))
    for ids in (np.random.default_rng(0).permutation(3000), np.arange(3000) + 5_000_000):
        files(tmp_path, whole.append_column("id", pa.array(ids)), (1000, 2000))
        with pytest.raises(ValueError, match="row 2777 has 7"):
            dm.robust_coreset(dm.scan(tmp_path, label="y", id="id"), **CHOSEN)
    twice = np.where(np.arange(3000) == 1500, 1400, np.arange(3000))
    files(tmp_path, table().append_column("id", pa.array(twice)), (1000, 2000))
    message = r"id 1400 \(column 'id'\) is in part-01.parquet, row 400 .* and in part-01.parquet, row 500 "
    with pytest.raises(ValueError, match=message):
        dm.robust_coreset(dm.scan(tmp_path, label="y", id="id"), **CHOSEN)


def test_files_that_are_not_counted_can_be_skipped(tmp_path):
    whole = table(10)
    files(tmp_path, whole, (3, 8), "csv")
    for skip in range(12):
        found = open_table(tmp_path / "*.csv")
        parts = [(batch.first, batch.column("a").numbers()) for batch in found.batches(skip=skip)]
        rest = np.concatenate([part for _, part in parts]) if parts else np.empty(0)
        np.testing.assert_array_equal(rest, whole["a"].to_numpy()[skip:])
        assert all(whole["a"].to_numpy()[first] == part[0] for first, part in parts)


def test_a_filtered_dataset_is_what_is_left_of_it(tmp_path):
    whole = table()
    files(tmp_path, whole, (1000,))
    found = dm.scan(dataset.dataset(tmp_path).filter(dataset.field("a") > 0), label="y")
    assert_same_coreset(dm.robust_coreset(found, **CHOSEN), at_once(whole.filter(whole["a"].to_numpy() > 0)))


def test_hidden_files_are_not_data(tmp_path):
    whole = table(300)
    files(tmp_path, whole, (100,))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-00.parquet.crc").write_bytes(b"crc")
    core = dm.robust_coreset(dm.scan(tmp_path / "*", label="y"), **CHOSEN)
    assert_same_coreset(core, at_once(whole))
    found = dm.scan([tmp_path / "part-00.parquet", tmp_path / "part-01.parquet"], label="y")
    assert repr(found) == "Scan of part-00.parquet and 1 more: 300 rows, 3 columns"
    assert sum(map(len, found)) == 300
    assert repr(dm.scan(tmp_path / "*0.parquet")) == "Scan of part-00.parquet: 100 rows, 4 columns"
    assert repr(dm.scan([[[1.0]]])) == "Scan of batches: rows not counted"


@pytest.mark.parametrize("form", ["pandas", "arrow"])
def test_ids_of_batches_may_be_text(form):
    whole, names = table(600), [f"n{row}" for row in range(600)]
    whole = whole.append_column("id", pa.array(names))
    batches = [whole.slice(0, 250), whole.slice(250)]
    found = dm.scan([one.to_pandas() for one in batches] if form == "pandas" else batches, label="y", id="id")
    core = dm.robust_coreset(found, **CHOSEN)
    assert_same_coreset(core, at_once(whole, ids=numbers_of(names)))
    rows = [int(name[1:]) for name in found.names_of(core.ids)]
    np.testing.assert_array_equal(core.X, rows_of(whole)[rows])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.npz"])
def test_a_column_that_another_file_lacks_is_named(tmp_path, name):
    encoding = dm.scan(table(50), label="y").encoding
    other = open_table(write(table(50).drop_columns(["b"]), tmp_path / name))
    with pytest.raises(ValueError, match=f"{name} has no column 'b'; it has 'a', 'c', 'y'"):
        list(TableScan(other, encoding))
