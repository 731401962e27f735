"""Stores on the command line: opened, and described."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from duramen.cli.files import check_source

__all__ = ["add_store", "described", "facts", "reading", "writing"]


def add_store(parser: argparse.ArgumentParser, what: str = "the store") -> None:
    """Add the store's path."""
    parser.add_argument("store", type=Path, metavar="STORE", help=what)


def reading(path: Path) -> Any:
    """Open a store to look at it; a context manager."""
    from duramen.store import open_store

    check_source(path)
    return open_store(path, read_only=True)


def writing(path: Path) -> Any:
    """Open a store to change it; a context manager."""
    from duramen.store import open_store

    check_source(path)
    return open_store(path)


def facts(store: Any) -> dict[str, Any]:
    """Collect what JSON says of a store after every command that changes it."""
    return {
        "store": store.path,
        "n_points": store.n_points,
        "total_weight": store.total_weight,
        "n_outliers": store.n_outliers,
        "n_suspected": store.n_suspected,
    }


def described(store: Any) -> str:
    """Say in one line what is in a store now."""
    return f"{store.path}: {store.n_points:,} points, weight {store.total_weight:,.6g}"
