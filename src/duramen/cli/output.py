"""What a command prints: lines for people, or one JSON object for machines."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Output", "naming", "plain", "standard_output", "table", "write"]


@dataclass
class Output:
    """Where a command's words go.

    Attributes
    ----------
    json, quiet : bool
        Whether one JSON object is wanted on standard output and nothing else,
        and whether nothing but errors.
    aside : bool
        Whether standard output holds the command's own data, so that words go
        to standard error.
    warnings : list of str
        What was warned of.
    """

    json: bool = False
    quiet: bool = False
    aside: bool = False
    warnings: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print something for people."""
        if not (self.json or self.quiet):
            if self.aside:
                print(text, file=sys.stderr, flush=True)
            else:
                write(f"{text}\n")

    def warn(self, text: str) -> None:
        """Warn on standard error, in one line."""
        line = " ".join(text.split())
        if line in self.warnings:
            return
        self.warnings.append(line)
        if not self.quiet:
            print(f"duramen: warning: {line}", file=sys.stderr, flush=True)

    def emit(self, command: str, **found: Any) -> None:
        """Print what was found as one JSON object, if that is wanted."""
        if self.json:
            told = {"command": command, **plain(found), "warnings": self.warnings}
            write(json.dumps(told, allow_nan=False, ensure_ascii=False) + "\n")


def write(text: str = "") -> None:
    """Write to standard output at once; an error says that it was there."""
    if sys.stdout is None:  # closed by who started us
        return
    with standard_output():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def standard_output() -> Iterator[None]:
    """Have an error of writing say that it was standard output, to which nothing is written any more."""
    try:
        with naming("standard output"):
            yield
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (what is left to flush at exit goes there)
        raise


@contextmanager
def naming(target: str) -> Iterator[None]:
    """Have an error of writing, such as a full disk, say where it was."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, target) from error


def plain(value: Any) -> Any:
    """Turn arrays, numbers of NumPy and paths into JSON's types; what is not finite becomes null.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.nan]), "b": np.int64(3), "c": (float("inf"), "x")})
    {'a': [1.0, None], 'b': 3, 'c': [None, 'x']}
    """
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table(rows: list[tuple[str, str]]) -> str:
    """Lay out names and values, one pair a line.

    Examples
    --------
    >>> print(table([("rows", "1,000"), ("threshold", "2.5")]))
      rows       1,000
      threshold  2.5
    """
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)
