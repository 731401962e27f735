"""Ids that come twice, in batches that are not in memory together.

Within a batch, points refuse them; across batches only the ids are kept, eight
bytes each. Beyond 20 million (160 MB) they are taken on trust, so that memory has
a bound. A store needs none of this: it knows all its ids.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from duramen.dynamic.ids import is_names, numbers_of

__all__ = ["Distinct", "first_twice", "numbers", "where_twice"]

MOST = 20_000_000
_FIRST = 1 << 16


@final
class Distinct:
    """The ids that have gone by, as numbers: the first 20 million of them."""

    def __init__(self) -> None:
        self._ids = np.empty(_FIRST, dtype=np.int64)
        self._n = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Take the ids of a batch."""
        kept = ids[: MOST - self._n]
        need = self._n + len(kept)
        if need > len(self._ids):
            self._ids.resize(min(MOST, max(need, 2 * len(self._ids))), refcheck=False)
        self._ids[self._n : need] = kept
        self._n = need

    def twice(self) -> int | None:
        """Give the smallest id that came more than once; None if all were distinct. The order is lost."""
        ids = self._ids[: self._n]
        ids.sort()
        return first_twice(ids)


def first_twice(ids: NDArray[np.int64]) -> int | None:
    """Give the smallest of sorted ids that is there more than once."""
    again = np.flatnonzero(ids[1:] == ids[:-1])
    return int(ids[again[0]]) if again.size else None


def numbers(ids: Any, batch: Any) -> NDArray[np.int64]:
    """Give the numbers of ids: text by its hash, and where there are none, the rows' own."""
    if ids is None:
        return np.arange(batch.first, batch.first + len(batch), dtype=np.int64)
    return numbers_of(ids) if is_names(ids) else np.asarray(ids)


def where_twice(table: Any, encoding: Any, twice: int) -> str:
    """Say in which rows of a table the id is whose number comes more than once; one more pass."""
    places: list[str] = []
    shown: Any = twice
    for batch in table.batches(columns=[encoding.id]):
        column = batch.column(encoding.id)
        ids = column.words() if encoding.text_ids else column.whole()
        for row in np.flatnonzero(numbers(ids, batch) == twice).tolist():
            places.append(batch.place(row))
            shown = ids[row] if encoding.text_ids else twice
            if len(places) == 2:
                return (
                    f"{table.path}: id {shown!r} (column {encoding.id!r}) is in {' and in '.join(places)}; "
                    "ids must be distinct: correct them, or leave --id out"
                )
    return f"{table.path}: id {shown!r} comes more than once; ids must be distinct"
