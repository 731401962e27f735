"""The tour of the docs runs, line by line, on the data that it is about."""

import re
import shlex

import numpy as np
import pyarrow as pa
import pytest

from tests.cli.running import PAGE, write


def commands():
    """Read the commands of the tour, as a shell would: comments and what a pipe feeds are left out."""
    tour = PAGE.read_text().partition("## A quick tour")[2].partition("\n## ")[0]
    blocks = "".join(re.findall(r"```sh\n(.*?)```", tour, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line.partition(" | ")[0], comments=True)[1:] for line in blocks.splitlines()]


@pytest.fixture
def customers(tmp_path):
    rng, n = np.random.default_rng(0), 3000
    spent, visits = rng.normal(size=n), rng.normal(size=n)
    plan = rng.choice(["basic", "plus"], n).astype(object)
    churned = np.where(spent - visits + (plan == "plus") + rng.logistic(size=n) > 0, "yes", "no")
    spent[rng.choice(n, 50, replace=False)] = np.nan
    plan[rng.choice(n, 50, replace=False)] = None
    names = [f"C-{5000 + number}" for number in range(n)]
    rows = pa.table(
        {
            "customer": names,
            "spent": pa.array(spent, from_pandas=True),
            "visits": visits,
            "plan": plan,
            "churned": churned,
        }
    )
    rows = pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "customer", pa.array(["C-1042"]))])
    write(rows, tmp_path / "customers.parquet")
    write(rows.drop_columns("churned").slice(0, 50), tmp_path / "new.csv")
    write(rows.slice(10, 20), tmp_path / "corrected.csv")
    (tmp_path / "gone.txt").write_text("C-5003\nC-5004\n")
    return tmp_path


def test_the_tour_runs(customers, run, monkeypatch):
    lines = commands()
    assert len(lines) == 14
    monkeypatch.chdir(customers)
    for words in lines:
        done = run(*words)
        assert done.code == 0, (words, done.err)
        assert done.err == "" or "-" in words
