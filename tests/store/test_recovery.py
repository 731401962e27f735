"""What is saved of a damaged store is right: every row that comes back is the row that was put in."""

import contextlib
import shutil
import sqlite3
import subprocess
from typing import NamedTuple

import numpy as np
import pytest

import duramen as dm
from duramen.store import recover, recovery
from tests.store.life import Life, held, make, perform
from tests.store.support import X, files

PAGE = 4096


class Past(NamedTuple):
    """What must be in a store, and its file."""

    named: bool
    rows: dict
    core: dm.Coreset
    forgotten: tuple
    content: bytes


@pytest.fixture(scope="module", params=["ranked", "ranked, names", "tree"])
def life(request, tmp_path_factory):
    """Make a store with rows that came in bulk and singly, some of which left."""
    path, life = tmp_path_factory.mktemp("life") / "data.duramen", Life.of(request.param, 0)
    with make(path, request.param) as store:
        for n in (1400, *[None] * 100):
            steps = [life.inserted(life.rng(), n)]
            perform(steps, store)
            life = life.took(steps)
        store.delete(list(life.points)[::7])
        store.set_outliers(0.03)
        store.note("who", "me")
        past = held(store)[0], store.coreset(), store.forgotten
    return Past(life.named is not None, *past, path.read_bytes())


def saved(life, folder, content):
    """Recover from damaged content, and see that all that came back is right."""
    path, new = folder / "damaged", folder / "saved"
    path.write_bytes(content)
    found = recover(path, new)
    assert path.read_bytes() == content
    with dm.open_store(new) as store:
        assert store.check()
        assert len(store) == found.n_points
        assert held(store)[0].items() <= life.rows.items()
    assert sorted(one.name for one in folder.iterdir()) == ["damaged", "saved"]
    return found


def test_a_sound_store_is_saved_whole(life, tmp_path):
    found = saved(life, tmp_path, life.content)
    assert (found.n_points, found.n_lost, found.problems) == (len(life.rows), 0, ())
    with dm.open_store(tmp_path / "saved") as store:
        assert store.n_outliers == pytest.approx(0.03 * store.total_weight)
        assert store.notes == {"who": "me"}
        assert store.forgotten == life.forgotten
        assert store.insert(
            np.zeros(6), 1.0 if life.core.y is not None else None, ids="new" if life.named else None
        )
        if store.engine == "ranked":  # a tree depends on how points came
            store.delete("new" if life.named else store.ids[-1])
            assert np.array_equal(store.coreset().ids, life.core.ids)
            np.testing.assert_allclose(store.coreset().weights, life.core.weights, rtol=1e-12)


def lose(content, pages):
    """Overwrite pages, counted from zero, with chance."""
    damaged = bytearray(content)
    for page in pages:
        damaged[page * PAGE : (page + 1) * PAGE] = np.random.default_rng(page).bytes(PAGE)
    return bytes(damaged)


