"""What all commands share: how they begin, what they print, and how they end."""

import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from duramen import __version__, cli, progress
from duramen.cli import make_parser
from duramen.cli.options import PARSERS, names, outliers, outliers_or_auto
from duramen.cli.output import _HINTS, Output, bar, describe_error, plain, words
from duramen.errors import HINTS, RowError
from duramen.files import naming
from tests.cli.running import COMMAND, Done, process
from tests.cli.test_demo import Terminal

COMMANDS = [parser.prog.split()[1:] for parser in PARSERS[1:]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_that_parses(words, run):
    done = run(*words, "--help")
    assert (done.code, done.err) == (0, "")
    example = done.out.partition("example: ")[2]
    assert f"duramen {' '.join(words)}" in example
    if "eval" not in example:
        for line in example.strip().splitlines():
            make_parser().parse_args(line.split()[1:])


def test_nothing_slow_is_imported_to_parse():
    watched = ("sklearn", "pyarrow", "matplotlib", "pandas", "polars", "rich", "shtab", "duramen.report")
    code = (
        "import sys\nfrom duramen.cli import main\n"
        "for arguments in ['--help'], ['store', '--help'], ['--version'], ['build', '--help']:\n"
        "    try: main(arguments)\n"
        "    except SystemExit: pass\n"
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
        (MemoryError("8 GB"), "not enough memory: 8 GB; use fewer rows", 2),
        (ImportError("it needs rich; pip install 'duramen[progress]'"), "it needs rich; pip install", 2),
        (RuntimeError("odd"), "unexpected RuntimeError: odd; DURAMEN_DEBUG=1 shows where it came from", 1),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
def test_errors_are_one_line(error, line, code, run, monkeypatch, files):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("duramen.cli.commands.read_model", broken)
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
    assert done.err.splitlines()[-1] == "duramen: absent.parquet: no such file or directory"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "required: COMMAND"),
        ("dance", "invalid choice: 'dance'"),
        ("build", "the following arguments are required: -o/--output, DATA, --loss"),
        ("build a -o b --loss dance", "invalid choice: 'dance'"),
        ("build a -o b --loss logistic --siz 3", "unrecognized arguments: --siz"),
        ("build a -o b --loss logistic --outliers some", "'some' cannot be set aside; pass a fraction"),
        ("build a -o b --loss logistic --outliers 100%", "'100%' cannot be set aside"),
        ("build a -o b --loss logistic --outliers=-3", "'-3' cannot be set aside"),
        ("store set-outliers s.duramen auto", "'auto' cannot be set aside"),
        ("build a -o b --loss logistic --size 0", "'0' must be a whole number, 1 or more"),
        ("fit a --json --quiet", "not allowed with argument"),
        ("store", "required: COMMAND"),
        ("completion dance", "invalid choice: 'dance'"),
    ],
)
def test_usage_errors_are_one_line(arguments, message, refuse):
    error = refuse(*arguments.split())
    assert message in error
    assert "--help" in error


def test_warnings_are_one_line_and_in_the_json(run, files):
    rare = ("fit", files / "numbers.csv", "--loss", "logistic", "--label", "two", "--features", "a,b")
    done = run(*rare, "--size", "300", "--max-iter", "1", "--tol", "0", "--json")
    assert done.code == 0
    assert done.err.startswith("duramen: warning: solve stopped after 1 iterations")
    assert done.err.count("\n") == 1
    assert done.json["warnings"] == [done.err.removeprefix("duramen: warning: ").strip()]
    assert run(*rare, "--size", "300", "--max-iter", "1", "--tol", "0", "--quiet") == Done(0, "", "")


