"""The ids of the points: integers, or names (strings and UUIDs) that stand for integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duramen.arrays import Array, is_whole
from duramen.dynamic.rows import Slots
from duramen.errors import RowError
from duramen.points import Name, checked_ids, is_names, listed, numbers_of

_MOST = int(np.iinfo(np.int64).max)


def numbers_and_names(ids: Any, here: Mapping[int, Name]) -> tuple[Array, Sequence[Any] | None]:
    """Turn ids into distinct int64 numbers, with their names where they are strings or UUIDs.

    ``here`` are the names in use, by number.
    """
    if is_names(ids):
        names = listed(ids)
        numbers = numbers_of(names)
        _check_names(numbers, names, here)
        return numbers, names
    given = np.atleast_1d(ids)
    if not given.size:
        return np.empty(0, dtype=np.int64), None
    if given.dtype == object and all(map(is_whole, given.flat)):
        raise ValueError(f"ids must fit in int64; found {max(given.flat, key=abs)}")
    return checked_ids(given, given.size), None


class Ids:
    """Which ids are taken, which comes next, and the names of those that have one.

    Invariants
    ----------
    1. The next id is above all that were ever used.
    2. If points have names, each of them has one, and its id is the number of its name.
    """

    def __init__(self, first: int = 0) -> None:
        self.names: dict[int, Name] = {}  # by id
        self.next = first

    def new(self, given: Any, n: int, slots: Slots) -> tuple[Array, Sequence[Any] | None]:
        """Check the ids of ``n`` new points, or choose them; return numbers and names."""
        if given is None:
            if self.names:
                raise ValueError("the points here have names; pass ids, one name per row")
            if self.next + n - 1 > _MOST:
                raise ValueError(f"the ids after {self.next - 1} do not fit in int64; pass ids")
            return np.arange(self.next, self.next + n, dtype=np.int64), None
        numbers, names = numbers_and_names(given, self.names)
        if len(numbers) != n:
            raise ValueError(f"ids has {len(numbers)} values for {n} rows of X; their lengths must agree")
        if len(slots) and n:
            entries, here = names or numbers.tolist(), slots.find(numbers) >= 0
            if (names is None) != (not self.names):
                kind = "names" if self.names else "integer ids"
                raise TypeError(f"the points here have {kind}, and so must new ones; found {entries[0]!r}")
            if here.any():
                row = int(here.argmax())
                text = "id {name!r} of {row} is here already; update it, or delete it first"
                raise RowError(text, row, name=entries[row])
        return numbers, names

    def admit(self, numbers: Array, names: Sequence[Any] | None) -> None:
        """Add ids, with their names."""
        if names is not None:
            self.names.update(zip(numbers.tolist(), names, strict=True))
        largest = int(numbers[0]) if len(numbers) == 1 else int(numbers.max())
        self.next = max(self.next, largest + 1)

    def find(self, ids: Any, slots: Slots) -> Array:
        """Find the slots of ids; raise KeyError for the first that is not here."""
        numbers: Any
        names: Any = None
        one = ids[0] if isinstance(ids, (list, np.ndarray)) and np.shape(ids) == (1,) else ids
        if is_whole(one):
            slot = slots.index.find_one(int(one))
            if slot >= 0:
                return np.array([slot])
            numbers, found = [one], np.array([slot])
        else:
            ids = list(ids) if isinstance(ids, (set, frozenset)) or hasattr(ids, "__next__") else ids
            numbers, names = numbers_and_names(ids, {})
            found = slots.find(numbers)
            if names is not None and not self.names:
                found[:] = -1
        if found.min(initial=0) < 0:
            name = (names or list(map(int, numbers)))[found.argmin()]
            raise KeyError(f"id {name!r} is not here; it was deleted or never inserted")
        return found

    def names_of(self, numbers: Array) -> Array:
        """Return the names of numbers: an array (n,) of objects; raise KeyError if points have none."""
        if not self.names:
            raise KeyError("these points have integer ids and no names")
        return np.array([self.names[number] for number in numbers.tolist()], dtype=object)

    def forget(self, numbers: Array) -> None:
        """Remove ids, with their names."""
        for number in numbers.tolist() if self.names else ():
            del self.names[number]

    def check(self, ids: Array) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the ids that are here."""
        assert self.next > int(ids.max(initial=-1)), "1: an id would be used twice"
        if self.names:
            assert sorted(self.names) == ids.tolist(), "2: the names belong to other points"
            numbers = numbers_of(list(self.names.values())).tolist()
            assert numbers == list(self.names), "2: a name has the wrong number"


def _check_names(numbers: Array, names: Sequence[Name], here: Mapping[int, Name]) -> None:
    """Raise ValueError for a name that occurs twice, or whose number is that of another.

    The chance that any two of n names share a number is about n^2 / 2^64:
    one in 18 million for a million names.
    """
    first: dict[int, int] = {}
    for row, (number, name) in enumerate(zip(numbers.tolist(), names, strict=True)):
        earlier = first.setdefault(number, row)
        other = here.get(number, names[earlier])
        if other != name:
            raise ValueError(
                f"the names {other!r} and {name!r} have the same number, {number}, "
                "by chance; rename one of them"
            )
        if earlier < row:
            text = "ids must be distinct; {name!r} of {earlier} occurs again in {row}"
            raise RowError(text, row, earlier=earlier, name=name)
