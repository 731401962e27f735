"""The examples run, and what they print is what they are there to show."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.needs_spark import LIGHT_JAVA, skip_without_spark, spark_warnings

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
pytestmark = pytest.mark.skipif(not SCRIPTS, reason="not in a checkout")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script in this process, in an empty folder that must stay empty; return what it printed."""

    def printed(name, *options):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return printed


def numbers(pattern, text):
    """Find the numbers that a pattern's groups match, for each of its matches."""
    found = re.findall(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return np.array(found, dtype=str).astype(float)


def check_quickstart(out):
    assert "4,000 of 4,000" in out
    plain, robust = numbers(r"rows: +\[ *(\S+) +(\S+) ", out)
    np.testing.assert_allclose(plain, [0, 0], atol=0.1)
    np.testing.assert_allclose(robust, [1, -1], atol=0.1)


def check_dirty_table(out):
    [n_outliers] = numbers(r"10,000 rows, (\d+) outliers", out)
    assert 200 <= n_outliers < 220
    [[least, most]] = numbers(r"of them: (\d+) to (\d+)", out)
    assert 1900 < least <= most < 2030
    np.testing.assert_allclose(numbers(r"log-odds by (\S+) ", out), -0.1, atol=0.01)
    [[leaves, stays]] = numbers(r"'C-x': (\S+), 'C-y': (\S+)\}", out)
    assert stays < 0.2 < 0.9 < leaves


def check_how_many_outliers(out):
    rows = numbers(r"(\d+\.\d)% +(\d+)% +(-?\d\.\d+) +(\d\.\d+) +([-+]\d+\.\d)", out)
    small, large = rows[rows[:, 0] < 2], rows[rows[:, 0] >= 2]
    assert (len(small), len(large)) == (3, 4)
    assert (small[:, 1] == 0).all()
    assert (large[:, 1] == 100).all()
    assert (small[:, 3] > 1.2).all()
    assert (large[:, 3] < 1.12).all()
    assert (np.diff(large[:, 2]) > 0).all()  # the more is set aside, the surer the model
    assert out.count("after row 200") == 4
    assert out.count("none") == 3


def check_poisoned(out):
    plain, robust, again, best = numbers(r"(\d\d\.\d)%", out)
    assert plain < 75
    assert max(abs(robust - best), abs(again - best)) < 0.5
    assert "after row 2,000" in out
    assert "of the 2,000 rows above the knee 2,000 are planted" in out


def check_forget_customer(out):
    before, after = numbers(r"'the name': (\d), 'the row': (\d)", out)
    assert (before >= 1).all()
    assert (after == 0).all()
    assert "is here: False" in out
    assert "never saw the row: True" in out
    assert "the anchor is, too: True" in out


def check_nightly(out):
    nights = numbers(
        r"(\d+) new, (\d+) changed, (\d+) gone; ([\d.]+),(\d+) rows; age (\S+), visits (\S+?)[;\n]", out
    )
    assert nights[:2, :3].tolist() == [[800, 76, 200], [920, 88, 230]]
    assert abs(nights[0, 5] - 1) < 0.2  # before the drift
    assert nights[-1, 5] < 0.2  # the new kind is nearly half of the rows
    anchored = next(line for line in out.splitlines()[1:] if "a new anchor" in line)
    assert anchored.startswith("night 5")  # the second of another kind: when most of the drift is there


def check_stream_with_deletes(out):
    steps = numbers(r"(\d\.\d{4}) times the cost of a full fit, error bars (\S+)%; a new anchor", out)
    assert len(steps) == 4
    assert (steps[:, 0] < 1.005).all()
    assert (steps[:, 1] < 1.5).all()
    assert "50,000 changes" in out


def check_own_loss(out):
    even, uneven = numbers(r"short in (\d+)% of honest rows; it costs (\S+) times", out)
    assert abs(even[0] - 50) <= 1
    assert abs(uneven[0] - 19) <= 2
    assert max(even[1], uneven[1]) < 1.005
    assert numbers(r"off by (\S+) at most", out) < 1e-4
    assert "than its bound: True" in out


def check_own_sampler(out):
    (uniform, few), (leverage, _), (own, many) = numbers(r"off by (\S+) \(root mean square\); (\d+) of", out)
    assert own < 0.3 < min(uniform, leverage)
    assert many > 10 * few
    [[low, high, truth]] = numbers(r"between (\S+) and (\S+); the truth: (\S+)", out.replace(",", ""))
    assert low < truth < high


def check_pipeline(out):
    [[plain, robust]] = numbers(r"scikit-learn (\S+)%, robust (\S+)%", out)
    assert plain + 5 < robust
    [[n_outliers, wrong]] = numbers(r"found (\d+) outliers, (\d+) of them", out)
    assert wrong == 240 <= n_outliers < 250


def check_spark(out):
    assert "1,000 of 100,000 rows; those that one machine chooses: True" in out


CHECKS = {f"{name[6:]}.py": check for name, check in globals().items() if name.startswith("check_")}


QUICK = ("quickstart.py", "forget_customer.py")


@pytest.mark.parametrize(
    "name",
    [pytest.param(script.name, marks=[] if script.name in QUICK else pytest.mark.slow) for script in SCRIPTS],
)
@spark_warnings
def test_an_example_shows_what_it_should(name, run, monkeypatch):
    if name == "spark.py":
        skip_without_spark()
        monkeypatch.setenv(*LIGHT_JAVA)
    CHECKS[name](run(name))


def test_every_example_is_listed_and_short():
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [script.name for script in SCRIPTS]
    for script in SCRIPTS:
        text = script.read_text()
        assert text.startswith('"""'), script
        assert len(text.splitlines()) < 80, script


@pytest.mark.slow
def test_files_are_kept_where_that_is_asked_for(run, tmp_path_factory):
    kept = tmp_path_factory.mktemp("kept") / "new"
    run("dirty_table.py", "--out", str(kept))
    assert [file.name for file in kept.iterdir()] == ["customers.csv"]
