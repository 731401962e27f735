"""Learn an encoding: check the roles of the columns, then find categories, means and medians in one pass."""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.io.columns import NUMERIC, BadCellError, Category, Column, Kind, absent, few, plain_number
from duramen.io.encoding import IMPUTE, LABEL, Choice, Encoding, Number, named
from duramen.io.table import Batch, Table

__all__ = [
    "CHOSEN",
    "MOST",
    "TEXT_IDS",
    "SeenCategories",
    "SeenNumbers",
    "check_kinds",
    "learn_encoding",
    "one_hot_columns",
    "seen_numbers",
    "used_features",
]


CHOSEN = (Kind.TEXT, Kind.FLAG, Kind.CATEGORY)
"""The kinds that "auto" encodes one-hot, and that make a label one of classes."""

TEXT_IDS = (Kind.TEXT, Kind.CODE, Kind.MIXED)
"""The kinds that are text as ids."""


def used_features(
    table: Table, label: str | None, features: Iterable[str] | None, weight: str | None, id: str | None
) -> tuple[str, ...]:
    """Return the features' names; refuse a name that is not there and one with two roles."""
    roles = {"label": label, "weight": weight, "id": id}
    taken: dict[str, str] = {}
    for role, name in roles.items():
        if name is not None:
            _take(table, name, role, taken)
    if isinstance(features, str):
        raise TypeError(f"features={features!r} is a string; pass a list of names")
    if features is None:
        chosen = tuple(name for name in table.columns if name not in taken and name not in table.index)
        _tell_index(table, taken)
        if id is None:
            _tell_id(table, chosen)
    else:
        chosen = tuple(features)
        for name in chosen:
            _take(table, name, "features", taken)
    if not chosen:
        raise ValueError(f"{table.path} has no column left for the features; it has {few(table.columns)}")
    return chosen


def _tell_index(table: Table, taken: Collection[str]) -> None:
    left = [name for name in table.index if name not in taken]
    if left:
        warnings.warn(
            f"{table.path}: {few(left)} was the index of a pandas frame, and is no feature; "
            "name it among the features (--features) if it is one, or as the id (--id)",
            stacklevel=4,
        )


def _tell_id(table: Table, chosen: Iterable[str]) -> None:
    for name in chosen:
        if name.strip().lower() == "id" and table.kinds[name] is Kind.WHOLE:
            warnings.warn(
                f"{table.path}: column {name!r} is used as a feature; if it names the rows, "
                f"say so (--id {name})",
                stacklevel=4,
            )


def _take(table: Table, name: str, role: str, taken: dict[str, str]) -> None:
    if name not in table.kinds:
        raise ValueError(absent(name, table.columns, table.path, role))
    if name in taken:
        both = f"{taken[name]} and {role}" if taken[name] != role else f"{role}, twice"
        raise ValueError(f"column {name!r} is given as {both}; a column has one role")
    taken[name] = role


def one_hot_columns(table: Table, used: Sequence[str], one_hot: Iterable[str] | str) -> frozenset[str]:
    """Return which features are encoded one-hot; refuse a name that is not a feature."""
    if one_hot == "auto":
        return frozenset(name for name in used if table.kinds[name] in CHOSEN)
    if isinstance(one_hot, str):
        raise TypeError(f'one_hot={one_hot!r} is a string; pass a list of names, or "auto"')
    names = tuple(one_hot)
    for name in names:
        if name not in table.kinds:
            raise ValueError(absent(name, table.columns, table.path, "one-hot"))
        if name not in used:
            raise ValueError(f"one-hot column {name!r} is not among the features; they are {few(used)}")
    return frozenset(names)


def check_kinds(
    table: Table,
    used: Sequence[str],
    chosen: frozenset[str],
    label: str | None,
    weight: str | None,
    id: str | None,
) -> None:
    """Refuse columns that cannot do what they are asked to."""
    for name in used:
        _check_feature(table, name, one_hot=name in chosen, is_id=id is None)
    if label is not None and table.kinds[label] in (Kind.TIME, Kind.OTHER, Kind.MIXED):
        raise ValueError(f"{_holds(table, label, 'the label')}; labels are numbers, text or true/false")
    if weight is not None and table.kinds[weight] not in NUMERIC:
        raise ValueError(f"{_holds(table, weight, 'the weight')}, not numbers")
    if id is not None and table.kinds[id] not in (Kind.WHOLE, *TEXT_IDS):
        raise ValueError(
            f"{_holds(table, id, 'the id')}; ids are whole numbers or text, "
            "so that no two become one by rounding"
        )


