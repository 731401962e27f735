"""Labels as the loss takes them: numbers, or classes, and whether it can tell so many apart.

Labels that are text or true/false are classes for an encoding anyhow. Of labels
that are numbers, it must be looked which there are; 0 and 1, or -1 and 1, are
what the losses of two classes take as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.cli.losses import CLASSIFYING
from duramen.cli.progress import bar

if TYPE_CHECKING:
    from duramen.cli.output import Output
    from duramen.io import Encoding

__all__ = ["with_classes"]

_MOST = 1000  # more are no classes but measurements
_PLAIN = ([0, 1], [-1, 1])


def with_classes(
    table: Any, encoding: Encoding, loss: str, n_classes: int | None, output: Output
) -> Encoding:
    """See that an encoding knows the classes, where the loss has classes; else that labels are numbers.

    Raises
    ------
    ValueError
        If there is one class only, there are more than the loss is for, or others than
        were expected; or labels are text, and the loss is for numbers.
    """
    if not loss or encoding.label is None:
        return encoding
    if loss not in CLASSIFYING:
        return _with_numbers(table, encoding, loss)
    if encoding.classes is None:
        found = _distinct(table, encoding.label, output)
        if loss != "softmax" and any(set(found) <= set(plain) for plain in _PLAIN):
            return encoding
        encoding = replace(encoding, label_choice=_choice(encoding.label, found))
    classes = encoding.classes or []
    named = f"{table.path.name}: the label {encoding.label!r} has {len(classes)} classes"
    if loss != "softmax" and len(classes) > 2:
        raise ValueError(f"{named}, and --loss {loss} tells two apart; take --loss softmax")
    if len(classes) < 2:
        only = ", ".join(map(repr, classes))
        raise ValueError(
            f"{table.path.name}: the label {encoding.label!r} is {only} in every row, and --loss {loss} "
            "tells classes apart; learn from a file that has them all"
        )
    if n_classes is not None and len(classes) != n_classes:
        raise ValueError(
            f"{named}, where {n_classes} were expected; learn from a file that has them all, "
            "or correct --classes"
        )
    return encoding


def _with_numbers(table: Any, encoding: Encoding, loss: str) -> Encoding:
    """Take labels as the numbers that they are: true as 1, categories that are numbers by their values."""
    label, choice = encoding.label, encoding.label_choice
    if label is not None and choice is not None and choice.of == "text":
        where = table.why_text(label) or f" ({choice.categories[0]!r})"
        raise ValueError(
            f"{table.path}: the label {label!r} holds text{where}, and --loss {loss} needs numbers; "
            "correct it (decimals take a point), or take a loss for classes, such as --loss logistic"
        )
    return replace(encoding, label_choice=None)


def _choice(label: str, found: list[Any]) -> Any:
    from duramen.io.encoding import Choice

    return Choice(label, "number", tuple(found))


def _distinct(table: Any, label: str, output: Output) -> list[Any]:
    """Find which labels there are, in one pass over their column."""
    found: set[float] = set()
    with bar(output, "looking at the labels") as shown:
        for batch in table.batches(columns=[label]):
            values = np.asarray(batch.column(label).numbers(), dtype=np.float64)
            found |= set(np.unique(values[np.isfinite(values)]).tolist())  # others are refused later, by row
            if len(found) > _MOST:
                raise ValueError(
                    f"{table.path.name}: the label {label!r} has more than {_MOST:,} values, too many for "
                    "classes; take a loss for numbers, such as --loss huber"
                )
            shown.at(batch.done, batch.first + len(batch))
    return [int(one) if one.is_integer() else one for one in sorted(found)]