def overflow_pages(content):
    """The pages that hold the content of blocks, by SQLite's map of pages: page 2."""
    kinds = [content[PAGE + 5 * (page - 2)] for page in range(2, len(content) // PAGE)]
    return [page for page, kind in enumerate(kinds, 2) if kind in (3, 4)]


def test_a_lost_page_of_rows_costs_one_block(life, tmp_path):
    """Two pages, in the middle and at the end, cost two: whatever is before, between and behind is saved."""
    pages = overflow_pages(life.content)
    found = saved(life, tmp_path, lose(life.content, [pages[len(pages) // 2], pages[-1]]))
    assert found.n_points + found.n_lost == len(life.rows)
    assert 0 < found.n_lost < len(life.rows) * 0.9
    assert found.problems == (f"{found.n_lost:,} points of {len(life.rows):,} could not be read",)


@pytest.mark.slow
def test_whichever_page_is_lost_what_is_saved_is_right(life, tmp_path):
    """Page 1 is SQLite's own; a page at the root of a table costs all of it, or there is an error."""
    n_pages, whole = len(life.content) // PAGE, 0
    for page in range(1, n_pages):
        folder = tmp_path / f"{page}"
        folder.mkdir()
        try:
            found = saved(life, folder, lose(life.content, [page]))
        except ValueError as error:
            assert "restore a backup" in str(error)  # noqa: PT017
            continue
        assert found.n_lost is None or found.n_points + found.n_lost == len(life.rows)
        whole += found.n_points > 0
    assert whole > 0.8 * n_pages


@pytest.mark.parametrize("name", ["settings", "state", "anchor", "ledger", "notes"])
def test_metadata_that_is_lost_is_replaced(life, tmp_path, name):
    (tmp_path / "damaged").write_bytes(life.content)
    with contextlib.closing(sqlite3.connect(tmp_path / "damaged")) as connection, connection:
        connection.execute("UPDATE facts SET value = '7' WHERE name = ?", (name,))
    found = recover(tmp_path / "damaged", tmp_path / "saved")
    assert found.n_points == len(life.rows)
    assert found.n_lost == (None if name == "ledger" else 0)
    assert len(found.problems) == (name in ("settings", "state", "anchor"))
    with dm.open_store(tmp_path / "saved") as store:
        assert store.check()
        assert store.notes == ({} if name == "notes" else {"who": "me"})


@pytest.mark.parametrize("content", [bytes(PAGE) * 5, b"text", None], ids=["zeros", "text", "head lost"])
def test_a_file_that_sqlite_cannot_open_is_left_to_its_own_shell(life, tmp_path, content):
    content = bytes(PAGE) + life.content[PAGE:] if content is None else content
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(dm.DamagedStoreError, match=r'`sqlite3 damaged "\.recover" \| sqlite3 new\.duramen`'):
        recover(tmp_path / "damaged", tmp_path / "saved")
    assert files(tmp_path) == ["damaged"]


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs the shell of SQLite")
def test_what_that_shell_saves_can_be_recovered(life, tmp_path):
    (tmp_path / "damaged").write_bytes(life.content[:-PAGE])
    shell = subprocess.run(["sqlite3", tmp_path / "damaged", ".recover"], capture_output=True)
    if shell.returncode:
        pytest.skip("this shell was built without .recover")
    subprocess.run(["sqlite3", tmp_path / "shell"], input=shell.stdout, check=True)
    found = recover(tmp_path / "shell", tmp_path / "saved")
    assert 0 < found.n_points == len(life.rows) - found.n_lost


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_short(life, tmp_path, share):
    content = life.content[: int(share * len(life.content) / PAGE) * PAGE]
    with pytest.raises(dm.DamagedStoreError, match="no point") if share == 0.3 else contextlib.nullcontext():
        found = saved(life, tmp_path, content)
        assert min(found.n_lost, found.n_points) > 0


@pytest.mark.parametrize(
    "damage, message",
    [
        (
            ["DELETE FROM facts", "DROP TABLE spare"],
            "its settings cannot be read, so no points can be either",
        ),
        (["DELETE FROM blocks"], "damaged: no point can be read; restore a backup"),
    ],
)
def test_if_nothing_can_be_read_nothing_is_written(life, tmp_path, damage, message):
    (tmp_path / "damaged").write_bytes(life.content)
    with contextlib.closing(sqlite3.connect(tmp_path / "damaged")) as connection, connection:
        for statement in damage:
            connection.execute(statement)
    with pytest.raises(ValueError, match=message):
        recover(tmp_path / "damaged", tmp_path / "saved")
    assert files(tmp_path) == ["damaged"]


def test_what_is_saved_from_a_link_is_the_file_that_it_leads_to(path):
    """With the log that is beside the file, and not beside the link."""
    left, links, target = (path.parent / name for name in ("left", "links", "target"))
    for folder in (left, links):
        folder.mkdir()
    with dm.open_store(path) as store:
        store.insert(X[80:90])
        for end in ("", "-wal"):  # as after a crash
            shutil.copyfile(f"{path}{end}", left / f"a{end}")
    (links / "old").symlink_to(left / "a")
    (links / "new").symlink_to(target)
    assert recover(links / "old", links / "new").n_points == 90
    assert files(links) == ["new", "old"]
    with dm.open_store(target) as store:
        assert len(store) == 90


def test_a_store_that_is_made_where_one_is_being_saved_stays(path, monkeypatch):
    """It was removed while it was open."""
    target, plain, made = path.parent / "new.duramen", recovery._open_damaged, []

    def meanwhile(*arguments):
        with contextlib.suppress(dm.StoreLockedError):
            made.append(make(target, "tree"))
            made[0].insert(X[:50])
        return plain(*arguments)

    monkeypatch.setattr(recovery, "_open_damaged", meanwhile)
    with contextlib.suppress(OSError):
        recover(path, target)
        assert not made
    for one in made:
        one.insert(X[50:60])
        one.close()
    with dm.open_store(target) as store:
        assert len(store) == (60 if made else 80)
        assert store.check()
    assert files(path.parent) == ["a.duramen", "new.duramen"]


def test_a_target_that_is_there_or_in_use_stays_as_it_is(path):
    target = path.parent / "b.duramen"
    with make(target, "tree") as other:
        other.insert(X[:50])
        there = files(path.parent)
        with pytest.raises(OSError, match=r"b\.duramen"):
            recover(path, target)
        assert files(path.parent) == there
        other.insert(X[50:60])
        assert other.check()
    before = shutil.copyfile(target, path.parent / "copy").read_bytes()
    with pytest.raises(FileExistsError, match="already exists"):
        recover(path, target)
    assert target.read_bytes() == before
    assert files(path.parent) == ["a.duramen", "b.duramen", "copy"]
    with pytest.raises(FileExistsError, match="already exists"):
        recover(path, path)
    assert files(path.parent) == ["a.duramen", "b.duramen", "copy"]


@pytest.mark.parametrize("kind", ["text", "copy"])
def test_a_file_that_another_program_puts_where_one_is_being_saved_stays(path, monkeypatch, kind):
    target, plain = path.with_name("new.duramen"), recovery._open_damaged

    def meanwhile(*arguments):
        try:
            with target.open("xb") as file:
                file.write(b"mine" if kind == "text" else path.read_bytes())
        except FileExistsError:
            return plain(*arguments)  # the name is taken
        made.append(target.read_bytes())
        return plain(*arguments)

    made = []
    monkeypatch.setattr(recovery, "_open_damaged", meanwhile)
    try:
        recover(path, target)
    except (OSError, ValueError):
        assert made
    assert target.exists()
    assert not made or target.read_bytes() == made[0]


def test_what_was_forgotten_and_a_given_anchor_are_saved_too(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with make(old, "tree, names", anchor=np.zeros((2, 6))) as store:
        store.insert(X[:10], ids=[f"{one}" for one in range(10)])
        store.delete(["3", "4"])
        forgotten, given = store.forgotten, store._settings.given
    assert recover(old, new).n_points == 8
    with dm.open_store(new) as store:
        assert [name for name, _ in forgotten] == ["3", "4"]
        assert store.forgotten == forgotten
        theta = store._settings.given if store.anchor is None else store.anchor
        assert given is not None
        assert np.array_equal(getattr(theta, "theta", theta), np.zeros((2, 6)))
        assert store.check()
