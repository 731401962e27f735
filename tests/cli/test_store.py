"""Stores on the command line: what every command does, refuses, and prints as JSON."""

import sqlite3
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import duramen as dm
from duramen.cli.commands import encoding_in
from duramen.store import open_store
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import Done, conforms, numbers, process, table
from tests.io.files import write
from tests.support import assert_identical_coreset

KEYED = (
    *("--loss", "squared", "--label", "value", "--features", "a,b"),
    *("--id", "key", "--weight", "heavy", "--size", "200"),
)


@pytest.fixture
def keyed(files, run, tmp_path):
    """A store whose ids are numbers: 100 to 3099."""
    made = tmp_path / "k.duramen"
    assert run("store", "init", made, *KEYED, "--quiet").code == 0
    assert run("store", "insert", made, files / "numbers.parquet", "--quiet").code == 0
    return made


def ids_in(path):
    with open_store(path, read_only=True) as store:
        return set(store.ids.tolist())


def count(path):
    return len(ids_in(path))


def test_through_the_real_entry_point(store, tmp_path):
    done = process(
        "store", "delete", store, "--ids-from", "-", "--json", cwd=tmp_path, stdin="\ufeffr8\nr9\n\n"
    )
    assert (done.code, done.err, done.json["n_deleted"]) == (0, "", 2)


def test_the_life_of_a_store(files, run, tmp_path, monkeypatch):
    def duramen(*words):
        done = run("store", *words, "--json")
        assert (done.code, done.err) == (0, ""), done
        conforms(done.json)
        return done.json

    monkeypatch.chdir(tmp_path)
    rows = files / "rows.parquet"
    write(table().slice(100, 3).set_column(1, "age", pa.array([1.0, 2.0, 3.0])), tmp_path / "corrected.csv")
    assert not duramen("init", "s.duramen", *LEARN, *SMALL, "--audit")["learned"]
    assert duramen("insert", "s.duramen", rows, "--batch", "1000")["n_inserted"] == 3000
    assert duramen("delete", "s.duramen", "r5", "r7")["n_points"] == 2998
    assert duramen("delete", "s.duramen", "r8", "r9")["n_deleted"] == 2
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
    saved = dm.load_coreset(tmp_path / "core.parquet")
    assert_identical_coreset(replace(again, columns=saved.columns), saved)
    assert saved.columns == encoding_in(saved.metadata).names


def test_fit_of_a_store_is_that_of_its_coreset(store, run, tmp_path):
    assert run("store", "coreset", store, "-o", tmp_path / "c.parquet").code == 0
    of_core, of_store = run("fit", tmp_path / "c.parquet", "--json").json, run("fit", store, "--json").json
    differ = {name for name in of_core if of_core[name] != of_store[name]}
    assert differ <= {"source", "kind", "seconds"}
    assert of_store["kind"] == "store"
    assert all(one["id"].startswith("r") for one in of_store["set_aside"])


def test_a_store_learns_what_is_noise_unless_it_is_told(files, run, tmp_path):
    path, rows = tmp_path / "auto.duramen", files / "rows.parquet"
    made = run("store", "init", path, *LEARN, "--size", "400", "--json").json
    assert made["loss"] == "ContaminatedLoss(base=LogisticLoss(fit_intercept=True))"
    assert run("store", "insert", path, rows).code == 0
    with open_store(path, read_only=True) as store:
        assert not store.loss.measured  # its anchor is
        assert "distance" in store.anchor.frozen
        core = store.coreset()
    assert run("store", "coreset", path, "-o", tmp_path / "c.parquet").code == 0
    saved = dm.load_coreset(tmp_path / "c.parquet")
    np.testing.assert_array_equal(saved.loss.frame, core.loss.frame)
    fitted = run("fit", path, "-o", tmp_path / "m.json", "--json").json
    assert 0 < fitted["noise_share"] < 0.2
    assert run("predict", tmp_path / "m.json", rows, "-o", tmp_path / "p.csv").code == 0
    assert run("store", "delete", path, "r8", "r9").code == 0
    assert run("store", "reanchor", path).code == 0
    assert run("store", "check", path).code == 0
    assert run("report", path, "-o", tmp_path / "r.html").code == 0


