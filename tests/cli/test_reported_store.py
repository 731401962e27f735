"""Defects that were reported of stores: each test failed before its mending."""

import io

import numpy as np
import pyarrow as pa
import pytest

from duramen.store import open_store
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import numbers, table, write

KEYED = ("--loss", "squared", "--label", "value", "--features", "a,b", "--id", "key", "--size", "200")


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


@pytest.mark.parametrize("first", ["100", "7", "0"])
def test_an_id_in_the_place_of_a_header_is_not_passed_over(keyed, run, tmp_path, first):
    (tmp_path / "gone.csv").write_text(f"{first}\n101\n102\n")
    done = run("store", "delete", keyed, "--ids-from", tmp_path / "gone.csv")
    assert done.code == 2
    assert f"its first line, '{first}', is an id and no header" in done.err
    assert len(ids_in(keyed)) == 3000
    (tmp_path / "gone.csv").write_text("key\n101\n102\n")
    assert run("store", "delete", keyed, "--ids-from", tmp_path / "gone.csv").code == 0
    assert ids_in(keyed) == set(range(100, 3100)) - {101, 102}


def test_a_name_in_the_place_of_a_header_is_not_passed_over(store, run, tmp_path):
    (tmp_path / "gone.csv").write_text("r1\nr2\n")
    done = run("store", "delete", store, "--ids-from", tmp_path / "gone.csv")
    assert (done.code, "its first line, 'r1', is an id and no header" in done.err) == (2, True)
    (tmp_path / "gone.csv").write_text("7\nr2\n")  # no id here: a header as good as any
    assert run("store", "delete", store, "--ids-from", tmp_path / "gone.csv").code == 0


@pytest.mark.parametrize("one", ["1_00", "\u0661\u0660\u0660", "0100", "+100", "1e2", "100.0", " 100"])
def test_ids_are_plain_whole_numbers(keyed, run, one):
    done = run("store", "delete", keyed, one)
    assert (done.code, done.err) == (
        2,
        f"duramen: id {one!r} is no plain whole number, as ids are in this store\n",
    )
    assert len(ids_in(keyed)) == 3000


@pytest.mark.parametrize("suffix", ["pq", "parq", "arrows", "tab", "txt", "dat"])
def test_ids_from_any_file(keyed, run, tmp_path, suffix):
    path, ids = tmp_path / f"gone.{suffix}", pa.table({"key": [100, 101]})
    if suffix == "txt":
        path.write_bytes("\ufeff100\r\n\r\n101\r\n".encode())
    elif suffix == "tab":
        path.write_text("key\n100\n101\n")
    elif suffix == "arrows":
        with pa.ipc.new_stream(path, ids.schema) as file:
            file.write_table(ids)
    else:
        write(ids, tmp_path / "gone.parquet").rename(path)
    assert run("store", "delete", keyed, "--ids-from", path)[::2] == (0, "")
    assert ids_in(keyed) == set(range(102, 3100))


def test_ids_from_standard_input(keyed, run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff100\n101\n"))
    assert run("store", "delete", keyed, "--ids-from", "-").code == 0
    assert ids_in(keyed) == set(range(102, 3100))


def test_a_file_without_ids_is_named(keyed, run, tmp_path):
    path = tmp_path / "gone.csv"
    path.write_text("key\n100\nNA\n")
    assert (
        f"{path}: column 'key' has no value in line 3"
        in run("store", "delete", keyed, "--ids-from", path).err
    )
    write(pa.table({"key": [100.0]}), tmp_path / "gone.parquet")
    done = run("store", "delete", keyed, "--ids-from", tmp_path / "gone.parquet")
    assert "gone.parquet: the id 'key' holds numbers; ids are whole numbers or text" in done.err
    (tmp_path / "gone.bin").write_bytes(b"\xff\xfe1\x00")
    done = run("store", "delete", keyed, "--ids-from", tmp_path / "gone.bin")
    assert "is neither a table nor UTF-8 text" in done.err
    assert len(ids_in(keyed)) == 3000


def test_a_store_that_is_empty_again_still_has_names(run, tmp_path):
    store, rows = tmp_path / "s.duramen", table(40)
    assert run("store", "init", store, *LEARN, *SMALL).code == 0
    assert run("store", "insert", store, write(rows, tmp_path / "rows.parquet")).code == 0
    assert run("store", "delete", store, *rows["name"].to_pylist()).code == 0
    assert "whole number" not in run("store", "delete", store, "r1").err


def test_a_bad_row_can_be_skipped(keyed, run, tmp_path):
    rows = numbers().slice(0, 20)
    value = rows["a"].to_numpy().copy()
    value[5] = np.nan
    rows = rows.set_column(1, "a", pa.array(value)).set_column(0, "key", pa.array(np.arange(5000, 5020)))
    path = write(rows, tmp_path / "bad.parquet")
    done = run("store", "insert", keyed, path)
    assert "has no value in row 5" in done.err
    assert done.err.endswith("these are options of duramen store init\n")
    assert run("store", "insert", keyed, path, "--skip", "6", "--json").json["n_inserted"] == 14
    assert ids_in(keyed) == {*range(100, 3100), *range(5006, 5020)}


@pytest.mark.parametrize("skip", [0, 3])
def test_nothing_to_insert_is_said(keyed, run, tmp_path, skip):
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
    assert "2,560 rows were inserted before; to go on: --skip 2560" in done.err


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_a_label_that_the_loss_refuses_is_named_by_its_place(run, tmp_path, loss):
    rows = numbers()
    y = rows["two"].to_numpy().copy()
    good = write(rows.select(["a", "b"]).append_column("y", pa.array(y)), tmp_path / "good.parquet")
    y[2900] = -7
    bad = write(rows.select(["a", "b"]).append_column("y", pa.array(y)), tmp_path / "bad.parquet")
    store = tmp_path / "s.duramen"
    assert run("store", "init", store, "--loss", loss, "--label", "y", "--from", good).code == 0
    assert run("store", "insert", store, good).code == 0
    done = run("store", "insert", store, bad, "--batch", "512")
    assert done.code == 2
    assert "row 2900 (counting from 0) has -7" in done.err


def test_options_of_another_command_are_told_as_such(run, files, tmp_path):
    store = tmp_path / "s.duramen"
    assert run("store", "init", store, "--loss", "logistic", "--label", "ill").code == 0
    done = run("store", "insert", store, files / "rows.parquet")
    assert done.code == 2
    assert "(--one-hot name), use it as the ids (--id name)" in done.err
    assert done.err.endswith("these are options of duramen store init\n")
