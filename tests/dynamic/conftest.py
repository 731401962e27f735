"""What tests of the dynamic coreset share."""

import pytest

from duramen.dynamic import rows as slots


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch):
    """Spread rows over many blocks, and keep pickles small."""
    monkeypatch.setattr(slots, "_BLOCK_BYTES", 1 << 11)
