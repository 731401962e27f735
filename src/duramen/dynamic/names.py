"""Names: strings and UUIDs as ids.

Inside, an id is an int64 number, and whether a row is sampled depends on its id.
A name's number is therefore a hash of the name and of nothing else: the same
names give the same coreset, in whatever order and on whatever day they came.
Names, in turn, are kept beside the numbers, to answer in the user's own words
and to notice when two names have one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias, final
from uuid import UUID

import numpy as np

from duramen.frames import is_frame
from duramen.rows import Array

__all__ = ["Name", "Names", "is_names", "listed", "numbers_of"]

Name: TypeAlias = str | UUID

_KINDS = (str, UUID)  # a tuple: half the time of asking a union
_POSITIVE = np.uint64(2**63 - 1)  # 63 bits, so that a number is an int64 and not negative


def is_names(ids: Any) -> bool:
    """Tell whether ids are names: a string, a UUID, or a column that begins with one.

    Lists, tuples, arrays, and the columns of pandas, polars and Arrow are
    columns; a data frame, a dict and a set are not. Only the first entry is
    looked at: :func:`numbers_of` refuses what stands below it. An array of text
    is names even if it is empty.

    Examples
    --------
    >>> is_names(["ann", "bob"]), is_names("ann"), is_names([1, 2])
    (True, True, False)
    """
    if isinstance(ids, _KINDS):
        return True
    if isinstance(ids, bytes | dict) or not hasattr(ids, "__getitem__") or is_frame(ids):
        return False
    if getattr(ids, "ndim", 1) != 1:
        return False
    if getattr(getattr(ids, "dtype", None), "kind", "") in ("U", "T"):
        return True
    first: Any = next(iter(ids), None)
    return isinstance(first.as_py() if hasattr(first, "as_py") else first, _KINDS)


def numbers_of(names: Any) -> Array:
    """Compute the number of each name: int64 (n,), from 0 to 2^63 - 1, a function of the name alone.

    The 63 last bits of BLAKE2b's eight bytes for ``s`` and the text in UTF-8, or for
    ``u`` and the sixteen bytes of the UUID. A UUID and its text are two names.

    Parameters
    ----------
    names : str, UUID, or a column of them
        Whatever :func:`is_names` accepts; strings and UUIDs may stand together.

    Raises
    ------
    TypeError
        If an entry is neither, such as a number, None or NaN; the first is named.

    Examples
    --------
    >>> numbers_of(["ann", "bob", "ann"])
    array([6685440548919807615, 3731236293512980523, 6685440548919807615])
    """
    entries = listed(names)
    _refuse_others(entries)
    digests = b"".join([_digest(_tagged(name)) for name in entries])
    return (np.frombuffer(digests, dtype="<u8") & _POSITIVE).astype(np.int64)


@final
class Names:
    """Which name each number has.

    Invariants
    ----------
    1. Every number is its name's number.

    Examples
    --------
    >>> names, numbers = Names(), numbers_of(["ann", "bob"])
    >>> names.check(numbers, ["ann", "bob"])
    >>> names.add(numbers, ["ann", "bob"])
    >>> names[numbers[1]], len(names)
    ('bob', 2)
    >>> names.remove(numbers[:1])
    >>> names.of(numbers[1:])
    array(['bob'], dtype=object)
    """

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[int, Name] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Names: {len(self):,}"

    def __getitem__(self, number: int) -> Name:
        try:
            return self._names[number]
        except KeyError:
            raise KeyError(f"id {number} has no name") from None

    def check(self, numbers: Array, names: Sequence[Name] | Any) -> None:
        """Refuse names whose numbers belong to others, here or among themselves; a name may come again.

        The chance that any two of n names share a number is about n^2 / 2^64:
        one in 18 million for a million names.

        Raises
        ------
        ValueError
            Naming both.
        """
        fresh: dict[int, Name] = {}
        for number, name in zip(_integers(numbers), listed(names), strict=True):
            holder = self._names.get(number, name)
            if holder == name:
                holder = fresh.setdefault(number, name)
            if holder != name:
                raise ValueError(
                    f"the names {holder!r} and {name!r} have the same number, {number}, "
                    "by chance; rename one of them"
                )

    def add(self, numbers: Array, names: Sequence[Name] | Any) -> None:
        """Keep the names of numbers, which :meth:`check` has let pass."""
        self._names.update(zip(_integers(numbers), listed(names), strict=True))

    def remove(self, numbers: Array) -> None:
        """Forget the names of numbers.

        Raises
        ------
        KeyError
            If one has no name; then all are kept.
        """
        gone = _integers(numbers)
        for number in gone:
            self[number]
        for number in gone:
            self._names.pop(number, None)

    def of(self, numbers: Array) -> Array:
        """Return the names of numbers, in their order: an array (n,) of objects.

        Raises
        ------
        KeyError
            If one has no name.
        """
        wanted = _integers(numbers)
        found = np.empty(len(wanted), dtype=object)
        found[:] = [self[number] for number in wanted]
        return found

    def copy(self) -> Names:
        """Return the same names in a table of its own."""
        made = Names()
        made._names = self._names.copy()
        return made

    def check_invariants(self) -> None:
        """Raise AssertionError, naming the first, if a number is not its name's number."""
        computed = numbers_of(list(self._names.values())).tolist()
        for (number, name), right in zip(self._names.items(), computed, strict=True):
            if number != right:
                raise AssertionError(f"id {number} has the name {name!r}, whose number is {right}")


def _digest(tagged: bytes) -> bytes:
    return blake2b(tagged, digest_size=8).digest()


def _tagged(name: Name) -> bytes:
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    return b"u" + name.bytes


def listed(names: Any) -> list[Any]:
    """List the entries of a column by its own method: as Python's objects."""
    if isinstance(names, _KINDS):
        return [names]
    for method in ("tolist", "to_pylist", "to_list"):  # NumPy and pandas, Arrow, polars
        if hasattr(names, method):
            return list(getattr(names, method)())
    return [str(name) if isinstance(name, np.str_) else name for name in names]


def _integers(numbers: Array) -> list[int]:
    return np.atleast_1d(numbers).tolist()


def _refuse_others(listed: list[Any]) -> None:
    """Raise TypeError for the first entry that is neither a string nor a UUID."""
    for row, entry in enumerate(listed):
        if not isinstance(entry, _KINDS):
            raise TypeError(
                f"names must be strings or UUIDs; row {row} has {entry!r}, of type {type(entry).__name__}; "
                "give every row a name, or use integers for all"
            )
