"""Beyond the paper: plain and robust coresets under three attacks, as contamination grows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import duramen as dm
from duramen.arrays import Array
from duramen.trimming import kept_weights
from experiments.paper import fits
from experiments.paper.data import Contaminated, Planting, Table, noisy_rows, split
from experiments.paper.experiment import Experiment, Plots, Records, Results, Step
from experiments.paper.fits import LOGISTIC, Fit, Yardstick, timed
from experiments.paper.pages import COLOURS, STYLES, band, legend_below, loss_axis, share_axis, table

_FAR, _TIGHT = 30.0, 0.1  # how far the cluster lies, and its own spread, in standard deviations
_LOOKED_AT = 20_000  # rows that the adversary fits: enough to know where a model is sure
_L2 = 1.0  # some kinds of soil bear one class only: without a penalty their coefficients drift


class Attack(NamedTuple):
    """An adversary: which rows it takes, what it does to them, and both in words."""

    name: str
    title: str
    about: str
    choose: Callable[[Array, int, np.random.Generator], Array]
    plant: Planting


def contaminated(table: Table, attack: Attack | None, share: float, held_out: int, seed: int) -> Contaminated:
    """Hold random rows out, and let an adversary, if there is one, plant a share of the others."""
    rng = np.random.default_rng(seed)
    data = split(table, held_out, rng)
    if attack is not None:
        data.planted[attack.choose(data.X, round(share * len(data.X)), rng)] = True
        attack.plant(data.X, data.y, data.planted, rng)
    return data


def random_rows(X: Array, count: int, rng: np.random.Generator) -> Array:
    """Choose rows at random."""
    return rng.choice(len(X), count, replace=False)


def rows_of_most_leverage(X: Array, count: int, rng: np.random.Generator) -> Array:
    """Choose the rows that are longest in the frame in which the spread is the same in all directions."""
    frame = np.linalg.pinv(_covariance(X), rcond=1e-9, hermitian=True)
    centred = X - X.mean(axis=0)
    leverage = np.einsum("ij,ij->i", centred @ frame, centred)
    return np.argsort(-leverage, kind="stable")[:count]


def flipped_labels(X: Array, y: Array, chosen: Array, rng: np.random.Generator) -> None:
    """Give the chosen rows the other label."""
    y[chosen] = -y[chosen]


def far_cluster(X: Array, y: Array, chosen: Array, rng: np.random.Generator) -> None:
    """Move the chosen rows to one place where the clean model is sure, with the label it speaks against.

    Columns of two values at most stay as they are: a row between them gives itself away.
    """
    seen = X[:_LOOKED_AT], y[:_LOOKED_AT]
    theta = dm.solve(dm.points(*seen), dm.LogisticLoss(), l2=_L2).theta
    least, most = X.min(axis=0), X.max(axis=0)
    wide = np.flatnonzero(((least < X) & (most > X)).any(axis=0))
    towards = _sure_direction(_covariance(X), theta[:-1], wide)
    rows = np.flatnonzero(chosen)
    X[np.ix_(rows, wide)] = _FAR * towards + _TIGHT * X[np.ix_(rows, wide)]
    y[rows] = -1


def _sure_direction(covariance: Array, coefficients: Array, wide: Array) -> Array:
    """Find the direction in the wide columns that a model can least afford to ignore.

    Ignoring the direction u loses ``u.theta``; other columns can make up for the least of it along
    ``S theta``, S the covariance of the wide columns given the others.
    """
    others = np.setdiff1d(np.arange(len(coefficients)), wide)
    across = covariance[np.ix_(wide, others)]
    known = across @ np.linalg.pinv(covariance[np.ix_(others, others)], rcond=1e-9, hermitian=True) @ across.T
    towards = (covariance[np.ix_(wide, wide)] - known) @ coefficients[wide]
    return towards / np.linalg.norm(towards)


def _covariance(X: Array) -> Array:
    centred = X - X.mean(axis=0)
    return centred.T @ centred / len(X)


ATTACKS = (
    Attack(
        "noise",
        "random noise",
        "Random rows get Gaussian noise of standard deviation 10 on every column, and their labels are "
        "shuffled among them: the contamination of [Table 1](table1.md).",
        random_rows,
        noisy_rows,
    ),
    Attack(
        "flips",
        "flips at leverage points",
        "The rows of the largest leverage get the label opposite to their own, and are not moved. Leverage "
        "is x' S^+ x, where x is a training row less the mean, S the covariance of all training rows before "
        "the attack, and S^+ its pseudo-inverse.",
        rows_of_most_leverage,
        flipped_labels,
    ),
    Attack(
        "cluster",
        "a tight far cluster",
        f"Random rows are moved to one place {_FAR:g} standard deviations out, where the clean model is sure "
        f"of the label +1, and get the label -1. They keep {_TIGHT:g} of their own spread. The direction is "
        "S theta, with theta the coefficients of a model of clean rows and S the covariance of the columns "
        "that are moved, given the others: of all directions the one in which being wrong costs a model "
        "most. Columns of at most two values (Covertype's soil types and wilderness areas) stay as they are: "
        "planted rows look like real ones.",
        random_rows,
        far_cluster,
    ),
)
"""The adversaries, in the order of the page."""


TRIMMED, ROBUST = "everything, trimmed", "robust, calibrated"
LINES = ("everything, blind", TRIMMED, "plain", "plain, calibrated", ROBUST, "robust, z = 5%")
"""The ways to fit that are drawn."""

PAIRS = {"As drawn": ("plain", "robust"), "Calibrated": ("plain, calibrated", ROBUST)}
"""Plain and robust coresets that differ in nothing else."""

TOLERANCE = 0.02
"""A fit holds while it loses no more than this."""


class Measure(NamedTuple):
    """A figure of a fit: how much worse it is than what it is measured by, as a share; 0 is as good."""

    name: str
    title: str
    beside: str
    lost: Callable[[Records, Records], float]


MEASURES = (
    Measure(
        "accuracy",
        "Accuracy on clean test rows",
        "points of accuracy lost against the informed fit",
        lambda fit, record: record["informed"]["accuracy"] - fit["accuracy"],
    ),
    Measure(
        "loss",
        "Loss on clean training rows",
        "% above the informed fit's",
        lambda fit, record: fit["clean"] / record["informed"]["clean"] - 1,
    ),
    Measure(
        "objective",
        "The trimmed objective on all training rows",
        "% above the best trimmed fit's",
        lambda fit, record: fit["loss"] / record["least"] - 1,
    ),
)
"""Accuracy, the loss on clean rows, and f_z."""


class Sheet:
    """What every fit came to, by attack and share; without contamination all attacks are the same."""

    def __init__(self, records: Records, shares: tuple[float, ...], trials: int) -> None:
        self.records, self.shares, self.trials = records, tuple(sorted(shares)), trials

    @property
    def ways(self) -> list[str]:
        """The names of the ways to fit, in their order."""
        return list(next(iter(self.records.values()))["fits"])

    def each(self, attack: str, figure: Callable[[Records], float]) -> Array:
        """Collect a figure of the records of an attack: one row per trial, one column per share."""
        return np.array(
            [[figure(self._record(attack, share, seed)) for share in self.shares] for seed in self._seeds]
        )

    def lost(self, measure: Measure, way: str, attack: str) -> Array:
        """Collect how much a way to fit loses: one row per trial, one column per share."""
        return self.each(attack, lambda record: measure.lost(record["fits"][way], record))

    def found(self, way: str, attack: str) -> Array:
        """Collect which part of the planted rows is set aside: one column per share above 0."""
        planted = [place for place, share in enumerate(self.shares) if share > 0]
        return self.each(attack, lambda record: record["fits"][way].get("found", np.nan))[:, planted]

    def reach(self, measure: Measure, way: str, attack: str) -> float | None:
        """Find the largest share up to which a way to fit holds in every trial; None if it never does."""
        worst = self.lost(measure, way, attack).max(axis=0)
        held = int(np.argmax(np.append(worst > TOLERANCE, True)))
        return self.shares[held - 1] if held else None

    def seconds(self, way: str) -> list[float]:
        """Collect how long a way to fit took, over all steps."""
        return [one["fits"][way]["building"] + one["fits"][way]["solving"] for one in self.records.values()]

    @property
    def _seeds(self) -> range:
        return range(self.trials)

    def _record(self, attack: str, share: float, seed: int) -> Records:
        found: Records = self.records[f"{attack if share > 0 else 'none'} {share:g} {seed}"]
        return found


_ABOUT = """\
# Plain against robust as contamination grows

