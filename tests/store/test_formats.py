"""Files of every format that there was are read, and brought up to date or left exactly as they are.

The files in ``fixtures`` were written once, by :func:`make`, and must never be
written again: they are what users have. A new format gets a new file.
"""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from duramen.store import file as schema
from tests.store.support import ids_in_tables, left_in_files
from tests.support import quietly

FIXTURES = Path(__file__).parent / "fixtures"
FORMATS = (1, 2)


def make(form, folder=FIXTURES):
    """Write the fixture of a format, and beside it what is in it: run once for each.

    Format 1 had no fact "history" and no table "spare".
    """
    path = folder / f"format-{form}.duramen"
    rng = np.random.default_rng(form)
    settings = {"loss": dm.LogisticLoss(), "size": 20, "n_outliers": 0.05, "audit": True}
    with dm.open_store(path, create=True, random_state=form, **settings) as store:
        X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
        names = [f"Käufer {number}" for number in range(60)]
        quietly(store.insert, X, y, rng.uniform(0.5, 2, 60), names)
        store.delete(names[:5])
        store.update(names[7], X[0])
        store.note("encoding", {"names": ["a", "b", "c"]})
        store.compact()
        expected = content(store)
    if form == 1:
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("DELETE FROM facts WHERE name = 'history'")
            connection.execute("DROP TABLE spare")
            connection.execute("PRAGMA user_version = 1")
            connection.execute("VACUUM")
        connection.close()
    path.with_suffix(".json").write_text(json.dumps(expected, indent=1))


@pytest.fixture(params=FORMATS)
def kept(request, tmp_path):
    """Return a copy of a file of each format, and what is in it."""
    original = FIXTURES / f"format-{request.param}.duramen"
    path = tmp_path / "kept.duramen"
    shutil.copyfile(original, path)
    return request.param, path, json.loads(original.with_suffix(".json").read_text())


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.duramen"
    shutil.copyfile(FIXTURES / "format-1.duramen", path)
    return path


def form_of(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return form


def content(store):
    """Return what is in a store, as JSON holds it."""
    points, core = store.points(), quietly(store.coreset)
    return {
        "ids": store.ids.tolist(),
        "names": store.names_of(store.ids).tolist(),
        "X": points.X.tolist(),
        "y": points.y.tolist(),
        "weights": points.weights.tolist(),
        "coreset": {"ids": core.ids.tolist(), "weights": core.weights.tolist()},
        "threshold": store.threshold,
        "theta": store.anchor.theta.tolist(),
        "notes": store.notes,
        "forgotten": [list(one) for one in store.forgotten],
        "history": [list(event) for event in store.history],
    }


def assert_holds(store, expected):
    found = content(store)
    for name in ("ids", "names", "X", "y", "weights", "theta", "notes", "forgotten"):
        assert found[name] == expected[name], name
    assert found["coreset"]["ids"] == expected["coreset"]["ids"]
    np.testing.assert_allclose(found["coreset"]["weights"], expected["coreset"]["weights"], rtol=1e-9)
    np.testing.assert_allclose(found["threshold"], expected["threshold"], rtol=1e-9)


def test_there_is_a_file_of_every_format():
    assert tuple(range(1, schema.FORMAT + 1)) == FORMATS
    for form in FORMATS:
        path = FIXTURES / f"format-{form}.duramen"
        assert form_of(path) == form
        assert path.stat().st_size < 200_000


def test_every_format_opens_with_all_that_is_in_it(kept):
    form, path, expected = kept
    assert form_of(path) == form
    for _ in range(2):
        with dm.open_store(path) as store:
            assert_holds(store, expected)
            store.check()
            if form > 1:
                assert [list(event) for event in store.history] == expected["history"]
        assert form_of(path) == schema.FORMAT
    with dm.open_store(path, read_only=True) as store:
        assert_holds(store, expected)
    with dm.open_store(path) as store:
        quietly(store.insert, [[1.0, 2.0, 3.0]], [1], ids=["new"])
        store.delete(expected["names"][0])
        quietly(store.reanchor)
        store.compact()
    with dm.open_store(path) as store:
        assert len(store) == len(expected["ids"])
        assert store.history[-1].what == "found again"
        store.check()


@pytest.mark.parametrize("form", FORMATS)
def test_what_version_0_1_copied_into_a_spare_table_is_erased(tmp_path, form):
    path, secret = tmp_path / "old.duramen", os.urandom(3000).hex()
    shutil.copyfile(FIXTURES / f"format-{form}.duramen", path)
    expected = json.loads((FIXTURES / f"format-{form}.json").read_text())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE IF EXISTS spare")
        connection.execute(
            "CREATE TABLE spare (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL)"
        )
        connection.execute("INSERT INTO spare VALUES ('spare-state', ?, 7)", [secret])
    assert left_in_files(tmp_path, [secret.encode()])
    for _ in range(2):
        with dm.open_store(path) as store:
            assert left_in_files(tmp_path, [secret.encode()]) == []
            assert_holds(store, expected)
            store.check()
            store.compact()
    assert "spare" not in ids_in_tables(path)


def test_the_history_of_format_1_begins_with_the_anchor_it_had(old):
    with dm.open_store(old) as store:
        (event,) = store.history
        assert event.what == "kept by an older version"
        assert event.radius == store.anchor.radius
        assert (event.n_points, event.moved) == (None, None)


def test_a_reader_says_what_to_do_and_changes_nothing(old):
    before = old.read_bytes()
    with pytest.raises(ValueError, match="has an older format; open it once for writing, ") as caught:
        dm.open_store(old, read_only=True)
    ways = "dm.open_store(path) or duramen store compact"
    assert f"{ways}, which brings it to format {schema.FORMAT}" in str(caught.value)
    assert str(old) in str(caught.value)
    assert not isinstance(caught.value, dm.DamagedStoreError)
    assert old.read_bytes() == before
    dm.open_store(old).close()
    dm.open_store(old, read_only=True).close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(old, monkeypatch):
    before = old.read_bytes()
    migrate = schema.StoreFile._migrate

    def fail(file):
        migrate(file)
        raise RuntimeError("in the middle")

    monkeypatch.setattr(schema.StoreFile, "_migrate", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        dm.open_store(old)
    assert old.read_bytes() == before
    assert [path.name for path in old.parent.iterdir()] == [old.name]
    monkeypatch.undo()
    with dm.open_store(old) as store:
        assert_holds(store, json.loads((FIXTURES / "format-1.json").read_text()))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_format_is_refused(tmp_path, read_only):
    path = tmp_path / "new.duramen"
    shutil.copyfile(FIXTURES / f"format-{schema.FORMAT}.duramen", path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is newer than this library reads") as caught:
        dm.open_store(path, read_only=read_only)
    assert str(caught.value) == (
        f"{path}: format {schema.FORMAT + 1} is newer than this library reads ({schema.FORMAT}); upgrade duramen"
    )
    assert path.read_bytes() == before
