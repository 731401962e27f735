"""The words about the attacks: what was done, tables, and sentences that the figures decide."""

from __future__ import annotations

import numpy as np

from duramen.arrays import Array
from experiments.paper.adversary import ATTACKS, Attack
from experiments.paper.attack_sheet import LINES, MEASURES, PAIRS, ROBUST, TOLERANCE, TRIMMED, Measure, Sheet
from experiments.paper.experiment import Records
from experiments.paper.pages import table

__all__ = ["page", "summary"]

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

The *informed* fit is what all others would like to be: `dm.solve` without the planted rows, with
l2 = {l2:g}. No other fit knows which rows are planted, and none has a penalty. Where z is not said, it is the
true number of planted rows, and 0 without contamination.

| fit | rows | what it is |
| --- | --- | --- |
| everything, blind | all | scikit-learn's `LogisticRegression(C=np.inf)`: every row is a good one |
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

- *Accuracy* on the test rows, beside the informed fit's.
- The mean *loss on the clean training rows*, beside the informed fit's.
- The *trimmed objective* f_z on all training rows, with the true z, beside the best trimmed fit's: the
  better of the trimmed fit on everything and of the one that starts from the informed fit. It is what a
  coreset promises to keep. Fits that do not trim, or by another z, do not aim at it.

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
  cleaner than they are, and a trimmed fit is too sure of itself: its loss on clean rows rises though its
  decisions may be right. Accuracy shows the decisions, the loss also how sure they are. About half of the
  rows of random noise have the label that a model gives them, so that z is twice too large there. A z that is
  too large costs the same without any contamination.
- The trimmed objective itself may prefer to believe the adversary: if that costs less than z good rows do.
  No coreset can mend that, nor the fit on everything. Where the flipped rows are all the rows of their
  kind, nothing in the data says that they are flipped.
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
    """Say which of plain and robust holds further; it may be neither."""
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
    """Say which part of the planted rows z takes, on everything and on the robust coreset."""
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
