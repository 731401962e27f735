"""``duramen demo``: what a few planted rows do to an ordinary fit, and to one on a robust coreset."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

_SIZE = 4000
_LOSS = LogisticLoss()
FITS = (
    "scikit-learn, on everything",
    "trimmed fit, on everything",
    "plain coreset",
    "robust coreset",
    "clean rows only (oracle)",
)
_HEAD = "logistic regression", "rows", "seconds", "speed", "clean loss", "accuracy", "planted found"
_ROW = "{:<29}{:>10}{:>9}{:>8}{:>12}{:>10}{:>15}"
_NOTES = """\
Seconds count everything: checking, anchor, coreset, solution. Speed is relative to the trimmed fit
on everything. Loss and accuracy are those on clean rows. Planted found: of the {z:,} rows with the
largest losses, the share that was planted. The oracle, which knows the planted rows, is the target.

The robust coreset's estimate for the oracle's fit, without the data: trimmed loss per row
{value:.4f} +- {error:.4f} (95%). On all rows it is {truth:.4f}."""
_NO_PICTURE = "(no picture: matplotlib is not installed; pip install 'duramen[plot]')"

_NORMAL, _HEAVY = 12, 4  # independent causes, and ones with heavy tails; the columns are mixtures of all
_RATES = (0.3, 0.1, 0.03, 0.01)  # of ones, in the binary causes
_COLUMNS = _NORMAL + _HEAVY + len(_RATES)
_SIGNAL = 4.0  # standard deviation of the log-odds: the true model gets 87% right
# Where planted rows go, found by trying: as far as ruins an ordinary fit and hides them from it, and at an
# angle to the true direction, so that the boundary turns; straight ahead, a fit only grows less confident.
_REACH, _ANGLE = 22.0, np.radians(30)

_COLOURS = {"class -1": "#d98032", "class +1": "#3b6fb6", "planted, labelled -1": "#b5179e"}
_LINES = ("#222222", 6, "-"), ("#009e73", 6, "-"), ("#222222", 1.8, "--"), ("#009e73", 1.8, "--")
_SHOWN = 6000  # rows in the picture; a coreset is drawn whole
_ENOUGH = 50_000  # rows, to draw a boundary


def demo(options: Namespace) -> Result:
    """Compare fits of a million rows, some of them planted by an adversary.

    The fits are side by side: with scikit-learn and trimmed, on everything; on a plain coreset;
    and on a robust one. Prints a table and saves a picture. Without --outliers, 2% are planted.

    example: duramen demo --rows 200000 --outliers 1% --picture demo.png
    """
    start, n = time.perf_counter(), options.rows
    share = 0.02 if options.outliers is None else options.outliers
    size = options.size or min(_SIZE, n // 5)
    if not 0 < share <= 0.2:
        raise ValueError(f"--outliers {share:g} must be above 0 and at most 0.2 (20%)")
    if not 500 <= size <= n // 2:
        raise ValueError(f"--size {size} must be from 500 to {n // 2}, half the rows")
    check_target(options.picture, force=True, suffixes=(".png",))
    options.talk.say(
        f"{n:,} rows of two classes, {_COLUMNS} columns. An adversary who knows the true model took\n"
        f"{100 * share:.3g}% of them, moved them where it is most sure of class 1, and labelled them -1.\n"
    )
    with bar(options.talk, f"making {n:,} rows") as shown:
        shown.at(0.0)
        sample = contaminate(n, share, options.seed)
        fits, core = compare(sample, size, options.seed, shown)
    table = _table(sample, fits, core)
    drawn = _save_picture(sample, fits, core, options.picture)
    picture = f"picture: {options.picture.resolve()}" if drawn else _NO_PICTURE
    seconds = time.perf_counter() - start
    return f"{table}\n\n{picture}\ntotal: {seconds:.0f} seconds", {
        "n_rows": n,
        "fits": [one._asdict() for one in fits],
        "picture": options.picture if drawn else None,
        "seconds": seconds,
    }


class Contaminated(NamedTuple):
    """Rows X (n, 20) with labels -1 and 1, which of them are planted, and the model that drew the labels.

    The plane has the direction of the true log-odds, and the other one that planted rows are moved to.
    """

    X: Array
    y: Array
    planted: Array
    theta: Array
    plane: Plane


def contaminate(n: int, share: float, seed: int) -> Contaminated:
    """Make ``n`` rows, a share of them (at least one) moved far out and mislabelled.

    Each column is a mixture of 20 independent causes: twelve normal, four with heavy tails, four
    binary and some of these rare. Planted rows are rows like any other, all moved by the
    same vector towards where the true model is most sure of class 1, and labelled -1.
    """
    rng = np.random.default_rng(seed)
    causes = np.empty((n, _COLUMNS))  # first, so that too little memory fails at once
    causes[:, :_NORMAL] = rng.normal(size=(n, _NORMAL))
    causes[:, _NORMAL:-4] = rng.standard_t(5, size=(n, _HEAVY))
    causes[:, -4:] = rng.random((n, len(_RATES))) < _RATES
    directions = np.zeros((_COLUMNS, 2))
    directions[:_NORMAL] = np.linalg.qr(rng.normal(size=(_NORMAL, 2)))[0]
    slopes = _SIGNAL * directions[:, 0] + rng.choice([-1, 1], _COLUMNS) * ([0.0] * 12 + [0.3] * 4 + [1.0] * 4)
    intercept = -(slopes[-4:] @ _RATES)  # for equal classes
    y = np.where(causes @ slopes + intercept + rng.logistic(size=n) > 0, 1, -1)
    planted = np.zeros(n, dtype=bool)
    planted[rng.choice(n, max(round(share * n), 1), replace=False)] = True
    causes[planted] += _REACH * directions @ (np.cos(_ANGLE), np.sin(_ANGLE))
    y[planted] = -1
    mixing = np.eye(_COLUMNS) + 0.2 * rng.normal(size=(_COLUMNS, _COLUMNS))
    theta = np.append(np.linalg.solve(mixing, slopes), intercept)
    plane = Plane(np.zeros(_COLUMNS), np.linalg.solve(mixing, directions), np.zeros(2))
    return Contaminated(causes @ mixing, y, planted, theta, plane)


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


def compare(sample: Contaminated, size: int, seed: int, shown: Bar) -> tuple[list[TimedFit], Coreset]:
    """Fit in five ways, in the order of FITS; return the robust coreset, too."""
    from sklearn.linear_model import LogisticRegression  # here, so that no fit is charged for it

    X, y, planted = sample[:3]
    z = int(planted.sum())
    core: Any = None

    def ordinary() -> Array:
        model = LogisticRegression().fit(X, y)
        return np.append(model.coef_[0], model.intercept_)

    def on_coreset(n_outliers: int) -> Array:
        nonlocal core
        core = robust_coreset(X, y, loss=_LOSS, size=size, n_outliers=n_outliers, random_state=seed)
        return solve(core, random_state=seed).theta

    ways: list[tuple[int, Callable[[], Array]]] = [
        (len(y), ordinary),
        (len(y), lambda: solve(points(X, y), _LOSS, z, random_state=seed).theta),
        (size, lambda: on_coreset(0)),
        (size, lambda: on_coreset(z)),
        (len(y) - z, lambda: solve(points(X, y, weights=~planted), _LOSS).theta),
    ]
    fits = []
    for step, (name, (n_rows, fit)) in enumerate(zip(FITS, ways, strict=True), start=1):
        shown.begin(name)
        shown.at(step / 6)
        start = time.perf_counter()
        theta = fit()
        fits.append(_evaluate(sample, name, n_rows, time.perf_counter() - start, theta))
    return fits, core


def _evaluate(sample: Contaminated, name: str, n_rows: int, seconds: float, theta: Array) -> TimedFit:
    losses, planted = _LOSS.values(theta, sample.X, sample.y), sample.planted
    clean = losses[~planted]
    accuracy = np.mean(clean < math.log(2))  # the loss of a row on the boundary
    worst = np.argpartition(losses, -planted.sum())[-planted.sum() :]
    facts = clean.mean(), accuracy, planted[worst].mean()
    return TimedFit(name, n_rows, seconds, theta, *map(float, facts))


def _table(sample: Contaminated, fits: list[TimedFit], core: Coreset) -> str:
    """Lay out one row per fit, and what the columns mean; compare the estimate of the oracle's objective."""
    rows = [
        _ROW.format(
            one.name,
            f"{one.n_rows:,}",
            f"{one.seconds:.2f}",
            f"{fits[1].seconds / one.seconds:.1f}x",
            f"{one.clean_loss:.4f}",
            f"{one.accuracy:.1%}",
            f"{one.found:.1%}",
        )
        for one in fits
    ]
    head, z, theta = _ROW.format(*_HEAD), core.n_outliers, fits[-1].theta
    rule, estimate = "-" * len(head), core.estimate(theta)
    truth = trimmed_objective(points(sample.X, sample.y), theta, loss=_LOSS, n_outliers=z)
    value, error, truth = (
        part / (core.total_weight - z) for part in (estimate.value, 1.96 * estimate.std_error, truth)
    )
    notes = _NOTES.format(z=round(z), value=value, error=error, truth=truth)
    return "\n".join([head, rule, *rows[:-1], rule, rows[-1], "", notes])


