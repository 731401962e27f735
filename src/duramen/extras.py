"""Optional packages, imported only when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, purpose: str, extra: str) -> Any:
    """Import a module that an extra of this library installs; the error names the extra if it is missing.

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
        raise ImportError(f"{purpose} needs {package}; pip install 'duramen[{extra}]'") from error
