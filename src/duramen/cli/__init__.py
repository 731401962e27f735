"""The ``duramen`` command: one command a module, each a thin call on the library."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from duramen.cli.errors import BUG, ERROR, INTERRUPTED, Interrupted, in_one_line
from duramen.cli.interrupts import noted
from duramen.cli.output import Output, write
from duramen.cli.parser import make_parser

__all__ = ["main"]

_CLOSED_PIPE = 141  # what a shell reports of a program that its closed pipe ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 after success; 2 after an error, told in one line; 1 after one that nobody
    expected; 130 after Ctrl-C; 141 if the reader of the output has gone.
    """
    try:
        try:
            code = _run(make_parser().parse_args(arguments))
        finally:
            write()  # also after --help, which leaves by SystemExit
    except BrokenPipeError:  # as in `duramen demo | head`
        return _CLOSED_PIPE
    except OSError as error:  # a full disk
        print(f"duramen: {in_one_line(error)[0]}", file=sys.stderr)
        return ERROR
    return code


def _run(options: argparse.Namespace) -> int:
    output = Output(json=getattr(options, "json", False), quiet=getattr(options, "quiet", False))
    options.talk = output
    try:
        with warnings.catch_warnings(), noted():
            _tell_warnings(output)
            options.run(options)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        print(f"duramen: {error if isinstance(error, Interrupted) else 'interrupted'}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("DURAMEN_DEBUG"):
            import traceback

            traceback.print_exc()
        line, expected = in_one_line(error)
        print(f"duramen: {line}", file=sys.stderr)
        return ERROR if expected else BUG
    return 0


def _tell_warnings(output: Output) -> None:
    """See that what the library warns of comes as one line; what only programmers care for does not."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        output.warn(str(message))

    warnings.simplefilter("default")
    for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)
    warnings.showwarning = show
