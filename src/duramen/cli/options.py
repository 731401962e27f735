"""The parser of the command line, the options of all commands in one table, and their values."""

from __future__ import annotations

import argparse
import csv
import inspect
import math
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from duramen import losses
from duramen.cli.output import Fields, write
from duramen.files import check_place
from duramen.losses import Loss

Command = Callable[[Namespace], Fields]  # returns the fields of the result

LOSSES: dict[str, type[Loss]] = {
    "logistic": losses.LogisticLoss,
    "hinge": losses.SmoothHingeLoss,
    "softmax": losses.SoftmaxLoss,
    "squared": losses.SquaredLoss,
    "huber": losses.HuberLoss,
    "quantile": losses.QuantileLoss,
    "poisson": losses.PoissonLoss,
    "kmeans": losses.KMeansLoss,
    "kmedian": losses.KMedianLoss,
    "bregman": losses.BregmanLoss,
    "truth": losses.TruthDiscoveryLoss,
}
_FIELDS = ("--k", "--classes", "--huber-delta", "--quantile", "--divergence", "--no-intercept")
COLUMNS = ("--label", "--features", "--weight", "--id", "--one-hot", "--impute")
GROUPS = {
    "learning problem": ("--loss", *_FIELDS),
    "columns": COLUMNS,
    "coreset": ("--size", "--outliers", "--sampler", "--suspects", "--no-calibrate", "--seed"),
    "solver": ("--l2", "--starts", "--max-iter", "--tol"),
    "search": ("--radius", "--probes", "--steps"),
    "reading": ("--batch", "--atomic", "--skip"),
}
"""Options that are added together, by the title of their group."""
FIXED = (*GROUPS["learning problem"], *COLUMNS, "--size", "--sampler", "--suspects", "--no-calibrate")
"""Options of what has been decided once there is a coreset."""
_ARGUMENTS = {  # of the library, where an option has another name
    "--classes": "n_classes",
    "--huber-delta": "delta",
    "--no-intercept": "fit_intercept",
    "--outliers": "n_outliers",
    "--no-calibrate": "calibrate",
    "--seed": "random_state",
    "--starts": "n_starts",
    "--probes": "n_probes",
    "--steps": "ascent_steps",
    "--from": "source",
}


def names(text: str) -> list[str]:
    """Read names of columns: separated by commas, in double quotes where a name has one."""
    found = [name for name in next(csv.reader([text], skipinitialspace=True), []) if name]
    if not found:
        raise ArgumentTypeError(f"{text!r} names no column; pass names such as age,income")
    return found


def outliers(text: str) -> float:
    """Read the outliers to set aside: 2% and 0.02 are fractions, 1 and more a count."""
    least, unit = (100, 100) if text.endswith("%") else (math.inf, 1)
    with suppress(ValueError):
        if 0 <= float(text.removesuffix("%")) < least:
            return float(text.removesuffix("%")) / unit
    raise ArgumentTypeError(
        f"{text!r} cannot be set aside; pass a fraction such as 2% or 0.02, or a count such as 400"
    )


def outliers_or_auto(text: str) -> float | None:
    """Read the outliers to set aside; None for auto, which is what happens without the option."""
    return None if text == "auto" else outliers(text)


def at_least(least: int) -> Any:
    """Return a function that reads a whole number and refuses a smaller one."""

    def whole(text: str) -> int:
        with suppress(ValueError):
            if int(text) >= least:
                return int(text)
        raise ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")

    return whole


