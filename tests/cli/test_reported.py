"""Defects that were reported of files, labels and output: each test failed before its mending."""

import os
import signal
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duramen.cli import data, distinct
from duramen.cli.cores import read_core
from duramen.cli.errors import in_one_line
from duramen.cli.output import Output, naming
from duramen.store import StoreLockedError
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import COMMAND, numbers, process, table, write

LINEAR = ("--loss", "squared", "--label", "y", "--json")


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_labels_of_text_are_no_numbers(run, tmp_path, loss):
    path = tmp_path / "g.csv"
    path.write_text("a;y\n1;9,5\n2;10,5\n3;11,5\n4;12,5\n")
    done = run("fit", path, "--loss", loss, "--label", "y")
    assert done.code == 2
    assert (
        f"the label 'y' holds text ('9,5' in line 2 (row 0, counting from 0)), and --loss {loss}" in done.err
    )
    write(pa.table({"a": [1.0, 2.0], "y": ["neg", "pos"]}), tmp_path / "t.parquet")
    done = run("fit", tmp_path / "t.parquet", "--loss", loss, "--label", "y")
    assert (done.code, "holds text ('neg'), and" in done.err) == (2, True)


def test_labels_that_are_categories_or_flags_are_the_numbers_they_stand_for(run, tmp_path):
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
def test_one_class_is_none(run, tmp_path, loss, label):
    path = write(pa.table({"a": [1.0, 2.0], "y": [label, label]}), tmp_path / "one.parquet")
    done = run("fit", path, "--loss", loss, "--label", "y")
    assert done.code == 2
    assert f"the label 'y' is {3 if label == 3.0 else label!r} in every row" in done.err


def test_a_first_file_of_one_class_does_not_lock_a_store(run, tmp_path):
    store, rows = tmp_path / "s.duramen", table(60)
    assert run("store", "init", store, *LEARN, *SMALL).code == 0
    yes = write(rows.filter(pa.compute.equal(rows["ill"], "yes")), tmp_path / "yes.parquet")
    assert run("store", "insert", store, yes).code == 2
    assert run("store", "insert", store, write(rows, tmp_path / "all.parquet")).code == 0


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("row", [1, 900, 2999])
def test_ids_that_come_twice_are_named_with_their_rows(run, tmp_path, names, row, monkeypatch):
    monkeypatch.setattr("duramen.io.encoding.rows_in_memory", lambda _: 256)
    rows = numbers()
    ids = rows["key"].to_numpy().copy()
    ids[row] = ids[0]
    column = pa.array([f"k{one}" for one in ids]) if names else pa.array(ids)
    path = write(rows.set_column(0, "key", column), tmp_path / "twice.parquet")
    learn = ("--loss", "logistic", "--label", "two", "--features", "a,b", "--id", "key", "--size", "200")
    done = run("build", path, "-o", tmp_path / "core.parquet", *learn)
    assert done.code == 2
    shown = "'k100'" if names else "100"
    assert f"id {shown} (column 'key') is in row 0 (counting from 0) and in row {row} (counting" in done.err
    assert not (tmp_path / "core.parquet").exists()


def test_what_is_kept_of_ids_has_a_bound(monkeypatch):
    monkeypatch.setattr(distinct, "MOST", 100_000)
    seen = distinct.Distinct()
    for first in range(0, 200_000, 30_000):
        seen.add(np.arange(first, first + 30_000))
    assert seen._ids.nbytes == 800_000
    assert seen.twice() is None
    for first in range(3):
        again = distinct.Distinct()
        again.add(np.arange(70_000))
        again.add(np.array([70_000 + first, first, 80_000]))
        assert again.twice() == first


def test_our_own_files_are_no_data(core, store, run, tmp_path):
    model = tmp_path / "model.json"
    assert run("fit", core, "-o", model).code == 0
    for path, kind in ((core, "coreset"), (store, "store"), (model, "model")):
        for words in (
            ("build", path, "-o", tmp_path / "new.parquet", *LEARN),
            ("predict", model, path, "-o", tmp_path / "new.parquet"),
            ("certify", core, path),
            ("store", "insert", store, path),
        ):
            done = run(*words)
            assert (done.code, f"{path} is a {kind}, where data are needed" in done.err) == (2, True), words
    assert "is a model, which is learned already" in run("fit", model).err
    assert "is no store and no coreset" in run("report", model, "-o", tmp_path / "r.html").err


def test_the_report_of_a_coreset_names_the_suspected(core, run, tmp_path):
    assert run("report", core, "-o", tmp_path / "r.html").code == 0
    page, file = (tmp_path / "r.html").read_text(), read_core(core)
    suspected = file.core.ids[file.core.suspected]
    assert sum(f"<b>{file.names[int(one)]}</b>" in page for one in suspected) >= 20
    assert not any(str(one) in page for one in suspected)


