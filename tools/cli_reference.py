"""The reference of the command line in docs/command-line.md, made from the parsers.

``python tools/cli_reference.py`` writes it between the two marks there; a test
checks that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from duramen.cli.parser import make_parser
from duramen.cli.tree import Command, Option, commands, subcommands

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
BEGIN = "<!-- reference: begin (made by tools/cli_reference.py) -->"
END = "<!-- reference: end -->"


def reference() -> str:
    """Write all commands as Markdown."""
    return "\n".join(
        line for command in commands(make_parser()) if command.words for line in _section(command)
    )


def updated(text: str) -> str:
    """Put the reference between the marks of a page."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE} has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def _section(command: Command) -> Iterator[str]:
    parser = command.parser
    level = "#" * (2 + len(command.words))
    yield f"{level} `duramen {' '.join(command.words)}`"
    yield ""
    yield str(parser.description).replace("$", "\\$")  # two of them would make a formula
    yield ""
    yield "```sh"
    yield from str(parser.epilog).removeprefix("example: ").splitlines()
    yield "```"
    yield ""
    if subcommands(parser):
        return
    rows = [*command.arguments, *(one for one in command.options if "--help" not in one.flags)]
    yield "| | |"
    yield "| --- | --- |"
    for one in rows:
        yield f"| {_written(one)} | {_cell(one.help)} |"
    yield ""


def _written(option: Option) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    text = ", ".join(option.flags) + value if option.flags else option.metavar
    needed = " (required)" if option.flags and option.required else ""
    return (
        f"`{text.replace('|', '&#124;')}`{needed}"
        if "|" not in text
        else f"<code>{_cell(text)}</code>{needed}"
    )


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
