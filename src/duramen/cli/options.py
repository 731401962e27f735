"""Options that several commands share, their values, and the losses by their names."""

from __future__ import annotations

import csv
import math
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from duramen.losses import (
    BregmanLoss,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    PoissonLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)

LOSSES: dict[str, type[Loss]] = {
    "logistic": LogisticLoss,
    "hinge": SmoothHingeLoss,
    "softmax": SoftmaxLoss,
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "poisson": PoissonLoss,
    "kmeans": KMeansLoss,
    "kmedian": KMedianLoss,
    "bregman": BregmanLoss,
    "truth": TruthDiscoveryLoss,
}
CLASSIFIERS = ("logistic", "hinge", "softmax")
_FIELDS = {  # options, and the fields of a loss that they set
    "k": "k",
    "classes": "n_classes",
    "huber_delta": "delta",
    "divergence": "divergence",
    "no_intercept": "fit_intercept",
}
COLUMNS = ("label", "features", "weight", "id", "one_hot", "impute")
BUILDING = (*COLUMNS, "size", "sampler", "suspects", "no_calibrate")
"""Options that decide how a coreset is built from data."""


def add_output(parser: ArgumentParser, help: str, *suffixes: str, required: bool = True) -> None:
    """Add -o, where the result is written; and --force, which replaces an existing file."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar="FILE", help=help)
    parser.set_defaults(suffixes=suffixes)
    parser.add_argument("--force", action="store_true", help="replace the output file if it exists")


def add_data(parser: ArgumentParser, help: str = "the rows") -> None:
    """Add the file of rows."""
    help += ": a Parquet, CSV, TSV, Arrow or .npz file, a folder of Parquet files, or a pattern in quotes"
    parser.add_argument("data", type=Path, metavar="DATA", help=help)


def add_loss(parser: ArgumentParser, *, required: bool) -> None:
    """Add the learning problem."""
    add = parser.add_argument_group("learning problem").add_argument
    add("--loss", choices=tuple(LOSSES), required=required, help="the learning problem")
    add("--k", type=at_least(1), help="number of centres (kmeans, kmedian, bregman)")
    add("--classes", type=at_least(2), help="number of classes (softmax; default: as in the data)")
    add("--huber-delta", type=number, metavar="D", help="where the huber loss turns linear (default: 1.35)")
    add("--divergence", choices=("kl", "itakura-saito", "squared"), help="for bregman (default: kl)")
    add("--no-intercept", action="store_true", help="do not fit an intercept (losses with labels)")


def add_columns(parser: ArgumentParser) -> None:
    """Add the roles of the columns of a file, and how they become numbers."""
    add = parser.add_argument_group("columns").add_argument
    lists: dict[str, Any] = {"type": names, "action": "extend", "metavar": "NAMES"}
    add("--label", metavar="NAME", help="the column of labels")
    add("--features", **lists, help="the columns to learn from, as a,b,c (default: all others)")
    add("--weight", metavar="NAME", help="the column of weights (default: every row has weight 1)")
    add("--id", metavar="NAME", help="the column of ids (default: row numbers)")
    add("--one-hot", **lists, help="columns to encode as 0 and 1 per category; auto: all columns of text")
    methods = ("mean", "median", "zero")
    add("--impute", choices=methods, help="what replaces missing values (default: they are an error)")


def add_sampling(parser: ArgumentParser) -> None:
    """Add how a coreset is built."""
    group = parser.add_argument_group("coreset")
    add = group.add_argument
    add("--size", type=at_least(1), metavar="N", help="rows of the coreset (default: 4000)")
    add("--outliers", type=outliers, metavar="Z", help="to set aside: 2%%, 0.02, or a count (default: none)")
    samplers = ("auto", "uniform", "layered", "leverage", "sensitivity")
    add("--sampler", choices=samplers, help="how the rows are sampled (default: auto)")
    times = "how much weight to suspect, as a multiple of --outliers (default: auto, 1.5)"
    add("--suspects", type=suspects, metavar="TIMES", help=times)
    add("--no-calibrate", action="store_true", help="leave the weights uncalibrated, as they were sampled")
    add_seed(group)


def add_seed(parser: Any) -> None:
    """Add the seed: the same one gives the same result."""
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="random seed (default: 0)")


def sampling_settings(options: Namespace) -> dict[str, Any]:
    """Return the options of :func:`add_sampling` as the library's arguments."""
    return {
        "size": options.size or 4000,
        "n_outliers": options.outliers or 0,
        "sampler": options.sampler or "auto",
        "suspects": "auto" if options.suspects is None else options.suspects,
        "calibrate": not options.no_calibrate,
        "random_state": options.seed,
    }


def column_settings(options: Namespace) -> dict[str, Any]:
    """Return the options of :func:`add_columns` as arguments of ``learn_encoding``."""
    settings = {name: getattr(options, name) for name in COLUMNS}
    one_hot = tuple(options.one_hot or ())
    return {**settings, "one_hot": "auto" if one_hot == ("auto",) else one_hot}