Logistic regression on {name}, with an adversary in it: {rows:,} training rows of {columns} standardised
columns, of which a growing share is planted. Made by

    {command}

on {where}.

Trials: {trials}, with seeds from 0. In each {held_out:,} random rows are held out as the test set. The
adversary sees the other rows and plants its share of them. Test rows are clean.

## The attacks

{attacks}

## The fits

The *informed* fit is the ideal: `dm.solve` without the planted rows, with l2 = {l2:g}. No other fit knows
which rows are planted, and none has a penalty. Unless stated otherwise, z is the true number of planted rows,
and 0 without contamination.

| fit | rows | what it is |
| --- | --- | --- |
| everything, blind | all | scikit-learn's `LogisticRegression(C=np.inf)`, which trusts every row |
| everything, trimmed | all | `dm.solve(dm.points(X, y), loss, z)` |
| plain, blind | {size:,} | leverage sampler, `suspects=0`, weights as drawn, z = 0 throughout |
| plain | {size:,} | the same with z in solving: no hybrid, but a trimmed fit |
| robust | {size:,} | the same with the hybrid |
| plain, uniform; robust, uniform | {size:,} | these two with the uniform sampler |
| plain, calibrated | {size:,} | plain with calibrated weights |
| robust, calibrated | {size:,} | with the hybrid too: as `dm.robust_coreset` does by default |
| robust, z = {guess:.0%} | {size:,} | the default with z = {guess:.0%}, whatever the truth |

