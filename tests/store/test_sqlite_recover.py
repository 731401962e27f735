"""What SQLite's ``.recover`` saves of a damaged store opens if it is complete, and is refused clearly if not."""

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

import duramen as dm
from tests.store.life import Life, held, make, perform

PAGE = 4096
PRAGMAS = ("page_size", "auto_vacuum", "user_version", "application_id")


@pytest.fixture(scope="module", params=["ranked, names", "tree"])
def store(request, tmp_path_factory):
    """Make a store, and return its path and what is in it."""
    path, life = tmp_path_factory.mktemp("life") / "a.duramen", Life.of(request.param, 0)
    with make(path, request.param) as made:
        perform([life.inserted(life.rng(), 1500)], made)
        made.delete(made.ids[::7])
        made.note("who", "me")
        made.compact()
        return path, held(made)


def recovered(source, target):
    """Write a database as the shell does: its pragmas, its tables, their rows, and what belongs to none."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new, new:
        for name in PRAGMAS:
            new.execute(f"PRAGMA {name} = {old.execute(f'PRAGMA {name}').fetchone()[0]}")
        tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        for name, statement in old.execute(tables).fetchall():
            new.execute(statement)
            rows = old.execute(f"SELECT * FROM {name}").fetchall()
            if rows:
                new.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        new.execute("CREATE TABLE lost_and_found (rootpgno INTEGER, pgno INTEGER, c0)")


def assert_opens(path, there):
    with dm.open_store(path, read_only=True) as reader:
        assert reader.check()
        assert held(reader) == there
    with dm.open_store(path) as store:
        store.delete(store.ids[:3])
        store.compact()
        assert store.check()


def test_what_was_saved_whole_opens(store, tmp_path):
    path, there = store
    recovered(path, tmp_path / "saved")
    assert_opens(tmp_path / "saved", there)


@pytest.mark.parametrize(
    "statement, message",
    [
        (
            "DELETE FROM blocks WHERE number = (SELECT min(number) FROM blocks)",
            "the blocks have {'n_points': ",
        ),
        ("DELETE FROM blocks", "the blocks have {'n_points': "),
        ("DELETE FROM facts WHERE name = 'anchor'", "its metadata lack"),
        ("DELETE FROM facts", "its metadata lack"),
        ("DELETE FROM sample WHERE id = (SELECT max(id) FROM sample)", "the anchor's sample is incomplete"),
        ("DROP TABLE members", "no such table: members"),
    ],
)
def test_what_was_saved_in_part_is_refused(store, tmp_path, statement, message):
    saved = tmp_path / "saved"
    recovered(store[0], saved)
    with closing(sqlite3.connect(saved)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(dm.DamagedStoreError) as caught, dm.open_store(saved) as opened:
        opened.check()
    assert f"{saved} is damaged: {message}" in str(caught.value)
    assert '; restore a backup, or try `sqlite3 saved ".recover"' in str(caught.value)


def test_the_advice_works(store, tmp_path):
    """An index and the list of free pages are lost: all rows are saved."""
    shell = shutil.which("sqlite3")
    if not shell:
        pytest.skip("needs the shell of SQLite")
    path, there = store
    damaged, saved = tmp_path / "damaged", tmp_path / "saved"
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_facts%'"
        start = (connection.execute(query).fetchone()[0] - 1) * PAGE
    content = bytearray(path.read_bytes())
    content[start : start + PAGE] = b"\xff" * PAGE
    damaged.write_bytes(content)
    with (
        dm.open_store(damaged, read_only=True) as store,
        pytest.raises(dm.DamagedStoreError, match="recover"),
    ):
        store.check()
    found = subprocess.run([shell, damaged, ".recover"], capture_output=True)
    if found.returncode or b"CREATE TABLE" not in found.stdout:
        pytest.skip("this shell was built without .recover")
    subprocess.run([shell, saved], input=found.stdout, check=True)
    assert_opens(saved, there)