@pytest.mark.parametrize("arguments", ["--help", "demo --rows 5000", "predict m.json rows.csv -o -"])
def test_a_reader_that_leaves_early_is_not_an_error(files, model, tmp_path, arguments):
    shutil.copy(files / "rows.csv", tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    end = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "check": False}
    done = subprocess.run([*COMMAND, *arguments.split()], stdout=writer, **end)
    os.close(writer)
    assert done.stderr == ""
    # where Python writes without a buffer, argparse itself passes over a closed pipe
    assert done.returncode in ((0, 141) if arguments == "--help" else (141,))


def test_through_the_real_entry_point(tmp_path):
    assert process("--version", cwd=tmp_path) == Done(0, f"duramen {__version__}\n", "")
    assert process("demo", "--rows", "10", cwd=tmp_path).err.startswith("duramen: argument --rows: '10'")
    done = process("fit", "absent.parquet", cwd=tmp_path)
    assert done == Done(2, "", "duramen: absent.parquet: no such file or directory\n")
    assert cli.__all__ == ["main", "make_parser"]


def test_a_bar_with_rate_and_time_left_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with bar(Output(), "inserting") as shown:
        shown.at(0.25, 1000)
        shown.at(0.5, 2000)
    drawn = sys.stderr.getvalue()
    assert all(part in drawn for part in ("inserting", "50%", "rows/s", "left"))


@pytest.mark.parametrize(
    "quiet, patience, terminal", [(True, 0.0, True), (False, 60.0, True), (False, 0.0, False)]
)
def test_no_bar_where_none_is_wanted(monkeypatch, quiet, patience, terminal):
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    with bar(Output(quiet=quiet), "inserting") as shown:
        shown.at(0.5, 1000)
    assert sys.stderr.getvalue() == ""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")  # noqa: PTH110
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "fit core.parquet --json", "predict m.json rows.csv -o -"])
def test_standard_output_that_is_full_or_closed(files, model, tmp_path, words, buffered):
    (tmp_path / "rows.csv").write_bytes((files / "rows.csv").read_bytes())
    end = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "check": False}
    end["env"] = {**os.environ, "PYTHONUNBUFFERED": buffered}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*COMMAND, *words.split()], stdout=full, **end)
    line = "duramen: standard output: no space left on device\n"
    assert (done.returncode, done.stderr) == (2, line)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *words.split()]
    done = subprocess.run(shell, **end)
    closed = "duramen: -o - writes predictions to standard output, which is closed, or where --json also prints; name a file\n"
    assert (done.returncode, done.stderr) == ((2, closed) if words.endswith("-") else (0, ""))


def test_a_full_disk_is_named():
    with pytest.raises(OSError, match="No space") as error, naming("core.parquet"):
        raise OSError(28, "No space left on device")
    assert describe_error(error.value) == ("core.parquet: no space left on device", 2)


def test_advice_names_options_instead_of_arguments():
    error = RowError("column {column!r} has no value in {row}", 3, column="age", hint="impute")
    assert "impute='mean', 'median' or 'zero'" in str(error)
    assert describe_error(error)[0].endswith("or impute it (--impute mean, median or zero)")
    assert set(_HINTS) == set(HINTS)


def test_nothing_is_written_to_a_closed_standard_output(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    Output().say("words")


def test_names_and_outliers_are_read():
    assert names('age,"income, net",colour') == ["age", "income, net", "colour"]
    assert [outliers(text) for text in ("2%", "0.02", "400")] == [0.02, 0.02, 400.0]
    assert [outliers_or_auto(text) for text in ("2%", "auto", "0")] == [0.02, None, 0.0]


def test_fields_for_machines_and_for_people():
    fields = {"a": np.array([1.0, np.nan]), "b": np.int64(3), "c": (float("inf"), "x")}
    assert plain(fields) == {"a": [1.0, None], "b": 3, "c": [None, "x"]}
    assert words({"n_points": 3000, "theta": [0.25, -1.0], "set_aside": [{"id": "r1", "loss": 7.5}]}) == (
        "n points          3,000\ntheta             0.25, -1\nset aside         1\n  id r1, loss 7.5"
    )
