"""``duramen demo``: what outliers do to an ordinary objective, and what trimming does about it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duramen.losses import LogisticLoss
from duramen.points import WeightedPoints, points
from duramen.rows import Array
from duramen.solvers import solve
from duramen.trimming import trimmed_objective

__all__ = ["add_parser"]

_LOSS = LogisticLoss()
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15)  # at 20% f_z itself may prefer to fit the planted cluster


class Fit(NamedTuple):
    """One way to fit, and how it did on the rows that are clean."""

    name: str
    theta: Array
    clean_loss: float
    accuracy: float
    found: float | None
    seconds: float


class Contaminated(NamedTuple):
    """Rows of two classes, some of them planted by an adversary."""

    data: WeightedPoints
    planted: Array


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="what outliers do to an ordinary objective, and what trimming does about it",
        description="Fits a classifier with 5% adversarial rows: as usual, and with the worst set aside.",
        epilog="example: duramen demo --rows 500000 --picture demo.png",
    )
    parser.add_argument("--rows", type=int, default=200_000, help="how many rows to make (default: 200,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data (default: 0)")
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("duramen-demo.png"),
        help="where to save the picture (default: duramen-demo.png; needs the plot extra)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the data, fit it three ways, print a table and save a picture."""
    if options.rows < 1000:
        raise ValueError(f"--rows {options.rows} is too few to show anything; take 1000 or more")
    if options.seed < 0:
        raise ValueError(f"--seed {options.seed} must be 0 or more")
    if not options.picture.absolute().parent.is_dir():
        raise ValueError(f"--picture {options.picture}: there is no folder {options.picture.parent}")
    share = 0.05
    sample = contaminated(options.rows, share, options.seed)
    z = int(sample.planted.sum())
    print(f"{options.rows:,} rows of two classes; an adversary planted {z:,} of them ({share:.0%}) where")
    print("they pull hardest: far out, with the wrong label. Logistic regression, three times:\n")
    fits = [
        measure("knows which rows are planted", sample, None),
        measure("ordinary, on everything", sample, 0),
        measure(f"trimmed, z = {z:,}", sample, z),
    ]
    print_table(fits)
    print_objective(sample, fits, z)
    curves = contamination_curves(min(options.rows, 20_000), options.seed)
    print_curves(curves)
    print(save_picture(sample, fits, curves, options.picture))


