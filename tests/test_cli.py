"""The command line, through its real entry point; its commands have tests of their own in ``cli``."""

import subprocess
import sys

import pytest

import duramen


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "duramen", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["demo", "--rows", "10"], "duramen: --rows 10 is too few"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: COMMAND"),
    ],
)
def test_errors_are_short_and_exit_2(tmp_path, arguments, message):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help(tmp_path):
    assert run("--version", cwd=tmp_path).stdout.strip() == f"duramen {duramen.__version__}"
    assert "example: duramen demo" in run("--help", cwd=tmp_path).stdout
    assert "--picture" in run("demo", "--help", cwd=tmp_path).stdout


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    command = f"{sys.executable} -m duramen demo --rows 5000 | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr
