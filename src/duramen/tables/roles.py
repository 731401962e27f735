"""Which column plays which role, checked before anything is read."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence

from duramen.tables.kinds import NUMERIC, Kind
from duramen.tables.names import absent, few
from duramen.tables.table import Table

__all__ = ["CHOSEN", "TEXT_IDS", "check_kinds", "one_hot_columns", "used_features"]

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
        raise TypeError(f"features={features!r} is one text; give a list of names")
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
        raise TypeError(f'one_hot={one_hot!r} is one text; give a list of names, or "auto"')
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