def _check_feature(table: Table, name: str, *, one_hot: bool, is_id: bool) -> None:
    kind = table.kinds[name]
    if kind in (Kind.TIME, Kind.OTHER):
        raise ValueError(
            f"{_holds(table, name)}, which cannot be a feature; turn it into numbers first "
            "(for instance days since a date), or leave it out of the features (--features)"
        )
    if kind not in NUMERIC and not one_hot:
        names_rows = f"take it for the ids (--id {name}), " if is_id and kind in TEXT_IDS else ""
        raise ValueError(
            f"{_holds(table, name)}, not numbers; encode it one-hot (--one-hot {name}), {names_rows}"
            "leave it out of the features (--features), or correct it"
        )


def _holds(table: Table, name: str, what: str = "column") -> str:
    """Say what a column holds, and in a text file where its first text is."""
    kind = table.kinds[name]
    where = table.why_text(name) if kind in (Kind.TEXT, Kind.MIXED) else ""
    return f"{table.path}: {what} {name!r} holds {kind.value}{where}"


_CODE = re.compile(r"[+-]?0[0-9]")

MOST = 1000
"""Categories a column may have: beyond, it is a name or an id, not a choice."""


class SeenCategories:
    """The values of a column, and how often each was there.

    A text file does not say what a column holds: its values are gathered as text, and are
    numbers or flags if all of them, in the end, are.
    """

    def __init__(self, kind: Kind, *, typed: bool, missing: bool, way_out: str = IMPUTE) -> None:
        self.typed, self.missing, self.way_out = typed, missing, way_out
        self.of = "text"
        if typed and kind is not Kind.TEXT:
            self.of = "flag" if kind is Kind.FLAG else "number"
        self.counts: Counter[Category] = Counter()

    def add(self, column: Column, first: int) -> None:
        codes, values = column.distinct(self.of)
        absent = np.flatnonzero(codes < 0)
        if absent.size and not self.missing:
            raise BadCellError(int(absent[0]), "has no value", self.way_out)
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        for value, count in zip(values, counts.tolist(), strict=True):
            if count:
                self.counts[value] += count
        if len(self.counts) > MOST:
            raise BadCellError(
                None,
                f"has more than {MOST} categories",
                "leave the column out, or group its values first",
            )

    def result(self) -> tuple[str, tuple[Category, ...], Category | None]:
        """Return what the values are, all of them sorted, and the most frequent one (of equals the first)."""
        of, counts = self.of, self.counts
        if not self.typed:
            of, counts = _read_text(counts)
        ordered = tuple(sorted(counts))
        frequent = max(ordered, key=counts.__getitem__) if ordered else None
        return of, ordered, frequent


def _read_text(counts: Counter[Category]) -> tuple[str, Counter[Category]]:
    """Read categories of a text file as numbers or flags if every one is."""
    for of, read in (("number", _number), ("flag", _flag)):
        found: Counter[Category] = Counter()
        for text, count in counts.items():
            value = read(str(text).strip())
            if value is None:
                break
            found[value] += count
        else:
            return of, found
    return "text", counts


def _number(text: str) -> Category | None:
    if _CODE.match(text):  # 01234 is not 1234
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return plain_number(value) if np.isfinite(value) and "_" not in text else None


def _flag(text: str) -> Category | None:
    return {"true": True, "false": False}.get(text.lower())


