"""The demo: what it says is so, and what it does when something is missing or wrong."""

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import duramen as dm
from duramen.cli import main
from duramen.cli.demo import compare, contaminate
from duramen.progress import Bar

FITS = (
    "scikit-learn, on everything",
    "trimmed fit, on everything",
    "plain coreset",
    "robust coreset",
    "clean rows only (oracle)",
)
SMALL = ("demo", "--rows", "5000")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(scope="module", params=range(3))
def found(request):
    X, y = contaminate(20_000, 400, request.param)
    fits, core = compare(X, y, 400, 4000, request.param, Bar(shown=False))
    return [SimpleNamespace(**fit) for fit in fits], core, dm.points(X, y)


def test_trimming_on_everything_is_as_good_as_the_oracle(found):
    # all planted rows found, both solve the same problem, each to a relative gain of 1e-4
    _, trimmed, _, _, oracle = found[0]
    assert trimmed.found == 1
    assert trimmed.clean_loss == pytest.approx(oracle.clean_loss, rel=1e-3)


def test_the_robust_coreset_is_nearly_as_good(found):
    # A fit of 21 parameters to m rows has on all of them, on average, 21 / (2 m) more loss than the best, and
    # chi-squared / (2 m) with 21 degrees of freedom in distribution; m = 3,200 of the 4,000 rows are not
    # suspected. 56 is its quantile of 0.9999: 0.009 of 0.28, 3.1%. (30 seeds: 0.2% on average, at most 0.4%.)
    *_, robust, oracle = found[0]
    assert robust.found == 1
    assert robust.clean_loss < 1.031 * oracle.clean_loss
    assert robust.accuracy > oracle.accuracy - 0.01


@pytest.mark.parametrize("name", ["scikit-learn, on everything", "plain coreset"])
def test_ordinary_fits_are_ruined_and_do_not_find_the_planted_rows(found, name):
    one, oracle = found[0][FITS.index(name)], found[0][-1]
    assert one.clean_loss > 1.8 * oracle.clean_loss
    assert one.accuracy < 0.72 < 0.85 < oracle.accuracy
    assert one.found < 0.5


def test_the_coreset_knows_its_own_error(found):
    fits, core, data = found
    theta = fits[-1].theta
    truth = dm.trimmed_objective(data, theta, loss=core.loss, n_outliers=core.n_outliers)
    estimate = core.estimate(theta)
    assert abs(estimate.value - truth) < 4 * estimate.std_error < 0.05 * truth


def test_the_data_are_what_they_are_said_to_be():
    X, y = contaminate(20_000, 1000, 3)
    assert (y[:1000] == -1).all()
    assert X[:1000, :2].min() > 5  # standard deviations: the model is sure of class 1
    np.testing.assert_allclose(np.cov(X[1000:, :2].T), np.eye(2), atol=0.05)
    assert 0.4 < np.mean(y[1000:] > 0) < 0.6
    again = contaminate(20_000, 1000, 3)
    assert all((a == b).all() for a, b in zip((X, y), again, strict=True))
    assert (contaminate(20_000, 1000, 4)[0] != X).any()


def test_the_command_prints_a_table_and_saves_a_picture(tmp_path):
    command = ["-m", "duramen", "demo", "--rows", "20000", "--outliers", "2%", "--picture", "shown.png"]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    rows = {name: next(line for line in lines if line.startswith(name)) for name in FITS}
    cells = {name: row[len(name) :].split() for name, row in rows.items()}
    assert [cells[name][0] for name in FITS] == ["20,000", "20,000", "4,000", "4,000", "19,600"]
    assert cells["robust coreset"][-1] == "100.0%"
    assert "took\n2% of them" in done.stdout
    assert re.search(r"0\.\d{4} \+- 0\.\d{4} \(95%\)\. On all rows it is 0\.\d{4}\.", done.stdout)
    picture = re.search(r"^picture: (.*)$", done.stdout, re.MULTILINE)[1]
    assert picture == str((tmp_path / "shown.png").resolve())
    content = (tmp_path / "shown.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 50_000


def test_at_least_one_row_is_planted(tmp_path, run):
    done = run(*SMALL, "--outliers", "1e-9", "--picture", tmp_path / "a.png")
    assert (done.code, "of the 1 rows with the largest losses" in done.out) == (0, True)


@pytest.mark.slow
def test_a_seed_makes_the_same_table_but_for_the_times(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = []
    for seed in ("7", "7", "8"):
        assert main([*SMALL, "--size", "600", "--seed", seed]) == 0
        tables.append(re.sub(r" +\d+\.\d\d(?= )|total: \d+", "", capsys.readouterr().out))
    assert tables[0] == tables[1] != tables[2]


def test_without_matplotlib_it_says_what_to_install(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    done = run(*SMALL)
    assert (done.code, "pip install 'duramen[plot]'" in done.out, "robust coreset" in done.out) == (
        0,
        True,
        True,
    )
    assert not list(tmp_path.iterdir())


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("duramen.progress._PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main([*SMALL, "--picture", str(tmp_path / "a.png")]) == 0
    bar, printed = sys.stderr.getvalue(), capsys.readouterr().out
    assert "━" in bar
    assert any(name in bar for name in FITS)
    assert "━" not in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--rows", "10"], "duramen: argument --rows: '10' must be a whole number, 5000 or more"),
        (["--rows", "1000000000000"], "duramen: not enough memory"),
        (["--outliers", "0"], "duramen: --outliers 0 must be above 0 and at most 0.2 (20%)"),
        (["--outliers", "30%"], "duramen: --outliers 0.3 must be above 0"),
        (["--outliers", "nan"], "argument --outliers: 'nan' cannot be set aside"),
        (["--seed", "-1"], "argument --seed: '-1' must be a whole number, 0 or more"),
        (["--picture", "no/such/folder.png"], "no/such/folder.png: there is no folder "),
        (["--picture", "."], "duramen: . must end in .png"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(tmp_path, run, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = run("demo", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
