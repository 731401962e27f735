"""The parser of the command line, the options of all commands in one table, and their values."""

from __future__ import annotations

import argparse
import csv
import inspect
import math
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from duramen.cli.output import write
from duramen.files import check_place
from duramen.losses import (
    BregmanLoss,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    PoissonLoss,
    QuantileLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)

Result: TypeAlias = tuple[str, dict[str, Any]]  # of a command: text for people, and fields for JSON
Command: TypeAlias = Callable[[Namespace], Result]

LOSSES: dict[str, type[Loss]] = {
    "logistic": LogisticLoss,
    "hinge": SmoothHingeLoss,
    "softmax": SoftmaxLoss,
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "quantile": QuantileLoss,
    "poisson": PoissonLoss,
    "kmeans": KMeansLoss,
    "kmedian": KMedianLoss,
    "bregman": BregmanLoss,
    "truth": TruthDiscoveryLoss,
}
_FIELDS = {  # options, and the fields of a loss that they set
    "--k": "k",
    "--classes": "n_classes",
    "--huber-delta": "delta",
    "--quantile": "quantile",
    "--divergence": "divergence",
    "--no-intercept": "fit_intercept",
}
COLUMNS = ("--label", "--features", "--weight", "--id", "--one-hot", "--impute")
GROUPS = {
    "learning problem": ("--loss", *_FIELDS),
    "columns": COLUMNS,
    "coreset": ("--size", "--outliers", "--sampler", "--suspects", "--no-calibrate", "--seed"),
    "solver": ("--l2", "--starts", "--max-iter", "--tol"),
    "reading": ("--batch", "--atomic", "--skip"),
}
"""Options that are added together, by the title of their group."""
FIXED = (*GROUPS["learning problem"], *COLUMNS, "--size", "--sampler", "--suspects", "--no-calibrate")
"""Options of what has been decided once there is a coreset."""


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
    least, unit = (100, 100) if text.endswith("%") else (math.inf, 1)
    with suppress(ValueError):
        if 0 <= float(text.removesuffix("%")) < least:
            return float(text.removesuffix("%")) / unit
    raise ArgumentTypeError(
        f"{text!r} cannot be set aside; pass a fraction such as 2% or 0.02, or a count such as 400"
    )


def at_least(least: int) -> Any:
    """Return a function that reads a whole number and refuses a smaller one."""

    def whole(text: str) -> int:
        with suppress(ValueError):
            if int(text) >= least:
                return int(text)
        raise ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")

    return whole


