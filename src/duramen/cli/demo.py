"""``duramen demo``: what a few planted rows do to an ordinary fit, and to one on a robust coreset."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.cli.options import Result, check_target
from duramen.cli.output import bar
from duramen.coreset.build import robust_coreset
from duramen.coreset.coreset import Coreset
from duramen.coreset.plot import Plane, draw
from duramen.losses import LogisticLoss
from duramen.points import points
from duramen.progress import Bar
from duramen.solvers.solve import solve
from duramen.trimming import trimmed_objective

_LOSS = LogisticLoss()
_HEAD = """\
logistic regression                rows  seconds  clean loss  accuracy  planted found
-------------------------------------------------------------------------------------"""
_ROW = "{name:<29}{n_rows:>10,}{seconds:>9.2f}{clean_loss:>12.4f}{accuracy:>10.1%}{found:>15.1%}"
_NOTES = """
Seconds count everything: checking, anchor, coreset, solution. Loss and accuracy are on clean rows.
Planted found: of the {z:,} rows with the largest losses, the share that was planted. The oracle,
which knows the planted rows, is the target. The robust coreset's estimate for the oracle's fit,
without the data: trimmed loss per row {value:.4f} +- {error:.4f} (95%). On all rows it is {truth:.4f}.
"""

_COLUMNS = 20
_SIGNAL = 4.0  # standard deviation of the log-odds: the true model gets 87% right
# Where planted rows go, found by trying: as far as ruins an ordinary fit and hides them from it, and at an
# angle to the true direction, so that the boundary turns; straight ahead, a fit only grows less confident.
_REACH, _ANGLE = 22.0, math.radians(30)

_COLOURS = {"class -1": "#d98032", "class +1": "#3b6fb6", "planted, labelled -1": "#b5179e"}
_LINES = ("#222222", 6, "-"), ("#009e73", 6, "-"), ("#222222", 1.8, "--"), ("#009e73", 1.8, "--")
_SHOWN = 6000  # rows in the picture; a coreset is drawn whole


def demo(options: Namespace) -> Result:
    """Compare fits of a million rows, some of them planted by an adversary.

    The fits are side by side: with scikit-learn and trimmed, on everything; on a plain coreset;
    and on a robust one. Prints a table and saves a picture. Without --outliers, 2% are planted.

    example: duramen demo --rows 200000 --outliers 1% --picture demo.png
    """
    start, n = time.perf_counter(), options.rows
    size = min(options.size or 4000, n // 5)
    share = 0.02 if options.outliers is None else options.outliers
    if not 0 < share <= 0.2:
        raise ValueError(f"--outliers {share:g} must be above 0 and at most 0.2 (20%)")
    check_target(options.picture, force=True, suffixes=(".png",))
    options.talk.say(
        f"{n:,} rows of two classes, {_COLUMNS} columns. An adversary who knows the true model took\n"
        f"{100 * share:.3g}% of them, moved them where it is most sure of class 1, and labelled them -1.\n"
    )
    with bar(options.talk, f"making {n:,} rows") as shown:
        shown.at(0.0)
        sample = contaminate(n, share, options.seed)
        fits = compare(sample, size, options.seed, shown)
    core = coreset_of(sample, size, options.seed, int(sample.planted.sum()))
    drawn = _save_picture(sample, fits, core, options.picture)
    picture = options.picture.resolve() if drawn else "needs matplotlib; pip install 'duramen[plot]'"
    seconds = time.perf_counter() - start
    lines = [_table(sample, fits, core), f"picture: {picture}", f"total: {seconds:.0f} seconds"]
    facts = {"n_rows": n, "fits": [one._asdict() for one in fits], "seconds": seconds}
    return "\n".join(lines), {**facts, "picture": options.picture if drawn else None}


class Contaminated(NamedTuple):
    """Rows X (n, 20) with labels -1 and 1, and which of them are planted.

    ``plane`` has the direction of the true log-odds, and the other one that planted rows are moved to.
    """

    X: Array
    y: Array
    planted: Array
    plane: Plane


def contaminate(n: int, share: float, seed: int) -> Contaminated:
    """Make ``n`` rows, a share of them (at least one) moved far out and mislabelled.

    Planted rows are rows like any other, all moved by the same vector towards where the true
    model is most sure of class 1, and labelled -1.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, _COLUMNS))
    directions = np.linalg.qr(rng.normal(size=(_COLUMNS, 2)))[0]
    y = np.where(_SIGNAL * X @ directions[:, 0] + rng.logistic(size=n) > 0, 1, -1)
    planted = np.zeros(n, dtype=bool)
    planted[rng.choice(n, max(round(share * n), 1), replace=False)] = True
    X[planted] += _REACH * directions @ (math.cos(_ANGLE), math.sin(_ANGLE))
    y[planted] = -1
    return Contaminated(X, y, planted, Plane(np.zeros(_COLUMNS), directions, np.zeros(2)))


