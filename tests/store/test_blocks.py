"""Blocks: what goes in comes out, wherever it was put; and no byte of a point is on a page that records share."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.store import blocks as block_module
from duramen.store.blocks import Blocks, RowLayout, block_checksum, take
from duramen.store.connection import connect
from duramen.store.file import create_tables as create

PAGE = 4096
OVERFLOW = (3, 4)  # kinds of pages in SQLite's pointer map
EXTREMES = [0.0, -0.0, 1e-40, 3e38, -1 / 3]


def block_of(rng, n, n_columns=3, dtype=float, labelled=True, ids=None):
    ids = np.unique(rng.integers(-(2**62), 2**62, size=n)) if ids is None else np.array(ids)
    rows, weights = rng.normal(size=(n, n_columns)).astype(dtype), rng.uniform(1, 2, size=n)
    labels = {"y": rng.normal(size=n)} if labelled else {}
    return {"ids": ids, "epochs": rng.integers(5, size=n), "weights": weights, **labels, "X": rows}


def assert_same(one, two):
    assert list(one) == list(two)
    for name, column in one.items():
        assert column.tobytes() == np.ascontiguousarray(two[name]).tobytes()


def by_id(block):
    """Return points as a dictionary, to the bit."""
    parts = [[row.tobytes() for row in column] for name, column in block.items() if name != "ids"]
    return dict(zip(block["ids"].tolist(), zip(*parts, strict=True), strict=True))


@given(
    n=st.integers(1, 300),
    n_columns=st.integers(1, 40),
    single=st.booleans(),
    labelled=st.booleans(),
    seed=st.integers(0, 99),
)
def test_packing_is_undone_to_the_bit(n, n_columns, single, labelled, seed):
    dtype = np.float32 if single else float
    layout = RowLayout(n_columns, np.dtype(dtype), labelled)
    one = block_of(np.random.default_rng(seed), n, n_columns, dtype, labelled)
    rows = one["X"]
    rows.flat[: len(EXTREMES)] = np.array(EXTREMES[: rows.size]).astype(dtype)
    content = layout.pack(one)

    def unpacked(content, n):
        return layout.unpack(7, n, block_checksum(7, content), content)

    assert_same(unpacked(content, n), one)
    for wrong in (n - 1, n + 1):
        if len(layout.pack(take(one, slice(0, wrong)))) != len(content) or wrong < 1:
            with pytest.raises(ValueError, match="bytes are not"):
                unpacked(content, wrong)
    with pytest.raises(ValueError, match="bytes are not"):
        unpacked(content[:-1], n)


def test_a_checksum_is_of_the_number_and_of_every_byte():
    content = bytes(range(256))
    mark = block_checksum(7, content)
    assert mark != block_checksum(8, content)
    for place in range(256):
        other = bytearray(content)
        other[place] ^= 1
        assert block_checksum(7, bytes(other)) != mark


def test_cutting_keeps_the_order_and_the_capacity():
    layout = RowLayout(3, np.dtype(float), labelled=True)
    one = block_of(np.random.default_rng(0), 3 * layout.capacity + 7)
    parts = list(layout.split(one))
    assert [len(part["ids"]) for part in parts] == [layout.capacity] * 3 + [7]
    assert_same({name: np.concatenate([part[name] for part in parts]) for name in one}, one)


def opened(path, **layout):
    connection = connect(Path(path), "mode=rwc", "auto_vacuum = INCREMENTAL")
    create(connection)
    settings = {"n_columns": 3, "dtype": np.dtype(float), "labelled": True, **layout}
    return connection, Blocks(connection, RowLayout(**settings))


def all_of(blocks):
    """Read everything again, as another would."""
    other, found, n = Blocks(blocks._connection, blocks.layout), {}, 0
    for part in other.read(blocks.totals):
        found.update(by_id(part))
        n += len(part["ids"])
    assert len(found) == n == blocks.totals["n_points"]
    assert (other.totals, other._small) == (blocks.totals, blocks._small)
    blocks.check()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_points_are_put_in_changed_and_taken_out(seed, monkeypatch, tmp_path):
    """Against a dictionary, with blocks of 16 points."""
    monkeypatch.setattr(block_module, "_MOST_ROWS", 16)
    labelled = bool(seed % 2)
    _, blocks = opened(tmp_path / "a", labelled=labelled)
    rng, model = np.random.default_rng(seed), {}
    for _ in range(60):
        what, n = rng.integers(3), int(rng.choice([1, 1, 2, 7, 40]))
        some = rng.permutation(sorted(model))[:n].astype(np.int64)
        if what == 0 or not model:
            one = block_of(rng, n, labelled=labelled)
            blocks.add(one)
            model |= by_id(one)
        elif what == 1:
            blocks.remove(some)
            for gone in some.tolist():
                del model[gone]
        else:
            one = block_of(rng, len(some), labelled=labelled, ids=some)
            blocks.replace(one)
            model |= by_id(one)
        assert all_of(blocks) == model
        assert sum(blocks._small.values()) < blocks.layout.capacity
        most = len(model) // (blocks.layout.capacity // 2) + len(blocks._small)
        assert blocks.totals["n_blocks"] <= most
    blocks.join_small(at_least=0)
    assert all_of(blocks) == model
    assert len(blocks._small) <= 1


@pytest.mark.parametrize("n", [1, 2, 5, 126, 127, 128, 129, 500, None])
@pytest.mark.parametrize("n_columns, dtype", [(1, np.float32), (3, float), (40, np.float32), (700, float)])
def test_no_byte_of_a_point_is_on_a_page_that_records_share(tmp_path, n, n_columns, dtype):
    path = tmp_path / "blocks"
    connection, blocks = opened(path, n_columns=n_columns, dtype=np.dtype(dtype))
    n = blocks.layout.capacity if n is None else min(n, blocks.layout.capacity)
    one = block_of(np.random.default_rng(0), n, n_columns, dtype)
    blocks.add(one)
    connection.close()
    data = path.read_bytes()
    places = [data.find(part) for part in (one["ids"][:1].tobytes(), one["X"][-1].tobytes()[-8:])]
    assert all(place >= 0 for place in places)
    for page in range(places[0] // PAGE, places[1] // PAGE + 1):
        assert data[PAGE + 5 * (page - 2)] in OVERFLOW


def test_what_does_not_fit_the_ledger_is_named(tmp_path):
    connection, blocks = opened(tmp_path / "a")
    blocks.add(block_of(np.random.default_rng(0), 5))
    ledger = blocks.totals
    for what in ("n_points", "n_blocks", "digest"):
        other = {**ledger, what: ledger[what] - 1}
        with pytest.raises(ValueError, match=re.escape(f"the blocks have {ledger}, but {other} was written")):
            list(Blocks(connection, blocks.layout).read(other))
    connection.run("UPDATE blocks SET content = zeroblob(length(content))")
    with pytest.raises(ValueError, match=r"block 0 differs from what was written \(checksum mismatch\)"):
        list(Blocks(connection, blocks.layout).read(ledger))
    connection.run("DELETE FROM blocks")
    with pytest.raises(ValueError, match="block 0 is missing"):
        blocks._take_out(0)
