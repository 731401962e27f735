"""britain_magnetic_3d with planted outliers: k-means on coresets against k-means-- on everything.

A trial plants points anew. From the same seeds, it compares where everything and
a coreset end; with several starts, how good the best is, and how long it takes.
Losses and outliers found are always those on all points.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans

import duramen as dm
from experiments.options import Parser, command_of, load
from experiments.pages import Target
from experiments.paper.data import Clouded, Table, made_up_survey, survey, with_far_points
from experiments.paper.fits import timed
from experiments.paper.pages import machine, mean_and_worst, table
from experiments.timing import Stages, stages_of

SAME_SEEDS = Target(1.003)
NO_WORSE = Target(1.0)
TIME = Target(1 / 50)
PLANTED = Target(0.95, at_most=False)

_FULL_STARTS = 5

_ABOUT = """\
# Survey: k-means on a few thousand points against all

k-means with {z:,} outliers, k = {k}, on {name}: {rows:,} points of {columns} standardised columns, with the
outliers. Made by

    {command}

on {machine}.

**Data.** In each of {trials} trials (seeds 0 to {last}) {z:,} points are added: uniform in the bounding box
of the others, moved by Gaussian noise of standard deviation 20 a column.

**Loss ratio**: f_z on all points, over that of the fit on everything; the mean over the trials, and in
parentheses the worst. Coresets have {size:,} rows. Below, `loss` is `dm.KMeansLoss({k})`, and z = {z}.
"""

_SAME = """\
## From the same seeds

Seeds are found once; then everything is solved from them, and so is a coreset. Only the data differ.

    anchor = dm.find_anchor(points, loss, z, random_state=seed)
    dm.solve(points, loss, z, init=anchor.theta)

    core = dm.robust_coreset(X, loss=loss, size={size}, n_outliers=z, anchor=anchor, random_state=seed)
    dm.solve(core, init=anchor.theta)

"""

_SEVERAL = """\
## Several starts

The baseline is the best of {full} starts on everything. Then coresets, by the functions and by the estimator:

    dm.solve(dm.points(X), loss, z, n_starts={full}, random_state=seed)

    core = dm.robust_coreset(X, loss=loss, size={size}, n_outliers=z, random_state=seed)
    dm.solve(core, n_starts=starts, random_state=seed)

    dm.RobustKMeans({k}, n_outliers=z, coreset_size={size}, n_init=starts, random_state=seed).fit(X)

Seconds are those from the raw array to the fitted model, with everything: checking, the anchor, building,
solving, and for the estimator its last look at all points, which finds the outliers. Each fit is timed once a
seed, after a warm-up on a few points. scikit-learn's `KMeans({k}, n_init=1, random_state=seed)` is blind to
outliers. Precision and recall are about the planted points, among the {z:,} set aside: `outliers_`, or those
of largest loss.

"""

_TARGETS = """\
## Against the targets

Judged by the mean over the trials. From the same seeds, at most {asked:g} was asked of the loss
ratio: {lost:.5f} {verdict}. With several starts:

"""

_TIMES = """\
## Where the time goes

Milliseconds, and the share of the baseline's time. The parts were timed one by one, in another run than the
whole.