_FILES = "a Parquet, CSV, TSV, Arrow or .npz file, a folder of such files, or a pattern in quotes"
# the help; how a value is read (a tuple: the choices; a bool: the value of a flag), its name, and the default
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "data": (f"the rows: {_FILES}", Path, "DATA"),
    "source": ("what to learn from", Path, "CORE|STORE|DATA"),
    "subject": ("a store, or a coreset's file", Path, "STORE|CORE"),
    "core": ("a coreset written by duramen build", Path, "CORE"),
    "model": ("a model written by duramen fit", Path, "MODEL"),
    "store": ("the store", Path, "STORE"),
    "ids": ("the ids of the rows", str, "ID"),
    "outliers": ("2%%, 0.02, or a count", outliers, "OUTLIERS"),
    "copy": ("the copy to write; it must not exist", Path, "PATH"),
    "shell": ("the shell", ("bash", "zsh", "fish", "tcsh")),
    "--json": ("print one JSON object and nothing else",),
    "--quiet": ("print nothing but errors",),
    "--force": ("replace the output file if it exists",),
    "--loss": ("the learning problem", tuple(LOSSES)),
    "--k": ("number of centres (kmeans, kmedian, bregman)", at_least(1), "K"),
    "--classes": ("number of classes (softmax; default: as in the data)", at_least(2), "N"),
    "--huber-delta": ("where the huber loss turns linear (default: 1.35)", float, "D"),
    "--quantile": ("which quantile to predict, such as 0.9 (default: 0.5)", float, "Q"),
    "--divergence": ("for bregman (default: kl)", ("kl", "itakura-saito", "squared")),
    "--no-intercept": ("do not fit an intercept (losses with labels)", False),
    "--label": ("the column of labels", str, "NAME"),
    "--features": ("the columns to learn from, as a,b,c (default: all others)", names, "NAMES"),
    "--weight": ("the column of weights (default: every row has weight 1)", str, "NAME"),
    "--id": ("the column of ids (default: row numbers)", str, "NAME"),
    "--one-hot": ("columns to encode as 0 and 1 per category; auto: all columns of text", names, "NAMES"),
    "--impute": ("what replaces missing values (default: they are an error)", ("mean", "median", "zero")),
    "--size": ("rows of the coreset (default: 4000)", at_least(1), "N"),
    "--outliers": (
        "to set aside: 2%%, 0.02, or a count (default: auto, none; logistic and softmax learn what is noise)",
        outliers_or_auto,
        "Z",
    ),
    "--sampler": (
        "how the rows are sampled (default: auto)",
        ("auto", "uniform", "layered", "leverage", "sensitivity"),
    ),
    "--suspects": (
        "how much weight to suspect, as a multiple of --outliers (default: auto, 1.5)",
        float,
        "TIMES",
    ),
    "--no-calibrate": ("leave the weights uncalibrated, as they were sampled", False),
    "--seed": ("random seed (default: 0)", at_least(0), "N", 0),
    "--l2": ("penalty on the coefficients (default: 0)", float, "L", 0.0),
    "--starts": ("number of starts (default: 1)", at_least(1), "N"),
    "--max-iter": ("iterations per start (default: 300)", at_least(1), "N"),
    "--tol": ("stop when an iteration gains less than this share", float, "SHARE"),
    "--top": ("how many of the rows set aside to list (default: 10)", at_least(0), "N", 10),
    "--radius": ("how far from the anchor to search (default: its radius)", float, "R"),
    "--probes": ("random parameters to try (default: 64)", at_least(1), "N"),
    "--steps": ("ascent steps (default: 20)", at_least(0), "N"),
    "--data": ("the data of the coreset, to certify it; must fit in memory", Path, "DATA"),
    "--certify": ("certify a store even if it has many points",),
    "--title": ("the title of the page (default: the name of the file)", str, "TITLE"),
    "--from": ("a file to learn the columns from", Path, "DATA"),
    "--audit": ("keep the id and the time of every deletion",),
    "--engine": ("data structure (default: auto)", ("auto", "ranked", "tree")),
    "--batch": ("rows per transaction (default: as many as 8 MB hold, at most 65536)", at_least(1), "ROWS"),
    "--atomic": ("all rows in one transaction: all or none",),
    "--skip": ("skip this many rows of the file", at_least(0), "ROWS", 0),
    "--ids-from": (
        "a table with one column, or text with one id per line; - is standard input",
        Path,
        "FILE",
    ),
    "--rows": ("how many rows to make (default: 1,000,000)", at_least(5000), "N", 1_000_000),
    "--picture": (
        "where to save the picture (default: duramen-demo.png; needs the plot extra)",
        Path,
        "FILE",
        Path("duramen-demo.png"),
    ),
}
_REST = (True, None, None)  # what follows the help, unless the table has it


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

    def add(self, option: str, group: Any = None, *, required: bool = False) -> None:
        """Add an option of the table, to a group of options if there is one."""
        row = _OPTIONS[option]
        help, kind, metavar, default = row + _REST[len(row) - 1 :]
        settings: Fields = {"help": help, "default": default}
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
        if option.startswith("--"):
            settings |= {"dest": argument_of(option), "required": required}
        (group or self).add_argument(option, **settings)


