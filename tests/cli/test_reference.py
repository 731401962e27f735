"""The page about the command line: its reference is up to date, its examples parse, and its tour runs."""

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from duramen.cli.options import PARSERS
from tests.cli.running import PAGE, schema
from tests.io.files import write

TOOL = Path(__file__).resolve().parents[2] / "tools" / "cli_reference.py"
pytestmark = pytest.mark.skipif(not (PAGE.exists() and TOOL.exists()), reason="not in a checkout")


def test_the_reference_is_up_to_date():
    spec = importlib.util.spec_from_file_location("cli_reference", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = PAGE.read_text()
    assert tool.updated(page) == page, "run python tools/cli_reference.py"


def test_every_command_states_its_json():
    with_json = [parser.prog for parser in PARSERS if "--json" in parser._option_string_actions]
    assert [f"duramen {command}" for command in schema()] == with_json


def tour():
    """Read the commands of the tour, as a shell would, without comments and pipes."""
    text = PAGE.read_text().partition("## A quick tour")[2].partition("\n## ")[0]
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line.partition(" | ")[0], comments=True)[1:] for line in blocks.splitlines()]


@pytest.fixture
def customers(tmp_path):
    rng, n = np.random.default_rng(0), 3000
    spent, visits = rng.normal(size=n), rng.normal(size=n)
    plan = rng.choice(["basic", "plus"], n).astype(object)
    churned = np.where(spent - visits + (plan == "plus") + rng.logistic(size=n) > 0, "yes", "no")
    spent[rng.choice(n, 50, replace=False)] = np.nan
    plan[rng.choice(n, 50, replace=False)] = None
    names, spent = [f"C-{5000 + number}" for number in range(n)], pa.array(spent, from_pandas=True)
    columns = {"customer": names, "spent": spent, "visits": visits, "plan": plan, "churned": churned}
    rows = pa.table(columns)
    rows = pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "customer", pa.array(["C-1042"]))])
    write(rows, tmp_path / "customers.parquet")
    write(rows.drop_columns("churned").slice(0, 50), tmp_path / "new.csv")
    write(rows.slice(10, 20), tmp_path / "corrected.csv")
    (tmp_path / "gone.txt").write_text("C-5003\nC-5004\n")
    return tmp_path


def test_the_tour_runs(customers, run, monkeypatch):
    lines = tour()
    assert len(lines) == 14
    monkeypatch.chdir(customers)
    for words in lines:
        done = run(*words)
        assert done.code == 0, (words, done.err)
        assert done.err == "" or "-" in words
