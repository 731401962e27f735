"""What went wrong, in one line that says what to do."""

from __future__ import annotations

__all__ = ["BUG", "ERROR", "INTERRUPTED", "Interrupted", "in_one_line"]

ERROR, BUG, INTERRUPTED = 2, 1, 130
_WORDS = {  # what the library advises, and what it is here
    ", or open it with read_only=True": "",
    "dm.open_store(path, create=True, loss=...)": "duramen store init",
    "dm.open_store(path)": "with duramen store compact",
}
_EXPECTED = (ValueError, TypeError, KeyError, OSError, MemoryError, ImportError)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after what was going on has come to a good end; the text says how far it came."""


def in_one_line(error: BaseException) -> tuple[str, bool]:
    """Tell an error in one line, and whether it is of a kind that the library raises.

    Examples
    --------
    >>> in_one_line(KeyError("id 7 is not here"))
    ('id 7 is not here', True)
    >>> in_one_line(FileNotFoundError(2, "No such file or directory", "rows.csv"))
    ('rows.csv: no such file or directory', True)
    >>> in_one_line(AssertionError("1: an id would come twice"))[0]
    'unexpected AssertionError: 1: an id would come twice; DURAMEN_DEBUG=1 shows where it came from'
    """
    text = " ".join(_text(error).split())
    for said, here in _WORDS.items():
        text = text.replace(said, here)
    if isinstance(error, MemoryError):
        return f"not enough memory: {text}; take fewer rows", True
    if isinstance(error, _EXPECTED):
        return text or type(error).__name__, True
    return f"unexpected {type(error).__name__}: {text}; DURAMEN_DEBUG=1 shows where it came from", False


def _text(error: BaseException) -> str:
    if isinstance(error, KeyError) and len(error.args) == 1:
        return str(error.args[0])  # str() would put quotes around it
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)
