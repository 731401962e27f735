"""``duramen demo``: what a few planted rows do to an ordinary fit, and to one on a robust coreset."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.cli.options import add_seed, at_least, check_target, outliers
from duramen.coreset.build import robust_coreset
from duramen.coreset.coreset import Coreset
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import Plane, draw
from duramen.losses import LogisticLoss
from duramen.points import points
from duramen.progress import Bar
from duramen.solvers.solve import solve
from duramen.trimming import trimmed_objective

_ROWS, _SIZE = 1_000_000, 4000
_FEWEST_ROWS, _SMALLEST = 5000, 500  # below these, fits differ by chance

_LOSS = LogisticLoss()
FITS = (
    "scikit-learn, on everything",
    "trimmed fit, on everything",
    "plain coreset",
    "robust coreset",
    "clean rows only (oracle)",
)
_NOTES = """\
Seconds count everything: checking, anchor, coreset, solution. Speed is relative to the trimmed fit
on everything. Loss and accuracy are those on clean rows. Planted found: of the {z:,} rows with the
largest losses, the share that was planted. The oracle, which knows the planted rows, is the target."""
_ANOTHER = 0.05  # so far from the oracle's, a trimmed objective is another minimum's, not chance

_CORRELATED, _HEAVY = 12, 4  # columns that share hidden causes, and columns with heavy tails
_RATES = (0.3, 0.1, 0.03, 0.01)  # of ones, in the binary columns
_COLUMNS = _CORRELATED + _HEAVY + len(_RATES)
_CAUSES = 3
_SIGNAL = 4.0  # standard deviation of the log-odds: the true model gets 87% right
# Where planted rows go, found by trying: as far as ruins an ordinary fit and hides them from it, and at an
# angle to the true direction, so that the boundary turns; straight ahead, a fit only grows less confident.
_REACH, _ANGLE = 22.0, np.radians(30)

_PLUS, _MINUS, _PLANTED = "#3b6fb6", "#d98032", "#b5179e"
_ORDINARY, _TRIMMED = "#222222", "#009e73"  # different in lightness too
_LINES = (  # of the four fits: broad and pale on everything, dashed on a coreset
    {"c": _ORDINARY, "lw": 6, "alpha": 0.35},
    {"c": _TRIMMED, "lw": 6, "alpha": 0.35},
    {"c": _ORDINARY, "lw": 1.8, "ls": (0, (4, 2))},
    {"c": _TRIMMED, "lw": 1.8, "ls": (0, (4, 2))},
)
_ENOUGH = 50_000  # rows, for a mean and a covariance of a picture
_SHOWN = 6000  # of all rows; a coreset is drawn whole
_SOME = 20  # planted rows to show at least
_FAR = 100.0  # standard deviations: beyond the frame


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="a million rows with outliers: everything, a plain and a robust coreset, side by side",
        description="Fits rows, some of them planted by an adversary: with scikit-learn and trimmed, on "
        "everything; on a plain coreset; and on a robust one. Prints a table and saves a picture.",
        epilog="example: duramen demo --rows 200000 --outliers 1% --picture demo.png",
    )
    add = parser.add_argument
    rows = f"how many rows to make (default: {_ROWS:,})"
    add("--rows", type=at_least(_FEWEST_ROWS), default=_ROWS, help=rows)
    share = "share of planted rows, as 0.02 or 2%% (default: 2%%)"
    add("--outliers", type=outliers, default=0.02, help=share)
    size = f"rows of a coreset (default: {_SIZE:,}, at most a fifth of the rows)"
    add("--size", type=at_least(_SMALLEST), help=size)
    add_seed(parser)
    add(
        "--picture",
        type=Path,
        default=Path("duramen-demo.png"),
        help="where to save the picture (default: duramen-demo.png; needs the plot extra)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the data, fit them side by side, print a table and save a picture."""
    size = min(_SIZE, options.rows // 5) if options.size is None else options.size
    _check(options, size)
    start = time.perf_counter()
    n, z = options.rows, n_planted(options.rows, options.outliers)
    print(
        f"{n:,} rows of two classes, {_COLUMNS} columns. An adversary who knows the true model took {z:,}\n"
        f"of them ({100 * z / n:.3g}%), moved them where it is most sure of class 1, and labelled them -1.\n",
        flush=True,
    )
    steps = (f"making {n:,} rows", *FITS)
    with closing(Bar(shown=sys.stderr.isatty())) as bar:

        def begin(name: str) -> None:
            bar.begin(name)
            bar.at(steps.index(name) / len(steps))

        begin(steps[0])
        sample = contaminate(n, options.outliers, options.seed)
        found = compare(sample, size, options.seed, begin)
    print(f"{_table(found)}\n\n{_own_estimate(found)}\n", flush=True)
    print(save_picture(sample, found, options.picture))
    print(f"total: {time.perf_counter() - start:.0f} seconds")


def _check(options: argparse.Namespace, size: int) -> None:
    """Refuse impossible options before anything takes time."""
    if not 0 < options.outliers <= 0.2:
        raise ValueError(f"--outliers {options.outliers:g} must be above 0 and at most 0.2 (20%)")
    if size > options.rows // 2:
        raise ValueError(f"--size {size} must be at most {options.rows // 2}, half the rows")
    check_target(options.picture, force=True, suffixes=(".png",))


class Contaminated(NamedTuple):
    """Rows X (n, 20) with labels -1 and 1, which of them are planted, and the model that drew the labels."""

    X: Array
    y: Array
    planted: Array
    theta: Array

    @property
    def z(self) -> int:
        """The number of planted rows."""
        return int(np.count_nonzero(self.planted))


def n_planted(n: int, share: float) -> int:
    """Count the planted among ``n`` rows: a share of them, but at least one."""
    return max(round(share * n), 1)


def contaminate(n: int, share: float, seed: int) -> Contaminated:
    """Make ``n`` rows with 20 columns, a share of them moved far out and mislabelled.

    Twelve columns are correlated, four have heavy tails, four are binary and
    some of these rare. Planted rows are rows like any other, all moved by the
    same vector towards where the true model is most sure of class 1, and labelled -1.
    """
    rng = np.random.default_rng(seed)
    X = np.empty((n, _COLUMNS))  # first, so that too little memory fails at once
    loadings = 0.6 * rng.normal(size=(_CAUSES, _CORRELATED))
    covariance = loadings.T @ loadings + 0.5 * np.eye(_CORRELATED)
    deviations = np.sqrt(covariance.diagonal())
    mixing = np.linalg.cholesky(covariance / np.outer(deviations, deviations)).T  # makes columns correlated
    direction = _unit(rng.normal(size=_CORRELATED))  # of the log-odds, before mixing
    slopes = 0.3 * rng.choice([-1, 1], _HEAVY), 1.0 * rng.choice([-1, 1], len(_RATES))
    theta = np.concatenate(
        [_SIGNAL * np.linalg.solve(mixing, direction), *slopes, [-(slopes[1] @ _RATES)]]  # equal classes
    )
    correlated, heavy, rare = np.split(X, [_CORRELATED, _CORRELATED + _HEAVY], axis=1)
    correlated[:] = rng.normal(size=correlated.shape) @ mixing
    heavy[:] = rng.standard_t(5, size=heavy.shape)
    rare[:] = rng.random(rare.shape) < _RATES
    y = np.where(X @ theta[:-1] + theta[-1] + rng.logistic(size=n) > 0, 1, -1)
    planted = np.zeros(n, dtype=bool)
    planted[rng.choice(n, n_planted(n, share), replace=False)] = True
    other = rng.normal(size=_CORRELATED)
    other = _unit(other - (other @ direction) * direction)
    correlated[planted] += _REACH * (np.cos(_ANGLE) * direction + np.sin(_ANGLE) * other) @ mixing
    y[planted] = -1
    return Contaminated(X, y, planted, theta)


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)


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


