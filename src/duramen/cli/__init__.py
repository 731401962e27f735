"""The ``duramen`` command; its commands are thin calls on the library."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from duramen.cli import commands, demo, store  # noqa: F401  (which adds their commands)
from duramen.cli.options import PARSER, PARSERS, Parser, check_output, command
from duramen.cli.output import Fields, Output, describe_error, note_interrupts, write
from duramen.extras import needed

__all__ = ["main", "make_parser"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    0 after success; 2 after an error, described in one line; 1 after an unexpected
    error; 130 after Ctrl-C; 141 if the output pipe was closed.
    """
    try:
        try:
            _run(PARSER.parse_args(arguments))
        finally:
            write()  # also after --help, which raises SystemExit
    except BrokenPipeError:  # as in `duramen demo | head`; a shell reports it as 141
        return 141
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("DURAMEN_DEBUG"):
            traceback.print_exc()
        line, code = describe_error(error)
        print(f"duramen: {line}", file=sys.stderr)
        return code
    return 0


def _run(options: Namespace) -> None:
    options.talk = Output(options.json, options.quiet)
    with warnings.catch_warnings(), note_interrupts():
        warnings.simplefilter("default")
        warnings.showwarning = options.talk.warn
        check_output(options)
        options.talk.result(options.command, options.run(options))


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    return PARSER


@command("completion", "shell")
def completion(options: Namespace) -> Fields:
    """Print a script that completes commands, options and files in a shell.

    To use it in every shell, put into ~/.bashrc: eval "$(duramen completion bash)"; into ~/.zshrc,
    after compinit: eval "$(duramen completion zsh)"; into ~/.config/fish/config.fish: duramen
    completion fish | source. Needs shtab: pip install 'duramen[completion]'.

    example: eval "$(duramen completion bash)"
    """
    shtab = needed("shtab", "duramen completion", "completion")
    for parser in PARSERS:
        for action in parser._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(PARSER, options.shell)
    options.talk.say(script)
    return {"shell": options.shell, "script": script}