Trimmed fits on coresets are solved from {starts} starts, `dm.solve(core, n_starts={starts})`.

## What is measured

- *Accuracy* on the test rows, compared with the informed fit's.
- The mean *loss on the clean training rows*, compared with the informed fit's.
- The *trimmed objective* f_z on all training rows, with the true z, compared with the best trimmed fit's: the
  better of the trimmed fit on everything and the one that starts from the informed fit. It is what a
  coreset promises to preserve. Fits that do not trim, or use another z, do not minimise it.

A fit *holds* up to a share if at that share and at all smaller ones it loses at most {tolerance:.0%} in every
trial (points of accuracy, percent of the loss).
"""

_PICTURES = """\
## Pictures

Six of the fits: means over the trials, and bands from the least to the most.

![Accuracy on clean test rows against the share of planted rows](attacks-accuracy.svg)

![Loss on clean training rows against the share of planted rows](attacks-loss.svg)

![The trimmed objective against the share of planted rows](attacks-objective.svg)

The last two axes are linear up to 1%, then logarithmic.
"""

_READING = """\
## Why

Setting z rows aside takes the rows that a fit explains worst, planted or not. That has three consequences.

- Where planted rows are not among the worst, good rows go in their place. Classes that overlap then look
  cleaner than they are, and a trimmed fit is overconfident: its loss on clean rows rises although its
  decisions may be right. Accuracy reflects the decisions, the loss also their confidence. About half of the
  rows of random noise have the label that a model gives them, so z is twice too large there. A z that is
  too large costs the same without any contamination.
- The trimmed objective itself may prefer to believe the adversary, if that costs less than z good rows do.
  No coreset can fix that, nor can the fit on everything. Where the flipped rows are all the rows of their
  kind, nothing in the data shows that they are flipped.
- It has many minima. How far a fit is above the best objective shows what the coreset, or where the search
  on it began, has lost.
