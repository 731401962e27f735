"""Facts: what a store knows beside its points, as JSON under a name, each with a checksum."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any, final

from duramen.store.errors import damaged, told

__all__ = ["Facts", "read_fact"]


@final
class Facts:
    """JSON values by name in a table; one is written only if it is another than before."""

    def __init__(self, connection: sqlite3.Connection, path: Path, table: str = "facts") -> None:
        self._connection, self._path = connection, path
        self._select = f"SELECT value, seal FROM {table} WHERE name = ?"
        self._insert = (
            f"INSERT INTO {table} VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, seal = excluded.seal"
        )
        self._written: dict[str, str] = {}

    def get(self, name: str, default: Any = ...) -> Any:
        """Read a fact.

        Raises
        ------
        DamagedStoreError
            If it is not there, and there is no default, or is not what was written.
        """
        with told(self._path):
            found = self._connection.execute(self._select, (name,)).fetchone()
        if found is None:
            if default is ...:
                raise damaged(self._path, f"the fact {name!r} is missing")
            return default
        text, mark = found
        fact = read_fact(name, text, mark)
        if fact is None:
            raise damaged(self._path, f"the fact {name!r} is not what was written (its checksum differs)")
        self._written[name] = text
        return fact[0]

    def put(self, name: str, value: Any) -> None:
        """Write a fact."""
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        if self._written.get(name) != text:
            with told(self._path):
                self._connection.execute(self._insert, (name, text, _seal(name, text)))
            self._written[name] = text

    def forget(self) -> None:
        """Take nothing for written: a transaction was rolled back."""
        self._written.clear()


def read_fact(name: str, text: Any, mark: Any) -> tuple[Any] | None:
    """Read a fact as it stands in the table; None if it is not what was written."""
    if not isinstance(text, str) or mark != _seal(name, text):
        return None
    return (json.loads(text),)


def _seal(name: str, text: str) -> int:
    return zlib.crc32(text.encode(), zlib.crc32(name.encode()))
