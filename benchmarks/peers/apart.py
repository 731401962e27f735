"""A fit in a separate process: its parameters, and the memory that it took beyond the data.

Memory is what the system counts for the process (VmHWM of Linux), so that it does
not matter who allocates it: Python, NumPy, or C++ code that neither knows of. Each
process is forked from one that has everything imported and nothing running yet, reads
the data, and warms up on a few rows, so that imports and threads are not counted.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.peers.parts import PARTS
from benchmarks.peers.task import Task

__all__ = ["Apart", "fitted_apart"]


class Apart(NamedTuple):
    """What came of a fit elsewhere; ``peak`` is None where the system does not count."""

    theta: np.ndarray
    peak: int | None


def fitted_apart(part: str, entry: str, folder: Path) -> Apart:
    """Fit the task that was saved in a folder in a new process, and wait for it.

    Raises
    ------
    RuntimeError
        If the process ends without an answer.
    """
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, part, entry, folder))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise RuntimeError(
            f"{entry} ({part}) failed in a separate process; the cause is printed above"
        ) from None
    finally:
        process.join()
        here.close()


def _answer(there: Connection, part: str, entry: str, folder: Path) -> None:
    task = Task.load(folder)
    make = next(one.make for one in PARTS[part].entries if one.key == entry)
    make(task.few()).fit()
    contender = make(task)
    gc.collect()
    before = _reset_resident()
    contender.fit()
    peak = None if before is None else max(0, (_most_resident() or 0) - before)
    there.send(Apart(contender.theta, peak))


def _reset_resident() -> int | None:
    """Have the system count the peak from now on, and say how much there is; None where it will not."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _most_resident()
    except OSError:
        return None


def _most_resident() -> int | None:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), None)
