"""Chunks: each row once, the earliest error, the wanted number of threads, and no fear of forks."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

import duramen as dm
from duramen import parallel as chunks


@pytest.mark.parametrize("threads", ["1", "2", "7"])
@pytest.mark.parametrize("n_rows", [0, 1, 9, 10, 11, 1003])
def test_every_row_is_visited_once(monkeypatch, threads, n_rows):
    monkeypatch.setenv("DURAMEN_NUM_THREADS", threads)
    seen = np.zeros(n_rows, dtype=int)

    def work(chunk):
        seen[chunk] += 1

    chunks.for_each_chunk(work, n_rows, 10)
    assert (seen == 1).all()


def test_the_error_of_the_earliest_chunk_is_raised(monkeypatch):
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "4")
    late = threading.Event()

    def work(chunk):
        if chunk.start <= 90 < chunk.stop:
            late.set()
            raise ValueError("late")
        if chunk.start <= 20 < chunk.stop:
            late.wait(5)
            raise ValueError("early")

    with pytest.raises(ValueError, match="early"):
        chunks.for_each_chunk(work, 100, 10)


def test_the_number_of_threads(monkeypatch):
    monkeypatch.delenv("DURAMEN_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert chunks.n_threads() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert chunks.n_threads() == 3
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "5")
    assert chunks.n_threads() == 5
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "many")
    assert chunks.n_threads() == 3


def test_rows_per_chunk_stays_in_its_bounds():
    assert chunks.rows_per_chunk(1) == chunks.rows_per_chunk(0) == 1 << 15
    assert chunks.rows_per_chunk(1 << 40) == 256
    assert chunks.rows_per_chunk(1 << 10) == 1 << 12


def _mean_loss(X):
    return dm.KMeansLoss(1).values(np.zeros((1, 3)), X).mean()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_works_on():
    X = np.ones((50_000, 3))
    before = _mean_loss(X)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_mean_loss, [X, X]).get(timeout=60) == [before, before]


def test_blas_has_one_thread_inside_and_its_own_number_after():
    """Users inside one another share the limit, and the last one lifts it."""

    def threads():
        return {library.num_threads for library in chunks._blas().lib_controllers}

    with chunks._blas().limit(limits=2):
        if threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        with chunks.one_blas_thread():
            assert threads() == {1}
            with chunks.one_blas_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {2}


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="before 2.0 errstate belongs to a thread"
)
def test_the_callers_error_state_reaches_every_chunk(monkeypatch):
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "3")
    zeros = np.zeros(100)

    def work(chunk):
        1 / zeros[chunk]

    with np.errstate(divide="ignore"):
        chunks.for_each_chunk(work, 100, 10)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        chunks.for_each_chunk(work, 100, 10)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_while_others_work_waits_for_them(monkeypatch):
    """The caller may be interrupted while it waits: no thread goes on behind its back."""
    ended, main = [], threading.main_thread()
    if threading.current_thread() is not main:
        pytest.skip("only the main thread is interrupted")

    def work(number):
        if threading.current_thread() is main:
            return
        time.sleep(0.2)
        if not ended:
            os.kill(os.getpid(), signal.SIGINT)  # the caller has nothing left to do, and waits
            time.sleep(0.2)
        ended.append(number)

    monkeypatch.setattr(chunks, "n_threads", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        chunks.side_by_side(work, range(2))
    assert len(ended) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "duramen"]
