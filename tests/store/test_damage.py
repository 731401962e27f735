"""Damage of any kind, anywhere: an error that names the file, or the right answer; never a wrong one, nor a hang."""

import faulthandler
import pickle
import sqlite3
import struct
from collections import Counter

import numpy as np
import pytest

import duramen as dm
from tests.coreset.cores import logistic_core
from tests.store import damage
from tests.store.damage import PAGE, answers, tried
from tests.support import assert_identical_coreset, quietly

TRIES = 24  # of each kind of damage to each kind of store: 1,008 in all
FEW = 2  # the same, where time is short
SECONDS = 300  # after which a test hangs


class UnpickledError(BaseException):
    """Nothing catches it."""


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """End what hangs, and unpickle nothing."""

    def refuse(*args, **kwargs):
        raise UnpickledError

    for name in ("load", "loads"):
        monkeypatch.setattr(pickle, name, refuse)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module", params=damage.KINDS)
def case(request, tmp_path_factory):
    return damage.case(tmp_path_factory.mktemp("damage") / "data.duramen", request.param)


def put(judge, data):
    damage.clear(judge.path)
    judge.path.write_bytes(data)


def edited(judge, data, *statements):
    """Change tables behind the library's back."""
    put(judge, data)
    with sqlite3.connect(judge.path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_the_judge_sees_wrong_answers(case):
    data, _, judge = case
    put(judge, data)
    assert judge.verdict() == "right"
    put(judge, data)
    with dm.open_store(judge.path) as store:
        store.note("one", "more")
    with pytest.raises(AssertionError, match="a wrong answer"):
        judge.verdict()
    put(judge, b"SQLite format 2" + data[15:])
    assert judge.verdict() == "error"


@pytest.mark.parametrize("tries", [FEW, pytest.param(TRIES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", damage.ANY + damage.STRUCTURE + damage.PAGES, ids=lambda how: how.__name__)
def test_damage_by_chance(case, how, tries):
    data, old, judge = case
    rng = np.random.default_rng(sum(map(ord, how.__name__)))
    found = Counter(tried(data, old, judge, how, rng) for _ in range(tries))
    if tries == TRIES and how in (damage.cut, damage.cut_at_a_page, damage.swapped):
        assert found["error"] > tries / 2
    if how is damage.garbage_behind:
        assert found["right"] == tries


CHANGES = [
    "UPDATE members SET block = block + 1",
    "DELETE FROM members WHERE id = (SELECT min(id) FROM members)",
    "UPDATE members SET id = id + 1000003 WHERE id = (SELECT min(id) FROM members)",
    *(
        f"DELETE FROM facts WHERE name = '{name}'"
        for name in ("anchor", "given", "ledger", "settings", "state")
    ),
    *(f"DELETE FROM facts WHERE name = '{name}'" for name in ("notes", "history", "audit")),
    "UPDATE facts SET value = replace(value, '7', '8')",
    "UPDATE facts SET value = replace(value, '7', '8'), seal = seal + 1",
    "UPDATE facts SET value = CAST(value AS BLOB)",
    "DELETE FROM forgotten",
    "UPDATE forgotten SET time = 'long ago'",
    "UPDATE forgotten SET id = 7",
    "DELETE FROM sample WHERE id = (SELECT min(id) FROM sample)",
    "UPDATE sample SET id = id + 1 WHERE id = (SELECT max(id) FROM sample)",
    "UPDATE blocks SET n = n - 1",
    "UPDATE blocks SET n = 'many'",
    "UPDATE blocks SET number = number - 1",
    "UPDATE blocks SET content = substr(content, 1, length(content) - 8)",
    "UPDATE blocks SET content = CAST('text' AS TEXT)",
    "UPDATE blocks SET content = zeroblob(length(content))",
    "DELETE FROM blocks",
    "DELETE FROM places WHERE place = (SELECT max(place) FROM places)",
    "UPDATE places SET id = id + 1 WHERE place = 3",
    "UPDATE places SET id = 'x' WHERE place = 3",
    "UPDATE names SET name = CAST('speter' AS BLOB) WHERE id = (SELECT min(id) FROM names)",
    "UPDATE names SET name = 'text'",
    "UPDATE names SET name = X'FF'",
    "DELETE FROM names WHERE id = (SELECT min(id) FROM names)",
    "DELETE FROM names",
    *(
        f"DROP TABLE {table}"
        for table in ("facts", "blocks", "members", "names", "sample", "places", "forgotten")
    ),
    "CREATE TABLE other (a)",
    "PRAGMA user_version = 0",
    "PRAGMA application_id = 7",
]


@pytest.mark.parametrize("statement", CHANGES)
def test_tables_changed_behind_its_back(case, statement):
    data, _, judge = case
    edited(judge, data, statement)
    judge.verdict()


@pytest.mark.parametrize("table", ["facts", "blocks", "members", "names", "sample", "places", "forgotten"])
def test_one_table_as_it_was_before(case, table):
    data, old, judge = case
    before = judge.path.with_suffix(".old")
    before.write_bytes(old)
    copied = f"INSERT INTO {table} SELECT * FROM old.{table}"
    edited(judge, data, f"ATTACH '{before}' AS old", f"DELETE FROM {table}", copied)
    judge.verdict()


def test_an_index_of_facts_that_misses_one(case):
    data, _, judge = case
    put(judge, data)
    with sqlite3.connect(judge.path) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_facts_1'"
        start = (connection.execute(query).fetchone()[0] - 1) * PAGE
    connection.close()
    (n,) = struct.unpack_from(">H", data, start + 3)
    pointers = [slice(at, at + 2) for at in range(start + 8, start + 8 + 2 * n, 2)]
    for one, two in zip(pointers, pointers[1:] + pointers[:1], strict=True):
        harmed = bytearray(data)
        harmed[one] = harmed[two]
        put(judge, harmed)
        judge.verdict()


@pytest.mark.parametrize("what", ["delete", "update"])
def test_points_that_are_said_to_be_in_another_block(tmp_path, what):
    """Whose block is visited all the same, for another point."""
    path, X = tmp_path / "data.duramen", np.random.default_rng(0).normal(size=(1500, 4))
    with dm.open_store(path, create=True, loss=dm.KMeansLoss(2), size=50, random_state=0) as store:
        store.insert(X)
    with sqlite3.connect(path) as connection:
        last = connection.execute("SELECT max(block) FROM members").fetchone()
        assert last > (0,)
        connection.execute("UPDATE members SET block = ? WHERE id = 0", last)
    connection.close()
    with dm.open_store(path) as store:
        with pytest.raises(dm.DamagedStoreError, match=r"id 0 .* `sqlite3 data.duramen"):
            store.check()
        with pytest.raises(dm.DamagedStoreError, match="block"):
            store.delete([0, 1499]) if what == "delete" else store.update([0, 1499], X[:2] + 1)
        np.testing.assert_array_equal(store.points().X, X)
    with dm.open_store(path, read_only=True) as store:
        np.testing.assert_array_equal(store.points().X, X)


# the log


def with_a_log(path):
    """Make the file and the log of a store that was cut off, and all states that were committed to the log."""
    store = damage.made(path, "names")
    store.compact()
    states = [answers(store)]
    rng = np.random.default_rng(0)
    for number in range(6):
        if number % 3 == 2:
            store.set_outliers(0.01 * number)
        else:
            quietly(store.insert, *damage.rows(rng, 4, "names"), damage.named(7000 + 4 * number, 4, "names"))
        states.append(answers(store))
    log = path.with_name(path.name + "-wal")
    data = path.read_bytes(), log.read_bytes()
    store.close()
    return *data, states


@pytest.mark.slow
def test_a_damaged_log_gives_an_earlier_commit(tmp_path):
    path = tmp_path / "data.duramen"
    file, log, states = with_a_log(path)
    assert len(log) > 6 * PAGE
    rng = np.random.default_rng(1)
    hows = [
        damage.flip,
        damage.run_of_bytes,
        damage.cut,
        damage.garbage_behind,
        _head_of_a_frame,
        _head_of_the_log,
    ]
    found = Counter()
    for number in range(150):
        harmed = bytearray(log)
        if number:
            hows[number % len(hows)](harmed, log, rng)
        damage.clear(path)
        path.write_bytes(file)
        path.with_name(path.name + "-wal").write_bytes(harmed)
        found[_state_found(path, states)] += 1
        assert number or found[len(states) - 1] == 1
    assert found[len(states) - 1] > 1
    assert len(found) >= 5, found


def _state_found(path, states):
    """Return which commit is found, by number; what follows goes on from there."""
    try:
        with dm.open_store(path, synchronous="normal") as store:
            place = states.index(answers(store))  # raises ValueError without the path if it is none
            store.delete(store.ids[:3])
            left = answers(store)
        with dm.open_store(path, synchronous="normal") as store:
            assert answers(store) == left
    except (dm.DamagedStoreError, OSError) as error:
        assert str(path) in str(error)  # noqa: PT017
        return "error"
    return place


def _head_of_a_frame(data, old, rng):
    frame = 32 + (24 + PAGE) * int(rng.integers((len(data) - 32) // (24 + PAGE)))
    data[frame + rng.integers(24)] ^= 1 << rng.integers(8)


def _head_of_the_log(data, old, rng):
    data[rng.integers(32)] ^= 1 << rng.integers(8)


# coresets that were saved


@pytest.mark.parametrize("tries", [70, pytest.param(1001, marks=pytest.mark.slow)])
def test_saved_coresets_damaged_by_chance(tmp_path, tries):
    path, core = tmp_path / "core.parquet", logistic_core()
    core.save(path)
    data, rng, found = path.read_bytes(), np.random.default_rng(0), Counter()
    hows = [damage.flip, damage.run_of_bytes, damage.cut, damage.garbage_behind, _nulled, _moved, damage.flip]
    for number in range(tries):
        harmed = bytearray(data)
        hows[number % len(hows)](harmed, data, rng)
        path.write_bytes(harmed)
        found[_loaded(path, core)] += 1
    assert found["error"] > tries / 2.002, found


def _loaded(path, core):
    try:
        again = dm.load_coreset(path)
    except (ValueError, OSError) as error:
        assert str(path) in str(error)  # noqa: PT017
        return "error"
    assert_identical_coreset(again, core)
    return "right"


def _nulled(data, old, rng):
    at = int(rng.integers(len(data)))
    data[at : at + 64] = bytes(len(data[at : at + 64]))


def _moved(data, old, rng):
    """Bytes of one place at another."""
    one, two = (int(at) for at in rng.integers(len(data) - 64, size=2))
    data[one : one + 64] = old[two : two + 64]
