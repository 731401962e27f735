"""A bar that shows which step the demo is at: on a terminal, where rich is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["steps"]


@contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """Give the function to call as each of ``total`` steps begins; it moves a bar on standard error.

    Without a terminal it shows nothing; without rich it says once what to install.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        print("(no progress bar: rich is not installed; pip install 'duramen[progress]')", file=sys.stderr)
        yield _nothing
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total)
        begun = iter(range(total + 1))
        yield lambda name: bar.update(task, completed=next(begun), description=name)


def _nothing(name: str) -> None:
    """Show nothing."""
