"""Ctrl-C that is not lost.

Python throws away an interrupt that arrives while an object is being deleted or
in some other callback, and importing a module has many of these. So it is noted
as well, and whoever goes from batch to batch looks at the note.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["look", "noted"]

_asked = threading.Event()


@contextmanager
def noted() -> Iterator[None]:
    """Note every Ctrl-C, which interrupts as ever; where somebody else handles it, leave it to them."""
    _asked.clear()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def look() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and nothing came of it."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _note(*_: Any) -> None:
    _asked.set()
    raise KeyboardInterrupt
