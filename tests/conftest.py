"""What all tests share: the real data where it is, and the report on how loose the bounds are."""

import os
from pathlib import Path

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
    """Print, for each loss and bound, how far above the worst change found it lies."""
    rows = sorted(
        value
        for report in terminalreporter.stats.get("passed", [])
        for key, value in report.user_properties
        if key == "looseness"
    )
    if not rows:
        return
    terminalreporter.section("bounds over the largest change a search found (median and worst point)")
    for loss, bound, median, worst in rows:
        flag = f"   loose by more than {LOOSE} times" if worst > LOOSE else ""
        terminalreporter.write_line(f"{loss:<34}{bound:<20}{median:>10.3g}{worst:>10.3g}{flag}")
