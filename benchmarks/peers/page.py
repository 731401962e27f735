"""The page: what was done, two tables per part, and where a peer is better according to the figures."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from benchmarks.peers.columns import (
    DYNAMIC,
    ESTIMATOR,
    Column,
    absorb_seconds,
    cost,
    first_seconds,
    forget_seconds,
    quality,
)
from benchmarks.peers.contender import Entry
from benchmarks.peers.measuring import Measured
from benchmarks.peers.shared import table
from benchmarks.peers.streams import STREAM

__all__ = ["absent", "page", "section"]

_OPTIONAL = ("river", "faiss-cpu")
_FIRST, _FORGET = 0, 2  # among the columns of what a model costs
_BY_PROPORTION, _FROM_SCRATCH = " \\*", " †"  # beside figures that were not timed as they stand

_ABOUT = """\
# Comparison with other libraries

duramen, scikit-learn, river, faiss, and what one would write by hand around them: the same data, one
machine, one run. Made by

    {command}

on {machine}{others}. It took {minutes:.1f} minutes, with {trials}.

The others have their default settings except where stated, and may iterate until they converge
(`max_iter=1000`). The number of wrong rows, z, is given to every method that takes it: ours,
`IsolationForest` (as `contamination`), and trimming by hand, which alternately fits and sets the z largest
losses aside. The *informed* fit is scikit-learn's on the clean rows only. No contender knows which rows
these are.

| column | what it is | compared with our |
| --- | --- | --- |
| loss | mean loss of the clean training rows, over the informed fit's | estimator |
{scores}
| first model | seconds from arrays in memory to a model, over ours | estimator |
| absorb a row | seconds from a new row to a model that includes it, over ours | `DynamicCoreset` |
| forget a row | seconds to a model without one of the rows, over ours | `DynamicCoreset` |
| peak memory | bytes that the process grows by during the first fit, over the data's | estimator |
| held to absorb | bytes of rows and tables needed to absorb a row, over the data's | `DynamicCoreset` |
| held to forget | the same, to forget a row | `DynamicCoreset` |

Losses and scores are means over the trials, and times are the best trial's. A first model is timed up to
three times while that takes less than a second, and the best counts; a change of one row up to thirty
times while that takes less than half a second, and the median counts. Checks, conversions and the search
for outliers are counted. Making room for a row in an array is not, nor is moving the last row to where
one left. Times are taken on the planted data, after a warm-up on a few rows. Memory is measured in a
separate process, which fits the clean data, as the system counts it (VmHWM), so that C++ is included.
The model itself does not count as held. **Bold** is the best of a column, as printed.
"""

_READING = """\
## Reading

These hold whatever the figures are.

- Without outliers there is nothing to guard against. Given z, a trimmed fit still sets z rows aside,
  although the model should have used them. `LogisticRegression`, `Ridge` and `KMeans` are simple and right
  in this case; with ours, use `n_outliers=0`.
- A trimmed logistic fit sets aside the rows that it predicts worst, planted or not, and becomes
  overconfident about the others. That costs log loss rather than accuracy. Where probabilities matter,
  use the default of `RobustLogisticRegression`, `n_outliers="auto"`, which learns what is wrong instead of
  setting z aside. It is not in these tables, whose contenders are given z:
  [under attack](attacks.md) compares it with a plain fit and with an `IsolationForest`.
- `IsolationForest` looks at columns and not at labels: it can find rows that lie far out, and cannot see
  a wrong label. Trimming looks at losses, and sees both, where they cost more than an honest row does.
- Fitting again reads all rows for each one that comes or goes. Learning row by row (`partial_fit`,
  `learn_one`) reads that row alone and keeps none, and so can forget one only by starting over.