_FILES = "a Parquet, CSV, TSV, Arrow or .npz file, a folder of Parquet files, or a pattern in quotes"
# how a value is read (a tuple: the choices; a bool: the value of a flag), its name, the help, and the default
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "data": (Path, "DATA", f"the rows: {_FILES}"),
    "source": (Path, "CORE|STORE|DATA", "what to learn from"),
    "subject": (Path, "STORE|CORE", "a store, or a coreset's file"),
    "core": (Path, "CORE", "a coreset written by duramen build"),
    "model": (Path, "MODEL", "a model written by duramen fit"),
    "store": (Path, "STORE", "the store"),
    "ids": (str, "ID", "the ids of the rows"),
    "outliers": (outliers, "OUTLIERS", "2%%, 0.02, or a count"),
    "copy": (Path, "PATH", "the copy to write; it must not exist"),
    "shell": (("bash", "zsh", "fish", "tcsh"), "", "the shell"),
    "--json": (True, "", "print one JSON object and nothing else"),
    "--quiet": (True, "", "print nothing but errors"),
    "--force": (True, "", "replace the output file if it exists"),
    "--loss": (tuple(LOSSES), "", "the learning problem"),
    "--k": (at_least(1), "K", "number of centres (kmeans, kmedian, bregman)"),
    "--classes": (at_least(2), "N", "number of classes (softmax; default: as in the data)"),
    "--huber-delta": (float, "D", "where the huber loss turns linear (default: 1.35)"),
    "--quantile": (float, "Q", "which quantile to predict, such as 0.9 (default: 0.5)"),
    "--divergence": (("kl", "itakura-saito", "squared"), "", "for bregman (default: kl)"),
    "--no-intercept": (False, "", "do not fit an intercept (losses with labels)"),
    "--label": (str, "NAME", "the column of labels"),
    "--features": (names, "NAMES", "the columns to learn from, as a,b,c (default: all others)"),
    "--weight": (str, "NAME", "the column of weights (default: every row has weight 1)"),
    "--id": (str, "NAME", "the column of ids (default: row numbers)"),
    "--one-hot": (names, "NAMES", "columns to encode as 0 and 1 per category; auto: all columns of text"),
    "--impute": (("mean", "median", "zero"), "", "what replaces missing values (default: they are an error)"),
    "--size": (at_least(1), "N", "rows of the coreset (default: 4000)"),
    "--outliers": (outliers, "Z", "to set aside: 2%%, 0.02, or a count (default: none)"),
    "--sampler": (
        ("auto", "uniform", "layered", "leverage", "sensitivity"),
        "",
        "how the rows are sampled (default: auto)",
    ),
    "--suspects": (
        float,
        "TIMES",
        "how much weight to suspect, as a multiple of --outliers (default: auto, 1.5)",
    ),
    "--no-calibrate": (True, "", "leave the weights uncalibrated, as they were sampled"),
    "--seed": (at_least(0), "N", "random seed (default: 0)", 0),
    "--l2": (float, "L", "penalty on the coefficients (default: 0)", 0.0),
    "--starts": (at_least(1), "N", "number of starts (default: 1)", 1),
    "--max-iter": (at_least(1), "N", "iterations per start (default: 300)", 300),
    "--tol": (float, "SHARE", "stop when an iteration gains less than this share"),
    "--top": (at_least(0), "N", "how many of the rows set aside to list (default: 10)", 10),
    "--radius": (float, "R", "how far from the anchor to search (default: its radius)"),
    "--probes": (at_least(1), "N", "random parameters to try (default: 64)", 64),
    "--steps": (at_least(0), "N", "ascent steps (default: 20)", 20),
    "--data": (Path, "DATA", "the data of the coreset, to certify it; must fit in memory"),
    "--certify": (True, "", "certify a store even if it has many points"),
    "--title": (str, "TITLE", "the title of the page (default: the name of the file)"),
    "--from": (Path, "DATA", "a file to learn the columns from"),
    "--audit": (True, "", "keep the id and the time of every deletion"),
    "--engine": (("auto", "ranked", "tree"), "", "data structure (default: auto)", "auto"),
    "--batch": (
        at_least(1),
        "ROWS",
        "rows per transaction (default: as many as 8 MB hold, at most 65536)",
    ),
    "--atomic": (True, "", "all rows in one transaction: all or none"),
    "--skip": (at_least(0), "ROWS", "skip this many rows of the file", 0),
    "--ids-from": (
        Path,
        "FILE",
        "a table with one column, or text with one id per line; - is standard input",
    ),
    "--rows": (at_least(5000), "N", "how many rows to make (default: 1,000,000)", 1_000_000),
    "--picture": (
        Path,
        "FILE",
        "where to save the picture (default: duramen-demo.png; needs the plot extra)",
        Path("duramen-demo.png"),
    ),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which does not accept abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Help, **settings})

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout and message:
            write(message)  # the base class ignores errors
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"duramen: {message}; see {self.prog} --help\n")


class _Help(argparse.HelpFormatter):
    """Keeps the lines of an example as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example: ") else super()._fill_text(text, width, indent)


COMMANDS: dict[str, tuple[Command, tuple[str, ...], bool, dict[str, tuple[str, ...]]]] = {}
"""All commands by name: the function, its options, whether some are required, and what it writes."""


def command(
    name: str, *options: str, required: bool = True, **writes: tuple[str, ...]
) -> Callable[[Command], Command]:
    """Make a function a command; its docstring, ending in an example, is its help.

    Parameters
    ----------
    name : str
        As it is called, such as "store init".
    *options : str
        From the table, or the titles of groups.
    required : bool
        Whether --output and --loss are, where it takes them.
    **writes : tuple of str
        The options that name a file to write, and which suffixes it may have; none: any.
    """

    def add(run: Command) -> Command:
        COMMANDS[name] = run, options, required, writes
        return run

    return add


def add_commands(parser: Parser) -> None:
    """Add all commands to the parser; that of a group has its help from the module of its commands."""
    groups = {"": _add_group(parser)}
    for name, (run, options, required, writes) in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = _add_group(_add_parser(groups[""], group, inspect.getmodule(run)))
        made = _add_parser(groups[group], last, run)
        made.set_defaults(run=run, command=name, writes=writes)
        form = made.add_mutually_exclusive_group()
        _add(form, "--json")
        _add(form, "--quiet")
        if "output" in writes:
            help = f"the file to write: {' or '.join(writes['output'])}"
            made.add_argument("-o", "--output", type=Path, required=required, metavar="FILE", help=help)
            _add(made, "--force")
        for option in options:
            at = made.add_argument_group(option) if option in GROUPS else made
            for one in GROUPS.get(option, (option,)):
                _add(at, one, required=required and one == "--loss")


def _add_group(parser: Parser) -> Any:
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)


def _add_parser(group: Any, name: str, documented: Any) -> Any:
    text, _, example = (inspect.getdoc(documented) or "").partition("\n\nexample: ")
    summary = text.partition("\n\n")[0].rstrip(".")
    help = summary[:1].lower() + summary[1:]
    return group.add_parser(name, help=help, description=text, epilog=f"example: {example}")


def _add(parser: Any, option: str, required: bool = False) -> None:
    """Add an option of the table."""
    kind, metavar, help, *default = _OPTIONS[option]
    settings: dict[str, Any] = {"help": help, "default": default[0] if default else None}
    if isinstance(kind, bool):
        settings |= {"action": "store_const", "const": kind}
    elif isinstance(kind, tuple):
        settings["choices"] = kind
    else:
        settings |= {"type": kind, "metavar": metavar}
    if kind is names:
        settings["action"] = "extend"
    if option == "ids":
        settings["nargs"] = "*"
    if required:
        settings["required"] = True
    parser.add_argument(option, **settings)


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Iterate over a parser and the parsers of all its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)


def value_of(options: Namespace, option: str) -> Any:
    """Return the value of an option; None if it was not given."""
    return getattr(options, option.lstrip("-").replace("-", "_"))


def sampling_settings(options: Namespace) -> dict[str, Any]:
    """Return the options of the coreset as the library's arguments."""
    return {
        "size": options.size or 4000,
        "n_outliers": options.outliers or 0,
        "sampler": options.sampler or "auto",
        "suspects": "auto" if options.suspects is None else options.suspects,
        "calibrate": not options.no_calibrate,
        "random_state": options.seed,
    }


