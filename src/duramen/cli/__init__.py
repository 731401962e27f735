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

from duramen.cli import commands, demo, store  # noqa: F401  (which adds their commands)
from duramen.cli.options import Parser, Result, add_commands, check_outputs, command, walk
from duramen.cli.output import Interrupted, Output, describe_error, note_interrupts, write

__all__ = ["main", "make_parser"]

_ERROR, _BUG, _INTERRUPTED = 2, 1, 130
_CLOSED_PIPE = 141  # as a shell reports a program ended by a closed pipe
_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 after success; 2 after an error, described in one line; 1 after an unexpected
    error; 130 after Ctrl-C; 141 if the output pipe was closed.
    """
    try:
        try:
            _run(make_parser().parse_args(arguments))
        finally:
            write()  # also after --help, which raises SystemExit
    except BrokenPipeError:  # as in `duramen demo | head`
        return _CLOSED_PIPE
    except KeyboardInterrupt as error:
        print(f"duramen: {error if isinstance(error, Interrupted) else 'interrupted'}", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get("DURAMEN_DEBUG"):
            import traceback

            traceback.print_exc()
        line, expected = describe_error(error)
        print(f"duramen: {line}", file=sys.stderr)
        return _ERROR if expected else _BUG
    return 0


def _run(options: Namespace) -> None:
    options.talk = Output(json=options.json, quiet=options.quiet)
    with warnings.catch_warnings(), note_interrupts():
        _print_warnings(options.talk)
        check_outputs(options)
        options.talk.result(options.command, *options.run(options))


def _print_warnings(output: Output) -> None:
    """Print the library's warnings on one line each, without those meant only for developers."""

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        output.warn(str(message))

    warnings.simplefilter("default")
    for kind in _FOR_DEVELOPERS:
        warnings.simplefilter("ignore", kind)
    warnings.showwarning = show


def make_parser() -> Parser:
    """Make the parser of the whole command line."""
    parser = Parser(
        prog="duramen",
        description="Robust, fully-dynamic coresets: small weighted summaries of large, changing, "
        "contaminated data.",
        epilog="example: duramen demo\n         duramen build rows.parquet -o core.parquet --loss logistic "
        "--label y --outliers 2%",
    )
    parser.add_argument("--version", action="version", version=f"duramen {version('duramen')}")
    add_commands(parser)
    return parser


@command("completion", "shell")
def completion(options: Namespace) -> Result:
    """Print a script that completes commands, options and files in a shell.

    To use it in every shell, put into ~/.bashrc: eval "$(duramen completion bash)"; into ~/.zshrc,
    after compinit: eval "$(duramen completion zsh)"; into ~/.config/fish/config.fish: duramen
    completion fish | source. Needs shtab: pip install 'duramen[completion]'.

    example: eval "$(duramen completion bash)"
    """
    from duramen.extras import needed

    shtab = needed("shtab", "duramen completion", "completion")
    parser = make_parser()
    for action in (one for each in walk(parser) for one in each._actions if one.type is Path):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(parser, options.shell)
    return script, {"shell": options.shell, "script": script}
