"""Covertype with planted outliers: fits on coresets against the trimmed fit on everything.

A trial splits and contaminates the data anew, fits everything once, and then fits
coresets of each size: by the functions, and by the estimator with one round and
with more. Losses, accuracy and outliers found are always those on all rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import duramen as dm
from experiments.logistic_fits import GAIN, LOSS, PEERS, Fit, Setting, on_coreset, on_everything
from experiments.options import Parser, command_of, load
from experiments.pages import Target
from experiments.paper.data import Contaminated, Table, covertype, made_up_covertype, with_planted_rows
from experiments.paper.fits import timed
from experiments.paper.pages import machine, mean_and_worst, table
from experiments.timing import Stages, stages_of

RATIOS = {1000: Target(1.03), 4000: Target(1.010, 1.003), 8000: Target(1.007)}
SPEED_UP = Target(60, 100, at_most=False)
FOUND = Target(0.8, at_most=False)

_HARM = 5.0  # a planted row does harm where its loss at the informed fit is above this
_INFORMED_L2 = 1.0  # some kinds of soil bear one class only: without a penalty their coefficients drift
_LIKE_PAPER = 4000  # the size of coreset that is set against scikit-learn

_ABOUT = """\
# Covertype: a few thousand rows against all

Logistic regression with {z:,} outliers on {name}: {rows:,} training rows of {columns} standardised columns,
with an intercept (Covertype: class 2 against the rest). Made by

    {command}

on {machine}.

**Data.** In each of {trials} trials (seeds 0 to {last}) {held_out:,} random rows are held out as the test
set, and {z:,} of the others get Gaussian noise of standard deviation 10 on every column, and labels
shuffled among them. The test rows are clean.

**Baseline.** The trimmed fit on everything:

    dm.solve(dm.points(X, y), dm.LogisticLoss(), {z}, random_state=seed)

**Coresets**, by the functions and by the estimator:

    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=size, n_outliers={z}, random_state=seed)
    dm.solve(core, random_state=seed)

    dm.RobustLogisticRegression(
        n_outliers={z}, C=np.inf, coreset_size=size, n_rounds=rounds, random_state=seed
    ).fit(X, y)

Seconds are those from raw arrays to the fitted model, with everything: checking, the anchor, building,
solving, and for the estimator its last look at all rows, which finds the outliers. Each fit is timed once
a seed, after a warm-up on a few rows.

| column | mean over the trials, and in parentheses the worst |
| --- | --- |
| loss ratio | f_z on all training rows, over that of the baseline |
| speed-up | seconds of the baseline over seconds, trial by trial |
| accuracy | on the test rows |
| harm found | of the harmful planted rows, the share in `outliers_`, or among the {z:,} largest losses |

A planted row does harm if its loss is above {harm:g} at the *informed* fit: `dm.solve` with l2 = {l2:g} on
the rows that are not planted. There were {harmful:,.0f} such rows a trial.
"""

_TARGETS = """\
## Against the targets

Judged by the mean over the trials. The paper's own figures, for comparison: a loss ratio of 1.025 at best
with 4,000 rows, and a speed-up of 23 to 46.

"""

_TIMES = """\
## Where the time goes

Milliseconds. The parts were timed one by one, in another run than the whole. What the estimator takes
beyond the functions are scikit-learn's checks of X and y, and the last look at all rows.

"""

_PEERS = """\
## scikit-learn

For seed 0 only: `LogisticRegression(C=np.inf, max_iter=1000)` on everything; and the trimmed fit as one would
write it around that: by turns fit the rows that are kept (`warm_start=True`) and set aside the largest
losses, until f_z gains less than {gain:g} of itself. Loss ratios are over our baseline.

