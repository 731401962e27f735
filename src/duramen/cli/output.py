"""What a command prints and how it ends: lines or JSON, progress bars, errors and interrupts."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from duramen.errors import RowError
from duramen.files import naming
from duramen.progress import Bar
from duramen.text import shorten

Fields = dict[str, Any]  # of a result or a record, by name

_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)


@dataclass
class Output:
    """Where a command prints."""

    json: bool = False  # one JSON object and nothing else
    quiet: bool = False  # nothing but errors
    aside: bool = False  # lines go to standard error, because standard output holds data
    said: bool = False  # whether the command printed its result in words of its own
    warnings: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print text for the user, in place of the fields of the result."""
        self.said = True
        if self.json or self.quiet:
            return
        if self.aside:
            print(text, file=sys.stderr, flush=True)
        else:
            write(f"{text}\n")

    def warn(self, text: Warning | str, *place: Any) -> None:
        """Warn on standard error, in one line, and only once; can replace ``warnings.showwarning``."""
        line = " ".join(str(text).split())
        if not (isinstance(text, _FOR_DEVELOPERS) or line in self.warnings):
            self.warnings.append(line)
            if not self.quiet:
                print(f"duramen: warning: {line}", file=sys.stderr, flush=True)

    def result(self, command: str, fields: Fields) -> None:
        """Print the result of a command: one JSON object, or its fields unless it printed text."""
        if not self.said:
            self.say(words(fields))
        if self.json:
            found = {"command": command, **plain(fields), "warnings": self.warnings}
            write(json.dumps(found, allow_nan=False, ensure_ascii=False) + "\n")


@contextmanager
def bar(output: Output, name: str) -> Iterator[Bar]:
    """Yield a progress bar; it stays hidden without a terminal, and with --quiet."""
    shown = not output.quiet and sys.stderr.isatty()
    with closing(Bar(name, shown=shown, each=check_interrupt)) as made:
        yield made


def write(text: str = "") -> None:
    """Write to standard output at once; an error names standard output, and later output is discarded."""
    if sys.stdout is None:  # closed by the parent process
        return
    try:
        with naming("standard output"):
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (for what is left to flush at exit)
        raise


def plain(value: Any) -> Any:
    """Convert arrays, NumPy numbers and paths to JSON types; a number that is not finite becomes null."""
    text = json.dumps(value, default=lambda one: one.tolist() if hasattr(one, "tolist") else str(one))
    return json.loads(text, parse_constant=lambda _: None)


def fields_of(value: Any, *names: str) -> Fields:
    """Return attributes by their names, as fields for JSON."""
    return {name: getattr(value, name) for name in names}


def words(fields: Fields) -> str:
    """Describe fields for people, one a line; records are listed below their name."""
    lines = []
    for name, value in fields.items():
        records = value if isinstance(value, list) and value and isinstance(value[0], dict) else []
        lines.append(f"{name.replace('_', ' '):<18}{_words(len(records) if records else value)}")
        for record in records:
            parts = [f"{key.replace('_', ' ')} {_words(part, key != 'id')}" for key, part in record.items()]
            lines.append(f"  {', '.join(parts)}")
    return "\n".join(lines)


def _words(value: Any, number: bool = True) -> str:
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(_words, value))
    elif number and isinstance(value, float):
        return f"{value:,.6g}"
    elif number and type(value) is int:
        return f"{value:,}"
    return shorten(value, 80)


_pressed, _deferred = threading.Event(), threading.Event()


@contextmanager
def note_interrupts() -> Iterator[None]:
    """Record every Ctrl-C: Python discards one in a destructor; :func:`check_interrupt` raises it later."""
    _pressed.clear()
    usual = signal.default_int_handler
    with ExitStack() as stack:
        with suppress(ValueError):  # outside of the main thread
            if signal.getsignal(signal.SIGINT) is usual:
                signal.signal(signal.SIGINT, _note)
                stack.callback(signal.signal, signal.SIGINT, usual)
        yield


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed, even if Python discarded it."""
    if _pressed.is_set():
        raise KeyboardInterrupt


def _note(*_: Any) -> None:
    wait = _deferred.is_set() and not _pressed.is_set()
    _pressed.set()
    if not wait:
        raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let the first Ctrl-C take effect at the next :func:`check_interrupt`; a second one does at once."""
    _deferred.set()
    try:
        yield
    finally:
        _deferred.clear()


_HINTS = {  # as duramen.errors.HINTS
    "drop": "fill or drop such rows first",
    "impute": "fill it, drop the row, or impute it (--impute mean, median or zero)",
    "features": "leave the column out of the features (--features)",
    "large": "leave the column out of the features (--features), or store it as float64 if rounding is fine",
    "group": "leave the column out of the features (--features), or group its values first",
    "numbers": "use a loss for numbers (--loss huber), or group its values first",
    "time": "turn it into numbers first (for instance days since a date), or leave it out (--features)",
    "text": "encode it one-hot (--one-hot {column}), leave it out (--features), or correct it",
    "text id": "encode it one-hot (--one-hot {column}), use it as the ids (--id {column}), "
    "leave it out of the features (--features), or correct it",
}
_EXPECTED = (ValueError, TypeError, OSError, ImportError)


def describe_error(error: BaseException) -> tuple[str, int]:
    """Describe an error in one line; also return the exit code."""
    code, text = 2, str(error)
    if isinstance(error, RowError):
        text = error.message(_HINTS)
    elif isinstance(error, KeyError):
        text = " ".join(map(str, error.args))  # str() would put quotes around it
    elif isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: {text}; use fewer rows"
    elif isinstance(error, KeyboardInterrupt):
        code, text = 130, text or "interrupted"
    elif not isinstance(error, _EXPECTED):
        code = 1
        text = f"unexpected {type(error).__name__}: {text}; DURAMEN_DEBUG=1 shows where it came from"
    return " ".join(text.split()) or type(error).__name__, code