def contaminated(n: int, share: float, seed: int) -> Contaminated:
    """Make ``n`` rows of two overlapping classes, a share of them moved far out and mislabelled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(2 * X[:, 0] + X[:, 1]))), 1, -1)
    planted = np.zeros(n, dtype=bool)
    planted[rng.permutation(n)[: round(share * n)]] = True
    X[planted] = [6.0, 3.0] + 0.7 * rng.normal(size=(planted.sum(), 2))
    y[planted] = -1
    return Contaminated(points(X, y), planted)


def measure(name: str, sample: Contaminated, z: float | None) -> Fit:
    """Fit with weight ``z`` set aside, or without the planted rows, and judge it on the clean ones."""
    data, planted = sample
    clean = data.take(~planted)
    start = time.perf_counter()
    solution = solve(clean if z is None else data, _LOSS, z or 0, random_state=0)
    seconds = time.perf_counter() - start
    theta = solution.theta
    assert clean.y is not None
    correct = np.sign(clean.X @ theta[:-1] + theta[-1]) == clean.y
    found = float(np.isin(data.ids[planted], solution.outliers).mean()) if z else None
    loss = trimmed_objective(clean, theta, loss=_LOSS) / len(clean)
    return Fit(name, theta, loss, float(correct.mean()), found, seconds)


def contamination_curves(n: int, seed: int) -> dict[str, list[float]]:
    """Measure the clean loss of both fits as the share of planted rows grows."""
    curves: dict[str, list[float]] = {"ordinary": [], "trimmed": []}
    for share in _SHARES:
        sample = contaminated(n, share, seed)
        curves["ordinary"].append(measure("", sample, 0).clean_loss)
        curves["trimmed"].append(measure("", sample, float(sample.planted.sum())).clean_loss)
    return curves


def print_table(fits: list[Fit]) -> None:
    """Print one row a fit."""
    print(f"{'fit':<32}{'clean loss':>11}{'accuracy':>10}{'planted found':>15}{'seconds':>9}")
    for one in fits:
        found = "" if one.found is None else f"{one.found:.1%}"
        print(f"{one.name:<32}{one.clean_loss:>11.4f}{one.accuracy:>10.1%}{found:>15}{one.seconds:>9.2f}")


def print_objective(sample: Contaminated, fits: list[Fit], z: int) -> None:
    """Show that the ordinary objective prefers the ruined fit, and the trimmed one the good fit."""
    ruined, good = fits[1].theta, fits[2].theta
    print("\nThe ordinary objective cannot see that, the trimmed one can (mean loss over all rows):\n")
    print(f"{'objective':<32}{'of the ordinary fit':>21}{'of the trimmed fit':>20}")
    for name, aside in (("f,   every row counts", 0), (f"f_z, the worst {z:,} set aside", z)):
        scores = [trimmed_objective(sample.data, t, loss=_LOSS, n_outliers=aside) for t in (ruined, good)]
        marks = ["  <" if score == min(scores) else "   " for score in scores]
        cells = [f"{s / len(sample.data):.4f}{mark}" for s, mark in zip(scores, marks, strict=True)]
        print(f"{name:<32}{cells[0]:>21}{cells[1]:>20}")


def print_curves(curves: dict[str, list[float]]) -> None:
    """Print the clean loss against the share of planted rows."""
    print("\nAs the share of planted rows grows (loss on clean rows):\n")
    print(f"{'planted':<12}" + "".join(f"{share:>9.0%}" for share in _SHARES))
    for name, losses in curves.items():
        print(f"{name:<12}" + "".join(f"{loss:>9.4f}" for loss in losses))


def save_picture(sample: Contaminated, fits: list[Fit], curves: dict[str, list[float]], path: Path) -> str:
    """Save the picture, or say what is missing; return the line to print."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "\n(no picture: matplotlib is not installed; pip install 'duramen[plot]')"
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_boundaries(left, sample, fits)
    _draw_curves(right, curves)
    figure.savefig(path, dpi=130)
    return f"\npicture: {path.resolve()}"


def _draw_boundaries(axes: Any, sample: Contaminated, fits: list[Fit]) -> None:
    data, planted = sample
    assert data.y is not None
    shown = np.arange(len(data)) < 3000
    groups = (
        (shown & ~planted & (data.y > 0), "#3b6fb6", 5, "class +1"),
        (shown & ~planted & (data.y < 0), "#d98032", 5, "class −1"),
        (shown & planted, "#b5179e", 14, "planted, labelled −1"),
    )
    for mask, colour, size, label in groups:
        axes.scatter(*data.X[mask].T, s=size, c=colour, alpha=0.55, linewidths=0, label=label)
    across = np.array([-4.0, 9.0])
    styles = (("#222222", ":", 3.0), ("#c1121f", "-", 2.0), ("#2a9d4a", "-", 2.0))
    for one, (colour, dash, width) in zip(fits, styles, strict=True):
        slope, rise, offset = one.theta
        axes.plot(across, -(slope * across + offset) / rise, dash, c=colour, lw=width, label=one.name)
    axes.set(xlim=(-4, 9), ylim=(-4.5, 6), xlabel="first column", ylabel="second column")
    axes.set_title(f"Where each fit draws the line ({shown.sum():,} of {len(data):,} rows shown)")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.95, markerscale=2)


def _draw_curves(axes: Any, curves: dict[str, list[float]]) -> None:
    axes.plot(_SHARES, curves["ordinary"], "o-", c="#c1121f", label="ordinary")
    axes.plot(_SHARES, curves["trimmed"], "o-", c="#2a9d4a", label="trimmed, z = number planted")
    axes.set(xlabel="share of planted rows", ylabel="mean logistic loss on clean rows", ylim=(0, None))
    axes.set_xticks(_SHARES, [f"{share:.0%}" for share in _SHARES])
    axes.set_title("Loss on clean rows as the planted share grows")
    axes.legend()
    axes.grid(alpha=0.3)