class Comparison(NamedTuple):
    """The fits, in the order of FITS, and the robust coreset with its estimate of the oracle's objective.

    ``truth`` and ``best`` are that trimmed objective on all rows, of the robust fit and of the oracle.
    """

    fits: tuple[TimedFit, ...]
    core: Coreset
    estimate: Estimate
    truth: float
    best: float


def compare(sample: Contaminated, size: int, seed: int, begin: Callable[[str], object]) -> Comparison:
    """Fit in five ways; ``begin`` is called with the name of each as it begins."""
    from sklearn.linear_model import LogisticRegression  # here, so that no fit is charged for it

    X, y, z = sample.X, sample.y, sample.z
    planted = sample.planted
    cores: dict[str, Coreset] = {}

    def theta_of(name: str) -> Array:
        if name == FITS[0]:
            model = LogisticRegression().fit(X, y)
            return np.append(model.coef_[0], model.intercept_)
        if name == FITS[1]:
            return solve(points(X, y), _LOSS, z, random_state=seed).theta
        if name == FITS[-1]:
            return solve(points(X, y, weights=~planted), _LOSS).theta  # weight zero is the same as absent
        settings: dict[str, Any] = {"n_outliers": 0, "suspects": 0} if name == FITS[2] else {"n_outliers": z}
        core = cores[name] = robust_coreset(X, y, loss=_LOSS, size=size, random_state=seed, **settings)
        return solve(core, random_state=seed).theta

    fits = []
    for name in FITS:
        begin(name)
        start = time.perf_counter()
        theta = theta_of(name)
        seconds = time.perf_counter() - start
        n_rows = len(cores.get(name, y)) - (z if name == FITS[-1] else 0)
        fits.append(_evaluate(name, n_rows, seconds, theta, sample))
    core, data = cores[FITS[3]], points(X, y)
    truth, best = (trimmed_objective(data, one.theta, loss=_LOSS, n_outliers=z) for one in fits[-2:])
    return Comparison(tuple(fits), core, core.estimate(fits[-1].theta), truth, best)


