"""A store is a dynamic coreset that did the same operations, to the bit; also after it was closed and opened."""

from uuid import UUID

import numpy as np
import pytest

import duramen as dm
from tests.coreset.cores import CityBlock
from tests.store.life import ALL, TREE, Pair, assert_alike, assert_same_anchors, held, left, on_disk
from tests.store.support import LeftError, sample
from tests.support import SAMPLERS, Heaviest, Striped, assert_same_coreset, quietly

# the matrix product behind the leverage of a row rounds otherwise in one of the lives of three classes
RANKED = [(name, "layered" if name == "contaminated softmax" else "auto", {}) for name in ALL]
BY_SAMPLER = [
    pytest.param(name, one, {}, marks=pytest.mark.slow)
    for name in ("logistic", "k-means")
    for one in SAMPLERS
    if one not in ("auto", "own")
]
TREES = [
    ("logistic", "uniform", TREE),
    ("k-median", "layered", {"engine": "tree", "height": 3}),
    ("squared", "leverage", TREE),
    ("softmax", "auto", {"engine": "tree", "bucket_size": 8}),
]


def made(path, name="logistic", sampler="auto", more=None, **others):
    settings = {"loss": ALL[name].loss, "size": 30, "n_outliers": 0.05, "random_state": 3, "sampler": sampler}
    return Pair(path, ALL[name], **{**settings, **(more or {}), **others})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.duramen"


def refused(problem):
    """What cannot be done, whatever is there."""
    row, label = np.ones(problem.n_columns), None if problem.label is None else [1.0]
    return [
        ("insert", [row * np.nan], label),
        ("insert", [row], label, [-1.0]),
        ("delete", [10**15]),
        ("update", 10**15, row),
        ("set_outliers", -1),
    ]


@pytest.mark.parametrize("seed", sample(7, slow=(8, 9, 10)))
@pytest.mark.parametrize("name, sampler, more", RANKED + BY_SAMPLER + TREES, ids=str)
def test_any_life_is_that_of_a_dynamic_coreset(path, name, sampler, more, seed):
    """In transactions or not, undone or not, closed and opened in between; and so is what a reader or a backup has."""
    # scores that are matrix products may round otherwise in another batch: not in the lives of these seeds
    number = sum(map(ord, name + sampler)) + seed - 7
    how = {
        "named": [None, "plain", "odd", "uuid"][number % 4],
        "dtype": np.float32 if len(name) % 2 else float,
    }
    pair = made(path, name, sampler, more, audit=bool(number % 2), seed=3 * seed, **how)
    rng = np.random.default_rng(seed)
    for step in range(24):
        steps = pair.life.plan()
        if rng.random() < 0.3:
            with pytest.raises((LeftError, ValueError)):
                quietly(left, pair.store, steps[: rng.integers(1, len(steps) + 1)])
            assert held(pair.store) == pair.life.held() == on_disk(path)
        pair.perform(steps)
        pair.assert_alike()
        assert held(pair.store) == pair.life.held()
        assert len(pair.store.forgotten) == (pair.life.n_deleted if pair.store.audit else 0)
        for what in refused(ALL[name])[step % 5 : step % 5 + 1]:
            assert pair.do(*what) is not None
        if rng.random() < 0.05:
            pair.store.compact()
        if rng.random() < 0.25:
            pair.reopen()
            pair.assert_alike()
        if step % 11 == 0:
            assert f"{len(pair.dyn):,} points" in pair.store.check()
            assert on_disk(path) == pair.life.held()
            with dm.open_store(pair.store.backup(f"{path}-{step}")) as copy:
                assert copy.check()
                assert held(copy) == pair.life.held()
                assert (copy.history, copy.forgotten) == (pair.store.history, pair.store.forgotten)
                assert_alike(copy, pair.dyn)
    assert pair.dyn.anchor is not None
    pair.store.close()


@pytest.mark.parametrize("more", [{}, TREE], ids=["ranked", "tree"])
def test_opened_before_the_first_rows_and_before_the_first_anchor(path, more):
    pair = made(path, more=more)
    pair.reopen()
    pair.assert_alike()
    pair.do("set_outliers", 0.2)
    pair.reopen()
    assert pair.store._state.n_outliers == 0.2
    for n in (1, 3, 5, 20, 1, 40):  # the anchor is made at 31
        pair.insert(n)
        pair.assert_alike()
        pair.reopen()
        pair.assert_alike()
    assert pair.store.anchor is not None