"""


class Setting(NamedTuple):
    """One way to fit on a coreset, and from how many starts."""

    way: str
    starts: int


class Measured(NamedTuple):
    """What one fit came to, on all points."""

    loss: float
    seconds: float
    precision: float
    recall: float


@dataclass(frozen=True, eq=False)
class Trial:
    """The fits of one seed; ``same_seeds`` is the loss ratio from the same seeds."""

    same_seeds: float
    full: Measured
    measured: dict[Setting, Measured]
    peer: Measured
    stages: dict[int, Stages]

    def ratio(self, one: Measured) -> float:
        """Compare losses on all points."""
        return one.loss / self.full.loss

    def share(self, one: Measured) -> float:
        """Compare seconds."""
        return one.seconds / self.full.seconds


class Fit(NamedTuple):
    """Centres, and what was set aside if the fit tells."""

    theta: np.ndarray
    outliers: np.ndarray | None = None


class Yardstick:
    """What fits on some data are measured by: all points, and which of them are planted."""

    def __init__(self, data: Clouded, loss: dm.KMeansLoss) -> None:
        self.data, self.loss, self.z = data, loss, int(data.planted.sum())
        self.points = dm.points(data.X)

    def objective(self, theta: np.ndarray) -> float:
        """Evaluate f_z on all points."""
        return dm.trimmed_objective(self.points, theta, loss=self.loss, n_outliers=self.z)

    def time(self, fit: Callable[..., Fit], *arguments: Any) -> Measured:
        """Fit, and measure time and result."""
        found, seconds = timed(lambda: fit(self.data.X, self.loss, self.z, *arguments))
        aside = found.outliers
        if aside is None:
            aside = np.argsort(-self.loss.values(found.theta, self.data.X))[: self.z]
        caught = int(self.data.planted[aside].sum())
        return Measured(self.objective(found.theta), seconds, caught / len(aside), caught / self.z)

    def same_seeds(self, size: int, seed: int) -> float:
        """Solve everything and a coreset from the same seeds, and compare."""
        X, loss, z = self.data.X, self.loss, self.z
        anchor = dm.find_anchor(self.points, loss, z, random_state=seed)
        full = dm.solve(self.points, loss, z, init=anchor.theta)
        core = dm.robust_coreset(X, loss=loss, size=size, n_outliers=z, anchor=anchor, random_state=seed)
        return self.objective(dm.solve(core, init=anchor.theta).theta) / full.objective


def on_everything(X: np.ndarray, loss: dm.KMeansLoss, z: int, seed: int) -> Fit:
    """Take the best of several starts on all points: the baseline."""
    return Fit(dm.solve(dm.points(X), loss, z, n_starts=_FULL_STARTS, random_state=seed).theta)


def by_functions(X: np.ndarray, loss: dm.KMeansLoss, z: int, seed: int, size: int, starts: int) -> Fit:
    """Build a coreset, and solve on it."""
    core = dm.robust_coreset(X, loss=loss, size=size, n_outliers=z, random_state=seed)
    return Fit(dm.solve(core, n_starts=starts, random_state=seed).theta)


def by_estimator(X: np.ndarray, loss: dm.KMeansLoss, z: int, seed: int, size: int, starts: int) -> Fit:
    """Do the same by the estimator, which also looks at all points."""
    model = dm.RobustKMeans(loss.k, n_outliers=z, coreset_size=size, n_init=starts, random_state=seed).fit(X)
    return Fit(model.cluster_centers_, model.outliers_)


def by_scikit_learn(X: np.ndarray, loss: dm.KMeansLoss, z: int, seed: int) -> Fit:
    """Fit all points, blind to outliers."""
    return Fit(KMeans(loss.k, n_init=1, random_state=seed).fit(X).cluster_centers_)


WAYS = {"functions": by_functions, "estimator": by_estimator}


def run(seed: int, base: Table, starts: list[int], *, z: int, k: int, size: int) -> Trial:
    """Plant outliers, fit the points in every way, and measure on all of them."""
    yardstick = Yardstick(with_far_points(base, z, seed), dm.KMeansLoss(k))
    X, loss = yardstick.data.X, yardstick.loss
    settings = [Setting(way, number) for way in WAYS for number in starts]
    return Trial(
        same_seeds=yardstick.same_seeds(size, seed),
        full=yardstick.time(on_everything, seed),
        measured={one: yardstick.time(WAYS[one.way], seed, size, one.starts) for one in settings},
        peer=yardstick.time(by_scikit_learn, seed),
        stages={number: stages_of(X, None, loss, size, z, seed, n_starts=number) for number in starts},
    )


def same_seeds(trials: list[Trial], size: int) -> str:
    """Write how much is lost from the same seeds."""
    ratios = [trial.same_seeds for trial in trials]
    head = ("seed", *(f"{seed}:" for seed in range(len(ratios))), "mean (worst):")
    rows = [["loss ratio", *(f"{ratio:.5f}" for ratio in ratios), mean_and_worst(ratios, 5)]]
    return _SAME.format(size=size) + table(head, rows)


def section(trials: list[Trial], **about: int) -> str:
    """Write one row a way to fit with several starts."""
    rows = [["baseline, on everything", str(_FULL_STARTS), *_cells(trials, [trial.full for trial in trials])]]
    for setting in trials[0].measured:
        measured = [trial.measured[setting] for trial in trials]
        rows.append([setting.way, str(setting.starts), *_cells(trials, measured)])
    rows.append(["scikit-learn, on everything", "1", *_cells(trials, [trial.peer for trial in trials])])
    head = (
        "fit",
        "starts:",
        "loss ratio:",
        "no worse in",
        "seconds:",
        "of the time:",
        "precision:",
        "recall:",
    )
    return _SEVERAL.format(full=_FULL_STARTS, **about) + table(head, rows)


def _cells(trials: list[Trial], measured: list[Measured]) -> list[str]:
    ratios = [trial.ratio(one) for trial, one in zip(trials, measured, strict=True)]
    shares = [trial.share(one) for trial, one in zip(trials, measured, strict=True)]
    return [
        mean_and_worst(ratios, 5),
        f"{sum(map(NO_WORSE.reached, ratios))} of {len(ratios)}",
        f"{np.mean([one.seconds for one in measured]):.3g}",
        _fraction(np.mean(shares)),
        f"{np.mean([one.precision for one in measured]):.2%}",
        f"{np.mean([one.recall for one in measured]):.2%}",
    ]


def _fraction(share: float) -> str:
    return f"1/{1 / share:.1f}" if share < 0.995 else f"{share:.2f}"


def targets(trials: list[Trial]) -> str:
    """Set means beside what was asked of them, one row a way to fit."""
    rows = []
    for setting in trials[0].measured:
        pairs = [(trial, trial.measured[setting]) for trial in trials]
        means = (
            (NO_WORSE, np.mean([trial.ratio(one) for trial, one in pairs]), "{:.5f}".format),
            (TIME, np.mean([trial.share(one) for trial, one in pairs]), _fraction),
            (PLANTED, np.mean([one.precision for _, one in pairs]), "{:.2%}".format),
            (PLANTED, np.mean([one.recall for _, one in pairs]), "{:.2%}".format),
        )
        cells = [f"{written(mean)} {target.verdict(mean)}" for target, mean, written in means]
        rows.append([setting.way, str(setting.starts), *cells])
    asked = ("loss ratio: at most 1", "time: at most 1/50", "precision: at least 95%", "recall: at least 95%")
    lost = float(np.mean([trial.same_seeds for trial in trials]))
    same = _TARGETS.format(asked=SAME_SEEDS.asked, lost=lost, verdict=SAME_SEEDS.verdict(lost))
    return same + table(("fit", "starts:", *asked), rows)


def times(trials: list[Trial]) -> str:
    """Write where the time goes."""
    full = 1000 * np.mean([trial.full.seconds for trial in trials])
    rows = [["baseline", str(_FULL_STARTS), "", "", _milliseconds(full, full), _milliseconds(full, full)]]
    for starts in trials[0].stages:
        parts = 1000 * np.mean([trial.stages[starts] for trial in trials], axis=0)
        cells = [_milliseconds(part, full) for part in (*parts, parts.sum())]
        rows.append(["functions", str(starts), *cells])
    head = ("fit", "starts:", "anchor:", "building:", "solving:", "together:")
    return _TIMES + table(head, rows)


def _milliseconds(part: float, full: float) -> str:
    return f"{part:,.0f} ({part / full:.1%})"


def main(arguments: list[str] | None = None) -> str:
    """Run the experiment, print its page and give it back."""
    parser = _parser()
    options = _checked(parser, arguments)
    base = load(parser, options, survey, made_up_survey)
    _check_counts(parser, options, len(base.X))
    seen, counts = machine(), {"z": options.outliers, "k": options.k, "size": options.size}
    run(0, made_up_survey(3000), [1], z=30, k=3, size=500)  # so that imports are not counted
    trials: list[Trial] = []
    for seed in range(options.seeds):
        trials.append(run(seed, base, options.starts, **counts))
        print(_line(seed, trials[-1]), file=sys.stderr)
    parts = [
        _about(base, trials, command=command_of(parser, options), machine=seen, **counts),
        same_seeds(trials, options.size),
        section(trials, **counts),
        targets(trials),
        times(trials),
    ]
    page = "\n".join(parts)
    print(page)
    if options.out:
        options.out.write_text(page)
    return page


def _about(base: Table, trials: list[Trial], z: int, **about: Any) -> str:
    return _ABOUT.format(
        name=base.name,
        rows=len(base.X) + z,
        columns=base.X.shape[1],
        z=z,
        trials=len(trials),
        last=len(trials) - 1,
        **about,
    )


def _line(seed: int, trial: Trial) -> str:
    setting, one = next(iter(trial.measured.items()))
    return (
        f"seed {seed}: everything {trial.full.seconds:.1f} s; from the same seeds {trial.same_seeds:.5f}; by "
        f"{setting.way}, {setting.starts} starts: loss ratio {trial.ratio(one):.5f} in {one.seconds:.2f} s"
    )


def _parser() -> Parser:
    parser = Parser(
        "experiments.survey",
        "Compares k-means on coresets of britain_magnetic_3d with k-means-- on everything, in Markdown.",
    )
    parser.add_argument("--size", type=int, default=5000, help="rows of the coresets (default: 5,000)")
    parser.add_argument("--k", type=int, default=10, help="how many centres (default: 10)")
    parser.add_argument(
        "--starts", type=int, nargs="+", default=[5, 20], help="starts on a coreset (default: 5 20)"
    )
    return parser


def _checked(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.checked(arguments)
    if options.k < 1 or min(options.starts) < 1:
        parser.error(f"--k {options.k} and --starts {min(options.starts)} must be 1 or more")
    if options.size < 20 * options.k:
        parser.error(f"--size {options.size} is too few for --k {options.k}; take {20 * options.k} or more")
    return options


def _check_counts(parser: Parser, options: argparse.Namespace, rows: int) -> None:
    z, size = options.outliers, options.size
    if max(4 * z, size) > rows:
        parser.error(f"{rows} points are fewer than four times --outliers {z}, or than --size {size}")


if __name__ == "__main__":
    main()