def test_a_report_without_an_anchor_has_no_certificate(run, tmp_path):
    store, rows = tmp_path / "s.duramen", write(table(60), tmp_path / "rows.parquet")
    assert run("store", "init", store, *LEARN, *SMALL, "--quiet").code == 0
    assert run("store", "insert", store, rows, "--quiet").code == 0
    done = run("report", store, "-o", tmp_path / "r.html", "--data", rows)
    assert (done.code, "has no anchor yet" in done.err) == (0, True)
    assert run("store", "coreset", store, "-o", tmp_path / "c.parquet").code == 0
    assert "duramen store reanchor" in run("certify", tmp_path / "c.parquet", rows).err


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_all_classes_decide_the_type_of_a_prediction(run, tmp_path, suffix, monkeypatch):
    x = np.r_[np.full(600, -5.0), np.full(400, 5.0)] + np.random.default_rng(0).normal(size=1000)
    path = write(pa.table({"x": x, "y": np.where(x < 0, 1, 2.5)}), tmp_path / "mix.parquet")
    model, said = tmp_path / "mix.json", tmp_path / f"said.{suffix}"
    assert run("fit", path, "--loss", "softmax", "--label", "y", "--size", "200", "-o", model).code == 0
    monkeypatch.setattr("duramen.io.encoding.rows_in_memory", lambda _: 256)
    assert run("predict", model, path, "-o", said)[::2] == (0, "")
    found = (
        pq.read_table(said)["class"].to_numpy()
        if suffix == "parquet"
        else np.loadtxt(said, delimiter=",", skiprows=1)[:, 1]
    )
    np.testing.assert_array_equal(found, np.where(x < 0, 1, 2.5))


def test_an_error_after_the_first_batch_leaves_one_line(run, tmp_path, files, core):
    assert run("fit", core, "-o", tmp_path / "m.json").code == 0
    rows = table(70_000)
    age = rows["age"].to_numpy().copy()
    age[69_000] = np.nan
    path = write(rows.set_column(1, "age", pa.array(age)), tmp_path / "bad.parquet")
    done = process("predict", "m.json", path, "-o", "p.parquet", cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "in row 69000" in done.err
    assert done.err.endswith("these are options of duramen build and fit, which learn\n")
    assert sorted(tmp_path.glob("*p.parquet*")) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")  # noqa: PTH110
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "fit core.parquet --json", "predict m.json rows.csv -o -"])
def test_standard_output_that_is_full_or_closed(core, files, run, tmp_path, words, buffered):
    assert run("fit", core, "-o", tmp_path / "m.json").code == 0
    (tmp_path / "rows.csv").write_bytes((files / "rows.csv").read_bytes())
    end = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "check": False}
    end["env"] = {**os.environ, "PYTHONUNBUFFERED": buffered}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*COMMAND, *words.split()], stdout=full, **end)
    line = "duramen: standard output: no space left on device\n"
    assert (done.returncode, done.stderr) == (2, line)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *words.split()]
    done = subprocess.run(shell, **end)
    closed = "duramen: -o - writes predictions to standard output, which is closed; name a file\n"
    assert (done.returncode, done.stderr) == ((2, closed) if words.endswith("-") else (0, ""))


def test_a_full_disk_is_named():
    with pytest.raises(OSError, match="No space") as error, naming("core.parquet"):
        raise OSError(28, "No space left on device")
    assert in_one_line(error.value) == ("core.parquet: no space left on device", True)


def test_advice_is_that_of_the_command_line():
    locked = StoreLockedError(
        11, "process 7 has it open; close it there first, or open it with read_only=True", "s"
    )
    assert in_one_line(locked)[0] == "s: process 7 has it open; close it there first"
    other = ValueError("s is empty; dm.open_store(path, create=True, loss=...) makes one")
    assert in_one_line(other)[0] == "s is empty; duramen store init makes one"


@pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_throws_away_is_not_lost(files, run, tmp_path, monkeypatch):
    def opened(path, usual=data.open_data):
        class Thing:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        Thing()
        return usual(path)

    monkeypatch.setattr(data, "open_data", opened)
    done = run("build", files / "rows.parquet", "-o", tmp_path / "core.parquet", *LEARN, *SMALL)
    assert (done.code, done.out) == (130, "")
    assert not (tmp_path / "core.parquet").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.undo()
    assert run("build", files / "rows.parquet", "-o", tmp_path / "core.parquet", *LEARN, *SMALL).code == 0


def test_nothing_is_written_to_what_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    Output().say("words")