@pytest.mark.parametrize("more", [{}, TREE], ids=["ranked", "tree"])
@pytest.mark.parametrize("named", [None, "odd"])
@pytest.mark.parametrize("n", [5, 100], ids=["before the anchor", "after it"])
def test_rows_come_again_after_all_were_deleted(path, more, named, n):
    pair = made(path, more=more, seed=1, named=named)
    for _ in range(3):
        pair.insert(n)
        pair.do("delete", pair.dyn.ids)
        assert len(pair.store) == 0
        pair.reopen()
        pair.assert_alike()
        pair.insert(3)
        pair.assert_alike()
    pair.store.check()
    pair.reopen()
    pair.assert_alike()


THETA = np.array([1.0, 0.0, 0.5])
GIVEN = {"anchor": dm.Anchor(THETA, 0.01), "ball": dm.Ball(THETA, 0.25), "theta": THETA, "list": [1, 0, 0.5]}


@pytest.mark.parametrize("anchor", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("more", [{}, TREE], ids=["ranked", "tree"])
def test_anchors_that_are_given(path, anchor, more):
    pair = made(path, more=more, anchor=anchor, sampler="uniform", seed=2)
    pair.reopen()
    for n in (10, 25, 60):
        pair.insert(n)
        pair.reopen()
        pair.assert_alike()
    np.testing.assert_array_equal(pair.store.anchor.theta, THETA)


def test_a_frozen_anchor_makes_the_choices_it_made_elsewhere(path):
    rng = np.random.default_rng(0)
    X, y = ALL["logistic"].rows(rng, 300), ALL["logistic"].labels(rng, 300)
    core = quietly(dm.robust_coreset, X, y, loss=dm.LogisticLoss(), size=30, n_outliers=3, random_state=0)
    pair = made(path, anchor=core.anchor)
    pair.reopen()
    pair.do("insert", X[:50], y[:50], None, [f"n{i}" for i in range(50)])
    pair.reopen()
    pair.assert_alike()
    assert_same_anchors(pair.store.anchor, core.anchor)


def test_merging_adopts_the_anchor_the_next_id_and_the_columns(path, tmp_path):
    pair, rng = made(path), np.random.default_rng(3)
    other = dm.DynamicCoreset(**pair.settings)
    X, y = ALL["logistic"].rows(rng, 80), ALL["logistic"].labels(rng, 80)
    quietly(other.insert, frame(X), y, None, np.arange(1000, 1080))
    pair.do("insert", X[:4], y[:4])
    pair.do("merge", other)
    pair.assert_alike()
    assert pair.store.columns == ("a", "b")
    assert pair.store.history[-1].what == "given"
    pair.reopen()
    pair.assert_alike()
    assert_same_anchors(pair.store.anchor, other.anchor)
    empty = dm.DynamicCoreset(**{**pair.settings, "anchor": other.anchor})
    quietly(empty.insert, X, y, None, np.arange(5000, 5080))
    empty.delete(empty.ids)
    pair.do("merge", empty)
    pair.store.check()
    pair.reopen()
    pair.do("insert", X[0], y[0])
    assert 5080 in pair.store
    pair.assert_alike()
    with dm.open_store(tmp_path / "two.duramen", create=True, **pair.settings) as two:
        two.merge(pair.store)
        assert two.ids.tolist() == pair.store.ids.tolist()
        assert two.merge(dm.DynamicCoreset(**pair.settings)) is two


def test_an_anchor_adopted_by_a_few_rows_needs_as_many_when_opened_again(path):
    pair, X = made(path, "k-means", size=20), ALL["k-means"].rows(np.random.default_rng(3), 84)
    other = dm.DynamicCoreset(**pair.settings)
    quietly(other.insert, X[:80], ids=np.arange(1000, 1080))
    pair.do("insert", X[80:])
    pair.do("merge", other)
    pair.reopen()
    pair.assert_alike()


def frame(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=["a", "b"][: X.shape[1]])


def test_column_names_are_kept_and_asked_for(path):
    pair, rng = made(path, "k-means"), np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    pair.do("insert", frame(X[:10]))
    pair.reopen()
    assert pair.store.columns == ("a", "b")
    error = pair.do("insert", frame(X).rename(columns={"b": "c"}))
    assert isinstance(error, ValueError)
    pair.do("insert", frame(X)[["b", "a"]])
    pair.do("update", 0, X[3])
    pair.reopen()
    pair.assert_alike()


@pytest.mark.parametrize(
    "what, args",
    [
        ("insert", ([[1.0, 2.0]], [7.0])),
        ("insert", ([[1.0, 2.0]], [1.0], None, [0])),
        ("insert", ([[1.0, 2.0]] * 2, [1.0, 1.0], None, [900, 900])),
        ("insert", ([[1.0, 2.0]] * 2, [1.0, 1.0], [1.7e308, 1.7e308])),
        ("delete", ([0, 10**9],)),
        ("update", (0, [1.0, np.inf])),
        ("set_outliers", (1e9,)),
        ("reanchor", ([1.0, 2.0],)),
        ("merge", (7,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [10, 60])
def test_what_a_dynamic_coreset_refuses_changes_nothing(path, what, args, n):
    pair = made(path)
    pair.insert(n)
    before = path.read_bytes(), pair.store._file.version
    assert pair.do(what, *args) is not None
    pair.assert_alike()
    assert (path.read_bytes(), pair.store._file.version) == before
    pair.store.check()
    pair.reopen()
    pair.assert_alike()


def test_names_of_all_kinds_come_back(path):
    pair = made(path, "k-means")
    odd = ["", *"aü名\ud800\x00😀", "x\udfffy", "a" * 5000, UUID(int=0), UUID(int=2**128 - 1)]
    pair.do("insert", np.arange(2.0 * len(odd)).reshape(-1, 2), None, None, odd)
    pair.reopen()
    pair.assert_alike()
    assert sorted(map(repr, pair.store.names_of(pair.store.ids))) == sorted(map(repr, odd))
    for one in odd:
        assert one in pair.store
    pair.do("delete", ["\ud800", UUID(int=0)])
    pair.do("update", "ü", [7.0, 7.0])
    pair.reopen()
    pair.assert_alike()
    pair.do("delete", pair.dyn.ids)
    pair.reopen()
    assert pair.do("insert", [[0.0, 1.0]], None, None, ["a"]) is None
    pair.assert_alike()


def test_weights_of_zero_and_of_all_sizes(path):
    pair = made(path, "k-means")
    X = np.random.default_rng(0).normal(size=(50, 2))
    pair.do("insert", X, None, np.zeros(50))
    pair.reopen()
    pair.assert_alike()
    pair.do("insert", X, None, 2.0 ** np.arange(-25, 25))
    pair.reopen()
    pair.assert_alike()
    assert pair.do("insert", X[0], None, 1e-54) is None
    pair.reopen()
    pair.assert_alike()
    pair.do("delete", pair.dyn.ids)
    pair.reopen()
    pair.assert_alike()
    assert pair.do("insert", X[0], None, 1e-54) is None
    pair.assert_alike()


@pytest.mark.parametrize("sampler", [Striped(), Heaviest()], ids=["ranked", "tree"])
def test_a_sampler_of_ones_own_is_passed_again(path, sampler):
    more = {} if isinstance(sampler, Striped) else TREE
    pair = made(path, sampler=sampler, more=more)
    for _ in range(6):
        pair.perform(pair.life.plan())
    pair.reopen(sampler=sampler)
    pair.assert_alike()
    pair.insert(60)
    pair.assert_alike()
    pair.store.close()
    with pytest.raises(
        TypeError, match=r"a custom sampler.*pass it: dm.open_store\(path, sampler="
    ) as caught:
        dm.open_store(path)
    assert str(path) in str(caught.value)
    with pytest.raises(TypeError, match="a custom sampler"):
        dm.open_store(path, sampler="uniform")
    pair.store = dm.open_store(path, sampler=sampler)  # which the failures left free
    pair.assert_alike()


def test_a_loss_of_ones_own_is_passed_again(path):
    loss = CityBlock()
    pair = Pair(path, None, loss=loss, size=20, random_state=0, anchor=np.zeros(2))
    pair.do("insert", np.random.default_rng(0).normal(size=(80, 2)))
    pair.reopen(loss=loss)
    pair.assert_alike()
    pair.store.close()
    with pytest.raises(ValueError, match=r"a custom loss, CityBlock.*pass it: dm.open_store") as caught:
        dm.open_store(path)
    assert str(path) in str(caught.value)
    assert not isinstance(caught.value, dm.DamagedStoreError)
    pair.store = dm.open_store(path, loss=loss)
    pair.assert_alike()


def test_fitting_and_its_report(path):
    pair = made(path)
    pair.insert(200)
    mine, theirs = quietly(pair.store.fit), quietly(pair.dyn.fit)
    np.testing.assert_array_equal(mine.theta, theirs.theta)
    assert repr(pair.store.anchor_report()) == repr(pair.dyn.anchor_report())
    pair.do("reanchor")
    pair.assert_alike()
    history = pair.store.history
    assert [event.what for event in history] == ["the first", "found again"]
    assert history[0].moved is None
    assert history[1].moved > 0
    assert history[1].radius == pair.store.anchor.radius
    pair.reopen()
    assert pair.store.history == history


@pytest.mark.parametrize("more", [{}, TREE], ids=["ranked", "tree"])
def test_compaction_changes_nothing_that_can_be_seen(path, more):
    pair = made(path, more=more)
    for n in [1] * 60 + [2000]:
        pair.insert(n)
    pair.do("delete", pair.life.some(pair.life.rng(), 1900))
    size = path.stat().st_size
    pair.store.compact()
    pair.assert_alike()
    assert path.stat().st_size < size / 2
    assert path.with_name(path.name + "-wal").stat().st_size == 0
    pair.store.check()
    pair.reopen()
    pair.assert_alike()


@pytest.mark.parametrize("more", [{}, TREE, {"n_outliers": 3}], ids=["fraction", "tree", "count"])
def test_the_same_anchor_once_more_is_written_down(path, more):
    """No point is late any more, and the sample is another: the file kept what was before."""
    pair = made(path, more=more, seed=4, named="plain" if more else None)
    for n in (200, 100):
        pair.insert(n)
    assert pair.dyn.anchor_report().n_late > 0
    for again in (pair.dyn.anchor, pair.dyn.coreset().anchor):
        pair.do("reanchor", again)
        assert pair.store.check()
    assert pair.dyn.anchor_report().n_late == 0
    history = pair.store.history
    assert [event.what for event in history[-2:]] == ["given", "given"]
    for _ in range(2):
        assert pair.store._state.sample == pair.dyn._state.sample
        pair.reopen()
        pair.assert_alike()
        assert pair.store.history == history
        assert pair.store.check()


def test_a_store_where_a_heavy_row_came_and_went_is_sound(path):
    """Light rows, beside which a sum of doubles would have kept a trace of the heavy one."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    with dm.open_store(
        path, create=True, loss=dm.KMeansLoss(2), size=50, n_outliers=1e-5, random_state=0
    ) as store:
        store.insert(X, sample_weight=np.full(200, 1e-6))
        store.coreset()
        heavy = store.insert([100.0, 100.0], sample_weight=1e12)
        store.coreset()
        assert store.n_suspected
        store.delete(heavy)
        store.set_outliers(0)
        assert store.check()
        assert store.total_weight == pytest.approx(2e-4, rel=1e-12)
    with dm.open_store(path) as store:
        assert store.check()


@pytest.mark.parametrize("z", [0.01, 2e-6, 1.0])
def test_a_heavy_suspect_that_came_and_went_leaves_a_sound_store(tmp_path, z):
    rng = np.random.default_rng(0)
    asked = {"loss": dm.KMeansLoss(1), "size": 50, "n_outliers": 0.01, "random_state": 0}
    with dm.open_store(tmp_path / "a.duramen", create=True, **asked) as store:
        store.insert(rng.normal(size=(500, 2)), sample_weight=rng.uniform(0.5, 1.5, size=500) * 1e-6)
        before, total = store.coreset(), store.total_weight
        heavy = store.insert([[9.0, 9.0]], sample_weight=1e12)
        store.set_outliers(z)
        store.coreset()
        store.delete(heavy)
        store.set_outliers(0)
        store.check()
        assert store.total_weight == total
        store.set_outliers(0.01)
        assert_same_coreset(store.coreset(), before)
