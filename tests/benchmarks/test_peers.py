"""The comparison with peers: its contenders, its tables, what it says of them, its arguments."""

import contextlib
import io
import json
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

command = pytest.importorskip("benchmarks.peers.__main__", reason="not in a checkout")

from benchmarks.peers import contender, measuring  # noqa: E402
from benchmarks.peers.columns import cost, quality  # noqa: E402
from benchmarks.peers.measuring import Figures, Measured  # noqa: E402
from benchmarks.peers.page import absent, section  # noqa: E402
from benchmarks.peers.part import counts_of, some_rows  # noqa: E402
from benchmarks.peers.parts import PARTS  # noqa: E402
from benchmarks.peers.shared import Table  # noqa: E402
from benchmarks.peers.task import Task  # noqa: E402

ARGUMENTS = "--rows 10000 --trials 1 --made-up --skip sgd"
FEW = ("estimator", "dynamic", "linear", "normal-equations", "sgd")  # of the whole run
LOW = {"accuracy": False, "R2": False, "centres lost": True}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads that wait for each other take longer than one, where tests run beside each other."""
    with threadpool_limits(1), pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "DURAMEN_NUM_THREADS"):
            patch.setenv(name, "1")  # for processes that are started
        yield


# reading a page


def tables(text):
    """Give each table as a list of rows, the head first, by the headings above it and its first column."""
    found = []
    for block in text.split("\n\n"):
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in block.splitlines()
            if line.startswith("|")
        ]
        if rows:
            found.append([rows[0], *rows[2:]])
    return found


def figure(cell):
    return float(cell.strip("*† \\").replace("**", "").replace(",", "").rstrip("%"))


def is_bold(cell):
    return cell.startswith("**")


def is_low(column):
    return LOW.get(column.split(",")[0], True)


def check_bold(table):
    """Exactly the best figures of a column are bold; the informed fit is no contender."""
    head, *rows = table
    rows = [row for row in rows if row[0] != "the informed fit"]
    for column in range(1, len(head)):
        figures = [figure(row[column]) for row in rows]
        best = min(figures) if is_low(head[column]) else max(figures)
        assert [is_bold(row[column]) for row in rows] == [value == best for value in figures], head[column]


def check_wins(text, entries):
    """Every column is named once, with exactly the peers that are better there than ours."""
    good, dear, _ = tables(text)
    names = {entry.key: entry.name for entry in entries}
    lines = text.split("where a peer is better\n\n")[1].splitlines()
    for head, *rows in (good, dear):
        cells = {row[0]: row[1:] for row in rows}
        for i, column in enumerate(head[1:]):
            dynamic = column.startswith(("absorb", "forget", "held"))
            ours = figure(cells[names["dynamic" if dynamic else "estimator"]][i])
            sign = 1 if is_low(column) else -1
            expected = {
                entry.name
                for entry in entries
                if not entry.ours and sign * figure(cells[entry.name][i]) < sign * ours
            }
            (line,) = [line for line in lines if f"*{column}*" in line]
            said = line.split("): ", 1)[1] if expected else ""
            assert {name for name in names.values() if f"{name} (" in said} == expected, column
            assert line.startswith("- Nowhere else") == (not expected), column


# figures that were made up


@pytest.fixture(params=[0, 1, 2])
def made_up(request):
    """A part with random figures: no fit is needed to see whether the page says what they do."""
    rng = np.random.default_rng(request.param)
    part = list(PARTS.values())[request.param]
    figures = {
        entry.key: some_figures(rng, part, can_forget="anew" not in entry.forgets) for entry in part.entries
    }
    if "river" in figures:
        figures["river"].share = 0.5
    return Measured(
        part, "data", 900, 4, counts_of(1000), 36_000, 30_000, part.entries, figures, some_figures(rng, part)
    )


def some_figures(rng, part, can_forget=True):
    def some(scale=1.0):
        return (scale * rng.lognormal(sigma=2, size=2)).tolist()

    return Figures(
        losses={state: some() for state in part.states},
        scores={state: rng.integers(0, 4, size=2).tolist() for state in part.states},  # ties are likely
        first=some(),
        absorb=some(1e-3),
        forget=some(1e-3) if can_forget else [],
        peak=rng.integers(1, 10**6, size=2).tolist(),
        held=(36_000, int(rng.integers(1, 10**6))),
    )


def test_the_page_says_what_the_figures_say(made_up):
    text = section(made_up, [])
    good, dear, ways = tables(text)
    names = [entry.name for entry in made_up.entries]
    assert [row[0] for row in good[1:]] == [*names, "the informed fit"]
    assert [row[0] for row in dear[1:]] == [row[0] for row in ways[1:]] == names
    check_bold(good)
    check_bold(dear)
    check_wins(text, made_up.entries)
    assert "{" not in text


def test_times_are_ratios_of_the_best_trials_and_losses_are_means(made_up):
    figures = made_up.figures
    dear = [[figure(cell) for cell in row[1:]] for row in tables(section(made_up, []))[1][1:]]
    for (key, one), row in zip(figures.items(), dear, strict=True):
        forget = min(one.forget or one.first) / min(figures["dynamic"].forget)
        expected = [
            min(one.first) / min(figures["estimator"].first),
            min(one.absorb) / min(figures["dynamic"].absorb),
            forget,
        ]
        np.testing.assert_allclose(row[:3], expected, rtol=0.05, err_msg=key)  # two digits are printed
        shares = [max(one.peak) / 30_000, one.held[0] / 36_000, one.held[1] / 36_000]
        np.testing.assert_allclose(row[3:], shares, atol=0.005)
    for column in quality(made_up)[::2]:
        state = column.name.split(", ")[1]
        one = figures["coreset"]
        assert column.of(one) == pytest.approx(np.mean(one.losses[state]))


def test_what_was_not_timed_as_it_stands_is_marked(made_up):
    dear = tables(section(made_up, []))[1]
    for entry, row in zip(made_up.entries, dear[1:], strict=True):
        one = made_up.figures[entry.key]
        assert row[1].endswith("*") == (one.share < 1 or is_bold(row[1]))
        assert row[1].endswith("\\*") == (one.share < 1)
        assert row[3].endswith("†") == (not one.forget)


def test_memory_that_could_not_be_seen_wins_nothing(made_up):
    for one in made_up.figures.values():
        one.peak = []
    text = section(made_up, [])
    assert {row[4] for row in tables(text)[1][1:]} == {"not seen"}
    assert "*peak memory*" not in text
    (column,) = [column for column in cost(made_up) if column.name == "peak memory"]
    assert column.winners(made_up) == []


def test_peers_that_are_not_there_are_named(monkeypatch):
    entries = PARTS["clustering"].entries
    assert absent(entries, ["trimming"])[0] == "Skipped: `KMeans` trimmed by hand."
    monkeypatch.setattr(contender, "find_spec", lambda name: None)
    (said,) = absent(entries, [])
    assert said.startswith("Not installed: `faiss.Kmeans(4, 10)` (pip install faiss-cpu); ")
    assert said.endswith("(pip install river).")
    assert [entry.key for entry in entries if not entry.is_here] == ["faiss", "faiss-all", "river"]


# the contenders


@pytest.fixture(scope="module", params=PARTS)
def scene(request):
    part = PARTS[request.param]
    table = part.tables[1](1000)
    return part, part.states["planted"](table, counts_of(1000), 0)


def test_every_contender_fits_absorbs_and_forgets(scene):
    part, task = scene
    entries = [one for one in part.entries if one.is_here]
    if part is PARTS["clustering"]:  # our estimators are the same code in each part, and take longest here
        entries = [one for one in entries if one.key not in ("estimator", "updatable")]
    shape = part.informed(task).shape
    for entry in entries:
        one = entry.make(task)
        one.fit()
        first = one.theta.copy()
        assert first.shape == shape, entry.key
        assert np.isfinite(first).all(), entry.key
        one.absorb()
        assert np.isfinite(one.theta).all(), entry.key
        assert isinstance(one, contender.Forgetting) == (entry.forgets != "begins anew"), entry.key
        if isinstance(one, contender.Forgetting):
            one.forget()
            assert one.theta.shape == shape, entry.key
        assert 0 <= min(one.held()) <= max(one.held()) < 6 * task.nbytes, entry.key


def test_states_differ_in_what_is_wrong_and_in_nothing_else():
    for part in PARTS.values():
        counts = counts_of(2000)
        tasks = {name: make(part.tables[1](2000), counts, 0) for name, make in part.states.items()}
        assert not tasks["clean"].planted.any()
        for name, task in tasks.items():
            assert task.z == counts.planted
            assert task.planted.sum() == (0 if name == "clean" else counts.planted)
        if "wrong labels" in tasks:
            wrong, clean = tasks["wrong labels"], tasks["clean"]
            np.testing.assert_array_equal(wrong.X, clean.X)
            np.testing.assert_array_equal(wrong.y[: wrong.n] != clean.y[: clean.n], wrong.planted)


def test_a_task_survives_the_disk(tmp_path, scene):
    _, task = scene
    task.save(tmp_path)
    again = Task.load(tmp_path)
    assert (again.z, again.seed, again.n) == (task.z, task.seed, task.n)
    np.testing.assert_array_equal(again.X, task.X)
    assert (again.y is None) == (task.y is None)


def test_sums_absorb_and_forget_as_a_fit_does():
    part = PARTS["regression"]
    task = part.states["planted"](part.tables[1](1000), counts_of(1000), 0)
    thetas = {}
    for entry in part.entries:
        if entry.key in ("linear", "normal-equations"):
            one = entry.make(task)
            one.fit()
            one.absorb()
            thetas[entry.key] = one.theta
    np.testing.assert_allclose(thetas["linear"], thetas["normal-equations"], rtol=1e-6, atol=1e-9)


def test_fewer_rows_are_a_sample():
    table = Table("rows", np.arange(40.0).reshape(20, 2), np.arange(20))
    some = some_rows(table, 5)
    assert len(some.X) == len(some.y) == 5
    np.testing.assert_array_equal(some.X[:, 0] / 2, some.y)
    assert some_rows(table, None) is table


# the whole run


class Run(NamedTuple):
    text: str
    printed: str
    progress: str
    written: str
    record: dict


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    out, record = folder / "page.md", folder / "record.json"
    with pytest.MonkeyPatch.context() as patch:
        part = PARTS["regression"]
        some = [entry for entry in part.entries if entry.key in FEW]
        patch.setattr(command, "PARTS", {"regression": replace(part, entries=some)})
        patch.setattr(measuring, "_QUICK", 1e-9)  # nothing is timed twice
        patch.setattr(measuring, "_LONG", 1e-9)
        with (
            contextlib.redirect_stdout(io.StringIO()) as shown,
            contextlib.redirect_stderr(io.StringIO()) as told,
        ):
            text = command.main([*ARGUMENTS.split(), "--out", str(out), "--json", str(record)])
    return Run(
        text,
        shown.getvalue(),
        told.getvalue(),
        out.read_text(encoding="utf-8"),
        json.loads(record.read_text()),
    )


def test_the_page_is_printed_and_written_and_says_how_it_was_made(run):
    assert run.text == run.written
    assert run.printed == run.text + "\n"
    assert f"    python -m benchmarks.peers {ARGUMENTS}\n" in run.text
    assert "one trial (seed 0)" in run.text
    assert "9,000 training rows of 54" in run.text
    assert 'Skipped: `SGDRegressor(loss="huber")`.' in run.text
    assert "{" not in run.text
    states = [line.split(": ")[0] for line in run.progress.splitlines()]
    assert states[0] == "regression, seed 0, planted"
    assert set(states) == {f"regression, seed 0, {state}" for state in PARTS["regression"].states}


def test_the_tables_follow_from_what_was_recorded(run):
    part = PARTS["regression"]
    entries = [one for one in part.entries if one.key in FEW[:-1]]
    text = run.text[run.text.index("## Regression") : run.text.index("## Reading")]
    recorded = run.record["parts"]["regression"]["contenders"]
    assert list(recorded) == [one.key for one in entries]
    good, dear, _ = tables(text)
    check_bold(good)
    check_bold(dear)
    check_wins(text, entries)
    ours = min(recorded["estimator"]["first"])
    for row, one in zip(dear[1:], recorded.values(), strict=True):
        assert figure(row[1]) == pytest.approx(min(one["first"]) / ours, rel=0.05)
        assert len(one["absorb"]) == len(one["losses"]["clean"]) == 1
    assert recorded["estimator"]["losses"]["planted"] < recorded["linear"]["losses"]["planted"]


def test_memory_is_that_of_the_fit(run):
    recorded = run.record["parts"]["regression"]
    peaks = {key: one["peak"] for key, one in recorded["contenders"].items()}
    if not all(peaks.values()):
        pytest.skip("this system does not count the peak of a process afresh")
    assert peaks["linear"][0] > 0.9 * recorded["bytes_clean"]  # it centres a copy of the rows
    assert peaks["normal-equations"][0] < 0.5 * recorded["bytes_clean"]


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--rows 100", "--rows 100 is too few to show anything; take 2000 or more"),
        ("--trials 0", "--trials 0 must be 1 or more"),
        ("--skip pytorch", "--skip pytorch: there is no such peer; there are lbfgs, "),
        ("--skip estimator", "--skip estimator: there is no such peer"),
        ("--out .", "--out . is a folder; name a file in it"),
        ("--json nowhere/a.json", "--json nowhere/a.json: there is no folder nowhere"),
        ("--data nowhere", "covertype.parquet"),
        ("--row many", "--row"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments.split())
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in told
    assert told.count("\n") == 1
