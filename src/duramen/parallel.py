"""Chunks of rows, on every core.

Work over many rows is split into chunks, so that scratch memory does not grow
with the number of rows. NumPy releases the interpreter's lock inside its
kernels, so plain threads keep every core busy. Each chunk writes into its own
slice of the result, which therefore does not depend on the number of threads
or the order in which they run.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from operator import add
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Measured, in docs/speed.md: on shorter chunks two threads spend their time passing the interpreter's lock to
# each other; with more scratch memory, a chunk does not fit in the cache.
_LEAST_ROWS, _MOST_ROWS = 256, 1 << 15
_SCRATCH_BYTES = 4 << 20

_inside: ContextVar[bool] = ContextVar("duramen_inside_a_chunk", default=False)


def n_threads() -> int:
    """Return how many threads to use: the cores this process may run on.

    ``DURAMEN_NUM_THREADS``, or else ``OMP_NUM_THREADS``, overrides this.
    joblib sets the second in its workers, so that nested parallel work
    does not use more cores than there are.
    """
    for variable in ("DURAMEN_NUM_THREADS", "OMP_NUM_THREADS"):
        wanted = os.environ.get(variable, "")
        if wanted.isdigit() and int(wanted) > 0:
            return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def rows_per_chunk(scratch_bytes_per_row: int) -> int:
    """Return how many rows a chunk has, so that its scratch memory stays within 4 MiB."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _SCRATCH_BYTES // max(1, scratch_bytes_per_row)))


def for_each_chunk(
    work: Callable[[slice], None], n_rows: int, rows: int = _MOST_ROWS, *, fixed: bool = False
) -> None:
    """Call ``work(chunk)`` for consecutive slices of at most ``rows`` rows, on all cores.

    The slices have equal sizes, so that all threads end together; with ``fixed`` they have ``rows`` rows for
    any number of threads, for work whose rounding depends on where a slice ends. Nested calls run on the
    caller's thread, as the cores are already busy.

    After an error in a chunk no further chunk is started; once those under way have ended, the error of the
    earliest is raised, so that it does not depend on the threads. The caller's thread works too, and the
    others live as long as the call: a forked process never inherits a pool whose threads are gone.
    """
    if n_rows > rows and not fixed:
        threads = 1 if _inside.get() else n_threads()
        turns = -(-n_rows // (rows * threads))
        rows = -(-n_rows // (threads * turns))
    side_by_side(work, [slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows)])


def join_chunks(work: Callable[[slice], Sequence[Any]], n_rows: int, rows: int) -> list[Any]:
    """Call ``work(chunk)`` as :func:`for_each_chunk` does, and join the arrays that it returns."""
    if n_rows <= rows:
        return list(work(slice(0, n_rows)))
    joined: list[Any] = []
    lock = threading.Lock()

    def write(chunk: slice) -> None:
        parts = work(chunk)
        with lock:
            if not joined:
                joined.extend(np.empty((n_rows, *part.shape[1:]), dtype=part.dtype) for part in parts)
        for whole, part in zip(joined, parts, strict=True):
            whole[chunk] = part

    for_each_chunk(write, n_rows, rows)
    return joined


def sum_over_chunks(work: Callable[[slice], tuple[Any, ...]], n_rows: int, rows: int) -> tuple[Any, ...]:
    """Add up the results of ``work(chunk)``, entry by entry, always in the order of the rows.

    So the sum does not depend on the threads; at most a few results wait for their turn.
    """
    if n_rows <= rows:
        return work(slice(0, n_rows))
    waiting: dict[int, tuple[Any, ...]] = {}
    total: list[Any] = []
    lock = threading.Lock()
    reached = 0

    def add_work(chunk: slice) -> None:
        nonlocal reached
        parts = work(chunk)
        with lock:
            waiting[chunk.start] = parts
            while reached in waiting:
                parts = waiting.pop(reached)
                total[:] = map(add, total, parts) if total else parts
                reached += rows

    for_each_chunk(add_work, n_rows, rows, fixed=True)
    return tuple(total)


def side_by_side(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
    """Call ``work(part)`` for every part, on all cores; a single part may use all of them itself.

    As for :func:`for_each_chunk`, the error of the earliest part is raised.
    """
    helpers = 0 if len(parts) < 2 or _inside.get() else min(n_threads(), len(parts)) - 1
    if helpers <= 0:
        for part in parts:
            work(part)
        return
    waiting = iter(enumerate(parts))
    lock = threading.Lock()
    errors: dict[int, BaseException] = {}

    def take_turns() -> None:
        _inside.set(True)
        while not errors:
            with lock:
                number, part = next(waiting, (-1, None))
            if number < 0:
                return
            try:
                work(part)
            except BaseException as error:  # also an interrupt, which only the caller's thread receives
                errors[number] = error

    with ThreadPoolExecutor(helpers, "duramen") as pool:
        try:  # each helper in a copy of the caller's context, where NumPy keeps np.errstate
            others = [pool.submit(copy_context().run, take_turns) for _ in range(helpers)]
            copy_context().run(take_turns)
            wait(others)
        except BaseException as error:  # an interrupt while others work: they end what they have begun
            errors[len(parts)] = error
    if errors:
        raise errors[min(errors)]


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Run all chunks on the caller's thread, for one of many workers that use all cores together."""
    before = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(before)


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


_blas_lock = threading.Lock()
_blas_limits: list[Any] = []  # one entry per user; the first restores the limit


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run matrix products inside chunks on one thread each, as the chunks use all cores.

    The limit holds for the whole process, so users are counted, and the last one lifts it.
    """
    with _blas_lock:
        _blas_limits.append(_blas_limits[0] if _blas_limits else _blas().limit(limits=1))
    try:
        yield
    finally:
        with _blas_lock:
            limit = _blas_limits.pop()
            if not _blas_limits:
                limit.restore_original_limits()
