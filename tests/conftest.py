"""What all tests share: the real data where it is, and the report on how loose the bounds are."""

import os
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers have all cores already. BLAS's own threads wait by spinning: on two busy cores one case of
    # test_theorem_2 took 40 s of CPU with them, 12 s without. Before NumPy is imported, which reads it once.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

LOOSE = 100  # a bound above this multiple of what a search can reach is reported


@pytest.fixture
def two_threads(monkeypatch):
    """Scratch memory is a few chunks a thread: for a test that counts it."""
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "2")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DURAMEN_DATA", beside))
    if not (folder / "covertype.parquet").exists():
        pytest.skip(f"no real data in {folder}; set DURAMEN_DATA to its folder")
    return folder


def pytest_terminal_summary(terminalreporter):
    """Print how loose the bounds are, and how often tiny problems were solved as well as can be."""
    report = terminalreporter
    rows = _recorded(report, "looseness")
    if rows:
        report.section("bounds over the largest change a search found (median and worst point)")
    for loss, bound, median, worst in rows:
        flag = f"   loose by more than {LOOSE} times" if worst > LOOSE else ""
        report.write_line(f"{loss:<34}{bound:<20}{median:>10.3g}{worst:>10.3g}{flag}")
    rows = _recorded(report, "exhaustive")
    if rows:
        report.section(
            "tiny problems solved as well as by trying every outlier set, of ten starts; worst excess"
        )
    for loss, share, worst in rows:
        report.write_line(f"{loss:<54}{share:>10.0%}{worst:>10.2%}")
    for line in _recorded(report, "figures"):
        report.write_line(line)


def _recorded(report, name):
    """Collect what passed tests recorded under a name."""
    passed = report.stats.get("passed", [])
    return sorted(value for test in passed for key, value in test.user_properties if key == name)


@pytest.fixture
def few_sampled(monkeypatch):
    """Make anchors from 300 points, so that a few thousand are more than that."""
    from duramen.coreset import candidates, view

    for module in (view, candidates):
        monkeypatch.setattr(module, "SAMPLE", 300)
