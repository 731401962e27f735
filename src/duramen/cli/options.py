"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

__all__ = [
    "add_columns",
    "add_output",
    "add_sampling",
    "add_seed",
    "at_least",
    "column_options",
    "given",
    "names",
    "number",
    "outliers",
    "suspects",
]

SAMPLERS = ("auto", "uniform", "layered", "leverage", "sensitivity")
_COLUMNS = ("label", "features", "weight", "id", "one_hot", "impute")


def add_output(
    parser: argparse.ArgumentParser, what: str, *, required: bool = True, replaces: bool = True
) -> None:
    """Add -o, where the result is written; and --force, if an existing file may be replaced."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar="FILE", help=what)
    if replaces:
        parser.add_argument("--force", action="store_true", help="replace the output file if it exists")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add which columns of a file are what, and how they become numbers."""
    group = parser.add_argument_group("columns")
    group.add_argument("--label", metavar="NAME", help="the column of labels")
    group.add_argument(
        "--features",
        type=names,
        action="extend",
        metavar="NAMES",
        help="the columns to learn from, as a,b,c (default: all others)",
    )
    group.add_argument("--weight", metavar="NAME", help="the column of weights (default: every row weighs 1)")
    group.add_argument("--id", metavar="NAME", help="the column of ids (default: the numbers of the rows)")
    group.add_argument(
        "--one-hot",
        type=names,
        action="extend",
        metavar="NAMES",
        help="columns of categories, each of which becomes a column of 0 and 1; auto: every column of text",
    )
    group.add_argument(
        "--impute",
        choices=("mean", "median", "zero"),
        help="what to put in the place of missing values (default: they are refused)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add how a coreset is made."""
    group = parser.add_argument_group("coreset")
    group.add_argument("--size", type=at_least(1), metavar="N", help="rows of the coreset (default: 4000)")
    group.add_argument(
        "--outliers",
        type=outliers,
        metavar="Z",
        help="what to set aside: 2%%, 0.02, or a count (default: nothing)",
    )
    group.add_argument("--sampler", choices=SAMPLERS, help="what draws the rows (default: auto)")
    group.add_argument(
        "--suspects",
        type=suspects,
        metavar="TIMES",
        help="how much weight is suspected, as a multiple of --outliers (default: auto, 1.5)",
    )
    group.add_argument(
        "--no-calibrate", action="store_true", help="leave the weights as they were drawn, uncalibrated"
    )
    add_seed(group)


def add_seed(parser: Any) -> None:
    """Add the seed: the same one gives the same result."""
    what = "decides all that is random (default: 0)"
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help=what)


def column_options(options: argparse.Namespace) -> dict[str, Any]:
    """Collect what ``learn_encoding`` takes."""
    wanted = {name: getattr(options, name) for name in _COLUMNS}
    one_hot = wanted["one_hot"] or ()
    return {**wanted, "one_hot": "auto" if list(one_hot) == ["auto"] else tuple(one_hot)}


def given(options: argparse.Namespace, names: tuple[str, ...]) -> list[str]:
    """List which of these options were given, as they are written."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, False)]


def names(text: str) -> list[str]:
    """Read names of columns: separated by commas, in double quotes where a name has one.

    Examples
    --------
    >>> names('age,"income, net",colour')
    ['age', 'income, net', 'colour']
    """
    found = [name for name in next(csv.reader([text], skipinitialspace=True), []) if name]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names no column; pass names such as age,income")
    return found


def outliers(text: str) -> float:
    """Read what is set aside: 2% and 0.02 are shares, 1 and more a count.

    Examples
    --------
    >>> outliers("2%"), outliers("0.02"), outliers("400")
    (0.02, 0.02, 400.0)
    """
    way_out = "pass a share such as 2% or 0.02, or a count such as 400"
    percent = text.endswith("%")
    value = number(text[:-1] if percent else text, way_out)
    if not 0 <= value < math.inf or (percent and value >= 100):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be set aside; {way_out}")
    return value / 100 if percent else value


def suspects(text: str) -> float | str:
    """Read how much weight is suspected: a multiple of the outliers, or auto."""
    return "auto" if text == "auto" else number(text, "pass a number such as 1.5, or auto")


def number(text: str, way_out: str = "pass a number such as 0.5") -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; {way_out}") from None


def at_least(least: int) -> Any:
    """Give what reads a whole number that must not be smaller."""

    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")
        return value

    return whole