"""


class Measured(NamedTuple):
    """What one fit came to, on all rows."""

    loss: float
    seconds: float
    accuracy: float
    found: float
    size: int


@dataclass(frozen=True, eq=False)
class Trial:
    """The fits of one seed; ``peers`` are scikit-learn's, where they were asked for."""

    n_harmful: int
    full: Measured
    informed: Measured
    measured: dict[Setting, Measured]
    stages: dict[int, Stages]
    peers: dict[str, Measured]

    def ratio(self, one: Measured) -> float:
        """Compare losses on all training rows."""
        return one.loss / self.full.loss

    def speed_up(self, one: Measured) -> float:
        """Compare seconds."""
        return self.full.seconds / one.seconds


class Yardstick:
    """What fits on some data are measured by: all training rows, the harmful ones, the test rows."""

    def __init__(self, data: Contaminated, z: int, seed: int) -> None:
        self.data, self.z = data, z
        self.points = dm.points(data.X, data.y)
        clean = self.points.take(~data.planted)
        informed, seconds = timed(lambda: dm.solve(clean, LOSS, l2=_INFORMED_L2, random_state=seed))
        self.harmful = data.planted & (LOSS.values(informed.theta, data.X, data.y) > _HARM)
        self.informed = self.measure(Fit(informed.theta, len(clean)), seconds)

    def measure(self, fit: Fit, seconds: float) -> Measured:
        """Look at all rows with a fit."""
        data, theta = self.data, fit.theta
        losses = LOSS.values(theta, data.X, data.y)
        aside = np.zeros(len(losses), dtype=bool)
        aside[np.argsort(-losses)[: self.z] if fit.outliers is None else fit.outliers] = True
        positive = data.X_test @ theta[:-1] + theta[-1] > 0
        return Measured(
            loss=dm.trimmed_objective(self.points, theta, loss=LOSS, n_outliers=self.z),
            seconds=seconds,
            accuracy=float((positive == (data.y_test > 0)).mean()),
            found=float(aside[self.harmful].mean()) if self.harmful.any() else 1.0,
            size=fit.size,
        )

    def time(self, fit: Callable[..., Fit], *arguments: Any) -> Measured:
        """Fit, and measure time and result."""
        return self.measure(*timed(lambda: fit(self.data.X, self.data.y, self.z, *arguments)))


def settings_of(sizes: list[int], rounds: list[int]) -> list[Setting]:
    """List the ways to fit, in the order of the table."""
    by_size = [Setting(size, number) for size in sizes for number in (None, *rounds)]
    return [*by_size, Setting("auto", "default")]


def run(
    seed: int, base: Table, settings: list[Setting], *, z: int, held_out: int, peers: bool = False
) -> Trial:
    """Split and contaminate the data, fit them in every way, and measure on all rows."""
    yardstick = Yardstick(with_planted_rows(base, z, held_out, seed), z, seed)
    data = yardstick.data
    sizes = [setting.size for setting in settings if setting.rounds is None]
    return Trial(
        n_harmful=int(yardstick.harmful.sum()),
        full=yardstick.time(on_everything, seed),
        informed=yardstick.informed,
        measured={setting: yardstick.time(on_coreset, seed, setting) for setting in settings},
        stages={size: stages_of(data.X, data.y, LOSS, size, z, seed) for size in sizes},
        peers={name: yardstick.time(fit) for name, fit in PEERS.items()} if peers else {},
    )


def section(trials: list[Trial], settings: list[Setting]) -> str:
    """Write one row a way to fit."""
    rows = [["baseline, on everything", "", *_cells(trials, [trial.full for trial in trials])]]
    for setting in settings:
        size, *others = _cells(trials, [trial.measured[setting] for trial in trials])
        picked = f"{size} (auto)" if setting.size == "auto" else size
        rows.append([setting.way, "" if setting.rounds is None else str(setting.rounds), picked, *others])
    rows.append(["informed, without the planted", "", *_cells(trials, [trial.informed for trial in trials])])
    head = ("fit", "rounds", "rows:", "loss ratio:", "seconds:", "speed-up:", "accuracy:", "harm found:")
    return "## What was seen\n\n" + table(head, rows)