"""


def page(sheet: Sheet, facts: Records) -> str:
    """Write the Markdown page."""
    listed = "\n".join(
        f"{place}. *{one.title.capitalize()}.* {one.about}" for place, one in enumerate(ATTACKS, 1)
    )
    parts = [_ABOUT.format(attacks=listed, tolerance=TOLERANCE, **facts), _PICTURES]
    parts += [_section(sheet, attack) for attack in ATTACKS]
    return "\n".join([*parts, _READING, _times(sheet)])


def summary(sheet: Sheet, heading: str) -> str:
    """Write what is printed at the end: accuracy lost, and how far fits hold."""
    accuracy = MEASURES[0]
    parts = [f"{heading}; {accuracy.beside}, mean (worst), by the share of planted rows\n"]
    for attack in ATTACKS:
        parts.append(f"{attack.title}:\n\n{_table(sheet, accuracy, attack, list(LINES))}")
        parts.append(_compared(sheet, attack))
    return "\n".join(parts)


def _section(sheet: Sheet, attack: Attack) -> str:
    """Write what was seen of an attack."""
    lines = [f"## Seen: {attack.title}\n", f"{attack.title.capitalize()}: how far each fit holds.\n"]
    lines += [_reaches(sheet, attack), _compared(sheet, attack), f"{_set_aside(sheet, attack)}\n"]
    for measure in MEASURES:
        lines.append(f"{measure.title}: {measure.beside}, mean (worst), by the share of planted rows.\n")
        lines.append(_table(sheet, measure, attack, sheet.ways))
    return "\n".join(lines)


def _reaches(sheet: Sheet, attack: Attack) -> str:
    """Write how far every fit holds, by every measure."""
    rows = [
        [way, *(_reached(sheet, sheet.reach(measure, way, attack.name)) for measure in MEASURES)]
        for way in sheet.ways
    ]
    return table(["fit", *(measure.name for measure in MEASURES)], rows)


def _compared(sheet: Sheet, attack: Attack) -> str:
    """Report which of plain and robust holds further; it may be neither."""
    return "".join(
        f"- {named}, {measure.name}: {_further(sheet, measure, attack, *pair)}\n"
        for named, pair in PAIRS.items()
        for measure in MEASURES
    )


def _further(sheet: Sheet, measure: Measure, attack: Attack, plain: str, robust: str) -> str:
    reached = [sheet.reach(measure, way, attack.name) for way in (plain, robust)]
    low, high = (-1.0 if share is None else share for share in reached)
    a, b = (_reached(sheet, share) for share in reached)
    if low == high:
        return f"plain and robust hold equally far, {a}."
    return (
        f"robust holds further, {b}; plain {a}." if high > low else f"plain holds further, {a}; robust {b}."
    )


def _set_aside(sheet: Sheet, attack: Attack) -> str:
    """Report which part of the planted rows z takes, on everything and on the robust coreset."""
    shares = [share for share in sheet.shares if share > 0]
    said = []
    for way in (TRIMMED, ROBUST):
        parts = sheet.found(way, attack.name).mean(axis=0)
        said.append(f"{way}: " + ", ".join(f"{a:.0%} at {b:.3g}%" for a, b in _pairs(parts, shares)))
    return f"Planted rows among the z largest losses on all rows. {'; '.join(said).capitalize()}."


def _pairs(parts: Array, shares: list[float]) -> list[tuple[float, float]]:
    return [(float(part), 100 * share) for part, share in zip(parts, shares, strict=True)]


def _reached(sheet: Sheet, share: float | None) -> str:
    if share is None:
        return "nowhere"
    if share == 0:
        return "without contamination only"
    return f"up to {100 * share:.3g}%" + (" (all)" if share == sheet.shares[-1] else "")


def _table(sheet: Sheet, measure: Measure, attack: Attack, ways: list[str]) -> str:
    rows = []
    for way in ways:
        lost = 100 * sheet.lost(measure, way, attack.name)
        cells = zip(lost.mean(axis=0), lost.max(axis=0), strict=True)
        rows.append([way, *(f"{_written(mean)} ({_written(worst)})" for mean, worst in cells)])
    return table(["fit", *(f"{100 * share:.3g}%:" for share in sheet.shares)], rows)


def _written(percent: float) -> str:
    """Write a figure as exactly as its size deserves.

    Examples
    --------
    >>> _written(0.123), _written(12.345), _written(12345.6), _written(-0.001)
    ('0.12', '12.3', '12,346', '0.00')
    """
    digits = 2 if abs(percent) < 10 else 1 if abs(percent) < 100 else 0
    return f"{round(percent, digits) + 0.0:,.{digits}f}"


def _times(sheet: Sheet) -> str:
    rows = []
    for way in sheet.ways:
        seconds = sheet.seconds(way)
        rows.append([way, f"{np.mean(seconds):.2f}", f"{max(seconds):.2f}"])
    return "## Seconds\n\nFrom arrays in memory to the fit, over all attacks, shares and trials.\n\n" + table(
        ["fit", "mean:", "most:"], rows
    )


def plots(sheet: Sheet) -> Plots:
    """Name the pictures, and how to draw each."""
    _, loss, objective = MEASURES
    return {
        "attacks-accuracy": partial(_draw_accuracy, sheet),
        "attacks-loss": partial(_draw_lost, sheet, loss, "loss on clean rows,\nabove the informed fit's"),
        "attacks-objective": partial(
            _draw_lost, sheet, objective, "trimmed objective,\nabove the best trimmed fit's"
        ),
    }


def _draw_accuracy(sheet: Sheet, figure: Any) -> None:
    """Draw accuracies, and that of a fit without the planted rows; each panel has its own axis."""
    panels = figure.subplots(1, len(ATTACKS))
    for axes, attack in zip(panels, ATTACKS, strict=True):
        ideal = sheet.each(attack.name, lambda record: record["informed"]["accuracy"]).mean(axis=0)
        axes.plot(sheet.shares, ideal, color="0.6", linewidth=3, label="informed, without the planted rows")
        share_axis(axes.yaxis)
    _draw(sheet, partial(_accuracy, sheet), panels, figure)
    panels[0].set_ylabel("accuracy on clean test rows")


def _draw_lost(sheet: Sheet, measure: Measure, label: str, figure: Any) -> None:
    """Draw what is lost, all panels with the same axis."""
    panels = figure.subplots(1, len(ATTACKS), sharey=True)
    _draw(sheet, partial(sheet.lost, measure), panels, figure)
    loss_axis(panels[0], linear=0.01, label=label)


def _accuracy(sheet: Sheet, way: str, attack: str) -> Array:
    return sheet.each(attack, lambda record: record["fits"][way]["accuracy"])


def _draw(sheet: Sheet, figures: Callable[[str, str], Array], panels: Any, figure: Any) -> None:
    """Draw one panel per attack, one line per way to fit."""
    figure.set_size_inches(10, 4.4)
    for axes, attack in zip(panels, ATTACKS, strict=True):
        for way, colour, style in zip(LINES, COLOURS, STYLES, strict=False):
            band(axes, sheet.shares, figures(way, attack.name), way, colour, style)
        axes.set_title(attack.title)
        share_axis(axes.xaxis)
        axes.set_xlabel("planted rows")
        axes.grid(axis="y", alpha=0.3)
    legend_below(figure, panels, columns=4)


_GUESS = 0.05  # the share of outliers assumed by a user who does not know it
_STARTS = 2  # of the trimmed fits on coresets, where another costs little
_INFORMED_L2 = 1.0  # some kinds of soil bear one class only: without a penalty their coefficients drift


@dataclass(frozen=True)
class Attacks(Experiment):
    """What fits come to under each attack, by the share of planted rows."""

    table: Table
    held_out: int
    trials: int = 5
    shares: tuple[float, ...] = (0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
    size: int = 4000
    name: ClassVar[str] = "attacks"

    @property
    def settings(self) -> Records:
        counts = {"held_out": self.held_out, "rows": len(self.table.X), "size": self.size}
        return {"data": self.table.name, **counts}

    def steps(self) -> Iterator[Step]:
        for seed in range(self.trials):
            for attack in ATTACKS:
                for share in self.shares:
                    if share > 0:
                        name = f"{attack.name} {share:g} {seed}"
                        yield Step(name, partial(self._step, attack, share, seed))
            if 0 in self.shares:
                yield Step(f"none 0 {seed}", partial(self._step, None, 0.0, seed))

    def _step(self, attack: Attack | None, share: float, seed: int) -> Records:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what is left can be fitted perfectly
            return _found(contaminated(self.table, attack, share, self.held_out, seed), self.size, seed)

    def page(self, results: Results, command: str) -> str:
        facts = {
            "name": self.table.name,
            "rows": len(self.table.X) - self.held_out,
            "columns": self.table.X.shape[1],
            "held_out": self.held_out,
            "trials": self.trials,
            "size": self.size,
            "guess": _GUESS,
            "starts": _STARTS,
            "l2": _INFORMED_L2,
            "command": command,
            "where": results.where(),
        }
        return page(self._sheet(results), facts)

    def summary(self, results: Results) -> str:
        trials = f"{self.trials} trial{'s' * (self.trials > 1)}"
        heading = f"{self.table.name} under attack, coresets of {self.size:,} rows, {trials}"
        return summary(self._sheet(results), heading)

    def plots(self, results: Results) -> Plots:
        return plots(self._sheet(results))

    def _sheet(self, results: Results) -> Sheet:
        return Sheet(results.records, self.shares, self.trials)


def _found(data: Contaminated, size: int, seed: int) -> Records:
    """Fit contaminated rows in every way, and measure each fit; also the one that knows what is planted."""
    z = int(data.planted.sum())
    yardstick, points = Yardstick(data, z), dm.points(data.X, data.y)
    clean = dm.points(data.X, data.y, weights=1.0 - data.planted)
    informed, seconds = timed(lambda: dm.solve(clean, LOGISTIC, 0, l2=_INFORMED_L2).theta)
    record: Records = {"informed": _measured(yardstick, Fit(informed, len(data.X) - z, 0.0, seconds))}
    record["fits"] = {name: _measured(yardstick, fit) for name, fit in _fits(data, z, size, seed)}
    again = dm.solve(points, LOGISTIC, z, init=informed, random_state=seed).theta if z else informed
    record["least"] = min(yardstick.loss(again), record["fits"]["everything, trimmed"]["loss"])
    return record


def _fits(data: Contaminated, z: int, size: int, seed: int) -> Iterator[tuple[str, Fit]]:
    """Fit in every way, under the names that the page has for them."""
    coreset = partial(_on_coreset, data, size, seed)
    yield "everything, blind", _blind(data)
    yield "everything, trimmed", fits.on_everything(data.X, data.y, LOGISTIC, z, seed, fits.solved)
    yield "plain, blind", coreset(0, suspects=0, calibrate=False)
    yield "plain", coreset(z, suspects=0, calibrate=False)
    yield "robust", coreset(z, calibrate=False)
    yield "plain, uniform", coreset(z, sampler="uniform", suspects=0, calibrate=False)
    yield "robust, uniform", coreset(z, sampler="uniform", calibrate=False)
    yield "plain, calibrated", coreset(z, suspects=0)
    yield "robust, calibrated", coreset(z)
    yield f"robust, z = {_GUESS:.0%}", coreset(_GUESS)


def _blind(data: Contaminated) -> Fit:
    """Fit everything with scikit-learn, outliers or not."""
    model = LogisticRegression(C=np.inf, max_iter=1000)
    _, seconds = timed(lambda: model.fit(data.X, data.y))
    return Fit(np.append(model.coef_[0], model.intercept_), len(data.X), 0.0, seconds)


def _on_coreset(data: Contaminated, size: int, seed: int, z: float, **building: Any) -> Fit:
    """Build a coreset for so many outliers, and solve on it from several starts."""
    starts = _STARTS if z else 1  # without outliers there is one minimum
    building = {"sampler": "leverage", "size": size, **building}
    return fits.on_coreset(data.X, data.y, LOGISTIC, z, seed, n_starts=starts, **building)


def _measured(yardstick: Yardstick, fit: Fit) -> dict[str, float]:
    """Report what a fit came to: f_z, the loss of clean rows, accuracy, and which planted rows z takes."""
    planted, z = yardstick.data.planted, yardstick.z
    losses: Array = LOGISTIC.values(fit.theta, yardstick.data.X, yardstick.data.y)
    kept = kept_weights(losses, np.ones(len(losses)), z)
    found = {"found": float((kept[planted] == 0).mean())} if z else {}
    return {
        "loss": float(losses @ kept),
        "clean": float(losses[~planted].mean()),
        "accuracy": yardstick.accuracy(fit.theta),
        "rows": fit.rows,
        "building": fit.building,
        "solving": fit.solving,
        **found,
    }
