"""The ``duramen`` command: one command a module, each a thin call on the library."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from duramen import __version__
from duramen.cli import demo

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, or 2 after a one-line error."""
    parser = argparse.ArgumentParser(
        prog="duramen", description="Robust, fully-dynamic coresets.", epilog="example: duramen demo"
    )
    parser.add_argument("--version", action="version", version=f"duramen {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    demo.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `duramen demo | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (what is left to flush at exit goes there)
        return 141
    except MemoryError as error:
        print(f"duramen: not enough memory: {error}; take fewer rows", file=sys.stderr)
        return 2
    except (ValueError, TypeError, OSError) as error:
        print(f"duramen: {error}", file=sys.stderr)
        return 2
    return 0
