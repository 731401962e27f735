"""Progress bars, drawn by rich where it is installed: for passes over data, and for the solvers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from duramen.extras import needed

__all__ = ["Bar", "solver_progress"]

_PATIENCE = 1.0  # seconds before a bar is worth showing


@final
class Bar:
    """A progress bar on standard error, with rate and time left; it appears after one second.

    Parameters
    ----------
    shown : bool
        Whether to draw it at all.
    each : function, optional
        Called at every step.
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
        """Move to a share of this part, from 0 to 1; ``rows`` have been processed, which gives the rate."""
        if self._each is not None:
            self._each()
        now = time.monotonic()
        if not self._shown or now - self._begun < _PATIENCE:
            return
        if self._rich is None and not self._start():
            return
        rate = f"{rows / max(now - self._since, 1e-9):,.0f} rows/s" if rows else ""
        self._rich.update(self._task, completed=min(share, 1.0), rate=rate)

    def at_pass(self, number: int, share: float, rows: int) -> None:
        """Move to a share of a pass over data, each of which is another part of the work."""
        if self._name != f"pass {number}":
            self.begin(f"pass {number}")
        self.at(share, rows)

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self._rich is not None:
            self._rich.stop()

    def _start(self) -> bool:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn
        except ImportError:
            print(
                "(no progress bar: rich is not installed; pip install 'duramen[progress]')", file=sys.stderr
            )
            self._shown = False
            return False
        shown = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[rate]}")
        left = (TimeRemainingColumn(), "left")
        console = Console(stderr=True)
        self._rich = Progress(*shown, *left, console=console, transient=True, redirect_stdout=False)
        self._rich.start()
        self._task = self._rich.add_task(self._name, total=1.0, rate="")
        return True


@contextmanager
def solver_progress(
    callback: Callable[[Any], Any] | None, progress: bool, n_starts: int, max_iter: int
) -> Iterator[Callable[[Any], Any] | None]:
    """Yield the function to call at each step of a solver: the user's callback, the progress bar's, or both.

    Raises
    ------
    ImportError
        If a bar is requested and rich is not installed; the message names the extra.
    """
    if not progress:
        yield callback
        return
    rich = needed("rich.progress", "progress=True", "progress")
    columns = (
        "start {task.fields[number]} of {task.fields[starts]}",
        rich.BarColumn(),
        "iteration {task.completed} of at most {task.total}, objective {task.fields[objective]}",
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns) as bar:
        task = bar.add_task("solving", total=max_iter, number=1, starts=n_starts, objective="…")

        def report(step: Any) -> Any:
            number, objective = step.start + 1, f"{step.objective:,.6g}"
            starts = max(n_starts, number)  # a further one may be tried
            bar.update(task, completed=step.n_iter, number=number, starts=starts, objective=objective)
            return callback(step) if callback is not None else None

        yield report