def _save_picture(sample: Contaminated, fits: list[TimedFit], core: Coreset, path: Path) -> bool:
    """Save the picture; return False if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(13, 6.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{100 * sample.planted.mean():.3g}% of the rows are planted: fitted on everything as usual, "
        f"{fits[0].accuracy:.0%} of the clean rows are right; on {len(core):,} chosen rows, "
        f"{fits[3].accuracy:.0%}",
        fontsize=14,
    )
    left, right = figure.subplots(1, 2)
    X, y, planted = (part[:_SHOWN] for part in sample[:3])
    places = sample.plane.project(X)
    for (label, colour), rows in zip(_COLOURS.items(), (~planted & (y < 0), y > 0, planted), strict=True):
        left.scatter(*places[rows].T, s=6, c=colour, alpha=0.5, linewidths=0, label=label)
    left.set(title=f"All rows ({len(y):,} of {len(sample.y):,} shown)", ylabel="across")
    left.set(xlim=(-6, 25), ylim=(-8, 18))
    draw(core, right, len(core), 0, sample.plane)
    right.set(ylabel="", title=f"The {len(core):,} rows of the robust coreset, area by weight")
    for axes in (left, right):
        axes.set(xlabel="along the true direction, in standard deviations")
        for one, (colour, width, style) in zip(fits, _LINES, strict=False):
            label = f"{one.name}: {one.accuracy:.0%} right, {one.seconds:.2f} s"
            foot, along = boundary(sample, one.theta)
            look = {"c": colour, "lw": width, "ls": style, "alpha": 0.35 if width > 2 else 1, "label": label}
            axes.axline(foot, foot + along, **look)
    left.legend(loc="lower right", fontsize=9, framealpha=0.95, markerscale=2)
    figure.savefig(path, dpi=120, format="png")
    return True


def boundary(sample: Contaminated, theta: Array) -> tuple[Array, Array]:
    """Return a point and the direction of the line in the plane where ``theta`` is undecided on average."""
    clean = sample.X[:_ENOUGH][~sample.planted[:_ENOUGH]]
    places = np.column_stack([sample.plane.project(clean), np.ones(len(clean))])
    *normal, offset = np.linalg.lstsq(places, clean @ theta[:-1] + theta[-1], rcond=None)[0]
    return -offset * np.array(normal) / np.dot(normal, normal), np.array([-normal[1], normal[0]])