def test_output_for_people(store, run):
    stats = run("store", "stats", store).out
    assert "total weight      3,000" in stats
    assert "reanchor()" not in stats
    assert "every invariant holds" in run("store", "check", store).out
    assert "1 row deleted" in run("store", "delete", store, "r1").out
    assert "id r1, time" in run("store", "history", store).out
    assert run("store", "delete", store, "r2", "--quiet") == Done(0, "", "")


def test_rows_that_the_store_numbers_itself(files, run, refuse, tmp_path):
    path, source = tmp_path / "s.duramen", files / "numbers.parquet"
    assert run("store", "init", path, "--loss", "squared", "--label", "value", "--features", "a,b").code == 0
    for _ in range(2):
        assert run("store", "insert", path, source).code == 0
    with open_store(path, read_only=True) as store:
        np.testing.assert_array_equal(store.ids, np.arange(6000))
    write(numbers().slice(0, 1), tmp_path / "one.parquet")
    error = refuse("store", "update", path, tmp_path / "one.parquet")
    assert "numbered its rows itself; name the column of ids of the file with --id" in error
    assert run("store", "update", path, tmp_path / "one.parquet", "--id", "key").code == 0
    with open_store(path, read_only=True) as store:
        np.testing.assert_array_equal(store.points([100]).X, store.points([0]).X)


def test_columns_learned_when_it_is_made(files, run, refuse, tmp_path):
    path = tmp_path / "s.duramen"
    learn = ("--loss", "softmax", "--label", "three", "--features", "a,b", "--size", "200")
    message = "duramen: --loss softmax needs the number of classes here; pass --classes\n"
    assert refuse("store", "init", path, *learn) == message
    assert not path.exists()
    assert run("store", "init", path, *learn, "--from", files / "numbers.csv", "--json").json["learned"]
    one_class = numbers().filter(pa.array(np.array(numbers()["three"]) == 2))
    assert run("store", "insert", path, write(one_class, tmp_path / "two.parquet")).code == 0
    with open_store(path, read_only=True) as store:
        assert store.loss == dm.ContaminatedLoss(dm.SoftmaxLoss(3))
        assert set(store.points().y) == {1.0}  # classes 1, 2 and 3 are 0, 1 and 2 inside


def test_a_bad_row_says_how_many_rows_are_in(files, run, refuse, tmp_path):
    path, bad = tmp_path / "s.duramen", tmp_path / "bad.csv"
    assert run("store", "init", path, *LEARN, *SMALL).code == 0
    lines = (files / "rows.csv").read_text().splitlines()
    whole = lines[2500]
    lines[2500] = whole.replace('"red"', "").replace('"blue"', "").replace('"green"', "")
    bad.write_text("\n".join(lines))
    assert run("store", "insert", path, files / "rows.csv", "--atomic", "--skip", "2999").code == 0  # learns
    assert run("store", "delete", path, "r2999").code == 0
    error = refuse("store", "insert", path, bad, "--batch", "500", "--atomic")
    assert "line 2501" in error
    assert error.endswith("; nothing was inserted\n")
    assert count(path) == 0
    error = refuse("store", "insert", path, bad, "--batch", "500")
    assert error.endswith("; 2,000 rows were inserted before; continue with --skip 2000\n")
    assert count(path) == 2000
    lines[2500] = whole
    bad.write_text("\n".join(lines))
    done = run("store", "insert", path, bad, "--batch", "300", "--skip", "2000", "--json")
    assert done.json["n_inserted"] == 1000
    assert count(path) == 3000


def test_wrong_arguments_are_refused(store, files, refuse, tmp_path):
    rows = files / "rows.parquet"
    for arguments, message in [
        (["init", store, *LEARN], "already exists; choose another name"),
        (["init", tmp_path / "no" / "s", *LEARN], "there is no folder"),
        (["insert", store, rows], "id 'r0' of row 0 (counting from 0) is here already"),
        (["insert", store, files / "numbers.csv"], "'age'"),
        (["insert", tmp_path / "absent", rows], "there is no store"),
        (["insert", rows, rows], "is not a store"),
        (["delete", store], "pass either ids, or a file of ids with --ids-from"),
        (["delete", store, "r1", "--ids-from", "-"], "pass either ids, or a file"),
        (["delete", store, "r1", "unknown"], "id 'unknown' is not here"),
        (["delete", store, "--ids-from", rows], "has 5 columns; pass a file with one"),
        (["set-outliers", store, "5000"], "5000"),
        (["coreset", store, "-o", store], "must end in .parquet"),
    ]:
        error = refuse("store", *arguments)
        assert message in error
        assert not error.startswith(("duramen: '", 'duramen: "'))  # as str(KeyError) would
    assert count(store) == 3000


