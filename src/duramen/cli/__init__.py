"""The ``duramen`` command; its commands are thin calls on the library."""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from duramen.cli.options import check_output
from duramen.cli.output import Interrupted, Output, describe_error, note_interrupts, write
from duramen.cli.parser import Parser, add_group, walk

__all__ = ["main", "make_parser"]

_ERROR, _BUG, _INTERRUPTED = 2, 1, 130
_CLOSED_PIPE = 141  # as a shell reports a program ended by a closed pipe
_SHELLS = ("bash", "zsh", "fish", "tcsh")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 after success; 2 after an error, described in one line; 1 after an unexpected
    error; 130 after Ctrl-C; 141 if the output pipe was closed.
    """
    try:
        try:
            return _run(make_parser().parse_args(arguments))
        finally:
            write()  # also after --help, which raises SystemExit
    except BrokenPipeError:  # as in `duramen demo | head`
        return _CLOSED_PIPE
    except OSError as error:  # a full disk
        return _fail(error)


def _run(options: Namespace) -> int:
    options.talk = Output(json=getattr(options, "json", False), quiet=getattr(options, "quiet", False))
    try:
        with warnings.catch_warnings(), note_interrupts():
            _print_warnings(options.talk)
            if hasattr(options, "output"):
                check_output(options)
            options.run(options)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        print(f"duramen: {error if isinstance(error, Interrupted) else 'interrupted'}", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get("DURAMEN_DEBUG"):
            import traceback

            traceback.print_exc()
        return _fail(error)
    return 0


def _fail(error: Exception) -> int:
    line, expected = describe_error(error)
    print(f"duramen: {line}", file=sys.stderr)
    return _ERROR if expected else _BUG


def _print_warnings(output: Output) -> None:
    """Print the library's warnings on one line each, without those meant only for developers."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        output.warn(str(message))

    warnings.simplefilter("default")
    for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)
    warnings.showwarning = show


def make_parser() -> Parser:
    """Make the parser of the whole command line."""
    from duramen.cli import commands, demo, store

    parser = Parser(
        prog="duramen",
        description="Robust, fully-dynamic coresets: small weighted summaries of large, changing, "
        "contaminated data.",
        epilog="example: duramen demo\n         duramen build rows.parquet -o core.parquet --loss logistic "
        "--label y --outliers 2%",
    )
    parser.add_argument("--version", action="version", version=f"duramen {version('duramen')}")
    below = add_group(parser)
    commands.add_build_fit_predict_certify(below)
    store.add_parser(below)
    commands.add_report(below)
    demo.add_parser(below)
    completion = below.add_parser(
        "completion",
        help="print a script that completes commands, options and files in a shell",
        description="Print a completion script. To use it in every shell, put into ~/.bashrc: "
        'eval "$(duramen completion bash)"; into ~/.zshrc, after compinit: eval "$(duramen completion zsh)"; '
        "into ~/.config/fish/config.fish: duramen completion fish | source. Needs shtab: "
        "pip install 'duramen[completion]'.",
        epilog='example: eval "$(duramen completion bash)"',
    )
    completion.add_argument("shell", choices=_SHELLS, help="the shell")
    completion.set_defaults(run=_complete)
    return parser


def _complete(options: Namespace) -> None:
    """Print the completion script of a shell."""
    from duramen.extras import needed

    shtab = needed("shtab", "duramen completion", "completion")
    parser = make_parser()
    files = (one for command in walk(parser) for one in command._actions if one.type is Path)
    for action in files:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    write(shtab.complete(parser, options.shell) + "\n")
