"""What tests of the dynamic coreset share."""

import pytest

from duramen.dynamic import rows as slots


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch):
    """Let rows stand in many blocks, and pickles be small."""
    monkeypatch.setattr(slots, "_BLOCK_BYTES", 1 << 11)
