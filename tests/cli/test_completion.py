"""Completion scripts, in the shells themselves where these are installed."""

import shutil
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from duramen.cli import main

pytest.importorskip("shtab")


def shell(*command):
    found = shutil.which(command[0])
    if found is None:
        pytest.skip(f"no {command[0]} here")
    return subprocess.run([found, *command[1:]], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for name in ("bash", "zsh", "fish", "tcsh"):
        with (folder / name).open("w") as file, redirect_stdout(file):
            assert main(["completion", name]) == 0
    (folder / "rows.csv").write_text("")
    return folder


@pytest.mark.parametrize(
    "words, found",
    [
        (["st"], {"store"}),
        (["store", "ins"], {"insert"}),
        (["build", "rows.csv", "--lo"], {"--loss"}),
        (["build", "--loss", "km"], {"kmeans", "kmedian"}),
        (["store", "insert", "a", "b", "--at"], {"--atomic"}),
        (["completion", ""], {"bash", "zsh", "fish", "tcsh"}),
        (["fit", "core.parquet", "--imp"], {"--impute"}),
        (["fit", "rows"], {"rows.csv"}),
        (["build", "-o", "rows"], {"rows.csv"}),
        (["--vers"], {"--version"}),
    ],
)
def test_bash(scripts, words, found):
    line = " ".join(f"'{word}'" for word in ["duramen", *words])
    code = (
        f"cd '{scripts}'; source ./bash; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_duramen; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(shell("bash", "--norc", "-c", code).split()) == found


@pytest.mark.parametrize("words, found", [("st", {"store"}), ("build --loss km", {"kmeans", "kmedian"})])
def test_fish(scripts, words, found):
    done = shell("fish", "--no-config", "-c", f"source '{scripts}/fish'; complete -C 'duramen {words}'")
    assert {row.partition("\t")[0] for row in done.splitlines()} == found


def test_zsh_reads_its_script(scripts):
    code = f"autoload -U compinit; compinit -u -D; eval \"$(cat '{scripts}/zsh')\"; print $_comps[duramen]"
    assert shell("zsh", "-f", "-c", code).strip() == "_shtab_duramen"


def test_without_shtab_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    done = run("completion", "bash")
    assert (done.code, done.out) == (2, "")
    assert done.err == "duramen: duramen completion needs shtab; pip install 'duramen[completion]'\n"
