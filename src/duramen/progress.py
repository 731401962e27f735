"""A bar for what takes over a second, where rich is installed, with rate and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, final

__all__ = ["Bar"]


_PATIENCE = 1.0  # seconds before a bar is worth showing


@final
class Bar:
    """How far something has come; shown, if anybody watches, once it takes over a second.

    Parameters
    ----------
    shown : bool
        Whether anybody watches.
    each : function, optional
        Called whenever something has been done.
    """

    def __init__(self, *, shown: bool, each: Callable[[], Any] | None = None) -> None:
        self._shown, self._name, self._each = shown, "", each
        self._begun = self._since = time.monotonic()
        self._rich: Any = None
        self._task: Any = None

    def begin(self, name: str) -> None:
        """Begin another part of the work, from zero."""
        self._name, self._since = name, time.monotonic()
        if self._rich is not None:
            self._rich.reset(self._task, description=name, rate="")

    def at(self, share: float, rows: int | None = None) -> None:
        """Say that a share of the part is done, from 0 to 1, which were so many rows."""
        if self._each is not None:
            self._each()
        now = time.monotonic()
        if not self._shown or now - self._begun < _PATIENCE:
            return
        if self._rich is None and not self._start():
            return
        rate = f"{rows / max(now - self._since, 1e-9):,.0f} rows/s" if rows else ""
        self._rich.update(self._task, completed=min(share, 1.0), rate=rate)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._rich is not None:
            self._rich.stop()

    def _start(self) -> bool:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        except ImportError:
            print(
                "(no progress bar: rich is not installed; pip install 'duramen[progress]')", file=sys.stderr
            )
            self._shown = False
            return False
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        more = (TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("left"))
        console = Console(stderr=True)
        self._rich = Progress(*columns, *more, console=console, transient=True, redirect_stdout=False)
        self._rich.start()
        self._task = self._rich.add_task(self._name, total=1.0, rate="")
        return True
