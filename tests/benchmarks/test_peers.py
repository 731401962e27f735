"""The comparison with peers: its contenders, its tables, what it says of them, its arguments."""

import json
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

command = pytest.importorskip("benchmarks.peers.__main__", reason="not in a checkout")

from benchmarks.peers import contender, measuring  # noqa: E402
from benchmarks.peers.measuring import Figures, Measured  # noqa: E402
from benchmarks.peers.page import section  # noqa: E402
from benchmarks.peers.part import counts_of  # noqa: E402
from benchmarks.peers.parts import PARTS  # noqa: E402

from tests.support import tables  # noqa: E402

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


def figure(cell):
    return float(cell.strip("*† \\").replace("**", "").replace(",", "").rstrip("%"))


def is_low(column):
    return LOW.get(column.split(",")[0], True)


def check_bold(table):
    """Exactly the best figures of a column are bold; the informed fit does not take part."""
    head, *rows = table
    rows = [row for row in rows if row[0] != "the informed fit"]
    for column in range(1, len(head)):
        figures = [figure(row[column]) for row in rows]
        best = min(figures) if is_low(head[column]) else max(figures)
        assert [row[column].startswith("**") for row in rows] == [value == best for value in figures], head[
            column
        ]


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
            winners = line.split("): ", 1)[1] if expected else ""
            assert {name for name in names.values() if f"{name} (" in winners} == expected, column
            assert line.startswith("- Nowhere else") == (not expected), column


@pytest.fixture(params=[0, 1, 2])
def made_up(request):
    """A part with random figures: no fit is needed to see whether the page says what they do."""
    rng = np.random.default_rng(request.param)
    part = list(PARTS.values())[request.param]
    figures = {entry.key: some_figures(rng, part, "scratch" not in entry.forgets) for entry in part.entries}
    if "river" in figures:
        figures["river"].share = 0.5
    informed = some_figures(rng, part)
    return Measured(part, "data", 900, 4, counts_of(1000), 36_000, 30_000, part.entries, figures, informed)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_every_contender_fits_absorbs_and_forgets(name):
    part = PARTS[name]
    task = part.states["planted"](part.tables[1](1000), counts_of(1000), 0)
    entries = [one for one in part.entries if one.is_here]
    if part is PARTS["clustering"]:  # our estimators are the same code in each part, and take longest here
        entries = [one for one in entries if one.key not in ("estimator", "updatable")]
    shape = part.informed(task).shape
    absorbed = {}
    for entry in entries:
        one = entry.make(task)
        one.fit()
        first = one.theta.copy()
        assert first.shape == shape, entry.key
        assert np.isfinite(first).all(), entry.key
        one.absorb()
        assert np.isfinite(one.theta).all(), entry.key
        absorbed[entry.key] = one.theta.copy()
        assert isinstance(one, contender.Forgetting) == (entry.forgets != "fitted from scratch"), entry.key
        if isinstance(one, contender.Forgetting):
            one.forget()
            assert one.theta.shape == shape, entry.key
        assert 0 <= min(one.held()) <= max(one.held()) < 6 * task.nbytes, entry.key
    if name == "regression":  # sums absorb as a fit does
        np.testing.assert_allclose(absorbed["linear"], absorbed["normal-equations"], rtol=1e-6, atol=1e-9)


def test_states_differ_in_what_is_wrong_and_in_nothing_else():
    counts = counts_of(2000)
    for part in PARTS.values():
        tasks = {name: make(part.tables[1](2000), counts, 0) for name, make in part.states.items()}
        for name, task in tasks.items():
            assert task.z == counts.planted
            assert task.planted.sum() == (0 if name == "clean" else counts.planted)
        if "wrong labels" in tasks:
            wrong, clean = tasks["wrong labels"], tasks["clean"]
            np.testing.assert_array_equal(wrong.X, clean.X)
            np.testing.assert_array_equal(wrong.y[: wrong.n] != clean.y[: clean.n], wrong.planted)


@pytest.mark.slow
def test_a_run_prints_and_writes_what_it_measured(tmp_path, monkeypatch, capsys):
    part = PARTS["regression"]
    entries = [entry for entry in part.entries if entry.key in FEW]
    monkeypatch.setattr(command, "PARTS", {"regression": replace(part, entries=entries)})
    monkeypatch.setattr(measuring, "_QUICK", 1e-9)  # nothing is timed twice
    monkeypatch.setattr(measuring, "_LONG", 1e-9)
    out, record = tmp_path / "page.md", tmp_path / "record.json"
    text = command.main([*ARGUMENTS.split(), "--out", str(out), "--json", str(record)])
    assert capsys.readouterr().out == text + "\n"
    assert out.read_text(encoding="utf-8") == text
    assert f"    python -m benchmarks.peers {ARGUMENTS}\n" in text
    assert 'Skipped: `SGDRegressor(loss="huber")`.' in text

    measured = [entry for entry in entries if entry.key != "sgd"]
    recorded = json.loads(record.read_text())["parts"]["regression"]["contenders"]
    assert list(recorded) == [entry.key for entry in measured]
    section_text = text[text.index("## Regression") : text.index("## Reading")]
    good, dear, _ = tables(section_text)
    check_bold(good)
    check_bold(dear)
    check_wins(section_text, measured)
    ours = min(recorded["estimator"]["first"])
    for row, one in zip(dear[1:], recorded.values(), strict=True):
        assert figure(row[1]) == pytest.approx(min(one["first"]) / ours, rel=0.05)
    assert recorded["estimator"]["losses"]["planted"] < recorded["linear"]["losses"]["planted"]


@pytest.mark.parametrize(
    "arguments, message",
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
def test_errors_take_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments.split())
    printed = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in printed
    assert printed.count("\n") == 1
