"""The experiment on changing data, on made-up rows: its page, and what it finds."""

import contextlib
import io

import pytest

from tests.experiments.tables import tables

dynamic_covertype = pytest.importorskip("experiments.dynamic_covertype", reason="not in a checkout")


def written(experiment, arguments, tmp_path):
    """Run an experiment: its page, which is printed and written."""
    path = tmp_path / "page.md"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        text = experiment.main([*arguments.split(), "--out", str(path)])
    assert text == path.read_text()
    assert out.getvalue() == text + "\n"
    return text


@pytest.mark.filterwarnings("ignore:the solution is")
def test_half_of_it_replaced(tmp_path):
    arguments = "--made-up --rows 6000 --outliers 60 --seeds 2 --size 400 --test-rows 500"
    page = written(dynamic_covertype, arguments, tmp_path)
    assert f"    python -m experiments.dynamic_covertype {arguments}\n" in page
    assert "**met**" in page
    head, _, *seen = tables(page)["What was seen"]
    live = [dict(zip(head, row, strict=True)) for row in seen if row[0] == "ranked, live"]
    assert len(live) == 3
    assert all(row["ids in common"] == "100.0%" for row in live)
