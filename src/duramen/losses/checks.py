"""Checks that several families of losses share."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["checked_k"]


def checked_k(k: Any, name: str = "k", of: str = "centres") -> int:
    """Check a number of centres, or of something else.

    Examples
    --------
    >>> checked_k(3)
    3
    """
    if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"{name}={k!r} must be a whole number of {of}, 1 or more")
    return int(k)