def _evaluate(name: str, n_rows: int, seconds: float, theta: Array, sample: Contaminated) -> TimedFit:
    losses = _LOSS.values(theta, sample.X, sample.y)
    clean = losses[~sample.planted]
    accuracy = float(np.mean(clean < math.log(2)))  # the loss of a row on the boundary
    worst = np.argpartition(losses, -sample.z)[-sample.z :]
    found = float(sample.planted[worst].mean())
    return TimedFit(name, n_rows, seconds, theta, float(clean.mean()), accuracy, found)


def _table(found: Comparison) -> str:
    """Lay out one row per fit, and what the columns mean."""
    head = (
        f"{'logistic regression':<29}{'rows':>10}{'seconds':>9}{'speed':>8}"
        f"{'clean loss':>12}{'accuracy':>10}{'planted found':>15}"
    )
    trimmed = found.fits[1].seconds
    rows = [
        f"{one.name:<29}{one.n_rows:>10,}{one.seconds:>9.2f}{trimmed / one.seconds:>7.1f}x"
        f"{one.clean_loss:>12.4f}{one.accuracy:>10.1%}{one.found:>15.1%}"
        for one in found.fits
    ]
    rule = "-" * len(head)
    notes = _NOTES.format(z=round(found.core.n_outliers))
    return "\n".join([head, rule, *rows[:-1], rule, rows[-1], "", notes])


def _own_estimate(found: Comparison) -> str:
    """Compare the robust coreset's estimate for the oracle with the truth."""
    kept = found.core.total_weight - found.core.n_outliers
    value, _, low, high = (number / kept for number in found.estimate)
    truth, best = found.truth / kept, found.best / kept
    where = "within" if low <= best <= high else "outside"
    lines = [
        "The robust coreset's estimate for the oracle's fit, without the data: trimmed loss per row",
        f"{value:.4f} +- {high - value:.4f} (95%). On all rows it is {best:.4f}, {where} that. "
        f"The coreset's own fit has {truth:.4f}.",
    ]
    if truth > (1 + _ANOTHER) * best:
        lines.append("The search was misled here: it ended in a minimum well above the oracle's.")
    if truth < (1 - _ANOTHER) * best:
        lines.append("So many rows are planted that the trimmed objective itself prefers another fit.")
    return "\n".join(lines)