def _cells(trials: list[Trial], measured: list[Measured]) -> list[str]:
    """Write size, loss ratio, seconds, speed-up, accuracy and share of harm found."""
    pairs = list(zip(trials, measured, strict=True))
    sizes = sorted({one.size for one in measured})
    return [
        f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}",
        mean_and_worst(trial.ratio(one) for trial, one in pairs),
        f"{np.mean([one.seconds for one in measured]):.3g}",
        f"{np.mean([trial.speed_up(one) for trial, one in pairs]):.1f}",
        f"{np.mean([one.accuracy for one in measured]):.2%}",
        f"{np.mean([one.found for one in measured]):.1%} ({min(one.found for one in measured):.1%})",
    ]


class Criterion(NamedTuple):
    """A target for coresets of one size, and how to see and write what it is about."""

    name: str
    target: Target
    size: int
    figure: Callable[[Trial, Measured], float]
    written: str

    def judge(self, trials: list[Trial], rounds: int | None) -> str:
        """Write the mean of the figure, and the verdict."""
        setting = Setting(self.size, rounds)
        mean = float(np.mean([self.figure(trial, trial.measured[setting]) for trial in trials]))
        return f"{mean:{self.written}} {self.target.verdict(mean)}"

    def row(self, trials: list[Trial], ways: list[int | None]) -> list[str]:
        """Write the row of a table: what was asked, and what each way to fit came to."""
        bound = "at most" if self.target.at_most else "at least"
        aim = "" if self.target.aim is None else f"{self.target.aim:{self.written}}"
        asked = f"{bound} {self.target.asked:{self.written}}"
        return [f"{self.name}, {self.size:,} rows", asked, aim, *(self.judge(trials, way) for way in ways)]


def criteria(sizes: list[int]) -> list[Criterion]:
    """List what is asked of coresets of these sizes."""
    return [
        *(
            Criterion("loss ratio", RATIOS[size], size, Trial.ratio, ".4f")
            for size in sizes
            if size in RATIOS
        ),
        *(Criterion("speed-up", SPEED_UP, size, Trial.speed_up, ".1f") for size in sizes),
        *(Criterion("harm found", FOUND, size, lambda _, one: one.found, ".1%") for size in sizes),
    ]


def targets(trials: list[Trial], sizes: list[int], rounds: list[int]) -> str:
    """Set means beside what was asked of them, one column a way to fit."""
    ways = [None, *rounds]
    names = ["functions", *(f"estimator, {number} round{'s' * (number > 1)}" for number in rounds)]
    rows = [criterion.row(trials, ways) for criterion in criteria(sizes)]
    return _TARGETS + table(["", "asked", "aim", *names], rows)


def times(trials: list[Trial]) -> str:
    """Write where the time goes."""
    rows = []
    for size in trials[0].stages:
        parts = 1000 * np.mean([trial.stages[size] for trial in trials], axis=0)
        whole = 1000 * np.mean([trial.measured[Setting(size)].seconds for trial in trials])
        once = [
            trial.measured[Setting(size, 1)].seconds for trial in trials if Setting(size, 1) in trial.measured
        ]
        beyond = f"{1000 * np.mean(once) - whole:.0f}" if once else ""
        rows.append([f"{size:,}", *(f"{part:.0f}" for part in parts), f"{whole:.0f}", beyond])
    head = ("rows:", "anchor:", "building:", "solving:", "functions, whole:", "estimator, 1 round, beyond:")
    return _TIMES + table(head, rows)


def peers(trial: Trial) -> str:
    """Write what scikit-learn does on everything, and how much faster a coreset is."""
    size = min(trial.stages, key=lambda size: abs(size - _LIKE_PAPER))
    ours = trial.measured[Setting(size)].seconds
    rows = []
    for name, one in trial.peers.items():
        ratio, faster = f"{trial.ratio(one):.4f}", f"{one.seconds / ours:.1f}"
        rows.append([name, ratio, f"{one.seconds:.3g}", f"{one.accuracy:.2%}", f"{one.found:.1%}", faster])
    last = f"speed-up of {size:,} rows (functions) against it:"
    head = ("fit", "loss ratio:", "seconds:", "accuracy:", "harm found:", last)
    return _PEERS.format(gain=GAIN) + table(head, rows)


