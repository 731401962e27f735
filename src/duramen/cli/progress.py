"""A bar for what takes over a second: on a terminal, where rich is installed, with rate and time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from duramen.cli.interrupts import look
from duramen.cli.output import Output
from duramen.progress import Bar

__all__ = ["Bar", "bar", "watched"]


@contextmanager
def bar(output: Output, name: str) -> Iterator[Bar]:
    """Give a bar on standard error; it shows nothing without a terminal, or where --quiet was asked for."""
    made = Bar(shown=not output.quiet and sys.stderr.isatty(), each=look)
    made.begin(name)
    try:
        yield made
    finally:
        made.close()


def watched(made: Bar) -> Callable[[Any], None]:
    """Give what moves a bar as batches of a table go by."""

    def each(batch: Any) -> None:
        made.at(batch.done, batch.first + len(batch))

    return each
