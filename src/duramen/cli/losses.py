"""Losses by their names on the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from duramen.cli.options import at_least, number

if TYPE_CHECKING:
    from duramen.losses import Loss

__all__ = [
    "CLASSIFYING",
    "LOSSES",
    "UNLABELLED",
    "add_loss",
    "check_label",
    "check_same",
    "loss_of",
    "name_of",
]

LOSSES = {
    "logistic": "LogisticLoss",
    "hinge": "SmoothHingeLoss",
    "softmax": "SoftmaxLoss",
    "squared": "SquaredLoss",
    "huber": "HuberLoss",
    "poisson": "PoissonLoss",
    "kmeans": "KMeansLoss",
    "kmedian": "KMedianLoss",
    "bregman": "BregmanLoss",
    "truth": "TruthDiscoveryLoss",
}
CLASSIFYING = ("logistic", "hinge", "softmax")
UNLABELLED = ("kmeans", "kmedian", "bregman", "truth")
_LINEAR = tuple(name for name in LOSSES if name not in UNLABELLED)
_FOR = {  # which losses an option is for
    "k": ("kmeans", "kmedian", "bregman"),
    "classes": ("softmax",),
    "huber_delta": ("huber",),
    "divergence": ("bregman",),
    "no_intercept": _LINEAR,
}


def add_loss(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the learning problem."""
    group = parser.add_argument_group("learning problem")
    group.add_argument("--loss", choices=tuple(LOSSES), required=required, help="what is to be learned")
    group.add_argument("--k", type=at_least(1), help="how many centres (kmeans, kmedian, bregman)")
    group.add_argument("--classes", type=at_least(2), help="how many classes (softmax; default: as found)")
    group.add_argument(
        "--huber-delta",
        type=number,
        metavar="D",
        help="where the huber loss turns from a square to a line (default: 1.35)",
    )
    group.add_argument(
        "--divergence", choices=("kl", "itakura-saito", "squared"), help="of bregman (default: kl)"
    )
    group.add_argument("--no-intercept", action="store_true", help="fit no intercept (losses with labels)")


def check_label(options: argparse.Namespace) -> None:
    """Refuse options that the loss does not take, and labels that are missing or not wanted."""
    name = options.loss
    for option, losses in _FOR.items():
        if getattr(options, option) not in (None, False) and name not in losses:
            raise ValueError(f"--{option.replace('_', '-')} is for {' and '.join(losses)}, not for {name}")
    if name in _FOR["k"] and options.k is None:
        raise ValueError(f"--loss {name} needs the number of centres; pass --k")
    if name in UNLABELLED and options.label is not None:
        raise ValueError(
            f"--loss {name} takes no labels; leave --label out, and name the columns to use by --features"
        )
    if name not in UNLABELLED and options.label is None:
        raise ValueError(f"--loss {name} needs labels; name their column by --label")


def loss_of(options: argparse.Namespace, n_classes: int | None) -> Loss:
    """Make the loss; ``n_classes`` is how many classes the data show, where that is known."""
    import duramen as dm

    settings: dict[str, Any] = {}
    if options.loss in _FOR["k"]:
        settings["k"] = options.k
    if options.loss == "softmax":
        settings["n_classes"] = options.classes or n_classes
        if settings["n_classes"] is None:
            raise ValueError("--loss softmax needs the number of classes here; pass --classes")
    if options.huber_delta is not None:
        settings["delta"] = options.huber_delta
    if options.divergence is not None:
        settings["divergence"] = options.divergence
    if options.loss in _LINEAR:
        settings["fit_intercept"] = not options.no_intercept
    made: Loss = getattr(dm, LOSSES[options.loss])(**settings)
    return made


def name_of(loss: Loss) -> str:
    """Give the name of a loss on the command line."""
    return next((name for name, known in LOSSES.items() if known == type(loss).__name__), "")


def check_same(options: argparse.Namespace, loss: Loss, where: str) -> None:
    """Refuse a loss on the command line that is another than the one in a file."""
    from dataclasses import fields

    wanted = {"k": "k", "classes": "n_classes", "huber_delta": "delta", "no_intercept": "fit_intercept"}
    same = options.loss is None or LOSSES[options.loss] == type(loss).__name__
    for option, field in wanted.items():
        value = getattr(options, option)
        if value in (None, False):
            continue
        known = {one.name for one in fields(loss)}  # type: ignore[arg-type]
        value = False if option == "no_intercept" else value
        same = same and field in known and getattr(loss, field) == value
    if options.divergence is not None:
        same = same and getattr(getattr(loss, "divergence", None), "name", None) == options.divergence
    if not same:
        raise ValueError(f"{where} was made for {loss!r}; leave --loss and its options out")