class SeenNumbers(ABC):
    """One number learned of a column's values that are not missing."""

    def add(self, column: Column, first: int) -> None:
        """Look at the values of a batch whose first row has the number ``first``."""
        values = np.asarray(column.numbers(), dtype=np.float64)
        infinite = np.flatnonzero(np.isinf(values))
        if infinite.size:
            raise BadCellError(int(infinite[0]), "is infinite", "correct it or drop the row")
        there = np.flatnonzero(~np.isnan(values))
        self._take(values[there], first + there)

    @abstractmethod
    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Look at values, each of a row of this number."""

    @abstractmethod
    def result(self) -> float | None:
        """Return the number; None if there was no value."""


def seen_numbers(impute: str, n_columns: int) -> SeenNumbers:
    """Make what gathers one of ``n_columns`` columns for their mean or median."""
    if impute == "mean":
        return _Mean()
    return _Median(max(2_000, min(50_000, 4_000_000 // max(1, n_columns))))


class _Mean(SeenNumbers):
    """The mean, rounded once: the sum is kept as a whole number for each binary exponent.

    So neither the order of rows nor the batches change it.
    """

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.count = 0

    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        if not values.size:
            return
        self.count += values.size
        fractions, exponents = np.frexp(values)
        lowest = int(exponents.min())
        shift = exponents - lowest
        high = np.trunc(fractions * 2.0**26)
        low = (fractions * 2.0**26 - high) * 2.0**27  # 53 bits: 26 high, 27 low, both exact
        for part, scale in ((high, 26), (low, 53)):
            sums = np.bincount(shift, weights=part)
            for step in np.flatnonzero(sums).tolist():
                exponent = lowest + step - scale
                self.sums[exponent] = self.sums.get(exponent, 0) + int(sums[step])

    def result(self) -> float | None:
        if not self.count:
            return None
        total = sum((Fraction(2) ** exponent * whole for exponent, whole in self.sums.items()), Fraction(0))
        return float(total / self.count)


class _Median(SeenNumbers):
    """The median of the values, or of the ``size`` values whose rows have the smallest keys.

    A row's key is a hash of its number, so the sample is uniform, and the same whatever the batches.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.keys = np.empty(0, dtype=np.uint64)
        self.values = np.empty(0)
        self.limit = np.iinfo(np.uint64).max

    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        keys = _keys(rows)
        near = keys <= self.limit
        self.keys = np.concatenate([self.keys, keys[near]])
        self.values = np.concatenate([self.values, values[near]])
        if len(self.keys) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        if len(self.keys) > self.size:
            nearest = np.argpartition(self.keys, self.size - 1)[: self.size]
            self.keys, self.values = self.keys[nearest], self.values[nearest]
            self.limit = self.keys.max()

    def result(self) -> float | None:
        self._shrink()
        if not self.values.size:
            return None
        middle = (len(self.values) - 1) // 2, len(self.values) // 2
        low, high = np.partition(self.values, middle)[[*middle]].tolist()
        return float((Fraction(low) + Fraction(high)) / 2)  # two large numbers do not overflow


