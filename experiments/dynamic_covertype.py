"""Covertype of which half the rows were replaced: fits on live coresets against fits on coresets built anew.

A trial fills a table, half of it with rows that will leave again, and replaces
those by others, in small batches and in no order. What is live then is the
contaminated training set of the page on Covertype. Losses are those on all of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import duramen as dm
from experiments.logistic_fits import LOSS
from experiments.options import Parser, command_of, load
from experiments.pages import Target
from experiments.paper.data import Contaminated, Table, covertype, made_up_covertype, with_planted_rows
from experiments.paper.fits import timed
from experiments.paper.pages import machine, mean_and_worst, table

SAME = Target(1e-9)  # how far apart weights may be, relatively, where ids are equal
FIRST, SHARE, AGAIN = "first rows", "first rows, z as a fraction", "`reanchor()`"
LIVE, TREE, ANEW, TREE_ANEW = (
    "ranked, live",
    "tree, live",
    "`robust_coreset`, built anew",
    "tree, filled anew",
)

_BATCH = 500  # rows replaced at a time, on average

_ABOUT = """\
# Covertype, half of it replaced

Logistic regression with {z:,} outliers on {name}, kept in a `dm.DynamicCoreset` of {size:,} rows while half
of the table leaves and other rows take its place. Made by

    {command}

on {machine}.

**Data.** In each of {trials} trials (seeds 0 to {last}) {held_out:,} random rows are put aside, and {z:,}
of the other {rows:,} are contaminated, as [on Covertype](covertype.md). A random half of these is inserted,
mixed with as many rows that will not stay: drawn with replacement from the same half. Then the latter are
deleted, in no order, and the other half of the rows is inserted in their stead: 1 to {most:,} at a time, by
turns, {changes:,} deletions and as many insertions in all. What is live in the end are the rows that the
page on Covertype fits; half of them are such as the table had never seen before.

**Coresets** of the live rows, each solved by `dm.solve(core, random_state=seed)`:

| coreset | what it is |
| --- | --- |
| {live} | `dyn.coreset()` after all the changes |
| {anew} | the same rows, ids, seed and anchor, at once |
| {tree} | `engine="tree"`: the paper's merge-and-reduce tree, after the same changes |
| {tree_anew} | a tree that the live rows were put into at once, in the order of their ids |

The anchor is that of the first rows (`dyn` makes it of the first {needed:,} that come), or a new one after
`dyn.reanchor()`, made of 20,000 live rows. A count of {z:,} outliers says nothing of how many are among the
first rows; `n_outliers={z} / n`, a fraction, does.

| column | mean over the trials, and in parentheses the worst |
| --- | --- |
| loss ratio | f_z on all live rows, over that of `dm.solve` on all live rows |
| anchor's | the same of the anchor itself |
| ids in common | with `robust_coreset` built anew from the same anchor: share of the coreset, the least |
| weights apart | ranked, from those built anew: the most, relatively |
"""

_SEEN = """
After `reanchor()` the tree is a new one too: its points were put in afresh. In batches of {mean:,} on
average, a change took {ranked:.1f} microseconds a row in the ranked table, and {tree:.1f} in the tree.
"""

_VERDICT = """\
## Against the target

