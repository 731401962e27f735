"""The coreset of a Dask collection on a cluster: two workers, TCP on the loopback, and one that is killed."""

import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

import duramen as dm
from duramen.distributed import dask as dmd
from tests.distributed.made import (
    LOGISTIC,
    arrays_of,
    assert_law,
    at_home,
    dd,
    frame_of,
    pandas_of,
    pieces_of,
)
from tests.support import PROBLEMS, SAMPLERS, assert_same_coreset, data

pytest.importorskip("distributed", reason="needs duramen[dask]")

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("on_cluster")
@pytest.mark.parametrize(
    "name, sampler, make",
    [
        ("logistic", "leverage", frame_of), ("logistic", "uniform", arrays_of), ("huber", "sensitivity", frame_of),
        ("squared", "auto", arrays_of), ("k-means", "layered", arrays_of), ("k-median", "auto", frame_of),
        ("softmax", "auto", arrays_of), ("bregman", "own", frame_of),
    ],
)  # fmt: skip
def test_it_is_the_coreset_of_one_machine(name, sampler, make):
    points = data(name, n=3000)
    order = np.random.default_rng(0).permutation(3000)
    cuts = (0, 7, 7, 1500, 1600, 1700, 1800, 1900, 2000, 2900, 3000)  # two of them empty
    assert_law(points, make(points, cuts, order), loss=PROBLEMS[name].loss, sampler=SAMPLERS[sampler])


@pytest.mark.usefixtures("on_cluster")
def test_small_floats_and_rows_that_are_numbered():
    table = pandas_of(data(n=3000)).astype({"x0": "float32", "x1": "float32"}).drop(columns="key")
    frame = dd.from_pandas(table, npartitions=5)
    expected = at_home(table, ["x0", "x1"], sample_weight=table["heavy"])
    assert expected.X.dtype == np.float32
    for rows in (frame, frame.persist()):
        assert_same_coreset(dmd.robust_coreset(rows, label="y", weight="heavy", **LOGISTIC), expected)


class Weighed(dm.LogisticLoss):
    """A loss that counts how often it is packed here."""

    packed = 0

    def __reduce__(self):
        Weighed.packed += 1
        return Weighed, ()


@pytest.mark.usefixtures("on_cluster")
def test_the_plan_leaves_once_a_pass_however_many_partitions_there_are():
    counts = []
    for n_partitions in (4, 40):
        points = data(n=2000)
        Weighed.packed = 0
        frame, columns = frame_of(points, np.linspace(0, 2000, n_partitions, dtype=int)[1:-1])
        dmd.robust_coreset(frame, **columns, **LOGISTIC | {"loss": Weighed()})
        counts.append(Weighed.packed)
    assert counts[0] == counts[1] > 0


def made(pieces, folder, times, number):
    """Make a partition; the third, at the given time, waits on its worker until that has been killed."""
    call = folder / f"{number}-{time.monotonic_ns()}"
    call.write_text(str(os.getpid()))
    if number == 3 and len(list(folder.glob("3-*"))) == times:
        (folder / "victim.part").write_text(str(os.getpid()))
        (folder / "victim.part").rename(folder / "victim")
        while True:  # until the worker is killed
            time.sleep(0.05)
    return pieces[number]


def kill_the_victim(folder, end):
    while not end.wait(0.02):
        if (folder / "victim").exists():
            os.kill(int((folder / "victim").read_text()), signal.SIGKILL)
            return


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_is_killed_in_the_middle_of_a_pass_is_not_missed(times, on_cluster, tmp_path):
    """Of eight partitions the fourth dies with its worker: in the first pass, or in the second one."""
    points = data(n=2000)
    table = pandas_of(points)
    make = partial(made, pieces_of(table, range(250, 2000, 250)), tmp_path, times)
    frame = dd.from_map(make, range(8), meta=table.iloc[:0])
    before, end = set(on_cluster.run(os.getpid).values()), threading.Event()
    killer = threading.Thread(target=kill_the_victim, args=(tmp_path, end))
    killer.start()
    try:
        assert_law(points, (frame, {"label": "y", "weight": "heavy", "id": "key"}), loss=dm.LogisticLoss())
    finally:
        end.set()
        killer.join()
    victim = int((tmp_path / "victim").read_text())
    assert victim in before
    on_cluster.wait_for_workers(2, timeout=60)
    assert victim not in on_cluster.run(os.getpid).values()
    assert len(list(tmp_path.glob("3-*"))) == 3  # two passes, and once again
