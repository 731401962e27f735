"""What the repository's own files promise each other. Skipped where only the package is installed."""

from pathlib import Path

import pytest

import duramen

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not in a checkout")


def test_one_version_everywhere():
    assert f'version = "{duramen.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {duramen.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {duramen.__version__}" in (ROOT / "CHANGELOG.md").read_text()


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