def refuse_options(options: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raise ValueError if any of these options was given."""
    given = [_flag(name) for name in names if _is_given(options, name)]
    if given:
        raise ValueError(f"{why}; leave {' and '.join(given)} out")


def _is_given(options: Namespace, name: str) -> bool:
    return getattr(options, name) not in (None, False)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def names(text: str) -> list[str]:
    """Read names of columns: separated by commas, in double quotes where a name has one.

    Examples
    --------
    >>> names('age,"income, net",colour')
    ['age', 'income, net', 'colour']
    """
    found = [name for name in next(csv.reader([text], skipinitialspace=True), []) if name]
    if not found:
        raise ArgumentTypeError(f"{text!r} names no column; pass names such as age,income")
    return found


def outliers(text: str) -> float:
    """Read the outliers to set aside: 2% and 0.02 are fractions, 1 and more a count.

    Examples
    --------
    >>> outliers("2%"), outliers("0.02"), outliers("400")
    (0.02, 0.02, 400.0)
    """
    way_out = "pass a fraction such as 2% or 0.02, or a count such as 400"
    percent = text.endswith("%")
    value = number(text[:-1] if percent else text, way_out)
    if not 0 <= value < math.inf or (percent and value >= 100):
        raise ArgumentTypeError(f"{text!r} cannot be set aside; {way_out}")
    return value / 100 if percent else value


def suspects(text: str) -> float | str:
    """Read how much weight is suspected: a multiple of the outliers, or auto."""
    return "auto" if text == "auto" else number(text, "pass a number such as 1.5, or auto")


def number(text: str, way_out: str = "pass a number such as 0.5") -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number; {way_out}") from None


def at_least(least: int) -> Any:
    """Return a function that reads a whole number and refuses a smaller one."""

    def whole(text: str) -> int:
        with suppress(ValueError):
            if int(text) >= least:
                return int(text)
        raise ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")

    return whole


def check_output(options: Namespace) -> None:
    """Refuse an output of :func:`add_output` that cannot be written, before anything takes time."""
    if options.output is None or str(options.output) in options.suffixes:
        return
    inputs = [one for name, one in vars(options).items() if isinstance(one, Path) and name != "output"]
    check_target(options.output, getattr(options, "force", None), inputs, options.suffixes)


def check_target(
    target: Path, force: bool | None = None, inputs: Iterable[Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Refuse a file that cannot be written.

    An existing one is refused unless ``force``, which is None where nothing is ever replaced.
    """
    folder = target.absolute().parent
    if suffixes and target.suffix.lower() not in suffixes:
        raise ValueError(f"{target} must end in {' or '.join(suffixes)}")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it")
    if not folder.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; create it first")
    if target.exists():
        if any(one.exists() and one.samefile(target) for one in inputs):
            raise ValueError(f"{target} is one of the inputs; choose another name")
        if not force:
            way_out = "" if force is None else "pass --force to replace it, or "
            raise FileExistsError(f"{target} already exists; {way_out}choose another name")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{target}: that folder is not writable; choose another")


def check_source(*sources: Path) -> None:
    """Refuse inputs that do not exist, or are folders."""
    for source in sources:
        if source.is_dir():
            raise IsADirectoryError(f"{source} is a folder; name a file in it")
        if not source.exists():
            raise FileNotFoundError(f"{source}: no such file")


def _takes(name: str, field: str) -> bool:
    """Return whether a loss has a field; one with an intercept has labels."""
    return field in {one.name for one in fields(LOSSES[name])}  # type: ignore[arg-type]


def check_loss(options: Namespace) -> None:
    """Refuse options that the loss does not take, and labels that are missing or unexpected."""
    name = options.loss
    for option, field in _FIELDS.items():
        if not _takes(name, field):
            takers = " and ".join(one for one in LOSSES if _takes(one, field))
            refuse_options(options, (option,), f"{_flag(option)} is for {takers}, not for {name}")
    if _takes(name, "k") and options.k is None:
        raise ValueError(f"--loss {name} needs the number of centres; pass --k")
    labelled = _takes(name, "fit_intercept")
    if options.label is not None and not labelled:
        raise ValueError(f"--loss {name} takes no labels; leave --label out, and pass --features")
    if options.label is None and labelled:
        raise ValueError(f"--loss {name} needs labels; name their column with --label")


def make_loss(options: Namespace, classes: list[Any] | None) -> Loss:
    """Make the loss of the options; ``classes`` are those of the data, where they are known."""
    settings = _loss_settings(options)
    if options.loss == "softmax":
        n_classes = settings.setdefault("n_classes", len(classes or ()))
        if not n_classes:
            raise ValueError("--loss softmax needs the number of classes here; pass --classes")
    return LOSSES[options.loss](**settings)


def _loss_settings(options: Namespace) -> dict[str, Any]:
    """Return the fields of a loss that the options set."""
    given = {field: getattr(options, one) for one, field in _FIELDS.items() if _is_given(options, one)}
    if options.no_intercept:
        given["fit_intercept"] = False
    return given


def name_of(loss: Loss) -> str:
    """Return the name of a loss on the command line."""
    return next((name for name, known in LOSSES.items() if known is type(loss)), "")


def check_same_loss(options: Namespace, loss: Loss, path: Path) -> None:
    """Refuse options of a loss that differ from the loss in a file."""
    same = options.loss in (None, name_of(loss))
    for field, value in _loss_settings(options).items():
        found = getattr(loss, field, None)
        same = same and value == getattr(found, "name", found)
    if not same:
        raise ValueError(f"{path} was made for {loss!r}; leave --loss and its options out")