def save_picture(sample: Contaminated, found: Comparison, path: Path) -> str:
    """Save the picture, or name what is missing; return the line to print."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "(no picture: matplotlib is not installed; pip install 'duramen[plot]')"
    *fits, oracle = found.fits
    figure = Figure(figsize=(13, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{100 * sample.z / len(sample.y):.3g}% planted rows: fitted on everything as usual, "
        f"{fits[0].accuracy:.0%} of the clean rows are right; on {fits[3].n_rows:,} chosen rows, "
        f"{fits[3].accuracy:.0%}",
        fontsize=15,
    )
    panels = figure.subplot_mosaic([["rows", "core"], ["loss", "time"]], height_ratios=(3, 1))
    _draw_planes(panels["rows"], panels["core"], sample, found)
    losses, times = [one.clean_loss for one in fits], [one.seconds for one in fits]
    _draw_bars(panels["loss"], losses, [f" {one.clean_loss:.3f}, {one.accuracy:.0%} right" for one in fits])
    _draw_bars(panels["time"], times, [f" {one.seconds:.2f} s" for one in fits])
    panels["loss"].set_yticks(range(4), [one.name for one in fits])
    panels["loss"].axvline(oracle.clean_loss, c="#555555", ls=":", lw=1.5)
    panels["loss"].set(title="Loss on clean rows (dotted: the oracle)")
    panels["time"].set(title="Seconds, building included", yticks=[])
    figure.savefig(path, dpi=120, format="png")
    return f"picture: {path.resolve()}"


def demo_plane(sample: Contaminated, theta: Array) -> Plane:
    """Find the plane of the true coefficients and of those of ``theta``, the planted rows above zero.

    In it the clean rows have variance 1, without correlation.
    """
    clean = sample.X[:_ENOUGH][~sample.planted[:_ENOUGH]]
    middle, slopes = clean.mean(axis=0), np.column_stack([sample.theta[:-1], theta[:-1]])
    spread = np.linalg.cholesky(np.cov(((clean - middle) @ slopes).T))
    directions = np.linalg.solve(spread, slopes.T).T
    planted = (sample.X[sample.planted].mean(axis=0) - middle) @ directions
    return Plane(middle, directions * np.where(planted < 0, -1.0, 1.0), np.zeros(2))


def boundary(plane: Plane, X: Array, theta: Array) -> Array:
    """Compute two distant points of the line where ``theta`` is undecided on average over rows X."""
    places = np.column_stack([plane.project(X), np.ones(len(X))])
    *normal, offset = np.linalg.lstsq(places, X @ theta[:-1] + theta[-1], rcond=None)[0]
    foot = -offset * np.array(normal) / np.dot(normal, normal)
    along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
    return np.asarray(foot + np.outer([-_FAR, _FAR], along))


def _draw_planes(left: Any, right: Any, sample: Contaminated, found: Comparison) -> None:
    """Draw some of the rows, and all of the coreset, in the same plane, the coreset zoomed in."""
    plane = demo_plane(sample, found.fits[0].theta)
    shown = np.union1d(np.arange(min(_SHOWN, len(sample.y))), np.flatnonzero(sample.planted)[:_SOME])
    X, y, planted = (part[shown] for part in sample[:3])
    places = plane.project(X)
    for rows, colour, area, label in (
        (~planted & (y < 0), _MINUS, 5, "class -1"),
        (~planted & (y > 0), _PLUS, 5, "class +1"),
        (planted, _PLANTED, 9, "planted, labelled -1"),
    ):
        left.scatter(*places[rows].T, s=area, c=colour, alpha=0.5, linewidths=0, label=label)
    (x0, y0), (x1, y1) = places.min(axis=0) - 1, places.max(axis=0) + 1
    left.set(xlim=(x0, x1), ylim=(y0, y1), title=f"All rows ({len(y):,} of {len(sample.y):,} shown)")
    left.set(ylabel="the direction that the ordinary fit turned to")
    draw(found.core, right, len(found.core), 0, plane)
    right.set(ylabel="", title=f"The {len(found.core):,} rows of the robust coreset, area by weight")
    for axes in (left, right):
        axes.set(xlabel="log-odds by the true model, in standard deviations")
        for one, look in zip(found.fits, _LINES, strict=False):
            axes.plot(*boundary(plane, X[~planted], one.theta).T, **look, label=one.name)
    left.legend(loc="lower right", fontsize=9, framealpha=0.95, markerscale=2)


def _draw_bars(axes: Any, values: list[float], texts: list[str]) -> None:
    bars = axes.barh(range(4), values, height=0.65, color=[_ORDINARY, _TRIMMED] * 2, alpha=0.85)
    axes.bar_label(bars, texts, fontsize=9)
    axes.set(xlim=(0, 1.35 * max(values)))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
