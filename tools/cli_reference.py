"""The command-line reference in docs/command-line.md, generated from the parsers.

``python tools/cli_reference.py`` writes it between the two marks there; a test
checks that it is up to date.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from duramen.cli.options import PARSERS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
BEGIN = "<!-- reference: begin (made by tools/cli_reference.py) -->"
END = "<!-- reference: end -->"


def reference() -> str:
    """Write all commands as Markdown."""
    return "\n".join(line for parser in PARSERS if " " in parser.prog for line in _section(parser))


def updated(text: str) -> str:
    """Put the reference between the marks of a page."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE} has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def _section(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"{'#' * (2 + parser.prog.count(' '))} `{parser.prog}`"
    yield ""
    yield " ".join(str(parser.description).split()).replace("$", "\\$")  # two of them would be a formula
    yield ""
    yield "```sh"
    yield from (line.strip() for line in str(parser.epilog).removeprefix("example: ").splitlines())
    yield "```"
    yield ""
    if any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
        return
    yield "| | |"
    yield "| --- | --- |"
    for action in sorted(parser._actions, key=lambda action: bool(action.option_strings)):
        if action.dest != "help":
            yield f"| {_usage(action)} | {_cell((action.help or '') % vars(action))} |"
    yield ""


def _usage(action: argparse.Action) -> str:
    """Write an argument or option as on the command line, such as ``-o, --output FILE``."""
    choices = "|".join(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    text = " ".join([", ".join(action.option_strings), value]).strip()
    needed = " (required)" if action.option_strings and action.required else ""
    return (f"<code>{_cell(text)}</code>" if "|" in text else f"`{text}`") + needed


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
