"""``duramen completion``: scripts by which a shell completes commands, options and choices."""

from __future__ import annotations

import argparse
from typing import Any

from duramen.cli.tree import Command, commands, subcommands

__all__ = ["add_parser", "script"]

SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": 'eval "$(duramen completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(duramen completion zsh)" in ~/.zshrc, after compinit',
    "fish": "duramen completion fish | source, in ~/.config/fish/config.fish",
}


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="a script that completes commands, options and choices in a shell",
        description="Prints a script for bash, zsh or fish. To use it in every shell: "
        + "; ".join(_WHERE.values())
        + ".",
        epilog='example: eval "$(duramen completion bash)"',
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    print(script(options.shell))


def script(shell: str) -> str:
    """Make the completion script of a shell from the parsers."""
    from duramen.cli.parser import make_parser

    found = list(commands(make_parser()))
    if shell == "fish":
        return _fish(found)
    words = _words(found)
    bash = _BASH.replace("@WORDS@", words)
    if shell == "bash":
        return f"# completion of duramen for bash: {_WHERE['bash']}\n{bash}"
    loaded = "autoload -U +X bashcompinit && bashcompinit"
    return f"# completion of duramen for zsh: {_WHERE['zsh']}\n{loaded}\n{bash}"


# Each command has a line in the table: what may follow it, and for each option with choices what they are.
_BASH = """\
_duramen_words() {
    case "$1" in
@WORDS@
    esac
}
_duramen() {
    local here="${COMP_WORDS[COMP_CWORD]}" before="" place="" word known
    [ "$COMP_CWORD" -gt 0 ] && before="${COMP_WORDS[COMP_CWORD-1]}"
    local i=1
    while [ "$i" -lt "$COMP_CWORD" ]; do
        word="${COMP_WORDS[i]}"
        known="$(_duramen_words "$place/$word")"
        [ -n "$known" ] && place="$place/$word"
        i=$((i + 1))
    done
    COMPREPLY=()
    case "$before" in
        -*)
            known="$(_duramen_words "$place:$before")"
            if [ "$known" = "@" ]; then return; fi
            if [ -n "$known" ]; then COMPREPLY=($(compgen -W "$known" -- "$here")); return; fi ;;
    esac
    known="$(_duramen_words "$place")"
    case "$here" in
        -*) ;;
        *) case "$known" in
               *"  "*) known="${known%%  *}" ;;
               *) return ;;
           esac ;;
    esac
    COMPREPLY=($(compgen -W "$known" -- "$here"))
}
complete -o default -F _duramen duramen"""


def _words(found: list[Command]) -> str:
    """Write the table: of a place, its commands or choices, two spaces, its options; of an option, choices.

    An option that takes anything has "@": nothing is offered, so that the shell offers files.
    """
    lines = []
    for command in found:
        place = "".join(f"/{word}" for word in command.words)
        flags = " ".join(flag for option in command.options for flag in option.flags)
        first = list(subcommands(command.parser)) or [one for a in command.arguments for one in a.choices]
        known = f"{' '.join(first)}  {flags}" if first else flags
        lines.append(f"        '{place}') echo '{known}' ;;")
        for option in command.options:
            if option.takes_value:
                places = "|".join(f"'{place}:{flag}'" for flag in option.flags)
                lines.append(f"        {places}) echo '{' '.join(option.choices) or '@'}' ;;")
    return "\n".join(lines)


def _fish(found: list[Command]) -> str:
    lines = [
        f"# completion of duramen for fish: {_WHERE['fish']}",
        "function __duramen_at",
        "    set -l words (commandline -opc)",
        "    set -l place",
        "    for word in $words[2..-1]",
        "        string match -q -- '-*' $word; or set -a place $word",
        "    end",
        '    set -l wanted (string split / -- "$argv[1]")',
        '    test -z "$argv[1]"; and set wanted',
        "    test (count $place) -ge (count $wanted); or return 1",
        "    test (count $wanted) -eq 0; and test (count $place) -gt 0; and return 1",
        "    for i in (seq (count $wanted))",
        '        test "$place[$i]" = "$wanted[$i]"; or return 1',
        "    end",
        "    contains -- (count $place) (count $wanted); or not set -q argv[2]",
        "end",
    ]
    for command in found:
        place = "/".join(command.words)
        below = subcommands(command.parser)
        for name, parser in below.items():
            about = _quoted((parser.description or "").partition(".")[0])
            lines.append(f"complete -c duramen -f -n '__duramen_at \"{place}\" only' -a {name} -d {about}")
        choices = " ".join(one for argument in command.arguments for one in argument.choices)
        if choices:
            lines.append(f"complete -c duramen -f -n '__duramen_at \"{place}\" only' -a '{choices}'")
        if below and command.words:
            continue
        lines += [_fish_option(place, option) for option in command.options]
    return "\n".join(lines)


def _fish_option(place: str, option: Any) -> str:
    parts = [f"complete -c duramen -n '__duramen_at \"{place}\"'"]
    parts += [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    if option.choices:
        parts.append(f"-x -a '{' '.join(option.choices)}'")
    elif option.takes_value:
        parts.append("-r")
    return " ".join([*parts, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{safe}'"
