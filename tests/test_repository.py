"""What the repository's own files promise each other. Skipped where only the package is installed."""

import sys
from pathlib import Path

import numpy as np
import pytest

import duramen as dm

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not in a checkout")


def test_one_version_everywhere():
    assert f'version = "{dm.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {dm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {dm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_opens_with_the_two_commands():
    opening = (ROOT / "README.md").read_text().splitlines()[:6]
    assert any("make demo" in line for line in opening)
    assert any("make test" in line for line in opening)


def test_no_module_outgrows_a_sitting():
    long = {
        path.name: lines
        for path in (ROOT / "src").rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 800
    }
    assert not long


@pytest.mark.parametrize(
    "loss", [dm.LogisticLoss(), dm.QuantileLoss(0.9), dm.KMeansLoss(3), dm.TruthDiscoveryLoss()]
)
def test_robust_coreset_passes_through_15_files_at_most(loss, monkeypatch):
    """So that one call can be followed by reading."""
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "1")
    X = np.random.default_rng(0).normal(size=(30_000, 4))
    y = (X[:, 0] > 0).astype(float) if loss.has_predictors else None
    files = set()

    def note(frame, *_):
        files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        dm.robust_coreset(X, y, loss=loss, size=300, n_outliers=100, random_state=0)
    finally:
        sys.setprofile(before)
    assert len([file for file in files if file.startswith(str(Path(dm.__file__).parent))]) <= 15
