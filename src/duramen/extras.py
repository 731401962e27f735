"""Packages that only some of what a coreset does needs: imported when that is asked for, not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["needed"]


def needed(module: str, who: str, extra: str) -> Any:
    """Import a module that an extra of this library brings; if it is not there, say what to install.

    Examples
    --------
    >>> needed("no_such_package.part", "Coreset.dance", "dance")
    Traceback (most recent call last):
    ...
    ImportError: Coreset.dance needs no_such_package; pip install 'duramen[dance]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{who} needs {package}; pip install 'duramen[{extra}]'") from error
