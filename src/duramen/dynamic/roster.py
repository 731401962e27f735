"""Who is here: the ids of points, ours or the user's, and the names they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn
from uuid import UUID

import numpy as np

from duramen.dynamic.names import Names, is_names, listed, numbers_of
from duramen.dynamic.slots import Slots
from duramen.points import checked_ids
from duramen.rows import Array

__all__ = ["Roster", "numbered"]

_LEAST, _MOST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def numbered(ids: Any) -> tuple[Array, Sequence[Any] | None]:
    """Turn ids into distinct int64 numbers, and give their names where they are strings or UUIDs.

    Raises
    ------
    TypeError, ValueError
        If one is no integer, string or UUID, or stands twice.

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


class Roster:
    """Which ids are taken, which comes next, and which names they have.

    Invariants
    ----------
    1. The next id is above all that ever were.
    2. If points have names, each of them has one.
    """

    def __init__(self, first: int = 0) -> None:
        self.names: Names | None = None
        self.next = first

    def new(self, given: Any, n: int, slots: Slots | None) -> tuple[Array, Sequence[Any] | None]:
        """Check the ids of ``n`` new points, or make them: numbers and names.

        Raises
        ------
        TypeError, ValueError
            If they are others than points here have, or one is here already.
        """
        if given is None:
            if self.names is not None:
                raise ValueError("the points here have names; pass ids, one name a row")
            if self.next + n - 1 > _MOST:
                raise ValueError(f"the ids after {self.next - 1} are beyond int64; pass ids")
            return np.arange(self.next, self.next + n, dtype=np.int64), None
        numbers, named = numbered(given)
        if len(numbers) != n:
            raise ValueError(f"ids has {len(numbers)} values for {n} rows of X; their lengths must agree")
        if named is not None:
            (self.names or Names()).check(numbers, named)
        if slots is not None and len(slots) and n:
            if (named is None) != (self.names is None):
                kind = "numbers for ids" if self.names is None else "names"
                raise TypeError(f"the points here have {kind}, and so must new ones; found {_first(given)!r}")
            there = np.flatnonzero(slots.index.find_many(numbers) >= 0)
            if there.size:
                row = int(there[0])
                name = numbers[row] if named is None else repr(named[row])
                raise ValueError(f"id {name} of row {row} is here already; update it, or delete it first")
        return numbers, named

    def one(self, given: Any, slots: Slots) -> tuple[int, Any] | None:
        """Check the id of one new point, quickly: its number and name; None if it may be wrong."""
        if isinstance(given, (list, np.ndarray)) and np.ndim(given) == 1 and len(given) == 1:
            given = given[0]
        if isinstance(given, (str, UUID)):
            number = int(numbers_of(given)[0])
            free = self.names is not None and slots.find(number) < 0
            return (number, str(given) if isinstance(given, str) else given) if free else None
        if self.names is not None:
            return None
        if given is None:
            return (self.next, None) if self.next <= _MOST else None
        if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
            return None
        number = int(given)
        return (number, None) if _LEAST <= number <= _MOST and slots.find(number) < 0 else None

    def admit_one(self, number: int, named: Any) -> None:
        """Take one id in, with its name."""
        if named is not None and self.names is not None:
            self.names.add(np.array([number]), [named])
        if number >= self.next:
            self.next = number + 1

    def admit(self, numbers: Array, named: Sequence[Any] | None) -> None:
        """Take ids in, with their names."""
        if named is not None:
            self.names = self.names or Names()
            self.names.add(numbers, named)
        self.next = max(self.next, int(numbers.max()) + 1)

    def find(self, ids: Any, slots: Slots | None) -> Array:
        """Find the slots of ids.

        Raises
        ------
        KeyError
            Naming the first that is not here.
        """
        if isinstance(ids, (set, frozenset)) or hasattr(ids, "__next__"):
            ids = list(ids)
        if isinstance(ids, (list, np.ndarray)) and np.ndim(ids) == 1 and len(ids) == 1:
            ids = ids[0]
        if isinstance(ids, (str, UUID)) and self.names is not None:
            return self._find_one(int(numbers_of(ids)[0]), ids, slots)
        if isinstance(ids, (int, np.integer)) and not isinstance(ids, bool):
            return self._find_one(int(ids), ids, slots)
        numbers, named = numbered(ids)
        found = np.full(len(numbers), -1) if slots is None else slots.index.find_many(numbers)
        if named is not None and (self.names is None or not len(self.names)):
            found[:] = -1
        if (found < 0).any():
            row = int(np.flatnonzero(found < 0)[0])
            _refuse_missing(numbers[row] if named is None else named[row])
        return found

    @staticmethod
    def _find_one(number: int, given: Any, slots: Slots | None) -> Array:
        slot = slots.find(number) if slots is not None and _LEAST <= number <= _MOST else -1
        if slot < 0:
            _refuse_missing(given)
        return np.array([slot])

    def forget(self, numbers: Array) -> None:
        """Let ids go."""
        if self.names is not None:
            self.names.remove(numbers)
            if not len(self.names):
                self.names = None  # numbers may come

    def check(self, ids: Array) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the ids that are here."""
        assert self.next > int(ids.max(initial=-1)), "1: an id would come twice"
        if self.names is not None:
            self.names.check_invariants()
            assert len(self.names) == len(ids), "2: there are other names than points"
            self.names.of(ids)


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


def _first(ids: Any) -> Any:
    return ids if isinstance(ids, str) or np.ndim(ids) == 0 else next(iter(ids))
