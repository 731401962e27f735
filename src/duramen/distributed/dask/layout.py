"""How a block of a collection becomes points: what a worker does with a partition first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from duramen.points import WeightedPoints

__all__ = ["Layout", "Rows"]


@dataclass(frozen=True)
class Rows:
    """Which rows a partition has.

    Attributes
    ----------
    first : int or None
        The number of its first row among those of all partitions; None where ids are given.
    count : int or None
        How many it has; None where nobody knows yet.
    """

    first: int | None = None
    count: int | None = None


@dataclass(frozen=True)
class Layout:
    """Where rows, labels, weights and ids stand.

    Attributes
    ----------
    features : tuple or None
        The names of the features' columns; None where a block is the rows themselves.
    label, weight, id : optional
        The names of further columns of a frame.
    """

    features: tuple[Any, ...] | None = None
    label: Any = None
    weight: Any = None
    id: Any = None

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, as text; None where they have none."""
        return None if self.features is None else [str(name) for name in self.features]

    @property
    def used(self) -> list[Any]:
        """The names of all columns of a frame that are needed."""
        others = [name for name in (self.label, self.weight, self.id) if name is not None]
        return [*(self.features or ()), *others]

    def points(self, rows: Rows, block: Any, *columns: Any) -> WeightedPoints | None:
        """Make points of a block and of its labels, weights and ids; None where there are no rows.

        NaN and infinity in the rows are not looked for.

        Raises
        ------
        TypeError, ValueError
            If a value is no number, lengths differ, or there are other rows than were counted.
        """
        y, weights, ids = (
            column if name is None else block[name]
            for name, column in zip((self.label, self.weight, self.id), columns, strict=True)
        )
        X = block if self.features is None else block[list(self.features)]
        n = int(X.shape[0])
        if rows.count is not None and n != rows.count:
            raise ValueError(
                f"it has {n:,} rows, and had {rows.count:,} when they were counted; a partition must be the "
                "same each time it is made: call persist() on the data first"
            )
        for name, column in (("y", y), ("sample_weight", weights), ("ids", ids)):
            if column is not None and len(column) != n:
                raise ValueError(f"{name} has {len(column)} values for {n} rows; cut both at the same rows")
        if not n:
            return None
        if ids is None:
            assert rows.first is not None
            ids = np.arange(rows.first, rows.first + n)
        return WeightedPoints._unlooked(X, y, weights, ids)
