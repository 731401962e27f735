"""Files damaged by chance and on purpose, and what is allowed to come of it: the right answer, or an error that says so."""

from __future__ import annotations

import struct

import numpy as np

import duramen as dm
from tests.support import quietly

PAGE = 4096
COLUMNS = 4
KINDS = {
    "names": {"loss": dm.LogisticLoss(), "size": 40, "n_outliers": 0.05, "audit": True},
    "tree": {"loss": dm.KMeansLoss(2), "size": 20, "n_outliers": 3, "engine": "tree", "bucket_size": 16},
    "numbers": {"loss": dm.SquaredLoss(), "size": 400, "n_outliers": 5},
}


def rows(rng, n, kind):
    X = rng.normal(size=(n, COLUMNS)) * np.where(rng.random(n) < 0.1, 9, 1)[:, None]
    y = {"names": rng.integers(0, 2, n).astype(float), "tree": None, "numbers": rng.normal(size=n)}[kind]
    return X, y, rng.uniform(0.5, 2, size=n)


def named(start, n, kind):
    return [f"person-{number}" for number in range(start, start + n)] if kind == "names" else None


def made(path, kind, n=210):
    """Make a store with a past: rows that went, others that were changed, notes, and free pages."""
    rng = np.random.default_rng(len(kind))
    store = dm.open_store(path, create=True, random_state=1, synchronous="normal", **KINDS[kind])
    quietly(store.insert, *rows(rng, n, kind), named(0, n, kind))
    store.delete(rng.choice(store.ids, n // 3, replace=False))
    for number in range(3):
        quietly(store.insert, *rows(rng, 7, kind), named(n + 7 * number, 7, kind))
    some = rng.choice(store.ids, 11, replace=False)
    store.update(some, *rows(rng, 11, kind))
    store.note("encoding", {"columns": ["a", "b"], "n": 7})
    if kind != "numbers":
        quietly(store.reanchor)
        store.delete(rng.choice(store.ids, 20, replace=False))
    return store


def go_on(store, kind):
    """Do what depends on everything that was read: rows go, are changed and come."""
    rng = np.random.default_rng(9)
    ids = store.ids
    store.delete(ids[::17])
    store.update(ids[1::40], *rows(rng, len(ids[1::40]), kind))
    quietly(store.insert, *rows(rng, 5, kind), named(10_000, 5, kind))
    store.note("again", True)


def answers(store):
    """Return all that can be asked of a store, but the times at which things happened later than it was made."""
    points, core, anchor = store.points(), quietly(store.coreset), store.anchor
    names = None if not store._state.ids.names else tuple(store.names_of(points.ids))
    arrays = [points.ids, points.X, points.weights, points.y, core.ids, core.weights, core.X, core.suspected]
    if anchor is not None:
        arrays += [anchor.theta, *(anchor.frozen[name] for name in sorted(anchor.frozen))]
    return (
        [None if one is None else (one.dtype.str, one.shape, one.tobytes()) for one in arrays],
        (names, store.n_outliers, store.threshold, store.n_suspected, store.total_weight, store.columns),
        (repr(store.anchor_report()), store.history, store.notes, store._state.ids.next),
        [one for one, _ in store.forgotten],
    )


# damage: each takes the bytes, other bytes of the same store from before, and a generator


def flip(data, old, rng):
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)


def run_of_bytes(data, old, rng):
    at, n = int(rng.integers(len(data))), int(rng.integers(2, 40))
    data[at : at + n] = rng.bytes(len(data[at : at + n]))


def cut(data, old, rng):
    del data[int(rng.integers(len(data))) :]


def cut_at_a_page(data, old, rng):
    del data[PAGE * int(rng.integers(len(data) // PAGE)) :]


def garbage_behind(data, old, rng):
    data += rng.bytes(int(rng.choice([1, 100, PAGE, 3 * PAGE])))


def zeroed(data, old, rng):
    page = _page(data, rng)
    data[page] = bytes(PAGE)


def swapped(data, old, rng):
    one, two = _page(data, rng), _page(data, rng)
    data[one], data[two] = data[two], data[one]


def doubled(data, old, rng):
    data[_page(data, rng)] = data[_page(data, rng)]


def stale(data, old, rng):
    """A write that never reached the disk."""
    changed = [
        at for at in range(0, min(len(data), len(old)), PAGE) if data[at : at + PAGE] != old[at : at + PAGE]
    ]
    at = int(rng.choice(changed))
    data[at : at + PAGE] = old[at : at + PAGE]


def head_of_the_file(data, old, rng):
    data[rng.integers(100)] = rng.integers(256)


def head_of_a_page(data, old, rng):
    page = _page(data, rng).start
    data[page + (100 if page == 0 else 0) + rng.integers(12)] = rng.integers(256)


def pointers_of_a_page(data, old, rng):
    """Where in it cells are, or the first bytes of an overflow page."""
    page = _page(data, rng).start
    data[page + 8 + rng.integers(60)] ^= 1 << rng.integers(8)


def page_map(data, old, rng):
    """What SQLite notes of each page, to move it: page 2."""
    data[PAGE + rng.integers(5 * (len(data) // PAGE))] = rng.integers(256)


def free_list(data, old, rng):
    """The pages that are free: where the list begins, how long it is, and its first trunk."""
    trunk, _ = struct.unpack(">II", data[32:40])
    at = 32 + rng.integers(8) if rng.random() < 0.4 or not trunk else (trunk - 1) * PAGE + rng.integers(40)
    data[at] = rng.integers(256)


def _page(data, rng):
    at = PAGE * int(rng.integers(len(data) // PAGE))
    return slice(at, at + PAGE)


ANY = (flip, run_of_bytes)
STRUCTURE = (head_of_the_file, head_of_a_page, pointers_of_a_page, page_map, free_list)
PAGES = (zeroed, swapped, doubled, stale, cut, cut_at_a_page, garbage_behind)


class Judge:
    """Opens what is left of a store, and says "right" or "error"; anything else is a failure."""

    def __init__(self, path, kind, before, after):
        self.path, self.kind, self.before, self.after = path, kind, before, after

    def verdict(self):
        try:
            with dm.open_store(self.path, synchronous="normal") as store:
                assert answers(store) == self.before, "a wrong answer"
                go_on(store, self.kind)
                assert _later(answers(store)) == _later(self.after), "a wrong answer after changes"
            with dm.open_store(self.path, synchronous="normal") as store:
                assert _later(answers(store)) == _later(self.after), "a wrong answer when opened again"
        except (ValueError, OSError) as error:
            assert str(self.path) in str(error), error  # noqa: PT017 (either is right)
            assert isinstance(error, (dm.DamagedStoreError, OSError)) or _is_foreign(error), error  # noqa: PT017
            return "error"
        return "right"


def _is_foreign(error):
    """Return whether the bytes that identify the file were hit: then it looks like another kind of file."""
    return any(
        text in str(error) for text in ("is not a store", "not a duramen store", "is newer than", "is empty")
    )


def _later(found):
    arrays, said, more, forgotten = found
    return arrays, said, (more[0], more[2], more[3]), forgotten


def case(path, kind):
    """Make a store, and give its bytes, older bytes of it, and the judge."""
    store = made(path, kind)
    store.compact()
    old = path.read_bytes()
    rng = np.random.default_rng(5)
    ids = store.ids
    with store.transaction():  # as many come as go
        store.delete(ids[5:12])
        quietly(store.insert, *rows(rng, 7, kind), named(5000, 7, kind))
        store.update(ids[20:24], *rows(rng, 4, kind))
    before = answers(store)
    store.close()
    data = path.read_bytes()
    with dm.open_store(path) as store:
        assert answers(store) == before
        go_on(store, kind)
        after = answers(store)
    return data, old, Judge(path, kind, before, after)


def tried(data, old, judge, how, rng):
    """Damage, and see what comes of it."""
    harmed = bytearray(data)
    how(harmed, old, rng)
    clear(judge.path)
    judge.path.write_bytes(harmed)
    return judge.verdict()


def clear(path):
    for beside in ("-wal", "-shm", "-lock"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
