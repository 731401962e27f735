"""What travels, what tasks are called, and what a user sees of them."""

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import duramen as dm
from duramen import parallel as chunks
from duramen.coreset.candidates import Summarizer
from duramen.coreset.view import SAMPLERS
from duramen.distributed import dask as dmd
from duramen.distributed import plan, summarize
from duramen.distributed.dask import DaskSource
from tests.distributed.made import LOGISTIC, arrays_of, da, dask, frame_of
from tests.support import PROBLEMS, data


class Watch(dask.callbacks.Callback):
    """Note the tasks that run, and what they return."""

    def __init__(self):
        self.tasks = []
        super().__init__(posttask=lambda key, result, *_: self.tasks.append((key, result)))

    def results(self, name):
        return [result for key, result in self.tasks if dask.utils.key_split(key) == name]


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_travels_does_not_grow_with_the_partitions(sampler):
    """Every partition has more rows than are sampled, and the number of outliers is a count."""

    def sizes(n):
        points = data(n=10 * n, heavy="none")
        chosen = {**LOGISTIC, "n_outliers": 30, "sampler": sampler, "size": 50}
        X, columns = arrays_of(points, range(n, 10 * n, n))
        with Watch() as watch:
            dmd.robust_coreset(X, anchor=PROBLEMS["logistic"].anchor(), **columns, **chosen)
        sent = [watch.results(f"duramen-{word}-pass") for word in ("first", "second")]
        assert [len(summaries) for summaries in sent] == [10, 10]
        return np.array([max(len(pickle.dumps(one)) for one in summaries) for summaries in sent])

    few, many = sizes(1000), sizes(8000)
    growth = 2.0 if sampler == "layered" else 1.05  # its layers are full one after the other
    assert (many < growth * few).all()
    assert many.max() < 8000 * 3 * 8 / 4  # a quarter of the partition


def test_names_of_tasks_and_the_tree_of_merges():
    points = data(n=2000)
    frame, columns = frame_of(points, range(50, 2000, 50))  # 40 partitions
    with Watch() as watch:
        dmd.robust_coreset(frame, **columns, **LOGISTIC)
    for word in ("first", "second"):
        assert len(watch.results(f"duramen-{word}-pass")) == 40
        assert len(watch.results(f"duramen-{word}-pass-merge")) == 5 + 1
    assert not watch.results("duramen-count-rows")
    with Watch() as watch:
        dmd.robust_coreset(frame, label="y", features=["x0", "x1"], **LOGISTIC)
    assert len(watch.results("duramen-count-rows")) == 40


def test_dasks_progress_bar_shows_it(capsys):
    from dask.diagnostics import ProgressBar

    frame, columns = frame_of(data(n=300))
    with ProgressBar(minimum=0):
        dmd.robust_coreset(frame, **columns, **LOGISTIC)
    assert capsys.readouterr().out.count("100% Completed") == 2  # passes


def test_a_task_uses_one_thread(monkeypatch):
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "4")
    helped = []

    def watched(*arguments):
        helped.append(threading.current_thread())
        return ThreadPoolExecutor(*arguments)

    monkeypatch.setattr(chunks, "ThreadPoolExecutor", watched)
    points = data("k-means", n=80_000, heavy="none")
    summarize(points, plan(loss=dm.KMeansLoss(1), size=20))
    assert helped  # by itself it takes all cores
    helped.clear()
    rows = da.from_array(points.X, chunks=(80_000, 2))
    for scheduler in ("threads", "synchronous"):
        with dask.config.set(scheduler=scheduler):
            first = plan(loss=dm.KMeansLoss(1), size=20)
            assert DaskSource(rows).reduce(partial(Summarizer, first), "test").n_rows == 80_000
    assert not helped
    assert not chunks._inside.get()


def test_the_error_without_dask_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"needs dask; pip install 'duramen\[dask\]'"):
        dmd.robust_coreset(None, **LOGISTIC)