def column_settings(options: Namespace) -> dict[str, Any]:
    """Return the options of the columns as arguments of ``learn_encoding``."""
    settings = {name: getattr(options, name) for name in ("label", "features", "weight", "id", "impute")}
    one_hot = tuple(options.one_hot or ())
    return {**settings, "one_hot": "auto" if one_hot == ("auto",) else one_hot}


def refuse_options(options: Namespace, refused: Iterable[str], why: str) -> None:
    """Raise ValueError if any of these options was given."""
    given = [one for one in refused if value_of(options, one) is not None]
    if given:
        raise ValueError(f"{why}; leave {' and '.join(given)} out")


def loss_settings(options: Namespace) -> dict[str, Any]:
    """Return the fields of the loss that were given; refuse what it does not take, or lacks."""
    name, known, taken = options.loss, LOSSES[options.loss], _fields(options.loss)
    refused = [option for option, field in _FIELDS.items() if field not in taken]
    refused += [] if known.needs_labels else ["--label"]
    refuse_options(options, refused, f"--loss {name} does not take all of these options")
    if "k" in taken and options.k is None:
        raise ValueError(f"--loss {name} needs the number of centres; pass --k")
    if known.needs_labels and options.label is None:
        raise ValueError(f"--loss {name} needs labels; name their column with --label")
    given = {field: value_of(options, option) for option, field in _FIELDS.items()}
    return {field: value for field, value in given.items() if value is not None}


def _fields(name: str) -> set[str]:
    return {one.name for one in fields(LOSSES[name])}  # type: ignore[arg-type]


def make_loss(name: str, given: dict[str, Any], classes: list[Any] | None) -> Loss:
    """Make a loss from its settings; ``classes`` are those of the data, where they are known."""
    if "n_classes" in _fields(name) and "n_classes" not in given:
        if not classes:
            raise ValueError(f"--loss {name} needs the number of classes here; pass --classes")
        given = {**given, "n_classes": len(classes)}
    return LOSSES[name](**given)


def check_outputs(options: Namespace) -> None:
    """Refuse an output that cannot be written, before anything takes time.

    An existing one is refused unless it may be replaced: a command without --force never does.
    """
    paths = {name: one for name, one in vars(options).items() if isinstance(one, Path)}
    for name, suffixes in options.writes.items():
        target, inputs = paths.get(name), [one for other, one in paths.items() if other != name]
        if target is None or str(target) in suffixes:
            continue
        if suffixes and target.suffix.lower() not in suffixes:
            raise ValueError(f"{target} must end in {' or '.join(suffixes)}")
        check_place(target)
        if not target.exists():
            continue
        if any(one.exists() and one.samefile(target) for one in inputs):
            raise ValueError(f"{target} is one of the inputs; choose another name")
        if name != "picture" and not getattr(options, "force", False):
            way_out = "pass --force to replace it, or " if "force" in options else ""
            raise FileExistsError(f"{target} already exists; {way_out}choose another name")
