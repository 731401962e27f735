"""Stores on the command line: what every command does, refuses, and says as JSON."""

import sqlite3

import numpy as np
import pyarrow as pa
import pytest

import duramen as dm
from duramen.cli.cores import read_core
from duramen.store import open_store
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import Done, conforms, numbers, process, table, write


def count(path):
    with open_store(path, read_only=True) as store:
        return store.n_points


def test_a_life_through_the_real_entry_point(files, tmp_path):
    def duramen(*words, stdin=None):
        done = process("store", *words, "--json", cwd=tmp_path, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        conforms(done.json)
        return done.json

    rows = files / "rows.parquet"
    write(table().slice(100, 3).set_column(1, "age", pa.array([1.0, 2.0, 3.0])), tmp_path / "corrected.csv")
    assert not duramen("init", "s.duramen", *LEARN, *SMALL, "--audit")["learned"]
    assert duramen("insert", "s.duramen", rows, "--batch", "1000")["n_inserted"] == 3000
    assert duramen("delete", "s.duramen", "r5", "r7")["n_points"] == 2998
    assert duramen("delete", "s.duramen", "--ids-from", "-", stdin="r8\nr9\n\n")["n_deleted"] == 2
    assert duramen("update", "s.duramen", "corrected.csv")["n_updated"] == 3
    assert duramen("set-outliers", "s.duramen", "3%")["n_outliers"] == pytest.approx(0.03 * 2996)
    assert duramen("reanchor", "s.duramen")["radius"] > 0
    assert duramen("coreset", "s.duramen", "-o", "core.parquet")["n_rows"] == 400
    stats = duramen("stats", "s.duramen")
    assert (stats["n_points"], stats["n_forgotten"], stats["label"]) == (2996, 4, "ill")
    assert stats["columns"] == ["age", "income", "colour=blue", "colour=green", "colour=red"]
    history = duramen("history", "s.duramen")
    assert [one["id"] for one in history["forgotten"]] == ["r5", "r7", "r8", "r9"]
    assert len(history["events"]) == 2
    assert duramen("check", "s.duramen")["whole"]
    assert duramen("compact", "s.duramen")["n_points"] == 2996
    with open_store(tmp_path / "s.duramen", read_only=True) as store:
        points = store.points(["r100", "r101", "r102", "r103"])
        np.testing.assert_array_equal(points.X[:3, 0], [1, 2, 3])
        assert points.X[3, 0] == table()["age"][103].as_py()
        again = store.coreset()
    saved = read_core(tmp_path / "core.parquet")
    np.testing.assert_array_equal(again.ids, saved.core.ids)
    np.testing.assert_array_equal(again.weights, saved.core.weights)
    assert saved.core.columns == saved.encoding.names


def test_fit_of_a_store_is_that_of_its_coreset(store, run, tmp_path):
    assert run("store", "coreset", store, "-o", tmp_path / "c.parquet").code == 0
    of_core, of_store = run("fit", tmp_path / "c.parquet", "--json").json, run("fit", store, "--json").json
    differ = {name for name in of_core if of_core[name] != of_store[name]}
    assert differ <= {"source", "kind", "seconds"}
    assert of_store["kind"] == "store"
    assert all(one["id"].startswith("r") for one in of_store["set_aside"])


def test_words_for_people(store, run):
    stats = run("store", "stats", store).out
    assert "3,000, weight 3,000" in stats
    assert "reanchor()" not in stats
    assert "every invariant holds" in run("store", "check", store).out
    assert "1 row deleted" in run("store", "delete", store, "r1").out
    assert "1 forgotten:" in run("store", "history", store).out
    assert run("store", "delete", store, "r2", "--quiet") == Done(0, "", "")


@pytest.mark.parametrize("name", ["gone.csv", "gone.parquet", "gone.txt"])
def test_ids_from_a_file(store, run, tmp_path, name):
    gone = tmp_path / name
    if name.endswith("txt"):
        gone.write_text("r3\nr4\n")
    else:
        write(pa.table({"name": ["r3", "r4"]}), gone)
    assert run("store", "delete", store, "--ids-from", gone).code == 0
    assert count(store) == 2998


def test_ids_that_are_numbers(files, run, tmp_path):
    path, source = tmp_path / "s.duramen", files / "numbers.parquet"
    learn = ("--loss", "kmeans", "--k", "2", "--features", "a,b", "--size", "200")
    assert run("store", "init", path, *learn, "--id", "key", "--weight", "heavy").code == 0
    assert run("store", "insert", path, source).code == 0
    assert run("store", "delete", path, "100", "101").code == 0
    write(pa.table({"key": [102, 103]}), tmp_path / "gone.csv")
    assert run("store", "delete", path, "--ids-from", tmp_path / "gone.csv").code == 0
    with open_store(path, read_only=True) as store:
        assert store.ids.min() == 104
        assert store.total_weight == pytest.approx(np.sum(numbers()["heavy"].to_numpy()[4:]))
    done = run("store", "delete", path, "105", "r3")
    assert (done.code, done.err) == (
        2,
        "duramen: id 'r3' is no plain whole number, as ids are in this store\n",
    )


def test_rows_that_the_store_numbers_itself(files, run, tmp_path):
    path, source = tmp_path / "s.duramen", files / "numbers.parquet"
    assert run("store", "init", path, "--loss", "squared", "--label", "value", "--features", "a,b").code == 0
    for _ in range(2):
        assert run("store", "insert", path, source).code == 0
    with open_store(path, read_only=True) as store:
        np.testing.assert_array_equal(store.ids, np.arange(6000))
    write(numbers().slice(0, 1), tmp_path / "one.parquet")
    done = run("store", "update", path, tmp_path / "one.parquet")
    assert done.code == 2
    assert "numbered its rows itself; name the file's column of ids by --id" in done.err
    assert run("store", "update", path, tmp_path / "one.parquet", "--id", "key").code == 0
    with open_store(path, read_only=True) as store:
        np.testing.assert_array_equal(store.points([100]).X, store.points([0]).X)


def test_columns_learned_when_it_is_made(files, run, tmp_path):
    path = tmp_path / "s.duramen"
    learn = ("--loss", "softmax", "--label", "three", "--features", "a,b", "--size", "200")
    done = run("store", "init", path, *learn)
    assert (done.code, done.err) == (
        2,
        "duramen: --loss softmax needs the number of classes here; pass --classes\n",
    )
    assert not path.exists()
    assert run("store", "init", path, *learn, "--from", files / "numbers.csv", "--json").json["learned"]
    one_class = numbers().filter(pa.array(np.array(numbers()["three"]) == 2))
    assert run("store", "insert", path, write(one_class, tmp_path / "two.parquet")).code == 0
    with open_store(path, read_only=True) as store:
        assert store.loss == dm.SoftmaxLoss(3)
        assert set(store.points().y) == {1.0}  # classes 1, 2 and 3 are 0, 1 and 2 inside


def test_a_bad_row_says_how_many_rows_are_in(files, run, tmp_path):
    path, bad = tmp_path / "s.duramen", tmp_path / "bad.csv"
    assert run("store", "init", path, *LEARN, *SMALL).code == 0
    lines = (files / "rows.csv").read_text().splitlines()
    whole = lines[2500]
    lines[2500] = whole.replace('"red"', "").replace('"blue"', "").replace('"green"', "")
    bad.write_text("\n".join(lines))
    assert run("store", "insert", path, files / "rows.csv", "--atomic", "--skip", "2999").code == 0  # learns
    assert run("store", "delete", path, "r2999").code == 0
    done = run("store", "insert", path, bad, "--batch", "500", "--atomic")
    assert done.code == 2
    assert "line 2501" in done.err
    assert done.err.endswith("; nothing was inserted\n")
    assert count(path) == 0
    done = run("store", "insert", path, bad, "--batch", "500")
    assert done.code == 2
    assert done.err.endswith("; 2,000 rows were inserted before; to go on: --skip 2000\n")
    assert count(path) == 2000
    lines[2500] = whole
    bad.write_text("\n".join(lines))
    done = run("store", "insert", path, bad, "--batch", "300", "--skip", "2000", "--json")
    assert done.json["n_inserted"] == 1000
    assert count(path) == 3000


def test_what_cannot_be_is_refused(store, files, run, tmp_path):
    rows = files / "rows.parquet"
    for arguments, message in [
        (["init", store, *LEARN], "exists; a new store needs a name of its own"),
        (["init", tmp_path / "no" / "s", *LEARN], "there is no folder"),
        (["insert", store, rows], "id 'r0' of row 0 (counting from 0) is here already"),
        (["insert", store, files / "numbers.csv"], "'age'"),
        (["insert", tmp_path / "absent", rows], "there is no such file"),
        (["insert", rows, rows], "is not a store"),
        (["delete", store], "name ids, or a file"),
        (["delete", store, "r1", "--ids-from", "-"], "one of the two"),
        (["delete", store, "r1", "nobody"], "id 'nobody' is not here"),
        (["delete", store, "--ids-from", rows], "has 5 columns; pass a file with one"),
        (["set-outliers", store, "5000"], "5000"),
        (["coreset", store, "-o", store], "must end in .parquet"),
        (["recover", store, "-o", store], "is a file that is read"),
    ]:
        done = run("store", *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert message in done.err, arguments
        assert done.err.count("\n") == 1
        assert not done.err.startswith(("duramen: '", 'duramen: "'))  # as str(KeyError) would
    assert count(store) == 3000


def test_a_second_writer_is_told_who_the_first_is(store, files, run):
    with open_store(store):
        done = run("store", "delete", store, "r1")
        assert done.code == 2
        assert "pid" in done.err or "process" in done.err
        assert run("store", "stats", store).code == 0  # readers are many


def test_damage_is_named_and_what_can_be_saved_is(store, run, tmp_path):
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    raw = bytearray(store.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.duramen"
    damaged.write_bytes(raw)
    done = run("store", "check", damaged)
    assert (done.code, done.out) == (2, "")
    assert "is damaged" in done.err
    assert done.err.count("\n") == 1
    done = run("store", "recover", damaged, "-o", tmp_path / "saved.duramen", "--json")
    assert done.code == 0, done.err
    conforms(done.json)
    assert done.json["n_points"] == count(tmp_path / "saved.duramen")
    assert done.json["n_points"] + (done.json["n_lost"] or 0) <= 3000
    assert done.json["n_points"] > 0
    assert done.json["problems"]
    assert run("store", "check", tmp_path / "saved.duramen").code == 0


def test_recovery_through_the_real_entry_point(store, tmp_path):
    done = process("store", "recover", store.name, "-o", "saved.duramen", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    conforms(done.json)
    done = process("store", "check", "saved.duramen", cwd=tmp_path)
    assert done.code == 0
    assert "every checksum" in done.out
    again = process("store", "recover", store.name, "-o", "saved.duramen", cwd=tmp_path)
    assert (again.code, again.err.count("\n")) == (2, 1)
