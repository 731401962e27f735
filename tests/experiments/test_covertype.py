"""The experiment on Covertype, on made-up rows: its page, its verdicts, its arguments."""

import contextlib
import io
from typing import NamedTuple

import pytest

from tests.experiments.tables import agrees, number, tables

covertype = pytest.importorskip("experiments.covertype", reason="not in a checkout")

SIZES, ROUNDS = (400, 1000), (1, 2)
ARGUMENTS = (
    "--made-up --rows 6000 --outliers 120 --seeds 2 --sizes 400 1000 --rounds 1 2 --test-rows 1000 --peers"
)


class Page(NamedTuple):
    text: str
    printed: str
    progress: str
    written: str


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiments") / "covertype.md"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        text = covertype.main([*ARGUMENTS.split(), "--out", str(path)])
    return Page(text, out.getvalue(), err.getvalue(), path.read_text())


def test_the_page_is_printed_and_written_and_says_how_it_was_made(page):
    assert page.text == page.written
    assert page.printed == page.text + "\n"
    assert f"    python -m experiments.covertype {ARGUMENTS}\n" in page.text
    assert "5,000 training rows of 54" in page.text
    assert "{" not in page.text


def test_progress_is_one_line_a_seed(page):
    assert [line.split(":")[0] for line in page.progress.splitlines()] == ["seed 0", "seed 1"]


def test_every_setting_has_its_row(page):
    head, _, *rows = tables(page.text)["What was seen"]
    assert {len(cells) for cells in rows} == {len(head)} == {8}
    ways = [(name, rounds, size) for name, rounds, size, *_ in rows[1:-2]]
    named = [("functions", ""), ("estimator", "1"), ("estimator", "2")]
    assert ways == [(*way, f"{size:,}") for size in SIZES for way in named]
    assert rows[0][0].startswith("baseline")
    assert rows[0][3] == "1.0000 (1.0000)"
    assert rows[-2][:2] == ["estimator", "default"]
    assert rows[-2][2].endswith("(auto)")
    assert rows[-1][0].startswith("informed")


def test_means_and_worst_agree(page):
    _, _, *rows = tables(page.text)["What was seen"]
    for row in rows:
        ratio, worst = (number(word.strip("()")) for word in row[3].split())
        assert ratio <= worst
        found, least = (number(word.strip("()")) for word in row[7].split())
        assert 0 <= least <= found <= 1


def test_verdicts_agree_with_figures(page):
    _, _, *rows = tables(page.text)["Against the targets"]
    named = [f"speed-up, {size:,} rows" for size in SIZES] + [f"harm found, {size:,} rows" for size in SIZES]
    assert [row[0] for row in rows] == ["loss ratio, 1,000 rows", *named]
    for _, asked, aim, *cells in rows:
        assert len(cells) == 1 + len(ROUNDS)
        assert all(agrees(cell, asked, aim) for cell in cells)


def test_judged_are_the_means_of_the_table(page):
    _, _, *seen = tables(page.text)["What was seen"]
    ratios = [row[3].split()[0] for row in seen if row[2] == "1,000"]
    _, _, judged, *_ = tables(page.text)["Against the targets"]
    assert [cell.split()[0] for cell in judged[3:]] == ratios


def test_peers_stand_for_themselves(page):
    _, _, blind, trimmed = tables(page.text)["scikit-learn"]
    assert "blind" in blind[0]
    assert number(blind[1]) > number(trimmed[1])  # trimming is what the ratio is about
    assert number(trimmed[1]) < 1.02  # the same alternation as ours, from another start


def test_another_run_finds_the_same_but_for_times():
    base = covertype.made_up_covertype(4000)
    settings = covertype.settings_of([500], [2])
    first, again = (covertype.run(3, base, settings, z=80, held_out=500) for _ in range(2))
    assert list(first.measured) == settings
    for setting in settings:
        assert first.measured[setting]._replace(seconds=0) == again.measured[setting]._replace(seconds=0)
    assert first.full._replace(seconds=0) == again.full._replace(seconds=0)
    assert first.n_harmful == again.n_harmful > 0
    assert first.peers == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rows 5000", "--rows 5000 is for made-up data"),
        ("--made-up --rows 10", "--rows 10 is too few"),
        ("--outliers 0", "--outliers 0 and --seeds 5 must be 1 or more"),
        ("--sizes 50 4000", "--sizes 50 is too few rows for 55 parameters"),
        ("--rounds 0", "--rounds 0 and --test-rows 10000 must be 1 or more"),
        ("--sizes many", "invalid int value: 'many'"),
        ("--made-up --rows 2000 --test-rows 100", "fewer than four times --outliers 10000"),
        ("--out nowhere/page.md", "there is no folder nowhere"),
        ("--data nowhere", "there is no covertype.parquet in nowhere; name its folder with --data"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        covertype.main(arguments.split())
    assert stopped.value.code == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
