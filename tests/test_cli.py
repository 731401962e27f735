"""The command line, through its real entry point."""

import subprocess
import sys

import pytest

import duramen
from duramen.cli import demo


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "duramen", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_the_demo_shows_that_trimming_finds_the_planted_rows(tmp_path):
    done = run("demo", "--rows", "4000", "--picture", "shown.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shown.png").stat().st_size > 20_000
    assert str(tmp_path / "shown.png") in done.stdout
    lines = done.stdout.splitlines()
    table = [
        line
        for line in lines
        if line[:32].strip() in ("knows which rows are planted", "ordinary, on everything")
    ]
    trimmed = next(line for line in lines if line.startswith("trimmed, z = 200"))
    known, ordinary, robust = (float(line[32:43]) for line in (*table, trimmed))
    assert robust < 1.02 * known < ordinary / 1.3
    assert float(trimmed[53:68].strip(" %")) > 95


def test_without_matplotlib_the_demo_says_what_to_install(tmp_path):
    hide = "import sys; sys.modules['matplotlib'] = None; from duramen.cli import main; sys.exit(main(['demo', '--rows', '1000']))"
    done = subprocess.run(
        [sys.executable, "-c", hide], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'duramen[plot]'" in done.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["demo", "--rows", "10"], "duramen: --rows 10 is too few"),
        (["demo", "--rows", "many"], "invalid int value: 'many'"),
        (
            ["demo", "--rows", "1000", "--picture", "no/such/folder.png"],
            "duramen: --picture no/such/folder.png: there is no folder",
        ),
        (["demo", "--rows", "1000", "--seed", "-1"], "duramen: --seed -1 must be 0 or more"),
        (["demo", "--rows", "1000000000000"], "duramen: not enough memory"),
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
    command = f"{sys.executable} -m duramen demo --rows 1000 | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_trimming_is_never_worse_than_the_ordinary_fit(seed):
    curves = demo.contamination_curves(2000, seed)
    assert all(t <= o + 1e-3 for t, o in zip(curves["trimmed"], curves["ordinary"], strict=True))
