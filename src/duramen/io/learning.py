"""Learn an encoding: check the roles of the columns, then find categories, means and medians in one pass."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.io.columns import (
    NUMERIC,
    BadCellError,
    Category,
    Column,
    Kind,
    absent,
    column_roles,
    plain_number,
    refuse_where,
)
from duramen.io.encoding import IMPUTE, INFINITE, LABEL, Choice, Encoding, Number, naming_cell
from duramen.io.table import Batch, Table
from duramen.text import few

_CHOICES = (Kind.TEXT, Kind.FLAG, Kind.CATEGORY)  # one-hot for "auto", and classes as a label
_TEXT_IDS = (Kind.TEXT, Kind.CODE, Kind.MIXED)  # text as ids
_MOST_CATEGORIES = 1000  # with more, a column holds names or ids, not categories
_CODE = re.compile(r"[+-]?0[0-9]")


def learn_encoding(
    table: Table,
    label: str | None = None,
    features: Iterable[str] | None = None,
    weight: str | None = None,
    id: str | None = None,
    one_hot: Iterable[str] | str = (),
    impute: str | None = None,
    each: Callable[[Batch], Any] | None = None,
    classes: bool = False,
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
        None refuses missing values. Otherwise a missing number becomes the column's mean
        (exact), its median, or 0, and a missing category the most frequent one. The median is
        exact up to some 2,000 to 50,000 values per column (fewer the more columns there are);
        for longer tables it is that of a uniform sample of that size.
        Labels, weights and ids are never imputed.
    each : callable, optional
        Called with every batch of the pass, for progress.
    classes : bool
        Whether labels that are numbers become 0..k-1, too.

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
    if impute not in (None, "mean", "median", "zero"):
        raise ValueError(f"impute={impute!r} must be 'mean', 'median', 'zero' or None")
    if table.n_rows == 0:
        raise ValueError(f"{table.path} has no rows")
    roles = {"label": label, "weight": weight, "id": id}
    used = _features(table, roles, features)
    chosen = _one_hot_columns(table, used, one_hot)
    _check_kinds(table, used, chosen, roles)
    text_ids = id is not None and has_text_ids(table, id)
    numbers = [name for name in used if name not in chosen]
    learners: dict[str, Any] = {
        name: _Categories(name, _values_of(table, name), impute=impute is not None) for name in chosen
    }
    if impute in ("mean", "median"):
        learners |= {name: number_learner(impute, len(numbers)) for name in numbers}
    if label is not None and table.kinds[label] in _CHOICES:
        learners[label] = _Classes(label, _values_of(table, label))
    elif label is not None and classes:
        learners[label] = _Classes(label, "number")
    for batch in table.batches(columns=learners) if learners else ():
        for name, learner in learners.items():
            with naming_cell(batch, name):
                learner.add(batch.column(name), batch.first)
        if each is not None:
            each(batch)
    found = {name: learner.result() for name, learner in learners.items()}
    for name, value in found.items():
        if value is None:
            raise ValueError(
                f"{table.path}: column {name!r} has no value in any row; "
                "leave it out of the features (--features)"
            )
    zero = None if impute is None else 0.0
    encoding = Encoding(
        tuple(found[name] if name in chosen else Number(name, found.get(name, zero)) for name in used),
        label,
        weight,
        id,
        found.get(label) if label is not None else None,
        text_ids=text_ids,
        single=bool(numbers) and all(table.kinds[name] is Kind.SINGLE for name in numbers),
        impute=impute,
    )
    twice = [name for name, count in Counter(encoding.names).items() if count > 1]
    if twice:
        raise ValueError(f"{table.path}: two columns of X would be called {few(twice)}; rename a column")
    return encoding


def _features(table: Table, roles: dict[str, str | None], features: Iterable[str] | None) -> tuple[str, ...]:
    """Return the features' names; refuse a name that is absent and one with two roles."""
    names = features if features is None or isinstance(features, str) else tuple(features)
    taken = column_roles(table.columns, table.path, roles, names)
    used = tuple(names or ())
    if names is None:
        used = tuple(name for name in table.columns if name not in taken and name not in table.index)
        _warn_of_ids(table, [name for name in table.index if name not in taken], used, roles["id"])
    if not used:
        raise ValueError(f"{table.path} has no column left for the features; it has {few(table.columns)}")
    return used


