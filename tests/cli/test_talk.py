"""What all commands share: how they begin, what they print, and how they end."""

import os
import shutil
import subprocess
import sys

import pytest

from duramen import cli
from duramen.cli.parser import make_parser
from duramen.cli.tree import commands, subcommands
from tests.cli.running import COMMAND, Done, process

COMMANDS = [one for one in commands(make_parser()) if one.words]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_has_help_with_an_example_that_parses(command, run):
    done = run(*command.words, "--help")
    assert (done.code, done.err) == (0, "")
    example = done.out.partition("example: ")[2]
    assert f"duramen {' '.join(command.words)}" in example
    if not subcommands(command.parser) and "eval" not in example:
        for line in example.strip().splitlines():
            make_parser().parse_args(line.split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["store", "--help"], ["--version"], ["build", "--help"]])
def test_to_begin_is_quick(arguments):
    watched = (
        "sklearn",
        "pyarrow",
        "matplotlib",
        "pandas",
        "polars",
        "rich",
        "duramen.io",
        "duramen.report",
    )
    code = (
        "import sys\nfrom duramen.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit: pass\n"
        f"print([name for name in {watched} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "error, line, code",
    [
        (KeyError("id 7 is not here"), "id 7 is not here", 2),
        (ValueError("first\n  second"), "first second", 2),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), "a.csv: no such file or directory", 2),
        (MemoryError("8 GB"), "not enough memory: 8 GB; take fewer rows", 2),
        (ImportError("it needs rich; pip install 'duramen[progress]'"), "it needs rich; pip install", 2),
        (RuntimeError("odd"), "unexpected RuntimeError: odd; DURAMEN_DEBUG=1 shows where it came from", 1),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
def test_errors_are_one_line(error, line, code, run, monkeypatch, files):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("duramen.cli.predict.check_source", broken)
    monkeypatch.delenv("DURAMEN_DEBUG", raising=False)
    done = run("predict", "m.json", "d.csv", "-o", "-")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"duramen: {line}")
    assert done.err.count("\n") == 1


def test_the_traceback_can_be_seen(run, monkeypatch):
    monkeypatch.setenv("DURAMEN_DEBUG", "1")
    done = run("fit", "absent.parquet")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1] == "duramen: absent.parquet: there is no such file"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["build"], "the following arguments are required: DATA, -o/--output, --loss"),
        (["build", "a", "-o", "b", "--loss", "dance"], "invalid choice: 'dance'"),
        (["build", "a", "-o", "b", "--loss", "logistic", "--siz", "3"], "unrecognized arguments: --siz"),
        (
            ["build", "a", "-o", "b", "--loss", "logistic", "--outliers", "some"],
            "'some' is no number; pass a share",
        ),
        (["build", "a", "-o", "b", "--loss", "logistic", "--outliers", "100%"], "'100%' cannot be set aside"),
        (["build", "a", "-o", "b", "--loss", "logistic", "--outliers=-3"], "'-3' cannot be set aside"),
        (
            ["build", "a", "-o", "b", "--loss", "logistic", "--size", "0"],
            "'0' must be a whole number, 1 or more",
        ),
        (["fit", "a", "--json", "--quiet"], "not allowed with argument"),
        (["store"], "required: COMMAND"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
    ],
)
def test_usage_errors_are_one_line(arguments, message, run):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("duramen: ")
    assert done.err.count("\n") == 1
    assert "--help" in done.err


def test_warnings_are_one_line_and_in_the_json(run, files):
    rare = ("fit", files / "numbers.csv", "--loss", "logistic", "--label", "two", "--features", "a,b")
    done = run(*rare, "--size", "300", "--max-iter", "1", "--tol", "0", "--json")
    assert done.code == 0
    assert done.err.startswith("duramen: warning: solve stopped after 1 iterations")
    assert done.err.count("\n") == 1
    assert done.json["warnings"] == [done.err.removeprefix("duramen: warning: ").strip()]
    assert run(*rare, "--size", "300", "--max-iter", "1", "--tol", "0", "--quiet") == Done(0, "", "")


@pytest.mark.parametrize("arguments", [["--help"], ["predict", "model.json", "rows.csv", "-o", "-"]])
def test_a_reader_that_leaves_early_is_no_error(files, core, run, tmp_path, arguments):
    assert run("fit", core, "-o", tmp_path / "model.json", "--quiet").code == 0
    shutil.copy(files / "rows.csv", tmp_path)
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads at all
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False
    )
    os.close(writer)
    assert done.stderr == ""
    # where Python writes without a buffer, argparse itself passes over a closed pipe
    assert done.returncode in ((141,) if arguments[0] == "predict" else (0, 141))


def test_through_the_real_entry_point(tmp_path):
    done = process("fit", "absent.parquet", cwd=tmp_path)
    assert done == Done(2, "", "duramen: absent.parquet: there is no such file\n")
    assert process("store", "dance", cwd=tmp_path).code == 2
    assert cli.__all__ == ["main"]


def test_a_bar_with_rate_and_time_left_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    from duramen import progress as bars
    from duramen.cli import progress
    from duramen.cli.output import Output
    from tests.cli.test_demo import Terminal

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(bars, "_PATIENCE", 0.0)
    with progress.bar(Output(), "inserting") as shown:
        shown.at(0.25, 1000)
        shown.at(0.5, 2000)
    drawn = sys.stderr.getvalue()
    assert all(part in drawn for part in ("inserting", "50%", "rows/s", "left"))


@pytest.mark.parametrize(
    "quiet, patience, terminal", [(True, 0.0, True), (False, 60.0, True), (False, 0.0, False)]
)
def test_no_bar_where_none_is_wanted(monkeypatch, quiet, patience, terminal):
    import io

    from duramen import progress as bars
    from duramen.cli import progress
    from duramen.cli.output import Output
    from tests.cli.test_demo import Terminal

    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setattr(bars, "_PATIENCE", patience)
    with progress.bar(Output(quiet=quiet), "inserting") as shown:
        shown.at(0.5, 1000)
    assert sys.stderr.getvalue() == ""