def _keys(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash row numbers: the finaliser of splitmix64, which permutes the 64-bit numbers."""
    keys = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


_IMPUTE = ("mean", "median", "zero")


def learn_encoding(
    table: Table,
    label: str | None = None,
    features: Iterable[str] | None = None,
    weight: str | None = None,
    id: str | None = None,
    one_hot: Iterable[str] | str = (),
    impute: str | None = None,
    each: Callable[[Batch], Any] | None = None,
) -> Encoding:
    """Decide how a table's columns become numbers.

    Parameters
    ----------
    table : Table
        From :func:`open_table`. It is read, once, only if something must be learned:
        categories, classes, means or medians.
    label : str, optional
        The column of labels. Numbers stay as they are; text, true/false and Arrow
        dictionaries become 0..k-1 in sorted order (``Encoding.classes``).
    features : iterable of str, optional
        The columns of X, in this order; default: all that have no other role.
    weight, id : str, optional
        The columns of weights (0 or more) and of ids (whole numbers or text).
    one_hot : iterable of str, or "auto"
        Features that become one column of 0 and 1 for each of their values; "auto": all
        that hold text, true/false or Arrow dictionaries.
    impute : {None, "mean", "median", "zero"}
        None refuses missing values. Else a missing number becomes the column's mean
        (exact), its median, or 0; a missing category the most frequent one. The median is
        exact up to some 2,000 to 50,000 values a column (fewer the more columns there are);
        of longer tables it is that of a uniform sample of so many.
        Labels, weights and ids are never imputed.
    each : callable, optional
        Called with every batch of the pass, for progress.

    Raises
    ------
    ValueError
        Naming the column, and the row where there is one.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from duramen.io import open_table
    >>> file = Path(tempfile.mkdtemp()) / "data.npz"
    >>> np.savez(file, age=np.array([30, 40]), colour=np.array(["red", "blue"]), bad=np.array([True, False]))
    >>> table = open_table(file)
    >>> encoding = learn_encoding(table, label="bad", one_hot=["colour"])
    >>> encoding.names
    ('age', 'colour=blue', 'colour=red')
    >>> rows = encoding.rows(next(table.batches()))
    >>> rows.X, rows.y
    (array([[30.,  0.,  1.], [40.,  1.,  0.]]), array([1., 0.]))
    """
    if impute is not None and impute not in _IMPUTE:
        raise ValueError(f"impute={impute!r}: it is one of mean, median and zero, or left out")
    if table.n_rows == 0:
        raise ValueError(f"{table.path} has no rows")
    used = used_features(table, label, features, weight, id)
    chosen = one_hot_columns(table, used, one_hot)
    check_kinds(table, used, chosen, label, weight, id)
    classes = label is not None and table.kinds[label] in CHOSEN
    learned = _Learned(table, used, chosen, label if classes else None, impute)
    learned.look(each)
    numbers = [table.kinds[name] for name in used if name not in chosen]
    encoding = Encoding(
        tuple(learned.choice(name) if name in chosen else learned.number(name) for name in used),
        label,
        weight,
        id,
        learned.choice(label) if label is not None and classes else None,
        text_ids=id is not None and table.kinds[id] in TEXT_IDS,
        single=bool(numbers) and all(kind is Kind.SINGLE for kind in numbers),
        impute=impute,
    )
    _refuse_twins(table, encoding)
    return encoding


class _Learned:
    """What one pass over a table tells of the columns that need it."""

    def __init__(
        self,
        table: Table,
        used: Sequence[str],
        chosen: frozenset[str],
        label: str | None,
        impute: str | None,
    ) -> None:
        self.table, self.impute = table, impute
        lists = [name for name in used if name in chosen] + ([label] if label is not None else [])
        self.categories = {
            name: SeenCategories(
                table.kinds[name],
                typed=table.typed,
                missing=impute is not None and name != label,
                way_out=IMPUTE if name != label else LABEL,
            )
            for name in lists
        }
        self.numbers: dict[str, SeenNumbers] = {}
        if impute in ("mean", "median"):
            numeric = [name for name in used if name not in chosen]
            self.numbers = {name: seen_numbers(impute, len(numeric)) for name in numeric}

    def look(self, each: Callable[[Batch], Any] | None) -> None:
        """Read what must be read; nothing, if nothing must."""
        wanted = [*self.categories, *self.numbers]
        if not wanted:
            return
        empty = True
        for batch in self.table.batches(columns=wanted):
            empty = False
            for name in wanted:
                with named(batch, name):
                    seen = self.categories.get(name) or self.numbers[name]
                    seen.add(batch.column(name), batch.first)
            if each is not None:
                each(batch)
        if empty:
            raise ValueError(f"{self.table.path} has no rows")

    def choice(self, name: str) -> Choice:
        of, categories, frequent = self.categories[name].result()
        self._refuse_nothing(name, found=bool(categories))
        imputed = self.impute is not None and self.categories[name].missing
        return Choice(name, of, categories, frequent if imputed else None)

    def number(self, name: str) -> Number:
        if self.impute is None:
            return Number(name)
        if name not in self.numbers:
            return Number(name, 0.0)
        value = self.numbers[name].result()
        self._refuse_nothing(name, found=value is not None)
        return Number(name, value)

    def _refuse_nothing(self, name: str, *, found: bool) -> None:
        if not found:
            raise ValueError(
                f"{self.table.path}: column {name!r} has no value in any row; "
                "leave it out of the features (--features)"
            )


def _refuse_twins(table: Table, encoding: Encoding) -> None:
    names = encoding.names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{table.path}: two columns of X would be called {few(twice)}; rename a column")
