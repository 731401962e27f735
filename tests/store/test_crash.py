"""Killed at any moment: what was acknowledged is there, and no half of what was not."""

import pickle
import shutil
import signal

import numpy as np
import pytest

import duramen as dm
from tests.store.life import KINDS, Life, assert_alike, held, make, mirror, perform

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
LIVES = [  # the kind of store, a seed, and how often it is killed
    ("ranked, names", 2, 4),
    *(pytest.param(kind, seed, 25, marks=pytest.mark.slow) for kind in KINDS for seed in (0, 1)),
]


def copied(path, folder):
    """Copy a store with its log, as it lies there."""
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, folder / file.name)
    return folder / path.name


@pytest.mark.parametrize("kind, seed, kills", LIVES)
def test_what_was_acknowledged_is_there_after_every_kill(kind, seed, kills, nursery, tmp_path):
    """A store goes through many crashes; a model and a dynamic coreset in memory do what it did."""
    rng = np.random.default_rng([seed, len(kind)])
    path, pickled = tmp_path / "a.duramen", tmp_path / "life"
    make(path, kind).close()
    life, dyn, halves = Life.of(kind, seed), mirror(kind), 0
    for kill in range(kills):
        pickled.write_bytes(pickle.dumps(life))
        heard = int(rng.integers(0, 10))  # 0: while it opens
        ended = nursery.killed(heard, rng.uniform(0, 0.02), do="live", path=str(path), life=str(pickled))
        assert ended.code == -signal.SIGKILL, nursery.errors()
        acknowledged = max(ended.acknowledged, life.k)
        where = path if kill % 2 else copied(path, tmp_path / f"copy {kill}")  # else the next child recovers
        with dm.open_store(where) as store:
            assert store.check()
            while life.k < acknowledged:
                steps = life.plan()
                perform(steps, dyn)
                life = life.took(steps)
            if held(store) != life.held():  # one more was done, and its acknowledgement cut off
                steps = life.plan()
                perform(steps, dyn)
                life, halves = life.took(steps), halves + 1
            assert held(store) == life.held()
            assert_alike(store, dyn)
    assert life.k > kills  # else nothing was shown
