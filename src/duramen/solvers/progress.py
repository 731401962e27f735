"""A progress bar for long runs, where rich is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from duramen.solvers.problem import Step

__all__ = ["reporting"]

Callback = Callable[[Step], Any]


@contextmanager
def reporting(
    callback: Callback | None, progress: bool, n_starts: int, max_iter: int
) -> Iterator[Callback | None]:
    """Give the callback to call after each iteration: the user's, the progress bar's, or both.

    Raises
    ------
    ImportError
        If a bar is wanted and rich is not installed; it names the extra.
    """
    if not progress:
        yield callback
        return
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        raise ImportError("progress=True needs rich; pip install 'duramen[progress]'") from None
    columns = (
        TextColumn("start {task.fields[number]} of {task.fields[starts]}"),
        BarColumn(),
        TextColumn("iteration {task.completed} of at most {task.total}, objective {task.fields[objective]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("solving", total=max_iter, number=1, starts=n_starts, objective="…")

        def report(step: Step) -> Any:
            bar.update(task, completed=step.n_iter, number=step.start + 1, objective=f"{step.objective:,.6g}")
            return callback(step) if callback is not None else None

        yield report
