"""``duramen demo``: what a few planted rows do to an ordinary fit, and to one on a robust coreset."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

from duramen import Coreset, LogisticLoss, points, robust_coreset, solve
from duramen.arrays import Array
from duramen.cli.options import command
from duramen.cli.output import Fields, bar
from duramen.extras import needed
from duramen.progress import Bar

_LOSS = LogisticLoss()
_HEAD = """\
logistic regression                rows  seconds  clean loss  accuracy  planted found
-------------------------------------------------------------------------------------"""
_ROW = "{name:<29}{n_rows:>10,}{seconds:>9.2f}{clean_loss:>12.4f}{accuracy:>10.1%}{found:>15.1%}"
_NOTES = """
Seconds count everything: checking, anchor, coreset, solution. Loss and accuracy are on clean rows.
Planted found: of the {z:,.0f} rows with the largest losses, the share that was planted. The oracle,
which knows the planted rows, is the target. The robust coreset's estimate for the oracle's fit,
without the data: trimmed loss per row {value:.4f} +- {error:.4f} (95%). On all rows it is {truth:.4f}.
"""

_COLUMNS = 20
_SIGNAL = 4.0  # the log-odds, in units of the first column: the true model gets 87% right
# How far planted rows move along the first two columns, found by trying: as far as ruins an ordinary fit and
# hides them from it, and at an angle, so that the boundary turns; straight ahead, a fit only grows less sure.
_MOVE = 19.0, 11.0

_WIDE: Fields = {"lw": 6, "alpha": 0.35}
_DASHED: Fields = {"lw": 1.8, "ls": "--"}
_LINES = ("#222222", _WIDE), ("#009e73", _WIDE), ("#222222", _DASHED), ("#009e73", _DASHED)


@command(
    "demo", "--rows", "--outliers", "--size", "--seed", "--picture", writes="picture", suffixes=(".png",)
)
def demo(options: Namespace) -> Fields:
    """Compare fits of a million rows, some of them planted by an adversary.

    The fits are side by side: with scikit-learn and trimmed, on everything; on a plain coreset;
    and on a robust one. Prints a table and saves a picture. Without --outliers, 2% are planted.

    example: duramen demo --rows 200000 --outliers 1% --picture demo.png
    """
    start, n, picture = time.perf_counter(), options.rows, options.picture
    share = 0.02 if options.n_outliers is None else options.n_outliers
    if not 0 < share <= 0.2:
        raise ValueError(f"--outliers {share:g} must be above 0 and at most 0.2 (20%)")
    options.talk.say(
        f"{n:,} rows of two classes, {_COLUMNS} columns. An adversary who knows the true model took\n"
        f"{100 * share:.3g}% of them, moved them where it is most sure of class 1, and labelled them -1.\n"
    )
    z, size = max(round(share * n), 1), min(options.size or 4000, n // 5)
    with bar(options.talk, f"making {n:,} rows") as shown:
        X, y = contaminate(n, z, options.random_state)
        fits, core = compare(X, y, z, size, options.random_state, shown)
    try:
        _save_picture(fits, core, picture)
        where = picture.resolve()
    except ImportError as error:
        picture, where = None, error
    seconds = time.perf_counter() - start
    options.talk.say(f"{_table(fits, core)}\npicture: {where}\ntotal: {seconds:.0f} seconds")
    return {"n_rows": n, "fits": fits, "seconds": seconds, "picture": picture}


def contaminate(n: int, z: int, seed: int) -> tuple[Array, Array]:
    """Make rows and labels; the first z are moved to where the true model is surest of 1, and labelled -1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, _COLUMNS))
    y = np.where(_SIGNAL * X[:, 0] + rng.logistic(size=n) > 0, 1, -1)
    X[:z, :2] += _MOVE
    y[:z] = -1
    return X, y


def compare(X: Array, y: Array, z: int, size: int, seed: int, shown: Bar) -> tuple[list[Fields], Coreset]:
    """Fit in five ways, the last without planted rows; return facts about each, and the robust coreset."""
    from sklearn.linear_model import LogisticRegression  # here, so that no fit is charged for it

    n, cores = len(y), {}

    def ordinary() -> Array:
        model = LogisticRegression().fit(X, y)
        return np.append(model.coef_[0], model.intercept_)

    def on_coreset(z: int) -> Array:
        cores[z] = robust_coreset(X, y, loss=_LOSS, size=size, n_outliers=z, random_state=seed)
        return solve(cores[z], random_state=seed).theta

    ways = (
        ("scikit-learn, on everything", n, ordinary),
        ("trimmed fit, on everything", n, lambda: solve(points(X, y), _LOSS, z, random_state=seed).theta),
        ("plain coreset", size, lambda: on_coreset(0)),
        ("robust coreset", size, lambda: on_coreset(z)),
        ("clean rows only (oracle)", n - z, lambda: solve(points(X[z:], y[z:]), _LOSS).theta),
    )
    fits: list[Fields] = []
    for name, n_rows, fit in ways:
        shown.at(len(fits) / len(ways), part=name)
        start = time.perf_counter()
        fitted = {"theta": fit(), "seconds": time.perf_counter() - start}
        losses = _LOSS.values(fitted["theta"], X, y)
        order, clean = np.argsort(losses), losses[z:]
        accuracy = np.mean(clean < math.log(2))  # the loss of a row on the boundary
        quality = {"clean_loss": clean.mean(), "accuracy": accuracy, "found": np.mean(order[-z:] < z)}
        trimmed = losses[order[:-z]].mean()
        fits.append({"name": name, "n_rows": n_rows, **fitted, **quality, "trimmed_loss": trimmed})
    return fits, cores[z]


def _table(fits: list[Fields], core: Coreset) -> str:
    """Lay out one row per fit, what the columns mean, and the estimate of the oracle's objective."""
    oracle, z = fits[-1], core.n_outliers
    estimate, kept = core.estimate(oracle["theta"]), core.total_weight - z
    value, error = estimate.value / kept, 1.96 * estimate.std_error / kept
    notes = _NOTES.format(z=z, value=value, error=error, truth=oracle["trimmed_loss"])
    return "\n".join([_HEAD, *(_ROW.format(**one) for one in fits), notes])


def _save_picture(fits: list[Fields], core: Coreset, path: Path) -> None:
    figure = needed("matplotlib.figure", "the picture", "plot").Figure((10, 6.8), layout="constrained")
    axes, y = figure.subplots(), np.asarray(core.y)
    colours = np.select([core.suspected, y < 0], ["#b5179e", "#d98032"], "#3b6fb6")
    axes.scatter(*core.X[:, :2].T, s=9, c=colours, alpha=0.5, lw=0)
    ends = np.array([-99.0, 99.0])  # of a boundary, along the second column
    for fit, (colour, look) in zip(fits, _LINES, strict=False):
        across, along, *_, intercept = fit["theta"]
        label = f"{fit['name']}: {fit['accuracy']:.0%}, {fit['seconds']:.2f} s"
        axes.plot(-(intercept + along * ends) / across, ends, c=colour, label=label, **look)
    title = f"The {len(core):,} rows of the robust coreset, by class; those of suspected outliers in pink"
    axes.set(xlim=(-6, 25), ylim=(-8, 18), xlabel="along the true direction", title=title)
    axes.legend(loc="lower right", title="share of the clean rows on the right side of each fit")
    figure.savefig(path, dpi=120, format="png")
