"""Slots in sorted order: every operation against a plain sorted list, with tiny chunks and many ties."""

import ctypes
import pickle
from array import array

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duramen.dynamic import sorted_list as ordered
from duramen.dynamic.sorted_list import Ordered

ROOM = 400


class Names:
    """The ids of slots: in no order, and some negative."""

    def __init__(self, seed=0):
        self.ids = np.random.default_rng(seed).permutation(10 * ROOM)[:ROOM].astype(np.int64) - ROOM
        self.slot_of = {int(name): slot for slot, name in enumerate(self.ids)}


def made(names, dtype, chunk):
    """Make an empty list whose chunks have at most so many entries."""
    order = Ordered(names, dtype)
    order._chunk = chunk
    return order


def keys_of(rng, n, dtype, spread):
    """Make keys; few different ones, or extremes among them."""
    keys = rng.integers(-spread, spread + 1, size=n).astype(dtype)
    if dtype == np.float64:
        keys /= 4
        keys[rng.random(n) < 0.05] = np.inf
        keys[rng.random(n) < 0.05] = -np.inf
    else:
        keys[rng.random(n) < 0.05] = np.iinfo(np.int64).max
        keys[rng.random(n) < 0.05] = np.iinfo(np.int64).min
    return keys


class Comings(RuleBasedStateMachine):
    """Entries come and go; a sorted list of (key, id) is the oracle."""

    @initialize(
        dtype=st.sampled_from([np.float64, np.int64]),
        chunk=st.sampled_from([2, 3, 4, 8, 16, 32, 64]),
        spread=st.sampled_from([0, 1, 5, 1000]),
        seed=st.integers(0, 10**6),
    )
    def set_up(self, dtype, chunk, spread, seed):
        self.names, self.dtype, self.spread = Names(seed), dtype, spread
        self.order = made(self.names, dtype, chunk)
        self.keys: dict[int, object] = {}  # of slots

    @property
    def entries(self):
        return sorted((key, int(self.names.ids[slot])) for slot, key in self.keys.items())

    def slots_of(self, entries):
        return [self.names.slot_of[name] for _, name in entries]

    @rule(seed=st.integers(0, 2**32 - 1), many=st.sampled_from([1, 3, 100]))
    def add(self, seed, many):
        rng = np.random.default_rng(seed)
        free = np.setdiff1d(np.arange(ROOM), list(self.keys))
        slots = rng.permutation(free)[:many]
        keys = keys_of(rng, len(slots), self.dtype, self.spread)
        before = (keys.copy(), slots.copy())
        parts = 1 if rng.random() < 0.6 else max(1, len(slots))
        for some in np.array_split(np.arange(len(slots)), parts):
            self.order.add(keys[some], slots[some])
        self.keys.update(zip(slots.tolist(), keys.tolist(), strict=True))
        np.testing.assert_array_equal(keys, before[0])
        np.testing.assert_array_equal(slots, before[1])

    @precondition(lambda self: self.keys)
    @rule(seed=st.integers(0, 2**32 - 1), many=st.sampled_from([1, 3, 100, ROOM]))
    def remove(self, seed, many):
        rng = np.random.default_rng(seed)
        slots = rng.permutation(list(self.keys))[:many]
        for some in np.array_split(slots, 1 if rng.random() < 0.6 else len(slots)):
            self.order.remove(np.array([self.keys[s] for s in some], dtype=self.dtype), some)
        for slot in slots.tolist():
            del self.keys[slot]

    @rule(seed=st.integers(0, 2**32 - 1))
    def look_around(self, seed):
        rng = np.random.default_rng(seed)
        entries = self.entries
        places = list(
            zip(
                keys_of(rng, 4, self.dtype, self.spread + 1).tolist(),
                rng.integers(-500, 4000, 4).tolist(),
                strict=True,
            )
        )
        if entries:
            there = [entries[i] for i in rng.integers(len(entries), size=4)]
            places += there + [(key, name + step) for key, name in there for step in (-1, 1)]
            places += [entries[0], entries[-1]]
        for key, name in places:
            below = [entry for entry in entries if entry < (key, name)]
            above = entries[len(below) :]
            for up, expected in ((False, self.slots_of(below)[::-1]), (True, self.slots_of(above))):
                found = self.order.from_place(key, name, up=up)
                assert [slot for part in found for slot in part.tolist()] == expected

    @rule(count=st.sampled_from([0, 1, 2, 7, 8, 9, 50, ROOM + 5]))
    def the_first(self, count):
        slots = self.slots_of(self.entries)
        assert self.order.slots(count).tolist() == slots[:count]

    @invariant()
    def it_is_the_sorted_list(self):
        if not hasattr(self, "order"):
            return
        self.order.check()
        entries = self.entries
        assert len(self.order) == len(entries)
        assert self.order.keys().tolist() == [key for key, _ in entries]
        assert self.order.slots().tolist() == self.slots_of(entries)
        assert self.order.keys().dtype == self.dtype
        assert self.order.nbytes >= 12 * len(entries)


