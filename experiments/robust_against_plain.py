"""Robust against plain: every sampler with and without the hybrid, with outliers planted by an adversary.

A trial makes data, finds an anchor and a solution on all rows; then, for each
sampler, a plain and a robust coreset from the same anchor and the same seed,
with weights as drawn and calibrated. All measurements are on all rows.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import duramen as dm
from duramen.coreset.view import SAMPLERS

VARIANTS = ("plain", "robust")

_ANCHORS = 5  # tried; the best is taken
_FOOLED = (
    1.15  # an anchor this much above the solution: honest ones were within 1.08 in 20 seeds of each kind
)
_BREAKS = 0.1  # how far off the worst trial is where a cell is set in bold
_TOO_LARGE = "the ball of radius"  # how SensitivitySampler's warning begins

_ABOUT = """\
# Robust against plain

Each sampler without the hybrid framework (`suspects=0`) and with it, on data in which an adversary planted
outliers: 2% of the rows, or as many as the square root of their number. Made by

    {command}

**Logistic regression.** {rows:,} rows of 12 normal columns; labels are drawn with log-odds <theta, x>, where
|theta| = 3. The planted rows lie 30 to 300 standard deviations out (uniform in the logarithm), within some 20
degrees of theta's direction, with the label that theta contradicts.

**k-means.** {rows:,} points around the eight corners of a cube, standard deviation 1 and side 4, so that
neighbours overlap. The planted points are one tight cluster (standard deviation 0.1), 100 from the middle.
Setting it aside costs less than giving it a centre.

Each of {trials} trials makes new data from seed {seed}, and coresets of {size:,} rows from one anchor and
one seed: plain and robust, with weights as drawn and calibrated. The plain samplers have the anchor too,
found with the true z; layers, sensitivities and calibration are measured from it. It is the best on all rows
of {anchors} that `dm.find_anchor` found, so that this page compares coresets and not seedings; above each
table is the number of anchors fooled (f_z more than {fooled:.0%} above that of theta_X). Coresets are
solved by `dm.solve`. theta_X is the better of two solutions on all rows: from the anchor and from the
default start of `dm.solve`.

| column | mean over the trials, and in parentheses the worst |
| --- | --- |
| loss ratio | f_z(theta_C, X) / f_z(theta_X, X), theta_C solved on the coreset: what a coreset is for |
| error | of f_z(theta_X, C), relative to f_z(theta_X, X): whether it knows what a good solution costs |
| outliers' weight | in the coreset, over z. Above 1, setting z aside leaves some; below, it takes others |
| outlier rows | how many rows of the coreset are planted (the mean; calibration does not change the rows) |

**Bold**: the worst trial is more than {breaks:.0%} off.
"""

_STAR = """
\\* In {plain} (plain) and {robust} (robust) of {trials} trials the anchor's ball was too large to bound
sensitivities; points were drawn by the most they can cost in it (`dm.SensitivitySampler` warns of that)."""


class Contaminated(NamedTuple):
    """Data with outliers, and which rows they are."""

    X: np.ndarray
    y: np.ndarray | None
    planted: np.ndarray
    loss: dm.LogisticLoss | dm.KMeansLoss


class Scene(NamedTuple):
    """A problem, and how many outliers its adversary plants."""

    number: int
    problem: str
    make: Callable[[int, int, np.random.Generator], Contaminated]
    amount: str
    z: int


class Setting(NamedTuple):
    """One kind of coreset."""

    sampler: str
    variant: str
    calibrated: bool


class Measured(NamedTuple):
    """What one coreset did."""

    loss_ratio: float
    error: float
    outlier_weight: float
    outlier_rows: int
    unbounded: bool


@dataclass(frozen=True, eq=False)
class Trial:
    """What all coresets of a trial did, and how many anchors were fooled before."""

    fooled: int
    anchor_ratio: float
    measured: dict[Setting, Measured]


class Result(NamedTuple):
    """A scene and its trials."""

    scene: Scene
    trials: list[Trial]

    def column(self, setting: Setting, name: str) -> np.ndarray:
        """Return one figure of one kind of coreset, trial by trial."""
        return np.array([getattr(trial.measured[setting], name) for trial in self.trials])

    def mean(self, variant: str, name: str, *, calibrated: bool) -> float:
        """Average a figure over trials and samplers."""
        settings = [Setting(sampler, variant, calibrated) for sampler in SAMPLERS]
        return float(np.mean([self.column(setting, name) for setting in settings]))


def flipped_rows(n: int, z: int, rng: np.random.Generator) -> Contaminated:
    """Make rows of two classes, z of them far out in theta's direction with the wrong label."""
    d = 12
    theta = rng.normal(size=d)
    theta *= 3 / np.linalg.norm(theta)
    X = rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1, -1)
    planted = _planted(n, z, rng)
    far = np.exp(rng.uniform(np.log(30), np.log(300), size=(z, 1)))
    X[planted] = far * (theta / 3 + 0.1 * rng.normal(size=(z, d)))
    y[planted] = np.where(X[planted] @ theta > 0, -1, 1)
    return Contaminated(X, y, planted, dm.LogisticLoss())


