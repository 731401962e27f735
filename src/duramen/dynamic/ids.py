"""The ids of the points: integers, or names (strings and UUIDs) that stand for integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn
from uuid import UUID

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.rows import Slots
from duramen.points import Name, checked_ids, is_names, listed, numbers_of

_LEAST, _MOST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def numbered(ids: Any) -> tuple[Array, Sequence[Any] | None]:
    """Turn ids into distinct int64 numbers, with their names where they are strings or UUIDs.

    Examples
    --------
    >>> numbered([7, 3])
    (array([7, 3]), None)
    """
    if is_names(ids):
        named = listed(ids)
        numbers = numbers_of(named)
        _refuse_repeats(numbers, named)
        return numbers, named
    given = np.asarray(ids)
    if not given.size:
        return np.empty(0, dtype=np.int64), None
    if given.dtype == object:
        _refuse_large(given)
    return checked_ids(given[None] if given.ndim == 0 else given, max(1, given.size)), None


class Ids:
    """Which ids are taken, which comes next, and the names of those that have one.

    Invariants
    ----------
    1. The next id is above all that ever were.
    2. If points have names, each of them has one, and its id is the number of its name.
    """

    def __init__(self, first: int = 0) -> None:
        self.names: dict[int, Name] | None = None
        self.next = first

    def new(self, given: Any, n: int, slots: Slots) -> tuple[Array, Sequence[Any] | None]:
        """Check the ids of ``n`` new points, or choose them; return numbers and names."""
        if given is None:
            if self.names is not None:
                raise ValueError("the points here have names; pass ids, one name per row")
            if self.next + n - 1 > _MOST:
                raise ValueError(f"the ids after {self.next - 1} are beyond int64; pass ids")
            return np.arange(self.next, self.next + n, dtype=np.int64), None
        numbers, named = numbered(given)
        if len(numbers) != n:
            raise ValueError(f"ids has {len(numbers)} values for {n} rows of X; their lengths must agree")
        if named is not None:
            self._refuse_collisions(numbers, named)
        if len(slots) and n:
            if (named is None) != (self.names is None):
                kind = "numbers for ids" if self.names is None else "names"
                raise TypeError(f"the points here have {kind}, and so must new ones; found {_first(given)!r}")
            there = np.flatnonzero(slots.index.find_many(numbers) >= 0)
            if there.size:
                row = int(there[0])
                name = numbers[row] if named is None else repr(named[row])
                raise ValueError(f"id {name} of row {row} is here already; update it, or delete it first")
        return numbers, named

    def new_one(self, given: Any, slots: Slots) -> tuple[Array, list[Name] | None] | None:
        """Check the id of one new point, quickly: its number and name; None if it may be wrong."""
        given = _only_entry(given)
        if isinstance(given, (str, UUID)):
            number = numbers_of(given)
            if self.names is None or slots.find(int(number[0])) >= 0:
                return None
            return number, [str(given) if isinstance(given, str) else given]
        if self.names is not None:
            return None
        if given is None:
            return (np.array([self.next]), None) if self.next <= _MOST else None
        if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
            return None
        free = _LEAST <= given <= _MOST and slots.find(int(given)) < 0
        return (np.array([int(given)]), None) if free else None

    def admit(self, numbers: Array, named: Sequence[Any] | None) -> None:
        """Add ids, with their names."""
        if named is not None:
            self.names = self.names or {}
            self.names.update(zip(numbers.tolist(), named, strict=True))
        largest = int(numbers[0]) if len(numbers) == 1 else int(numbers.max())
        self.next = max(self.next, largest + 1)

    def find(self, ids: Any, slots: Slots) -> Array:
        """Find the slots of ids; raise KeyError for the first that is not here."""
        if isinstance(ids, (set, frozenset)) or hasattr(ids, "__next__"):
            ids = list(ids)
        ids = _only_entry(ids)
        if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
            slot = slots.find(int(ids)) if _LEAST <= ids <= _MOST else -1
            if slot < 0:
                _refuse_missing(ids)
            return np.array([slot])
        numbers, named = numbered(ids)
        found = slots.index.find_many(numbers)
        missing = np.flatnonzero((found < 0) | (named is not None and self.names is None))
        if missing.size:
            row = int(missing[0])
            _refuse_missing(numbers[row] if named is None else named[row])
        return found

    def names_of(self, numbers: Array) -> Array:
        """Return the names of numbers: an array (n,) of objects; raise KeyError if points have none."""
        if self.names is None:
            raise KeyError("these points have integer ids and no names")
        found = np.empty(len(numbers), dtype=object)
        found[:] = [self.names[number] for number in numbers.tolist()]
        return found

    def forget(self, numbers: Array) -> None:
        """Remove ids."""
        if self.names is not None:
            for number in numbers.tolist():
                del self.names[number]
            if not self.names:
                self.names = None  # integers may come

    def check(self, ids: Array) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the ids that are here."""
        assert self.next > int(ids.max(initial=-1)), "1: an id would come twice"
        if self.names is not None:
            assert sorted(self.names) == ids.tolist(), "2: the names are of other points"
            numbers = numbers_of(list(self.names.values())).tolist()
            assert numbers == list(self.names), "2: a name has another number"

    def _refuse_collisions(self, numbers: Array, named: Sequence[Name]) -> None:
        """Raise ValueError for names whose numbers belong to others, here or among themselves.

        The chance that any two of n names share a number is about n^2 / 2^64:
        one in 18 million for a million names.
        """
        fresh: dict[int, Name] = {}
        here = self.names or {}
        for number, name in zip(numbers.tolist(), named, strict=True):
            holder = fresh.setdefault(number, here.get(number, name))
            if holder != name:
                raise ValueError(
                    f"the names {holder!r} and {name!r} have the same number, {number}, "
                    "by chance; rename one of them"
                )


def _refuse_repeats(numbers: Array, named: Sequence[Any]) -> None:
    first: dict[int, int] = {}
    for row, number in enumerate(numbers.tolist()):
        if number in first and named[first[number]] == named[row]:
            raise ValueError(
                f"ids must be distinct; {named[row]!r} of row {first[number]} stands again in row {row}"
            )
        first.setdefault(number, row)


def _refuse_large(ids: Array) -> None:
    """Raise ValueError for the first whole number that does not fit in int64."""
    for row, one in enumerate(ids.ravel().tolist()):
        if isinstance(one, int) and not _LEAST <= one <= _MOST:
            raise ValueError(f"ids must fit in int64; row {row} has {one}")


def _refuse_missing(one: Any) -> NoReturn:
    name = repr(one) if isinstance(one, (str, UUID)) else one
    raise KeyError(f"id {name} is not here; it was deleted or never inserted")


def _only_entry(ids: Any) -> Any:
    """Return the entry of a list or an array of one; anything else as it is."""
    single = isinstance(ids, (list, np.ndarray)) and np.ndim(ids) == 1 and len(ids) == 1
    return ids[0] if single else ids


def _first(ids: Any) -> Any:
    return ids if isinstance(ids, str) or np.ndim(ids) == 0 else next(iter(ids))