class TimedFit(NamedTuple):
    """One way to fit: its time, and its loss and accuracy on the clean rows.

    ``found`` is the share of planted rows among those with the largest losses.
    """

    name: str
    n_rows: int
    seconds: float
    theta: Array
    clean_loss: float
    accuracy: float
    found: float


def coreset_of(sample: Contaminated, size: int, seed: int, n_outliers: int) -> Coreset:
    """Build a coreset of all rows."""
    X, y = sample.X, sample.y
    return robust_coreset(X, y, loss=_LOSS, size=size, n_outliers=n_outliers, random_state=seed)


def compare(sample: Contaminated, size: int, seed: int, shown: Bar) -> list[TimedFit]:
    """Fit in five ways, the last with the clean rows only."""
    from sklearn.linear_model import LogisticRegression  # here, so that no fit is charged for it

    X, y, planted = sample[:3]
    n, z = len(y), int(planted.sum())

    def ordinary() -> Array:
        model = LogisticRegression().fit(X, y)
        return np.append(model.coef_[0], model.intercept_)

    def on_coreset(n_outliers: int) -> Array:
        return solve(coreset_of(sample, size, seed, n_outliers), random_state=seed).theta

    ways: dict[str, tuple[int, Callable[[], Array]]] = {
        "scikit-learn, on everything": (n, ordinary),
        "trimmed fit, on everything": (n, lambda: solve(points(X, y), _LOSS, z, random_state=seed).theta),
        "plain coreset": (size, lambda: on_coreset(0)),
        "robust coreset": (size, lambda: on_coreset(z)),
        "clean rows only (oracle)": (n - z, lambda: solve(points(X, y, weights=~planted), _LOSS).theta),
    }
    fits: list[TimedFit] = []
    for name, (n_rows, fit) in ways.items():
        shown.begin(name)
        shown.at(len(fits) / len(ways))
        start = time.perf_counter()
        theta = fit()
        seconds = time.perf_counter() - start
        losses = _LOSS.values(theta, X, y)
        clean, worst = losses[~planted], np.argsort(losses)[-z:]
        accuracy = np.mean(clean < math.log(2))  # the loss of a row on the boundary
        facts = clean.mean(), accuracy, planted[worst].mean()
        fits.append(TimedFit(name, n_rows, seconds, theta, *map(float, facts)))
    return fits


def _table(sample: Contaminated, fits: list[TimedFit], core: Coreset) -> str:
    """Lay out one row per fit, what the columns mean, and the estimate of the oracle's objective."""
    z, theta = core.n_outliers, fits[-1].theta
    estimate, kept = core.estimate(theta), core.total_weight - z
    truth = trimmed_objective(points(sample.X, sample.y), theta, loss=_LOSS, n_outliers=z) / kept
    value, error = estimate.value / kept, 1.96 * estimate.std_error / kept
    rows = [_ROW.format(**one._asdict()) for one in fits]
    return "\n".join([_HEAD, *rows, _NOTES.format(z=round(z), value=value, error=error, truth=truth)])


def _save_picture(sample: Contaminated, fits: list[TimedFit], core: Coreset, path: Path) -> bool:
    """Save the picture; return False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(13, 6.8), layout="constrained")
    figure.suptitle(
        f"Fitted on everything as usual, {fits[0].accuracy:.0%} of the clean rows are right; "
        f"on {len(core):,} chosen rows, {fits[3].accuracy:.0%}",
        fontsize=15,
    )
    left, right = figure.subplots(1, 2)
    X, y, planted = (part[:_SHOWN] for part in sample[:3])
    places = sample.plane.project(X)
    for (label, colour), rows in zip(_COLOURS.items(), (~planted & (y < 0), y > 0, planted), strict=True):
        left.scatter(*places[rows].T, s=6, c=colour, alpha=0.5, linewidths=0, label=label)
    left.set(xlim=(-6, 25), ylim=(-8, 18), title=f"{len(y):,} of {len(sample.y):,} rows")
    draw(core, right, len(core), 0, sample.plane)
    right.set(title=f"The {len(core):,} rows of the robust coreset, area by weight")
    for axes in (left, right):
        axes.set(xlabel="along the true direction", ylabel="")
        for one, (colour, width, style) in zip(fits, _LINES, strict=False):
            label = f"{one.name}: {one.accuracy:.0%} right, {one.seconds:.2f} s"
            normal, offset = sample.plane.directions.T @ one.theta[:-1], one.theta[-1]
            foot = -offset * normal / (normal @ normal)
            along = foot + np.array([-normal[1], normal[0]])
            look = {"c": colour, "lw": width, "ls": style, "alpha": 0.35 if width > 2 else 1}
            axes.axline(foot, along, label=label, **look)
    left.legend(loc="lower right", fontsize=9, framealpha=0.95, markerscale=2)
    figure.savefig(path, dpi=120, format="png")
    return True