def cornered_points(n: int, z: int, rng: np.random.Generator) -> Contaminated:
    """Make points around the corners of a cube, z of them in one tight cluster far off."""
    corners = np.array(list(itertools.product((-2.0, 2.0), repeat=3)))
    X = corners[rng.integers(len(corners), size=n)] + rng.normal(size=(n, 3))
    planted = _planted(n, z, rng)
    direction = rng.normal(size=3)
    X[planted] = 100 * direction / np.linalg.norm(direction) + 0.1 * rng.normal(size=(z, 3))
    return Contaminated(X, None, planted, dm.KMeansLoss(len(corners)))


def _planted(n: int, z: int, rng: np.random.Generator) -> np.ndarray:
    planted = np.zeros(n, dtype=bool)
    planted[rng.choice(n, z, replace=False)] = True
    return planted


def scenes(rows: int) -> list[Scene]:
    """List the problems, each with 2% and with sqrt(n) outliers."""
    problems = (("Logistic regression", flipped_rows), ("k-means", cornered_points))
    amounts = (("2%", round(0.02 * rows)), ("sqrt(n)", round(rows**0.5)))
    pairs = enumerate(itertools.product(problems, amounts))
    return [Scene(number, *problem, *amount) for number, (problem, amount) in pairs]


def run(scene: Scene, *, rows: int, size: int, trials: int, seed: int) -> Result:
    """Run the trials of a scene."""
    rngs = [np.random.default_rng((seed, scene.number, trial)) for trial in range(trials)]
    return Result(scene, [one_trial(scene, rows, size, rng) for rng in rngs])


def one_trial(scene: Scene, rows: int, size: int, rng: np.random.Generator) -> Trial:
    """Make data, and measure every kind of coreset of it against the solution on all rows."""
    data = scene.make(rows, scene.z, rng)
    yardstick = Yardstick(data, scene.z, rng)
    settings = itertools.starmap(Setting, itertools.product(SAMPLERS, VARIANTS, (False, True)))
    seed = int(rng.integers(2**32))
    measured = {setting: yardstick.measure(setting, size, seed) for setting in settings}
    ratios = yardstick.anchor_ratios
    return Trial(sum(ratio > _FOOLED for ratio in ratios), min(ratios), measured)