def main(arguments: list[str] | None = None) -> str:
    """Run the experiment, print its page and give it back."""
    parser = _parser()
    options = _checked(parser, arguments)
    base = load(parser, options, covertype, made_up_covertype)
    _check_counts(parser, options, len(base.X))
    settings, seen = settings_of(options.sizes, options.rounds), machine()
    _warm_up(settings)
    counts = {"z": options.outliers, "held_out": options.test_rows}
    trials: list[Trial] = []
    for seed in range(options.seeds):
        trials.append(run(seed, base, settings, **counts, peers=options.peers and seed == 0))
        print(_line(seed, trials[-1]), file=sys.stderr)
    parts = [
        _about(base, trials, command=command_of(parser, options), machine=seen, **counts),
        section(trials, settings),
        targets(trials, options.sizes, options.rounds),
        times(trials),
        *([peers(trials[0])] if options.peers else []),
    ]
    page = "\n".join(parts)
    print(page)
    if options.out:
        options.out.write_text(page)
    return page


def _about(base: Table, trials: list[Trial], held_out: int, **about: Any) -> str:
    return _ABOUT.format(
        name=base.name,
        rows=len(base.X) - held_out,
        columns=base.X.shape[1],
        held_out=held_out,
        trials=len(trials),
        last=len(trials) - 1,
        harm=_HARM,
        l2=_INFORMED_L2,
        harmful=np.mean([trial.n_harmful for trial in trials]),
        **about,
    )


def _warm_up(settings: list[Setting]) -> None:
    """Fit a little in every way, so that imports are not counted."""
    data = with_planted_rows(made_up_covertype(6000), 60, 100, 0)
    on_everything(data.X, data.y, 60, 0)
    for rounds in dict.fromkeys(setting.rounds for setting in settings):
        on_coreset(data.X, data.y, 60, 0, Setting(1000, rounds))


def _line(seed: int, trial: Trial) -> str:
    setting, one = next(iter(trial.measured.items()))
    return (
        f"seed {seed}: everything {trial.full.seconds:.1f} s; {setting.size:,} rows, by {setting.way}: "
        f"loss ratio {trial.ratio(one):.4f}, {trial.speed_up(one):.0f} times as fast"
    )


def _parser() -> Parser:
    parser = Parser(
        "experiments.covertype",
        "Compares fits on coresets of Covertype with fits on everything, in Markdown.",
    )
    many = {"type": int, "nargs": "+"}
    parser.add_argument(
        "--sizes", default=[1000, 4000, 8000], help="rows of the coresets (default: 1000 4000 8000)", **many
    )
    parser.add_argument("--rounds", default=[1, 2], help="rounds of the estimator (default: 1 2)", **many)
    parser.add_argument("--test-rows", type=int, default=10_000, help="clean rows held out (default: 10,000)")
    parser.add_argument(
        "--peers", action="store_true", help="also fit with scikit-learn, for seed 0: minutes"
    )
    return parser


def _checked(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.checked(arguments)
    if min(options.sizes) < 200:
        parser.error(f"--sizes {min(options.sizes)} is too few rows for 55 parameters; take 200 or more")
    if min(options.rounds) < 1 or options.test_rows < 1:
        parser.error(f"--rounds {min(options.rounds)} and --test-rows {options.test_rows} must be 1 or more")
    return options


def _check_counts(parser: Parser, options: argparse.Namespace, rows: int) -> None:
    z, size = options.outliers, max(options.sizes)
    if max(4 * z, size) > rows - options.test_rows:
        parser.error(
            f"{rows} rows less --test-rows {options.test_rows} are fewer than four times --outliers {z}, "
            f"or than --sizes {size}"
        )


if __name__ == "__main__":
    main()
