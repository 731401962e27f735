"""Completion scripts, in the shells themselves where these are found."""

import shutil
import subprocess

import pytest

from duramen.cli.completion import script
from tests.cli.running import process

CASES = [
    (["st"], {"store"}),
    (["store", "ins"], {"insert"}),
    (["build", "rows.csv", "--lo"], {"--loss"}),
    (["build", "--loss", "km"], {"kmeans", "kmedian"}),
    (["store", "insert", "a", "b", "--at"], {"--atomic"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["fit", "core.parquet", "--imp"], {"--impute"}),
    (["--vers"], {"--version"}),
]


def shell(*command):
    found = shutil.which(command[0])
    if found is None:
        pytest.skip(f"no {command[0]} here")
    return subprocess.run([found, *command[1:]], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for name in ("bash", "zsh", "fish"):
        (folder / name).write_text(script(name))
    return folder


@pytest.mark.parametrize("words, found", [*CASES, (["fit", ""], set()), (["build", "-o", ""], set())])
def test_bash(scripts, words, found):
    line = " ".join(f"'{word}'" for word in ["duramen", *words])
    code = (
        f"source '{scripts}/bash'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _duramen; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(shell("bash", "--norc", "-c", code).split()) == found


def test_bash_knows_all_commands(scripts):
    code = f"source '{scripts}/bash'; COMP_WORDS=(duramen store ''); COMP_CWORD=2; _duramen; echo ${{COMPREPLY[@]}}"
    known = "init insert delete update set-outliers reanchor coreset stats history check compact recover"
    assert shell("bash", "--norc", "-c", code).split() == known.split()
    assert "_duramen duramen" in shell(
        "bash", "--norc", "-c", f"source '{scripts}/bash'; complete -p duramen"
    )


@pytest.mark.parametrize("words, found", CASES)
def test_fish(scripts, words, found):
    line = " ".join(["duramen", *words])
    told = shell("fish", "--no-config", "-c", f"source '{scripts}/fish'; complete -C '{line}'")
    assert {row.partition("\t")[0] for row in told.splitlines()} == found


def test_zsh_reads_its_script(scripts):
    code = f"autoload -U compinit; compinit -u -D; source '{scripts}/zsh'; print $+functions[_duramen] $_comps[duramen]"
    assert shell("zsh", "-f", "-c", code).strip() == "1 _bash_complete -o default -F _duramen"


def test_through_the_real_entry_point(tmp_path):
    done = process("completion", "bash", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, script("bash") + "\n", "")