class Yardstick:
    """What coresets of some data are measured by: the anchor, and the solution on all rows."""

    def __init__(self, data: Contaminated, z: int, rng: np.random.Generator) -> None:
        self.data, self.z = data, z
        self.points = dm.points(data.X, data.y)
        anchors = [dm.find_anchor(self.points, data.loss, z, rng) for _ in range(_ANCHORS)]
        costs = [self.objective(anchor.theta) for anchor in anchors]
        self.anchor = anchors[int(np.argmin(costs))]
        starts = (self.anchor.theta, None)
        found = [dm.solve(self.points, data.loss, z, init=init, random_state=rng).theta for init in starts]
        self.best = min(found, key=self.objective)
        self.least = self.objective(self.best)
        self.anchor_ratios = [cost / self.least for cost in costs]

    def objective(self, theta: np.ndarray) -> float:
        """Evaluate f_z(theta, X)."""
        return dm.trimmed_objective(self.points, theta, loss=self.data.loss, n_outliers=self.z)

    def measure(self, setting: Setting, size: int, seed: int) -> Measured:
        """Build a coreset, solve on it, and measure both on all rows."""
        core, unbounded = self._coreset(setting, size, seed)
        solution = dm.solve(core, n_outliers=self.z, random_state=seed)
        planted = self.data.planted[core.ids]
        return Measured(
            loss_ratio=self.objective(solution.theta) / self.least,
            error=abs(core.objective(self.best) / self.least - 1),
            outlier_weight=float(core.weights[planted].sum()) / self.z,
            outlier_rows=int(planted.sum()),
            unbounded=unbounded,
        )

    def _coreset(self, setting: Setting, size: int, seed: int) -> tuple[dm.Coreset, bool]:
        """Build a coreset, and return whether its sampler warned that the ball is too large for a bound."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.filterwarnings("always", _TOO_LARGE, UserWarning)
            core = dm.robust_coreset(
                self.data.X,
                self.data.y,
                loss=self.data.loss,
                size=size,
                n_outliers=self.z,
                sampler=setting.sampler,
                suspects=0 if setting.variant == "plain" else "auto",
                anchor=self.anchor,
                calibrate=setting.calibrated,
                random_state=seed,
            )
        known = [str(one.message).startswith(_TOO_LARGE) for one in warned]
        for one in itertools.compress(warned, np.logical_not(known)):
            warnings.warn(one.message, stacklevel=2)
        return core, any(known)


def summary(results: list[Result]) -> str:
    """Write one row per scene: means over all samplers and trials."""
    lines = [
        "Means over the four samplers:",
        "",
        "| | plain: loss ratio | error | robust: loss ratio | error "
        "| plain, calibrated: loss ratio | error | robust, calibrated: loss ratio | error |",
        "| --- |" + " --- |" * 8,
    ]
    for result in results:
        cells = [
            f"{result.mean(variant, name, calibrated=calibrated):.4f}"
            for calibrated in (False, True)
            for variant in VARIANTS
            for name in ("loss_ratio", "error")
        ]
        lines.append(_row([f"{result.scene.problem}, z = {result.scene.amount}", *cells]))
    return "\n".join(lines) + "\n"


def section(result: Result) -> str:
    """Write the table of a scene."""
    scene, trials = result
    ratios = np.array([trial.anchor_ratio for trial in trials])
    fooled = sum(trial.fooled for trial in trials)
    lines = [
        f"## {scene.problem}, z = {scene.z:,} ({scene.amount})",
        "",
        f"The anchor's loss ratio: {_cell(ratios - 1, 1)}. "
        f"Anchors fooled: {fooled} of the {_ANCHORS * len(trials)} found.",
        "",
        "| sampler | coreset | loss ratio | error | outliers' weight "
        "| calibrated: loss ratio | error | outliers' weight | outlier rows |",
        "| --- | --- |" + " --- |" * 7,
    ]
    unbounded = dict.fromkeys(VARIANTS, 0)
    for sampler, variant in itertools.product(SAMPLERS, VARIANTS):
        drawn, calibrated = (Setting(sampler, variant, calibrated) for calibrated in (False, True))
        times = int(result.column(drawn, "unbounded").sum())
        unbounded[variant] += times
        name = f"{sampler} \\*" if times else sampler
        rows = f"{result.column(drawn, 'outlier_rows').mean():,.0f}"
        lines.append(_row([name, variant, *_cells(result, drawn), *_cells(result, calibrated), rows]))
    if any(unbounded.values()):
        lines.append(_STAR.format(trials=len(trials), **unbounded))
    return "\n".join(lines) + "\n"


def _cells(result: Result, setting: Setting) -> list[str]:
    return [
        _cell(result.column(setting, "loss_ratio") - 1, 1),
        _cell(result.column(setting, "error"), 0),
        _cell(result.column(setting, "outlier_weight") - 1, 1, digits=2),
    ]


def _cell(off: np.ndarray, ideal: float, digits: int = 4) -> str:
    """Write the mean and the worst of figures that are ``off`` their ideal."""
    worst = off[np.abs(off).argmax()]
    text = f"{ideal + off.mean():.{digits}f} ({ideal + worst:.{digits}f})"
    return f"**{text}**" if abs(worst) > _BREAKS else text


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(arguments: list[str] | None = None) -> str:
    """Run the experiment, print its page and return it."""
    options = _options(arguments)
    command = (
        f"python -m experiments.robust_against_plain --rows {options.rows} --size {options.size} "
        f"--trials {options.trials} --seed {options.seed}"
    )
    settings = {name: getattr(options, name) for name in ("rows", "size", "trials", "seed")}
    results = []
    for scene in scenes(options.rows):
        print(f"{scene.problem}, z = {scene.z:,}", file=sys.stderr)
        results.append(run(scene, **settings))
    about = _ABOUT.format(command=command, anchors=_ANCHORS, fooled=_FOOLED - 1, breaks=_BREAKS, **settings)
    page = "\n".join([about, summary(results), *map(section, results)])
    print(page)
    if options.out:
        options.out.write_text(page)
    return page


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.robust_against_plain",
        description="Compares plain and robust coresets on data with planted outliers, in Markdown.",
        epilog="example: python -m experiments.robust_against_plain --rows 20000 --size 1000 --out table.md",
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the data (default: 100,000)")
    parser.add_argument("--size", type=int, default=2000, help="rows of a coreset (default: 2,000)")
    parser.add_argument(
        "--trials", type=int, default=10, help="how often, with new data each time (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides data, anchors and coresets (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="also write the page to this file")
    options = parser.parse_args(arguments)
    if options.rows < 2000:
        parser.error(f"--rows {options.rows} is too few to show anything; take 2000 or more")
    if not 200 <= options.size < options.rows:
        parser.error(f"--size {options.size} must be 200 or more, and below --rows {options.rows}")
    if options.trials < 1 or options.seed < 0:
        parser.error(f"--trials {options.trials} must be 1 or more, and --seed {options.seed} 0 or more")
    if options.out and not options.out.absolute().parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")
    return options


if __name__ == "__main__":
    main()