- `DynamicCoreset` reads the row and its coreset. It can forget because it keeps the rows: a copy of all,
  and tables beside them. An estimator with `updatable=True` does that too, and reads all rows after each
  change to find the outliers. Here a model is asked for after each row; a row that may
  wait [costs far less](dynamic.md#figures).
- Least squares without outliers needs no coreset: two sums absorb and forget a row exactly.
- Where the data fit into memory and never change, and time does not matter, trimming by hand is ten lines.
  For k-means it depends on where they start: a centre that begins on outliers keeps them, and honest
  points are set aside.
"""


def page(
    measured: Iterable[tuple[Measured, list[str]]], command: str, machine: str, minutes: float, trials: int
) -> str:
    """Write the page of all parts, each with what to say of the peers that are not there."""
    pairs = list(measured)
    scores = dict.fromkeys(
        f"| {one.part.score.name} | {one.part.score.about} | estimator |" for one, _ in pairs
    )
    about = _ABOUT.format(
        command=command,
        machine=machine,
        others=_versions(),
        minutes=minutes,
        trials="one trial (seed 0)" if trials == 1 else f"{trials} trials (seeds 0 to {trials - 1})",
        scores="\n".join(scores),
    )
    return "\n".join([about, *(section(one, missing) for one, missing in pairs), _READING])


def _versions() -> str:
    """Name the versions of the optional packages."""
    return "".join(f", {one.metadata['Name']} {one.version}" for one in map(_installed, _OPTIONAL) if one)


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def absent(entries: Iterable[Entry], skipped: Iterable[str]) -> list[str]:
    """Report which peers are not in the tables, and why."""
    listed, skipped = list(entries), set(skipped)
    away = [entry for entry in listed if entry.key not in skipped and not entry.is_here]
    said = (
        ("Skipped", [entry.name for entry in listed if entry.key in skipped]),
        ("Not installed", [f"{entry.name} (pip install {entry.package})" for entry in away]),
    )
    return [f"{why}: {'; '.join(names)}." for why, names in said if names]


def section(measured: Measured, missing: list[str]) -> str:
    """Write the tables of a part."""
    part = measured.part
    about = part.about.format(
        name=measured.data,
        n=measured.n,
        d=measured.d,
        z=measured.counts.planted,
        held_out=measured.counts.held_out,
    )
    parts = [
        f"## {part.title}",
        about.strip(),
        f"### {part.title}: how good",
        _quality_table(measured).strip(),
        f"### {part.title}: at what cost",
        _cost_table(measured).strip(),
        _units(measured),
        _ways(measured).strip(),
        *missing,
        f"### {part.title}: where a peer is better",
        _wins(measured),
    ]
    return "\n\n".join(parts) + "\n"


def _quality_table(measured: Measured) -> str:
    columns = quality(measured)
    informed = ["the informed fit", *(column.text(measured.informed) for column in columns)]
    rows = [[entry.name, *_cells(measured, entry, columns)] for entry in measured.entries]
    return table(["", *(f"{column.name}:" for column in columns)], [*rows, informed])


def _cost_table(measured: Measured) -> str:
    columns = cost(measured)
    rows = []
    for entry in measured.entries:
        figures, cells = measured.figures[entry.key], _cells(measured, entry, columns)
        cells[_FIRST] += _BY_PROPORTION * (figures.share < 1)
        cells[_FORGET] += _FROM_SCRATCH * (not figures.forget)
        rows.append([entry.name, *cells])
    return table(["", *(f"{column.name}:" for column in columns)], rows)


def _ways(measured: Measured) -> str:
    """Write what each contender does when a row comes and when one goes."""
    rows = [[entry.name, entry.absorbs, entry.forgets] for entry in measured.entries]
    return table(["", "a row comes", "a row goes"], rows)


def _cells(measured: Measured, entry: Entry, columns: list[Column]) -> list[str]:
    """Write a row, the best of each column in bold."""
    figures = measured.figures[entry.key]
    return [
        f"**{text}**" if (text := column.text(figures)) == column.best(measured) else text
        for column in columns
    ]


def _units(measured: Measured) -> str:
    """Report what 1 is, and which figures were not timed as they stand."""
    estimator, dynamic = measured.figures[ESTIMATOR], measured.figures[DYNAMIC]
    said = (
        f"1 is {_time(first_seconds(estimator))} for a first model, {_time(absorb_seconds(dynamic))} to "
        f"absorb a row, {_time(forget_seconds(dynamic))} to forget one, and {measured.nbytes / 1e6:,.3g} MB "
        "of data."
    )
    if any(figures.share < 1 for figures in measured.figures.values()):
        said += f"{_BY_PROPORTION} It was given {STREAM:,} rows; the time for all is extrapolated."
    if not all(figures.forget for figures in measured.figures.values()):
        said += f"{_FROM_SCRATCH} Forgetting takes a fit from scratch: the time of the first model."
    return said


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} microseconds"


def _wins(measured: Measured) -> str:
    """List, column by column, the peers whose figure is better than that of ours."""
    names = {entry.key: entry.name for entry in measured.entries}
    lines, none = [], []
    for column in [*quality(measured), *cost(measured)]:
        texts = column.texts(measured)
        winners = [f"{names[key]} ({texts[key]})" for key in column.winners(measured)]
        if winners:
            ours = f"{names[column.against]}, {texts[column.against]}"
            lines.append(f"- *{column.name}* ({ours}): {', '.join(winners)}.")
        elif texts:
            none.append(f"*{column.name}*")
    if none:
        lines.append(f"- Nowhere else, that is, not in {', '.join(none)}.")
    return "\n".join(lines)