def _warn_of_ids(table: Table, index: Sequence[str], used: Sequence[str], id: str | None) -> None:
    """Warn of an index that is not used, and of features that look like ids."""
    if index:
        warnings.warn(
            f"{table.path}: {few(index)} was the index of a pandas frame, and is not used as a feature; "
            "name it among the features (--features) if it is one, or as the id (--id)",
            stacklevel=4,
        )
    for name in used:
        if id is None and name.strip().lower() == "id" and table.kinds[name] is Kind.WHOLE:
            warnings.warn(
                f"{table.path}: column {name!r} is used as a feature; if it identifies the rows, "
                f"pass it as the id (--id {name})",
                stacklevel=4,
            )


def _one_hot_columns(table: Table, used: Sequence[str], one_hot: Iterable[str] | str) -> frozenset[str]:
    """Return which features are encoded one-hot; refuse a name that is not a feature."""
    if one_hot == "auto":
        return frozenset(name for name in used if table.kinds[name] in _CHOICES)
    if isinstance(one_hot, str):
        raise TypeError(f'one_hot={one_hot!r} is a string; pass a list of names, or "auto"')
    names = tuple(one_hot)
    for name in names:
        if name not in table.kinds:
            raise ValueError(absent(name, table.columns, table.path, "one-hot"))
        if name not in used:
            raise ValueError(f"one-hot column {name!r} is not among the features; they are {few(used)}")
    return frozenset(names)


def _check_kinds(
    table: Table, used: Sequence[str], chosen: frozenset[str], roles: dict[str, str | None]
) -> None:
    """Refuse columns that cannot have the role they are given."""
    label, weight = roles["label"], roles["weight"]
    for name in used:
        kind = table.kinds[name]
        if kind in (Kind.TIME, Kind.OTHER):
            raise ValueError(
                f"{_holds(table, name)}, which cannot be a feature; turn it into numbers first "
                "(for instance days since a date), or leave it out of the features (--features)"
            )
        if kind not in NUMERIC and name not in chosen:
            as_id = f"use it as the ids (--id {name}), " if roles["id"] is None and kind in _TEXT_IDS else ""
            raise ValueError(
                f"{_holds(table, name)}, not numbers; encode it one-hot (--one-hot {name}), {as_id}"
                "leave it out of the features (--features), or correct it"
            )
    if label is not None and table.kinds[label] in (Kind.TIME, Kind.OTHER, Kind.MIXED):
        raise ValueError(f"{_holds(table, label, 'the label')}; labels are numbers, text or true/false")
    if weight is not None and table.kinds[weight] not in NUMERIC:
        raise ValueError(f"{_holds(table, weight, 'the weight')}, not numbers")


def has_text_ids(table: Table, id: str) -> bool:
    """Return whether ids are text; refuse what is neither text nor whole numbers."""
    kind = table.kinds[id]
    if kind is not Kind.WHOLE and kind not in _TEXT_IDS:
        raise ValueError(
            f"{_holds(table, id, 'the id')}; ids are whole numbers or text, "
            "so that no two become equal by rounding"
        )
    return kind in _TEXT_IDS


def _holds(table: Table, name: str, what: str = "column") -> str:
    """Describe what a column holds, and in a text file where its first text is."""
    kind = table.kinds[name]
    where = table.why_text(name) if kind in (Kind.TEXT, Kind.MIXED) else ""
    return f"{table.path}: {what} {name!r} holds {kind.value}{where}"


def _values_of(table: Table, name: str) -> str | None:
    """Return what the categories of a column are; None for a text file, which must be read first."""
    if not table.typed:
        return None
    return {Kind.TEXT: "text", Kind.FLAG: "flag"}.get(table.kinds[name], "number")


