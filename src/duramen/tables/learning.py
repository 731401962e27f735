"""Learning an encoding: roles are checked first, then what only the data tell is found in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from duramen.tables.choice import IMPUTE, LABEL, Choice, Number
from duramen.tables.encoding import Encoding, named
from duramen.tables.kinds import Kind
from duramen.tables.names import few
from duramen.tables.roles import CHOSEN, TEXT_IDS, check_kinds, one_hot_columns, used_features
from duramen.tables.seen import SeenCategories, SeenNumbers, seen_numbers
from duramen.tables.table import Batch, Table

__all__ = ["learn_encoding"]

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
    >>> from duramen.tables import open_table
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
