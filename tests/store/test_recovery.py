"""What is saved of a damaged store is right: every row that comes back is the row that was put in."""

import numpy as np
import pytest

import duramen as dm
from duramen.store import recover

PAGE = 4096
KINDS = {
    "numbers": {"loss": dm.LogisticLoss()},
    "names": {"loss": dm.LogisticLoss(), "audit": True},
    "tree": {"loss": dm.KMedianLoss(2), "engine": "tree", "height": 3},
}


class Life:
    """A store with rows that came in bulk and singly, some of which left; and what must be in it."""

    def __init__(self, path, kind):
        rng = np.random.default_rng(0)
        X, w = rng.normal(size=(1500, 4)), rng.uniform(1, 2, size=1500)
        y = (rng.random(1500) < 0.5) * 1.0 if kind != "tree" else None
        self.path, self.named = path, kind == "names"
        with dm.open_store(
            path, create=True, size=60, n_outliers=0.05, random_state=1, **KINDS[kind]
        ) as store:
            numbers = []
            for part in (slice(0, 1400), *(slice(one, one + 1) for one in range(1400, 1500))):
                names = [f"n{one}" for one in range(1500)[part]] if self.named else None
                numbers.extend(
                    store.insert(X[part], None if y is None else y[part], w[part], ids=names).tolist()
                )
            store.delete(numbers[::7])
            store.set_outliers(0.03)
            store.note("who", "me")
            left = [row for row in range(1500) if row % 7]
            self.rows = {
                numbers[row]: (X[row].tobytes(), w[row], None if y is None else y[row]) for row in left
            }
            self.core, self.forgotten = store.coreset(), store.forgotten
        self.content = path.read_bytes()


@pytest.fixture(scope="module", params=KINDS)
def life(request, tmp_path_factory):
    return Life(tmp_path_factory.mktemp("life") / "data.duramen", request.param)


def saved(life, folder, content):
    """Recover from damaged content, and see that all that came back is right."""
    path, new = folder / "damaged", folder / "saved"
    path.write_bytes(content)
    found = recover(path, new)
    assert path.read_bytes() == content
    with dm.open_store(new) as store:
        assert store.check()
        assert len(store) == found.n_points
        if len(store):
            points = store.points()
            labels = [None] * len(points) if points.y is None else points.y.tolist()
            for one, row, weight, label in zip(
                points.ids.tolist(), points.X, points.weights, labels, strict=True
            ):
                assert life.rows[one] == (row.tobytes(), weight, label)
        if life.named and len(store):
            assert all(name.startswith("n") for name in store.names_of(store.ids))
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
            np.zeros(4), 1.0 if life.core.y is not None else None, ids="new" if life.named else None
        )
        if store.engine == "ranked":  # a tree depends on how points came
            store.delete("new" if life.named else store.ids[-1])
            assert np.array_equal(store.coreset().ids, life.core.ids)
            np.testing.assert_allclose(store.coreset().weights, life.core.weights, rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_one_page_lost_loses_no_more_than_it_held(life, tmp_path, seed):
    """Page 1 is SQLite's own; whichever other is gone, something is saved, and what is lost is counted."""
    rng = np.random.default_rng(seed)
    page = int(rng.integers(1, len(life.content) // PAGE))
    damaged = bytearray(life.content)
    damaged[page * PAGE : (page + 1) * PAGE] = rng.bytes(PAGE)
    found = saved(life, tmp_path, bytes(damaged))
    assert found.n_lost is None or found.n_points + found.n_lost == len(life.rows)
    assert found.n_points > 0


def test_the_head_of_the_file_is_not_needed(life, tmp_path):
    found = saved(life, tmp_path, bytes(PAGE) + life.content[PAGE:])
    assert found.n_points == len(life.rows)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_short(life, tmp_path, share):
    saved(life, tmp_path, life.content[: int(share * len(life.content))])


def test_without_settings_nothing_can_be_read(life, tmp_path):
    (tmp_path / "damaged").write_bytes(bytes(PAGE) * 5)
    with pytest.raises(ValueError, match="what it says of its settings is lost"):
        recover(tmp_path / "damaged", tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