class _Categories:
    """The values of a column, and how often each occurs.

    A text file does not declare what a column holds: its values are collected as text, and
    become numbers or flags if all of them can.
    """

    way_out = IMPUTE
    too_many = (
        f"has more than {_MOST_CATEGORIES:,} categories",
        "leave the column out, or group its values first",
    )

    def __init__(self, name: str, of: str | None, *, impute: bool = False) -> None:
        self.name, self.of, self.impute = name, of, impute
        self.counts: Counter[Category] = Counter()

    def add(self, column: Column, first: int) -> None:
        codes, values = column.distinct(self.of or "text")
        if not self.impute:
            refuse_where(codes < 0, "has no value", self.way_out)
        infinite = [code for code, value in enumerate(values) if value in (math.inf, -math.inf)]
        refuse_where(np.isin(codes, infinite), *INFINITE)
        counts = np.bincount(codes[codes >= 0], minlength=len(values)).tolist()
        self.counts.update({value: count for value, count in zip(values, counts, strict=True) if count})
        if len(self.counts) > _MOST_CATEGORIES:
            raise BadCellError(None, *self.too_many)

    def result(self) -> Choice | None:
        of, counts = _parse_categories(self.counts) if self.of is None else (self.of, self.counts)
        if not counts:
            return None
        categories = tuple(sorted(counts))
        frequent = max(categories, key=counts.__getitem__)  # the first of ties
        return Choice(self.name, of, categories, frequent if self.impute else None)


class _Classes(_Categories):
    """The values of a label."""

    way_out = LABEL
    too_many = (
        f"has more than {_MOST_CATEGORIES:,} values, too many for classes",
        "use a loss for numbers (--loss huber), or group its values first",
    )


def _parse_categories(counts: Counter[Category]) -> tuple[str, Counter[Category]]:
    """Parse the categories of a text file as numbers or flags if every one can be."""
    for of, parse in (("number", _number), ("flag", _flag)):
        found: Counter[Category] = Counter()
        for text, count in counts.items():
            value = parse(str(text).strip())
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


def number_learner(impute: str, n_columns: int) -> _Mean | _Median:
    """Return the learner for the mean or median of one of ``n_columns`` columns."""
    if impute == "mean":
        return _Mean()
    return _Median(max(2_000, min(50_000, 4_000_000 // max(1, n_columns))))


def _present(column: Column) -> tuple[Array, Array]:
    """Return the values that are not missing, and their rows; refuse infinity."""
    values = np.asarray(column.numbers(), dtype=np.float64)
    refuse_where(np.isinf(values), *INFINITE)
    rows = np.flatnonzero(~np.isnan(values))
    return values[rows], rows


class _Mean:
    """The mean, rounded once: the sum is kept as a whole number for each binary exponent.

    So it depends neither on the order of rows nor on the batches.
    """

    def __init__(self) -> None:
        self.sums: Counter[int] = Counter()
        self.count = 0

    def add(self, column: Column, first: int) -> None:
        values, _ = _present(column)
        if not values.size:
            return
        self.count += values.size
        fractions, exponents = np.frexp(values)
        lowest = int(exponents.min())
        high = np.trunc(fractions * 2.0**26)
        low = (fractions * 2.0**26 - high) * 2.0**27  # 53 bits: 26 high, 27 low, both exact
        for part, scale in ((high, 26), (low, 53)):
            for step, whole in enumerate(np.bincount(exponents - lowest, weights=part).tolist()):
                self.sums[lowest + step - scale] += int(whole)

    def result(self) -> float | None:
        if not self.count:
            return None
        total = sum((Fraction(2) ** exponent * whole for exponent, whole in self.sums.items()), Fraction(0))
        return float(total / self.count)


class _Median:
    """The median of the values, or of the ``size`` values whose rows have the smallest keys.

    A row's key is a hash of its number, so the sample is uniform, and independent of the batches.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.keys, self.values = np.empty(0, dtype=np.uint64), np.empty(0)
        self.limit = np.iinfo(np.uint64).max

    def add(self, column: Column, first: int) -> None:
        values, rows = _present(column)
        keys = _keys(first + rows)
        near = keys <= self.limit
        self.keys = np.concatenate([self.keys, keys[near]])
        self.values = np.concatenate([self.values, values[near]])
        if len(self.keys) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        if len(self.keys) > self.size:
            smallest = np.argpartition(self.keys, self.size - 1)[: self.size]
            self.keys, self.values = self.keys[smallest], self.values[smallest]
            self.limit = self.keys.max()

    def result(self) -> float | None:
        self._shrink()
        if not self.values.size:
            return None
        middle = (len(self.values) - 1) // 2, len(self.values) // 2
        low, high = np.partition(self.values, middle)[[*middle]].tolist()
        return float((Fraction(low) + Fraction(high)) / 2)  # two large numbers do not overflow


def _keys(rows: Array) -> Array:
    """Hash row numbers: the finaliser of splitmix64, which permutes the 64-bit numbers."""
    keys = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
