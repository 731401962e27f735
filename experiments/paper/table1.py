"""The paper's Table 1: logistic regression on Covertype, on coresets and on everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from experiments.paper import fits
from experiments.paper.data import Contaminated, Table, with_planted_rows
from experiments.paper.experiment import InTrials, Records, Results
from experiments.paper.fits import LOGISTIC, Fit, Yardstick
from experiments.paper.pages import SAMPLERS, TABLE1, TITLE, counted
from experiments.paper.side_by_side import Sheet, as_reported, at_sizes

__all__ = ["Table1"]

_SIZES = (250, 500, 1000, 2000, 4000, 8000)  # for what is not in the paper
_PAPERS = (4000, 8000)
_COVERTYPE = "Covertype"
_BEST_AT = 1000  # what our best with so many rows is compared with the paper's best at 4,000

_ABOUT = """\
# Table 1: logistic regression on {name}

Table 1 of {paper}:
{rows:,} training rows of {columns} standardised columns, {z:,} of them outliers; with an intercept, without
a penalty. {stands}Made by

    {command}

on {where}.

**Data.** In each of {trials} (seeds from 0) {held_out:,} random rows are held out as the test set; of
the others {z:,} get Gaussian noise on every column and labels shuffled among them. The paper does not say how
much noise: here its standard deviation is 10, and a column's own is 1. The test rows are clean.

**Without a coreset**, as in the paper: alternately set the {z:,} largest losses aside and refit the others
with scikit-learn (`LogisticRegression(C=np.inf, warm_start=True)`), until the objective gains less than
{gain:g} of itself. It took {full:.1f} s and classified {accuracy:.2%} of the test rows correctly (means over
the trials). `dm.solve` on everything took {ours:.1f} s.

**Its methods here**: `dm.robust_coreset(..., sampler=..., calibrate=False)`, weights as drawn, solved by that
same alternation. GSP is the layered sampler, QR the leverage sampler. **At our best**: the same sampler, with
calibrated weights and `dm.solve`.

**Loss ratio**: f_z on all training rows, over that of the fit without a coreset; the mean over the trials,
and in parentheses the worst. **Speed-up**: seconds without a coreset over seconds with one, trial by trial,
and the mean of that. Both count everything from the arrays in memory to the fitted model: checking them,
finding the anchor, building the coreset, solving. Not counted: reading the files, standardising, planting
outliers, evaluating. Each fit is timed once per trial, after a warm-up. The paper does not say what its
speed-ups count. MISSED: the mean is worse than the paper's.
"""

_STAND_IN = """\
These are not the paper's data: its figures are for Covertype. """

_BEYOND = """\
## Beyond the paper

Coresets without the hybrid framework (no `+`), which the paper has in Figure 3 only; our default
(`sampler="auto"`, which is sensitivity below 50 rows per parameter and leverage from there on; calibrated,
`dm.solve`) from 250 rows on; the estimator with two rounds, which builds a
second coreset around the solution on the first; and the ranked engine, a `dm.DynamicCoreset` that all rows
were inserted into: with that insertion counted, and then for one more row: insert it, take the coreset,
solve. The last column is the speed-up over `dm.solve` on everything.

"""