Ranked, the live coreset is to be the one built anew: the same ids, and weights equal to 1e-9 relative; hence
the same loss ratio. In {trials} trials with three anchors each: **{verdict}**.
"""


class Setting(NamedTuple):
    """A coreset, and the anchor it is seen from."""

    coreset: str
    anchor: str


class Measured(NamedTuple):
    """What a fit on a coreset came to, and how the coreset compares with one built anew."""

    ratio: float
    anchor_ratio: float
    in_common: float
    apart: float


class Trial(NamedTuple):
    """What one seed came to, and seconds a changed row took in either engine."""

    measured: dict[Setting, Measured]
    ranked: float
    tree: float
    changes: int
    needed: int


class Yardstick:
    """The live rows, and what fits on them are measured by."""

    def __init__(self, live: dm.WeightedPoints, z: int, seed: int) -> None:
        self.live, self.z, self.seed = live, z, seed
        self.least = self.objective(dm.solve(live, LOSS, z, random_state=seed).theta)

    def objective(self, theta: Any) -> float:
        """Measure f_z on all live rows."""
        return float(dm.trimmed_objective(self.live, theta, loss=LOSS, n_outliers=self.z))

    def measure(self, core: dm.Coreset, anew: dm.Coreset) -> Measured:
        """Fit a coreset, and compare it with the one built anew."""
        assert core.anchor is not None
        _, ours, theirs = np.intersect1d(core.ids, anew.ids, return_indices=True)
        apart = np.abs(core.weights[ours] / anew.weights[theirs] - 1)
        theta = dm.solve(core, random_state=self.seed).theta
        return Measured(
            ratio=self.objective(theta) / self.least,
            anchor_ratio=self.objective(core.anchor.theta) / self.least,
            in_common=len(ours) / max(len(core), len(anew)),
            apart=float(np.max(apart, initial=0.0)),
        )


class Replacement:
    """Rows that leave and rows that come in their stead, in batches of 1 to twice the mean."""

    def __init__(self, data: Contaminated, seed: int) -> None:
        rng = np.random.default_rng((seed, 1))
        order = rng.permutation(len(data.X))
        middle = len(order) // 2
        self.data, self.staying, self.coming = data, order[:middle], order[middle:]
        self.passing = rng.choice(self.staying, len(self.coming))
        self.first = rng.permutation(len(self.staying) + len(self.passing))
        self._leaving = rng.permutation(len(self.passing))
        sizes = rng.integers(1, 2 * _BATCH, size=len(self.coming))
        self._cuts = [*np.cumsum(sizes)[np.cumsum(sizes) < len(self.coming)].tolist(), len(self.coming)]

    def fill(self, dyn: dm.DynamicCoreset) -> None:
        """Put in the rows that stay and those that will leave, mixed; the id of a row is its number there."""
        rows = np.concatenate([self.staying, self.passing])[self.first]
        dyn.insert(self.data.X[rows], self.data.y[rows], ids=self.first)

    def replace(self, dyn: dm.DynamicCoreset) -> None:
        """Replace the latter by rows that were not there."""
        for leaving, rows, names in self._steps():
            dyn.delete(leaving)
            dyn.insert(self.data.X[rows], self.data.y[rows], ids=names)

    def _steps(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        start, after = 0, len(self.first)
        for end in self._cuts:
            leaving = len(self.staying) + self._leaving[start:end]
            yield leaving, self.coming[start:end], np.arange(after + start, after + end)
            start = end


def run(seed: int, base: Table, *, size: int, z: int, held_out: int) -> Trial:
    """Fill, replace, and measure coresets of what is live, seen from both anchors."""
    replacement = Replacement(with_planted_rows(base, z, held_out, seed), seed)
    kept: Any = {"size": size, "n_outliers": z, "random_state": seed}
    ranked, tree = (dm.DynamicCoreset(LOSS, engine=engine, **kept) for engine in ("ranked", "tree"))
    by_rank, by_tree = (_replaced(replacement, dyn) for dyn in (ranked, tree))
    yardstick = Yardstick(ranked.points(), z, seed)
    live = yardstick.live
    cores = _cores(ranked, tree, live, kept)
    filled = dm.DynamicCoreset(LOSS, engine="tree", anchor=ranked.anchor, **kept)
    filled.insert(live.X, live.y, ids=live.ids)
    measured = _measured(yardstick, FIRST, cores | {TREE_ANEW: filled.coreset()})
    ranked.reanchor()
    tree.reanchor()
    again = _measured(yardstick, AGAIN, _cores(ranked, tree, live, kept))
    del tree, filled
    shared = kept | {"n_outliers": z / len(live)}
    other = dm.DynamicCoreset(LOSS, engine="ranked", **shared)
    _replaced(replacement, other)
    measured |= _measured(yardstick, SHARE, _cores(other, None, live, shared)) | again
    assert ranked.anchor_after is not None
    return Trial(measured, by_rank, by_tree, len(replacement.coming), ranked.anchor_after)


def _replaced(replacement: Replacement, dyn: dm.DynamicCoreset) -> float:
    """Fill a table and replace half of it; tell how many seconds each changed row took."""
    replacement.fill(dyn)
    return timed(lambda: replacement.replace(dyn))[1] / (2 * len(replacement.coming))


def _cores(
    ranked: dm.DynamicCoreset, tree: dm.DynamicCoreset | None, live: dm.WeightedPoints, kept: Any
) -> dict[str, dm.Coreset]:
    """Make the live coresets, and the one built anew from the same anchor."""
    anew = dm.robust_coreset(live.X, live.y, loss=LOSS, ids=live.ids, anchor=ranked.anchor, **kept)
    cores = {LIVE: ranked.coreset(), ANEW: anew}
    return cores if tree is None else cores | {TREE: tree.coreset()}


def _measured(yardstick: Yardstick, anchor: str, cores: dict[str, dm.Coreset]) -> dict[Setting, Measured]:
    return {Setting(name, anchor): yardstick.measure(core, cores[ANEW]) for name, core in cores.items()}


# the page


def section(trials: list[Trial]) -> str:
    """Write one row a coreset and anchor."""
    rows = []
    for setting in trials[0].measured:
        seen = [trial.measured[setting] for trial in trials]
        compared, same = setting.coreset != ANEW, setting.coreset == LIVE
        rows.append(
            [
                setting.coreset,
                setting.anchor,
                mean_and_worst(one.ratio for one in seen),
                mean_and_worst(one.anchor_ratio for one in seen),
                f"{min(one.in_common for one in seen):.1%}" if compared else "",
                f"{max(one.apart for one in seen):.1e}" if same else "",
            ]
        )
    head = ("coreset", "anchor", "loss ratio:", "anchor's:", "ids in common:", "weights apart:")
    ranked, tree = (1e6 * np.mean([trial[which] for trial in trials]) for which in (1, 2))
    return "## What was seen\n\n" + table(head, rows) + _SEEN.format(ranked=ranked, tree=tree, mean=_BATCH)


def verdict(trials: list[Trial]) -> str:
    """Say whether live coresets were those built anew."""
    seen = [trial.measured[Setting(LIVE, anchor)] for trial in trials for anchor in (FIRST, SHARE, AGAIN)]
    same = all(one.in_common == 1.0 for one in seen)
    said = SAME.verdict(max(one.apart for one in seen)) if same else "MISSED"
    return _VERDICT.format(trials=len(trials), verdict=said)


def main(arguments: list[str] | None = None) -> str:
    """Run the experiment, print its page and give it back."""
    parser = _parser()
    options = _checked(parser, arguments)
    base = load(parser, options, covertype, made_up_covertype)
    _check_counts(parser, options, len(base.X))
    seen, trials = machine(), []
    counts = {"size": options.size, "z": options.outliers, "held_out": options.test_rows}
    for seed in range(options.seeds):
        trials.append(run(seed, base, **counts))
        print(_line(seed, trials[-1]), file=sys.stderr)
    about = _ABOUT.format(
        name=base.name,
        rows=len(base.X) - options.test_rows,
        command=command_of(parser, options),
        machine=seen,
        trials=len(trials),
        last=len(trials) - 1,
        most=2 * _BATCH - 1,
        changes=trials[0].changes,
        needed=trials[0].needed,
        live=LIVE,
        anew=ANEW,
        tree=TREE,
        tree_anew=TREE_ANEW,
        **counts,
    )
    page = "\n".join([about, section(trials), verdict(trials)])
    print(page)
    if options.out:
        options.out.write_text(page)
    return page


def _line(seed: int, trial: Trial) -> str:
    ours, tree = (trial.measured[Setting(name, FIRST)] for name in (LIVE, TREE))
    return (
        f"seed {seed}: loss ratio {ours.ratio:.4f} ranked, {tree.ratio:.4f} tree; "
        f"{ours.in_common:.0%} of the ids as built anew, weights {ours.apart:.1e} apart"
    )


def _parser() -> Parser:
    parser = Parser(
        "experiments.dynamic_covertype",
        "Fits live coresets of Covertype after half of its rows were replaced, in Markdown.",
    )
    parser.add_argument("--size", type=int, default=4000, help="rows of the coresets (default: 4000)")
    parser.add_argument("--test-rows", type=int, default=10_000, help="rows put aside (default: 10,000)")
    return parser


def _checked(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.checked(arguments)
    if options.size < 200:
        parser.error(f"--size {options.size} is too few rows for 55 parameters; take 200 or more")
    if options.test_rows < 1:
        parser.error(f"--test-rows {options.test_rows} must be 1 or more")
    return options


def _check_counts(parser: Parser, options: argparse.Namespace, rows: int) -> None:
    z, size = options.outliers, options.size
    if max(4 * z, 2 * size) > rows - options.test_rows:
        parser.error(
            f"{rows} rows less --test-rows {options.test_rows} are fewer than four times --outliers {z}, "
            f"or than twice --size {size}"
        )


if __name__ == "__main__":
    main()