def test_a_second_writer_learns_which_process_is_the_first(store, files, run, refuse):
    with open_store(store):
        assert "process" in refuse("store", "delete", store, "r1")
        assert run("store", "stats", store).code == 0  # readers are many


def test_damage_is_named_with_the_way_out(store, refuse, tmp_path):
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    raw = bytearray(store.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.duramen"
    damaged.write_bytes(raw)
    error = refuse("store", "check", damaged)
    assert "is damaged" in error
    assert 'restore a backup, or try `sqlite3 damaged.duramen ".recover"' in error


@pytest.mark.parametrize("first", ["100", "7", "0"])
def test_an_id_in_the_place_of_a_header_is_not_passed_over(keyed, run, refuse, tmp_path, first):
    (tmp_path / "gone.csv").write_text(f"{first}\n101\n102\n")
    error = refuse("store", "delete", keyed, "--ids-from", tmp_path / "gone.csv")
    assert f"its first line, '{first}', is an id, not a header" in error
    assert len(ids_in(keyed)) == 3000
    (tmp_path / "gone.csv").write_text("key\n101\n102\n")
    assert run("store", "delete", keyed, "--ids-from", tmp_path / "gone.csv").code == 0
    assert ids_in(keyed) == set(range(100, 3100)) - {101, 102}


def test_a_name_in_the_place_of_a_header_is_not_passed_over(store, run, refuse, tmp_path):
    (tmp_path / "gone.csv").write_text("r1\nr2\n")
    error = refuse("store", "delete", store, "--ids-from", tmp_path / "gone.csv")
    assert "its first line, 'r1', is an id, not a header" in error
    (tmp_path / "gone.csv").write_text("7\nr2\n")  # no id here: a header as good as any
    assert run("store", "delete", store, "--ids-from", tmp_path / "gone.csv").code == 0


@pytest.mark.parametrize("one", ["1_00", "\u0661\u0660\u0660", "0100", "+100", "1e2", "100.0", " 100", "r3"])
def test_ids_are_plain_whole_numbers(keyed, refuse, one):
    message = f"duramen: id {one!r} is not a plain whole number, and this store has integer ids\n"
    assert refuse("store", "delete", keyed, one) == message
    assert len(ids_in(keyed)) == 3000


@pytest.mark.parametrize("suffix", ["csv", "pq", "parq", "arrows", "tab", "txt", "dat"])
def test_ids_from_any_file(keyed, run, tmp_path, suffix):
    path, ids = tmp_path / f"gone.{suffix}", pa.table({"key": [100, 101]})
    if suffix == "txt":
        path.write_bytes("\ufeff100\r\n\r\n101\r\n".encode())
    elif suffix in ("csv", "tab"):
        path.write_text("key\n100\n101\n")
    elif suffix == "arrows":
        write(ids, path)
    else:
        write(ids, tmp_path / "gone.parquet").rename(path)
    assert run("store", "delete", keyed, "--ids-from", path)[::2] == (0, "")
    with open_store(keyed, read_only=True) as store:
        assert set(store.ids.tolist()) == set(range(102, 3100))
        assert store.total_weight == pytest.approx(np.sum(numbers()["heavy"].to_numpy()[2:]))


def test_a_file_without_ids_is_named(keyed, refuse, tmp_path):
    path = tmp_path / "gone.csv"
    path.write_text("key\n100\nNA\n")
    (tmp_path / "gone.bin").write_bytes(b"\xff\xfe1\x00")
    write(pa.table({"key": [100.0]}), tmp_path / "gone.parquet")
    for name, message in [
        ("gone.csv", f"{path}: column 'key' has no value in line 3"),
        ("gone.parquet", "gone.parquet: column 'key' holds numbers; ids are whole numbers or text"),
        ("gone.bin", "is not a plain whole number"),
    ]:
        assert message in refuse("store", "delete", keyed, "--ids-from", tmp_path / name)
    assert len(ids_in(keyed)) == 3000


def test_a_store_that_is_empty_again_still_has_names(run, tmp_path):
    store, rows = tmp_path / "s.duramen", table(40)
    assert run("store", "init", store, *LEARN, *SMALL).code == 0
    assert run("store", "insert", store, write(rows, tmp_path / "rows.parquet")).code == 0
    assert run("store", "delete", store, *rows["name"].to_pylist()).code == 0
    assert "whole number" not in run("store", "delete", store, "r1").err


@pytest.mark.parametrize("skip", [0, 3])
def test_nothing_to_insert_is_a_warning(keyed, run, tmp_path, skip):
    rows = numbers().slice(0, skip)
    done = run("store", "insert", keyed, write(rows, tmp_path / "none.csv"), "--skip", skip, "--json")
    assert (done.code, done.json["n_inserted"]) == (0, 0)
    assert "nothing was inserted" in done.err
    assert len(done.json["warnings"]) == 1


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_row_that_the_store_refuses_is_named_by_its_place_in_the_file(keyed, run, tmp_path, suffix):
    rows = numbers().set_column(0, "key", pa.array(np.r_[np.arange(5000, 7900), 150, np.arange(7901, 8000)]))
    path = write(rows, tmp_path / f"rows.{suffix}")
    done = run("store", "insert", keyed, path, "--batch", "512")
    place = "row 2900 (counting from 0)" if suffix == "parquet" else "line 2902 (row 2900, counting from 0)"
    assert f"id 150 of {place} is here already" in done.err
    assert "2,560 rows were inserted before; continue with --skip 2560" in done.err


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_a_label_that_the_loss_refuses_is_named_by_its_place(run, refuse, tmp_path, loss):
    rows = numbers()
    y = rows["two"].to_numpy().copy()
    good = write(rows.select(["a", "b"]).append_column("y", pa.array(y)), tmp_path / "good.parquet")
    y[2900] = -7
    bad = write(rows.select(["a", "b"]).append_column("y", pa.array(y)), tmp_path / "bad.parquet")
    store = tmp_path / "s.duramen"
    assert run("store", "init", store, "--loss", loss, "--label", "y", "--from", good).code == 0
    assert run("store", "insert", store, good).code == 0
    assert "row 2900 (counting from 0) has -7" in refuse("store", "insert", store, bad, "--batch", "512")


def test_options_of_another_command_are_marked_as_such(run, refuse, files, tmp_path):
    store = tmp_path / "s.duramen"
    assert run("store", "init", store, "--loss", "logistic", "--label", "ill").code == 0
    error = refuse("store", "insert", store, files / "rows.parquet")
    assert "(--one-hot name), use it as the ids (--id name)" in error


def test_a_first_file_of_one_class_does_not_lock_a_store(run, tmp_path):
    store, rows = tmp_path / "s.duramen", table(60)
    assert run("store", "init", store, *LEARN, *SMALL).code == 0
    yes = write(rows.filter(pa.compute.equal(rows["ill"], "yes")), tmp_path / "yes.parquet")
    assert run("store", "insert", store, yes).code == 2
    assert run("store", "insert", store, write(rows, tmp_path / "all.parquet")).code == 0


def test_a_backup_is_a_store_as_of_one_moment(store, run, refuse, tmp_path):
    copy = tmp_path / "copy.duramen"
    with open_store(store) as live:  # a writer has it open
        done = run("store", "backup", store, copy, "--json")
        assert (done.code, done.err) == (0, "")
        conforms(done.json)
        assert (done.json["n_points"], done.json["n_bytes"]) == (3000, copy.stat().st_size)
        live.delete(["r1"])
    assert count(copy) == 3000
    assert run("store", "check", copy).code == 0
    assert "copy.duramen already exists; choose another name" in refuse("store", "backup", store, copy)
    assert "is one of the inputs" in run("store", "backup", store, store).err