@dataclass(frozen=True)
class Table1(InTrials):
    """Table 1, on a table and with so many outliers and test rows."""

    table: Table
    z: int
    held_out: int
    trials: int = 5
    name: ClassVar[str] = "table1"

    @property
    def settings(self) -> Records:
        counts = {"z": self.z, "held_out": self.held_out, "rows": len(self.table.X)}
        return {"data": self.table.name, **counts, "sizes": list(_SIZES)}

    def _trial(self, seed: int) -> Records:
        data = with_planted_rows(self.table, self.z, self.held_out, seed)
        yardstick = Yardstick(data, self.z)
        _warm_up(data)
        full = fits.on_everything(data.X, data.y, LOGISTIC, self.z, seed, fits.alternation)
        ours = fits.on_everything(data.X, data.y, LOGISTIC, self.z, seed, fits.solved)
        found = {name: yardstick.measure(fit) for name, fit in self._fits(data, seed)}
        return {"full": yardstick.measure(full), "ours": yardstick.measure(ours), "fits": found}

    def _fits(self, data: Contaminated, seed: int) -> Iterator[tuple[str, Fit]]:
        fit = partial(fits.on_coreset, data.X, data.y, LOGISTIC, self.z, seed)
        for method, sampler in SAMPLERS.items():
            for size in _PAPERS:
                drawn = partial(fit, fits.alternation, sampler=sampler, size=size, calibrate=False)
                yield f"{method} {size} paper", drawn(suspects=0)
                yield f"{method}+ {size} paper", drawn()
                yield f"{method}+ {size} best", fit(sampler=sampler, size=size)
        for size in _SIZES:
            yield f"default {size}", fit(size=size)
            yield f"two rounds {size}", fits.estimated(data.X, data.y, self.z, seed, size)
        for size in _PAPERS:
            one = data.X_test[:1], data.y_test[:1]
            live = fits.on_live_coreset(data.X, data.y, LOGISTIC, self.z, seed, size, *one)
            yield from zip((f"ranked {size}", f"ranked, one row {size}"), live, strict=True)

    def page(self, results: Results, command: str) -> str:
        sheet = Sheet(results.of())
        about = _ABOUT.format(
            name=self.table.name,
            paper=TITLE,
            stands="" if self.table.name == _COVERTYPE else _STAND_IN,
            rows=len(self.table.X) - self.held_out,
            columns=self.table.X.shape[1],
            z=self.z,
            held_out=self.held_out,
            trials=counted(self.trials, "trial"),
            command=command,
            where=results.where(),
            gain=fits.GAIN,
            full=sheet.baseline("full", "seconds"),
            accuracy=sheet.baseline("full", "accuracy"),
            ours=sheet.baseline("ours", "seconds"),
        )
        seen = "## Side by side\n\n" + sheet.side_by_side(TABLE1) + "\n" + self._verdict(sheet)
        return "\n".join([about, seen, _BEYOND + sheet.listed(_titles(), accuracy=True)])

    def summary(self, results: Results) -> str:
        sheet = Sheet(results.of())
        heading = (
            f"Logistic regression on {self.table.name}, {self.z:,} outliers, {counted(self.trials, 'trial')}"
        )
        if self.table.name != _COVERTYPE:
            heading += "; the paper's own figures are of Covertype"
        return f"{heading}\n\n{sheet.side_by_side(TABLE1)}\n{self._verdict(sheet)}"

    def _verdict(self, sheet: Sheet) -> str:
        names = [f"{way} {_BEST_AT}" for way in ("default", "two rounds")]
        best = min(names, key=lambda name: sheet.cell(name).ratio)
        paper = min(one.ratio for (_, size), one in TABLE1.items() if size == _PAPERS[0])
        ours = sheet.cell(best).ratio
        verdict = "no worse than" if ours <= paper else "WORSE than"
        return (
            f"{sheet.verdict(TABLE1)}Our best with {_BEST_AT:,} rows ({best.rsplit(' ', 1)[0]}): {ours:.4f}, "
            f"{verdict} the paper's best with {_PAPERS[0]:,}, {paper:.3f}.\n"
        )


def _titles() -> list[tuple[str, str]]:
    """Name the rows of the second table."""
    ours = at_sizes(_SIZES, "default", "two rounds") + at_sizes(_PAPERS, "ranked", "ranked, one row")
    return as_reported(TABLE1) + ours


def _warm_up(data: Contaminated) -> None:
    """Fit a little in each way, so that imports are not counted."""
    few = slice(0, 3000)
    part = data.X[few], data.y[few], LOGISTIC, 30, 0
    fits.on_everything(*part, fits.alternation)
    for sampler in SAMPLERS.values():
        fits.on_coreset(*part, size=1000, sampler=sampler)
    fits.on_live_coreset(*part, 1000, data.X_test[:1], data.y_test[:1])
    fits.estimated(part[0], part[1], 30, 0, 1000)
