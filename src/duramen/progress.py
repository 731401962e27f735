"""Progress bars, drawn by rich where it is installed: for passes over data, and for the solvers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from duramen.extras import needed

_PATIENCE = 1.0  # seconds before a bar is worth showing


@final
class Bar:
    """A progress bar on standard error, with rate and time left; it appears after one second.

    It is not drawn at all if not ``shown``; ``each`` is called at every step.
    """

    def __init__(self, part: str = "", *, shown: bool, each: Callable[[], Any] | None = None) -> None:
        self._shown, self._part, self._each = shown, part, each
        self._begun = self._since = time.monotonic()
        self._rich: Any = None
        self._task: Any = None

    def at(self, share: float, rows: int | None = None, part: str = "") -> None:
        """Move to a share of a part of the work, from 0 to 1; another name begins another part.

        ``rows`` of this part have been processed, which gives the rate.
        """
        if self._each is not None:
            self._each()
        now = time.monotonic()
        if part not in ("", self._part):
            self._part, self._since = part, now
            if self._rich is not None:
                self._rich.reset(self._task, description=part, rate="")
        if self._shown and self._rich is None and now - self._begun >= _PATIENCE:
            self._start()
        if self._rich is not None:
            rate = f"{rows / max(now - self._since, 1e-9):,.0f} rows/s" if rows else ""
            self._rich.update(self._task, completed=share, rate=rate)

    def at_pass(self, number: int, share: float, rows: int) -> None:
        """Move to a share of a pass over data, each of which is another part of the work."""
        self.at(share, rows, f"pass {number}")

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self._rich is not None:
            self._rich.stop()

    def _start(self) -> None:
        try:
            from rich import console, progress
        except ImportError:
            text = "(no progress bar: rich is not installed; pip install 'duramen[progress]')"
            print(text, file=sys.stderr)
            self._shown = False
            return
        self._rich = progress.Progress(
            "{task.description}",
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            "{task.fields[rate]}",
            progress.TimeRemainingColumn(),
            "left",
            console=console.Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._rich.start()
        self._task = self._rich.add_task(self._part, total=1.0, rate="")


@contextmanager
def solver_progress(
    callback: Callable[[Any], Any] | None, progress: bool, n_starts: int, max_iter: int
) -> Iterator[Callable[[Any], Any] | None]:
    """Yield the function to call at each step of a solver, for the user's callback and the progress bar."""
    if not progress:
        yield callback
        return
    rich = needed("rich.progress", "progress=True", "progress")
    with rich.Progress("{task.description}", rich.BarColumn(), rich.TimeElapsedColumn()) as bar:
        task = bar.add_task("solving", total=max_iter)

        def report(step: Any) -> Any:
            number = step.start + 1
            text = f"start {number} of {max(n_starts, number)}"  # a further one may be tried
            text += f", iteration {step.n_iter} of at most {max_iter}, objective {step.objective:,.6g}"
            bar.update(task, completed=step.n_iter, description=text)
            return None if callback is None else callback(step)

        yield report
