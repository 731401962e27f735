"""Timing for a shared machine: both sides alternately, the best of each, and their ratio."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any


def ratio(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int = 15) -> float:
    """Run both alternately and divide the shortest times, which other load affects least.

    Each turn begins with a pause and an unmeasured call: for some 25 ms after a product, the threads of
    OpenBLAS busy-wait for the next one, and the code that runs then would be short of a core.
    """
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, call in enumerate((ours, theirs)):
            time.sleep(0.03)
            call()
            start = time.perf_counter()
            call()
            best[side] = min(best[side], time.perf_counter() - start)
    return best[0] / best[1]


def peak_bytes(call: Callable[[], Any]) -> int:
    """Measure the most memory that NumPy and Python held at once during the call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def report(what: str, value: float, target: float | None = None, unit: str = "x") -> None:
    """Print one line: the figure, and whether it meets its target."""
    verdict = (
        "" if target is None else f"   target {target:g}{unit}: {'met' if value <= target else 'MISSED'}"
    )
    print(f"  {what:<58}{value:>9.2f}{unit}{verdict}", flush=True)
