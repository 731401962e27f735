"""The experiment on the survey, on made-up points: its page, its verdicts, its arguments."""

import contextlib
import io
from typing import NamedTuple

import numpy as np
import pytest

from tests.experiments.tables import agrees, number, tables

survey = pytest.importorskip("experiments.survey", reason="not in a checkout")

STARTS = (1, 3)
ARGUMENTS = "--made-up --rows 6000 --outliers 120 --seeds 2 --size 600 --k 4 --starts 1 3"


class Page(NamedTuple):
    text: str
    printed: str
    progress: str
    written: str


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiments") / "survey.md"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        text = survey.main([*ARGUMENTS.split(), "--out", str(path)])
    return Page(text, out.getvalue(), err.getvalue(), path.read_text())


def test_the_page_is_printed_and_written_and_says_how_it_was_made(page):
    assert page.text == page.written
    assert page.printed == page.text + "\n"
    assert f"    python -m experiments.survey {ARGUMENTS}\n" in page.text
    assert "6,120 points of 4" in page.text
    assert "{" not in page.text


def test_progress_is_one_line_a_seed(page):
    assert [line.split(":")[0] for line in page.progress.splitlines()] == ["seed 0", "seed 1"]


def test_from_the_same_seeds_a_figure_a_trial(page):
    head, _, (_, *ratios, both) = tables(page.text)["From the same seeds"]
    assert head[1:-1] == ["0", "1"]
    mean, worst = (number(word.strip("()")) for word in both.split())
    assert mean == pytest.approx(np.mean([number(ratio) for ratio in ratios]), abs=1e-5)
    assert worst == max(number(ratio) for ratio in ratios)


def test_every_setting_has_its_row(page):
    head, _, *rows = tables(page.text)["Several starts"]
    assert {len(cells) for cells in rows} == {len(head)} == {8}
    pairs = [(way, str(starts)) for way in ("functions", "estimator") for starts in STARTS]
    assert [tuple(row[:2]) for row in rows[1:-1]] == pairs
    assert rows[0][:4] == ["baseline, on everything", "5", "1.00000 (1.00000)", "2 of 2"]
    assert rows[-1][0].startswith("scikit-learn")


def test_verdicts_agree_with_figures(page):
    head, _, *rows = tables(page.text)["Against the targets"]
    assert len(rows) == 2 * len(STARTS)
    for row in rows:
        for asked, cell in zip(head[2:], row[2:], strict=True):
            assert agrees(cell, asked.split(": ")[1])
    (sentence,) = (line for line in page.text.splitlines() if line.startswith("ratio: "))
    figure, verdict = sentence.split()[1:3]
    assert agrees(f"{figure} {verdict.rstrip('.')}", "at most 1.003")


def test_scikit_learn_is_fooled_and_we_are_not(page):
    """Points around thirty centres, 120 of them some 40 out: a plain centre goes there, whatever the seed."""
    _, _, *rows = tables(page.text)["Several starts"]
    ratios = {tuple(row[:2]): number(row[2].split()[0]) for row in rows}
    assert ratios.pop(("scikit-learn, on everything", "1")) > 1.1
    assert max(ratios.values()) < 1.1


def test_the_parts_of_the_time_are_told(page):
    _, _, baseline, *rows = tables(page.text)["Where the time goes"]
    assert baseline[-1].endswith("(100.0%)")
    assert [row[1] for row in rows] == [str(starts) for starts in STARTS]
    for row in rows:
        *parts, together = (number(cell.split()[0]) for cell in row[2:])
        assert sum(parts) == pytest.approx(together, abs=2)


def test_another_run_finds_the_same_but_for_times():
    base = survey.made_up_survey(3000)
    first, again = (survey.run(3, base, [2], z=60, k=3, size=400) for _ in range(2))
    assert first.same_seeds == again.same_seeds
    for one, other in ((first.full, again.full), (first.peer, again.peer)):
        assert one._replace(seconds=0) == other._replace(seconds=0)
    for setting, one in first.measured.items():
        assert one._replace(seconds=0) == again.measured[setting]._replace(seconds=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rows 5000", "--rows 5000 is for made-up data"),
        ("--seeds 0", "--outliers 10000 and --seeds 0 must be 1 or more"),
        ("--starts 0 5", "--k 10 and --starts 0 must be 1 or more"),
        ("--size 100", "--size 100 is too few for --k 10; take 200 or more"),
        ("--made-up --rows 2000", "2000 points are fewer than four times --outliers 10000"),
        ("--out nowhere/page.md", "there is no folder nowhere"),
        ("--data nowhere", "there is no britain_magnetic_3d.parquet in nowhere; name its folder with --data"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        survey.main(arguments.split())
    assert stopped.value.code == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