TestComings = Comings.TestCase
TestComings.settings = settings(
    max_examples=30, stateful_step_count=25, phases=(Phase.explicit, Phase.generate)
)


@pytest.mark.slow
class TestComingsLonger(Comings.TestCase):
    settings = settings(max_examples=80, stateful_step_count=25, phases=(Phase.explicit, Phase.generate))


@pytest.mark.parametrize("chunk", [2, 5, 8, 32])
@pytest.mark.parametrize("up", [True, False], ids=["upward", "downward"])
def test_chunks_stay_within_their_size_as_entries_come_in_order(chunk, up):
    names = Names()
    names.ids = np.arange(ROOM)
    order = made(names, np.int64, chunk)
    for slot in range(ROOM) if up else range(ROOM - 1, -1, -1):
        order.add(np.array([slot]), np.array([slot]))
        order.check()
    assert max(map(len, order._slots)) <= chunk
    assert order.slots().tolist() == list(range(ROOM))


def test_ids_are_found_many_at_once():
    names = Names()
    rng = np.random.default_rng(0)
    for chunk in (2, 4, 32, 1000):
        order = made(names, np.int64, chunk)
        assert order.find(names.ids[:3]).tolist() == [-1, -1, -1]
        slots = rng.permutation(ROOM)[:150]
        order.add(names.ids[slots], slots)
        inside = set(slots.tolist())
        wanted = rng.permutation(names.ids)[:300]
        wanted = np.concatenate([wanted, [-(2**63), 2**63 - 1, 10**9, -ROOM - 1]])
        expected = [slot if (slot := names.slot_of.get(int(name), -1)) in inside else -1 for name in wanted]
        assert order.find(wanted).tolist() == expected
        assert order.find(np.empty(0, dtype=np.int64)).tolist() == []


def test_the_size_of_chunks_is_read_when_it_is_made(monkeypatch):
    monkeypatch.setattr(ordered, "CHUNK", 4)
    order = Ordered(Names())
    order.add(np.zeros(40), np.arange(40))
    assert max(map(len, order._slots)) <= 4
    order.check()


def test_nothing_added_and_nothing_removed():
    order = made(Names(), np.float64, 4)
    none = np.empty(0, dtype=np.int64)
    order.add(np.empty(0), none)
    order.remove(np.empty(0), none)
    assert len(order) == 0
    assert order.find(np.zeros(1)).tolist() == [-1]
    assert [list(order.from_place(0.0, 0, up=up)) for up in (True, False)] == [[], []]
    assert len(order.slots(3)) == len(order.keys()) == len(order.slots()) == 0
    order.check()


# every corruption is seen


def unsorted(order):
    order._keys[1][0] += 1e9


def emptied(order):
    order._length -= len(order._slots[1])
    order._slots[1] = array("i")


def stale_key(order):
    order._last_keys[1] -= 0.25


CORRUPTIONS = [
    (unsorted, "1"),
    (lambda order: vars(order).update(_length=41), "2"),
    (emptied, "2"),
    (lambda order: vars(order).update(_chunk=2), "2"),
    (lambda order: order._keys[1].append(0.0), "2"),
    (stale_key, "3"),
]


def corrupted(how):
    names = Names()
    order = made(names, np.float64, 8)
    order.add(np.arange(40) // 20 / 2, np.arange(40))
    order.check()
    assert len(order._slots) > 2
    how(order)
    return order


@pytest.mark.parametrize("how, number", CORRUPTIONS)
def test_a_corruption_is_named(how, number):
    with pytest.raises(AssertionError, match=f"^{number}: "):
        corrupted(how).check()


def test_lists_of_different_lengths_are_seen():
    with pytest.raises((AssertionError, ValueError)):
        corrupted(lambda order: order._last_keys.pop()).check()


@pytest.mark.parametrize("together", [1, 3, 50])
def test_what_is_gone_is_overwritten(together):
    """Keys are losses, ranks and ids: where one was, memory holds zeros, and a pickle has none of them."""
    names, rng = Names(), np.random.default_rng(0)
    order = made(names, np.float64, 2 * ROOM)
    keys = 1 + rng.random(ROOM)
    order.add(keys, np.arange(ROOM))
    first = order._keys[0]
    for part in np.array_split(rng.permutation(ROOM), ROOM // together)[: 150 // together]:
        order.remove(keys[part], part)
        assert not any(keys[slot].tobytes() in pickle.dumps(order) for slot in part)
        if order._keys[0] is first:  # else the list was built again, with room that nothing was in
            start = first.buffer_info()[0]
            held = (ctypes.c_double * ROOM).from_address(start)
            assert not any(held[len(first) :]), "a key that left is still there"
    assert (order._keys[0] is first) == (together < 50)