class _Help(argparse.HelpFormatter):
    """Keeps the lines of an example as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example: ") else super()._fill_text(text, width, indent)


def _add_commands(parser: Parser) -> Any:
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND")


PARSER = Parser(
    prog="duramen",
    description="Robust, fully-dynamic coresets: small weighted summaries of large, changing, "
    "contaminated data.",
    epilog="example: duramen demo\n         duramen build rows.parquet -o core.parquet --loss logistic "
    "--label y --outliers 2%",
)
"""The parser of the whole command line, to which :func:`command` adds one command after the other."""
PARSER.add_argument("--version", action="version", version=f"duramen {version('duramen')}")
PARSERS = [PARSER]
"""The parsers of all commands and groups, in the order of the help."""
_COMMANDS = {"": _add_commands(PARSER)}  # by their group


def command(
    name: str, *options: str, required: bool = True, writes: str = "", suffixes: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Make a function a command; its docstring, ending in an example, is its help.

    Its options are from the table, or titles of groups; ``required`` says whether --output and --loss
    are, where it takes them. ``writes`` is the argument that names the file to write ("output" is -o),
    and ``suffixes`` are those that the file may have, or none for any. A group of commands, such as
    "store init", has its help from the module.
    """

    def add(run: Command) -> Command:
        group, _, last = name.rpartition(" ")
        if group not in _COMMANDS:
            _COMMANDS[group] = _add_commands(_add_parser("", group, inspect.getmodule(run)))
        parser = _add_parser(group, last, run)
        parser.set_defaults(run=run, command=name, writes=(writes, suffixes))
        form = parser.add_mutually_exclusive_group()
        parser.add("--json", form)
        parser.add("--quiet", form)
        if writes == "output":
            help = f"the file to write: {' or '.join(suffixes)}"
            parser.add_argument("-o", "--output", type=Path, required=required, metavar="FILE", help=help)
            parser.add("--force")
        for option in options:
            titled = parser.add_argument_group(option) if option in GROUPS else None
            for one in GROUPS.get(option, (option,)):
                parser.add(one, titled, required=required and one == "--loss")
        return run

    return add


def _add_parser(group: str, name: str, documented: Any) -> Parser:
    text, _, example = (inspect.getdoc(documented) or "").partition("\n\nexample: ")
    summary = text.partition("\n\n")[0].rstrip(".")
    help = summary[:1].lower() + summary[1:]
    PARSERS.append(
        _COMMANDS[group].add_parser(name, help=help, description=text, epilog=f"example: {example}")
    )
    return PARSERS[-1]


def argument_of(option: str) -> str:
    """Return the name under which an option is parsed: that of the library's argument."""
    return _ARGUMENTS.get(option, option.lstrip("-").replace("-", "_"))


def given(options: Namespace, which: Iterable[str]) -> Fields:
    """Return those of some options that the command has and that were given, as arguments of the library."""
    found = {argument_of(one): getattr(options, argument_of(one), None) for one in which}
    return {name: value for name, value in found.items() if value is not None}


def column_settings(options: Namespace) -> Fields:
    """Return the options of the columns as arguments of ``learn_encoding``."""
    settings = given(options, COLUMNS)
    return settings | {"one_hot": "auto"} if settings.get("one_hot") == ["auto"] else settings


def coreset_settings(options: Namespace) -> Fields:
    """Return the options of the coreset as arguments of the library."""
    return {"size": 4000, **given(options, GROUPS["coreset"])}


def refuse_options(options: Namespace, refused: Iterable[str], why: str) -> None:
    """Raise ValueError if any of these options was given."""
    found = [one for one in refused if given(options, [one])]
    if found:
        raise ValueError(f"{why}; leave {' and '.join(found)} out")


def check_loss(options: Namespace) -> None:
    """Refuse options that the loss does not take, and ask for those that it lacks."""
    name, kind = options.loss, LOSSES[options.loss]
    fields = inspect.signature(kind).parameters
    refused = [option for option in _FIELDS if argument_of(option) not in fields]
    refused += [] if kind.needs_labels else ["--label"]
    refuse_options(options, refused, f"--loss {name} does not take all of these options")
    if "k" in fields and options.k is None:
        raise ValueError(f"--loss {name} needs the number of centres; pass --k")
    if kind.needs_labels and options.label is None:
        raise ValueError(f"--loss {name} needs labels; name their column with --label")


def make_loss(options: Namespace, classes: list[Any] | None) -> Loss:
    """Make the loss; ``classes`` are those of the data, where they are known.

    Without a number of outliers, a likelihood of classes learns which labels are noise.
    """
    kind, settings = LOSSES[options.loss], given(options, _FIELDS)
    if kind.has_classes and not kind.classifies and options.n_classes is None:
        if classes is None:
            raise ValueError(f"--loss {options.loss} needs the number of classes here; pass --classes")
        settings["n_classes"] = max(2, len(classes))
    loss: Any = kind(**settings)
    learns_noise = options.n_outliers is None and loss.is_likelihood
    return losses.ContaminatedLoss(loss) if learns_noise else loss


def check_output(options: Namespace) -> None:
    """Refuse, before anything takes time, an output that cannot be written or may not be replaced."""
    paths = {name: one for name, one in vars(options).items() if isinstance(one, Path)}
    name, suffixes = options.writes
    target = paths.pop(name, None)
    if target is None or str(target) in suffixes:
        return
    if suffixes and target.suffix.lower() not in suffixes:
        raise ValueError(f"{target} must end in {' or '.join(suffixes)}")
    check_place(target)
    if not target.exists():
        return
    if any(one.exists() and one.samefile(target) for one in paths.values()):
        raise ValueError(f"{target} is one of the inputs; choose another name")
    if not getattr(options, "force", name == "picture"):
        way_out = "pass --force to replace it, or " if "force" in options else ""
        raise FileExistsError(f"{target} already exists; {way_out}choose another name")
