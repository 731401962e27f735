"""Summaries from elsewhere: whatever bytes arrive, they are refused with a ValueError, or are valid."""

import json
import resource
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import wire
from duramen.coreset.wire import pack, unpack
from duramen.distributed import Summary, finish, merge, plan, summarize
from tests.support import quietly


def made():
    """Make summaries of both passes, of dense rows with labels and of sparse ones, and what is merged with each."""
    rng = np.random.default_rng(0)
    X, found = rng.normal(size=(300, 3)), []
    asked = {"size": 20, "n_outliers": 0.1, "random_state": 0, "sampler": "layered"}
    kinds = [(X, dm.LogisticLoss()), (sparse.csr_array(X * (abs(X) > 1)), dm.SquaredLoss())]
    for rows, loss in kinds:
        points = dm.points(rows, np.sign(X[:, 0]), rng.exponential(size=300))
        step = plan(loss=loss, **asked)
        for _ in range(2):
            part, rest = (summarize(points.take(rows), step) for rows in (slice(0, 200), slice(200, 300)))
            found.append((part.to_bytes(), step, rest))
            step = quietly(finish, merge(part, rest))
    return found


MADE = made()


def use(data, step, rest):
    """Read bytes, and finish with them; only a ValueError may come of it."""
    try:
        found = Summary.from_bytes(data, step)
        quietly(finish, merge(found, rest))
    except ValueError:
        return


def signed(body):
    return body + zlib.crc32(body).to_bytes(4, "little")


@pytest.mark.parametrize("which", range(len(MADE)))
@settings(max_examples=40)
@given(data=st.data())
def test_changed_bytes(which, data):
    good, step, rest = MADE[which]
    body = bytearray(good[:-4])
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[place] = data.draw(st.integers(0, 255))
    use(signed(bytes(body)), step, rest)


HOSTILE = [-1, 0, 1, 2, 2**31, 2**63, 10**30, 0.5, "x", None, [], {}, True, [1, 2], float("nan")]


@pytest.mark.parametrize("which", range(len(MADE)))
@settings(max_examples=40)
@given(data=st.data())
def test_changed_headers(which, data):
    good, step, rest = MADE[which]
    length = int.from_bytes(good[6:10], "little")
    header = json.loads(good[10 : 10 + length])
    place = header
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key, above = data.draw(st.sampled_from(keys)), place
        place = place[key]
        if data.draw(st.booleans()):
            break
    above[key] = data.draw(st.sampled_from(HOSTILE))
    text = json.dumps(header).encode()
    use(signed(good[:6] + len(text).to_bytes(4, "little") + text + good[10 + length : -4]), step, rest)


VALUES = [-1, 0, 1, 7, 2**31 - 1, -(2**63), 2**62, np.nan, np.inf, -np.inf, 1e308, 5e-324]


@pytest.mark.parametrize("which", range(len(MADE)))
@settings(max_examples=40)
@given(data=st.data())
def test_changed_arrays(which, data):
    good, step, rest = MADE[which]
    facts, arrays = unpack(good)
    name = data.draw(st.sampled_from(sorted(arrays)))
    changed = arrays[name].copy()
    kind = data.draw(st.sampled_from(["value", "type", "shorter", "longer", "gone", "shape", "order"]))
    with np.errstate(all="ignore"):
        if kind == "value" and changed.size:
            value = np.array(data.draw(st.sampled_from(VALUES)))
            changed.flat[data.draw(st.integers(0, changed.size - 1))] = value.astype(changed.dtype)
        elif kind == "type":
            changed = changed.astype(data.draw(st.sampled_from(["f4", "f8", "i4", "i8", "u1", "?"])))
    changed = {
        "shorter": changed[:-1],
        "longer": np.concatenate([changed, changed[:1]]),
        "shape": changed[None] if changed.ndim == 1 else changed.ravel(),
        "order": changed[::-1],
    }.get(kind, changed)
    arrays = {key: array for key, array in arrays.items() if key != name}
    use(pack(facts, arrays if kind == "gone" else {**arrays, name: changed}), step, rest)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("strata", -(2**62), "layers are numbered from -60 to 1000"),
        ("weights", np.inf, "add up to infinity"),
        ("weights", -np.inf, "weights of its strata"),
    ],
)
def test_strata_that_no_layer_has_are_refused(name, value, message):
    good, step, rest = MADE[1]
    facts, arrays = unpack(good)
    changed = arrays[name].copy()
    changed.flat[0] = value
    with pytest.raises(ValueError, match=message):
        finish(merge(Summary.from_bytes(pack(facts, {**arrays, name: changed}), step), rest))


def test_little_can_not_ask_for_much():
    good, step, _ = MADE[3]
    facts, arrays = unpack(good)
    far = arrays["kept.indices"].copy()
    far[0] = 2**31 - 1
    deep = b'{"facts":' + b"[" * 100_000 + b"]" * 100_000 + b',"arrays":[]}'
    wide = json.dumps({"facts": facts, "arrays": [["kept.X", "<f8", [10**12, 0]]]}).encode()
    long = json.dumps({"facts": facts, "arrays": [["kept.X", "<f8", [2**31, 2**31]]]}).encode()
    many = np.frombuffer(b"\xff" * 12, dtype=np.uint8)
    wrong = [pack(facts, {**arrays, "kept.indices": far}), pack(facts, {**arrays, "weights": many})]
    wrong += [signed(good[:6] + len(text).to_bytes(4, "little") + text) for text in (deep, wide, long)]
    tracemalloc.start()
    for data in wrong:
        with pytest.raises(ValueError, match=r"damaged|exact sums"):
            Summary.from_bytes(data, step)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_a_process_with_little_memory_survives():
    code = (
        "import resource, tests.coreset.test_wire as t\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "t.test_little_can_not_ask_for_much()"
    )
    assert resource.RLIMIT_AS is not None
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_another_pass_and_empty_summaries():
    for (good, step, _), (_, other, _) in zip(MADE[::2], MADE[1::2], strict=True):
        with pytest.raises(ValueError, match="different plans"):
            Summary.from_bytes(good, other)
        nothing = summarize([], step)
        assert Summary.from_bytes(nothing.to_bytes(), step) == nothing
        assert merge(Summary.from_bytes(good, step), nothing).to_bytes() == good
    assert wire.FORMAT == 2
