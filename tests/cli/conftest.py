"""Files that many tests of the command line read."""

import pytest

from tests.cli.running import inside, numbers, table
from tests.io.files import write

LEARN = ("--loss", "logistic", "--label", "ill", "--id", "name", "--one-hot", "auto")
SMALL = ("--size", "400", "--outliers", "2%")


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with rows.parquet, rows.csv and numbers.parquet; nothing is written there."""
    folder = tmp_path_factory.mktemp("files")
    for suffix in ("parquet", "csv"):
        write(table(), folder / f"rows.{suffix}")
        write(numbers(), folder / f"numbers.{suffix}")
    return folder


@pytest.fixture
def run(capsys):
    """Run the command line in this process."""
    return lambda *arguments: inside(capsys, *arguments)


@pytest.fixture
def refuse(run):
    """Run a command that must fail, and return its error, which is one line."""

    def refused(*arguments):
        done = run(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert done.err.startswith("duramen: ")
        assert done.err.count("\n") == 1
        return done.err

    return refused


@pytest.fixture
def core(files, run, tmp_path):
    """A coreset of the rows, with its encoding."""
    made = tmp_path / "core.parquet"
    assert run("build", files / "rows.parquet", "-o", made, *LEARN, *SMALL, "--quiet") == (0, "", "")
    return made


@pytest.fixture
def model(core, run, tmp_path):
    """A model fitted to the coreset of the rows."""
    made = tmp_path / "m.json"
    assert run("fit", core, "-o", made, "--quiet") == (0, "", "")
    return made


@pytest.fixture
def store(files, run, tmp_path):
    """A store of the rows."""
    made = tmp_path / "s.duramen"
    assert run("store", "init", made, *LEARN, *SMALL, "--audit", "--quiet") == (0, "", "")
    assert run("store", "insert", made, files / "rows.parquet", "--quiet") == (0, "", "")
    return made
