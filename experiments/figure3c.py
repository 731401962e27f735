"""The paper's Figure 3(c): how much faster an update is than starting over, against the height of the tree.

A trial contaminates Covertype anew, puts it into one tree for each height and
into the ranked engine, and then changes single rows. After each change the
coreset is taken and solved; the same change without a coreset means to solve
everything again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

import duramen as dm
from experiments.data import Contaminated, Table, covertype, made_up_covertype, with_planted_rows
from experiments.logistic_fits import LOSS, on_everything
from experiments.options import Parser, command_of, load
from experiments.pages import machine, table
from experiments.timing import timed

RANKED = 0  # stands for the ranked engine where a height is meant

_CHANGES = 6  # timed for each tree: inserts and deletes by turns
_ROOM = 50  # places that the last bucket keeps free, so that a few inserts do not open another

_ABOUT = """\
# Figure 3(c): an update against starting over

The paper's Figure 3(c): logistic regression with {z:,} outliers on {name}, {rows:,} rows of {columns}
columns, of which single ones come and go. Without a coreset, each change means to solve everything again.
With the paper's merge-and-reduce tree it means to build the nodes above the changed bucket again, from the
bottom up, and to solve the root. The higher the tree, the smaller its buckets: n / 2^(h - 1) points at height
h. Made by

    {command}

on {machine}.

**Speed-up.** Seconds of

    dm.solve(dm.points(X, y), dm.LogisticLoss(), {z}, random_state=seed)

on all rows (the best of three runs), over those of one change, its coreset and the solution of that:

    dyn.insert(row, label)      # or dyn.delete(one), by turns
    core = dyn.coreset()
    dm.solve(core, random_state=seed)

Both solve from the start: neither has the solution from before the change. `dyn` is a
`dm.DynamicCoreset(dm.LogisticLoss(), {size}, {z})` with `engine="tree"` and a `bucket_size`, or ranked,
which has no height. Each of {trials} trials (seeds 0 to {last}) contaminates the rows anew, as
[on Covertype](covertype.md), and finds one anchor on the first rows for all of them; its figure is made of
the medians of {changes} changes. To solve everything took {baseline:.2f} s (mean over the trials).
"""

_SEEN = """\
The line is the mean over the trials, the band reaches from the least to the most. Dashed: the ranked engine.
"""

_FIGURES = """\
Milliseconds: means over the trials. An insert changes the last bucket, a delete also the one that the point
was in. A node keeps {size:,} points: where a bucket is not much larger, another level makes it no cheaper to
build and adds a node to every path, so that nothing more is gained. The last column is the speed-up of the
change and the coreset alone, without solving, over `dm.robust_coreset` of all rows from the same anchor
({anew:.0f} ms).

"""


class Updated(NamedTuple):
    """Seconds of a change with the coreset after it, and of solving that; median ones."""

    insert: float
    delete: float
    solve: float

    @property
    def change(self) -> float:
        """Seconds of a change of either kind, with the coreset."""
        return (self.insert + self.delete) / 2


@dataclass(frozen=True, eq=False)
class Trial:
    """Seconds of one seed: solving everything, building a coreset anew, and updates by height."""

    everything: float
    anew: float
    updated: dict[int, Updated]
    buckets: dict[int, int]

    def speed_up(self, height: int) -> float:
        """Compare solving everything with an update and solving its coreset."""
        one = self.updated[height]
        return self.everything / (one.change + one.solve)

    def against_anew(self, height: int) -> float:
        """Compare building the coreset anew with an update of it."""
        return self.anew / self.updated[height].change


def run(seed: int, base: Table, heights: Iterable[int], *, size: int, z: int) -> Trial:
    """Contaminate the data, keep them in every way, and time changes."""
    data = with_planted_rows(base, z, _CHANGES, seed)
    everything = partial(on_everything, data.X, data.y, z, seed)
    baseline = [timed(everything)[1]]
    dyn = dm.DynamicCoreset(LOSS, size, z, engine="ranked", random_state=seed)
    dyn.insert(data.X, data.y)
    updated, buckets = {RANKED: updates(dyn, data, seed)}, {}
    baseline.append(timed(everything)[1])
    n_inliers = len(dyn) - dyn.n_suspected
    for height in heights:
        buckets[height] = -(-(n_inliers + _ROOM) // 2 ** (height - 1))
        plant(dyn, buckets[height])
        updated[height] = updates(dyn, data, seed)
    baseline.append(timed(everything)[1])
    build = partial(dm.robust_coreset, data.X, data.y, loss=LOSS, size=size, n_outliers=z, anchor=dyn.anchor)
    return Trial(min(baseline), min(timed(build)[1] for _ in range(3)), updated, buckets)


def plant(dyn: dm.DynamicCoreset, bucket: int) -> None:
    """Put all points into a new tree with such buckets, at once: seen again from their own anchor.

    To fill a ``DynamicCoreset(engine="tree", bucket_size=bucket)`` takes each of half a million rows by
    itself, and comes to as much.
    """
    assert dyn._state is not None
    dyn._settings = dyn._state._settings = replace(dyn._settings, tree=True, bucket_size=bucket)
    dyn.reanchor(dyn.anchor)


def updates(dyn: dm.DynamicCoreset, data: Contaminated, seed: int) -> Updated:
    """Delete rows and insert others by turns, and take and solve the coreset each time."""
    dyn.coreset()
    leaving = np.random.default_rng(seed).choice(dyn.ids, _CHANGES, replace=False).tolist()
    inserts: list[float] = []
    deletes: list[float] = []
    solves: list[float] = []
    for turn, name in enumerate(leaving):
        start = time.perf_counter()
        if turn % 2:
            dyn.insert(data.X_test[turn], data.y_test[turn])
        else:
            dyn.delete(name)
        core = dyn.coreset()
        (inserts if turn % 2 else deletes).append(time.perf_counter() - start)
        solves.append(timed(partial(dm.solve, core, random_state=seed))[1])
    return Updated(*(float(np.median(took)) for took in (inserts, deletes, solves)))


# the picture

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 360, 56, 130, 16, 44
_BELOW = _HEIGHT - _BOTTOM
_BESIDE = _WIDTH - _RIGHT
_TREE, _LINE = "#2b6cb0", "#c05621"


class Scale:
    """Where numbers stand in the picture: heights to the right, speed-ups upwards."""

    def __init__(self, heights: Sequence[int], most: float) -> None:
        self._first, self._last = min(heights) - 0.3, max(heights) + 0.3
        steps = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
        self.step = next(step for step in steps if most <= 8 * step)
        self.top = self.step * int(np.ceil(most / self.step))

    def x(self, height: float) -> float:
        share = (height - self._first) / (self._last - self._first)
        return round(_LEFT + share * (_BESIDE - _LEFT), 1)

    def y(self, speed_up: float) -> float:
        return round(float(_BELOW - speed_up / self.top * (_BELOW - _TOP)), 1)


def picture(trials: list[Trial], heights: list[int]) -> str:
    """Draw speed-up against height, as an SVG that takes the colour of the text around it."""
    ups = {height: [trial.speed_up(height) for trial in trials] for height in (RANKED, *heights)}
    scale = Scale(heights, max(map(max, ups.values())))
    ys = {height: [scale.y(of) for of in (max(u), min(u), float(np.mean(u)))] for height, u in ups.items()}
    high, low, mean = ([(scale.x(height), ys[height][which]) for height in heights] for which in range(3))
    top, bottom, line = ys[RANKED]
    middle, last = (_LEFT + _BESIDE) / 2, mean[-1][1]
    last = last if abs(last - line) > 16 else line + 16  # so that both names can be read
    lines = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" style="max-width: {_WIDTH}px" role="img"'
        ' aria-label="Speed-up of an update against the height of the tree"'
        ' font-family="sans-serif" font-size="13" fill="currentColor">',
        *_axes(scale, heights),
        f'<rect x="{_LEFT}" y="{top}" width="{_BESIDE - _LEFT}" height="{bottom - top:.1f}" fill="{_LINE}"'
        ' opacity="0.2"/>',
        f'<path d="M{_LEFT} {line}H{_BESIDE}" stroke="{_LINE}" stroke-width="2" stroke-dasharray="6 4"/>',
        f'<polygon points="{_path([*low, *reversed(high)])}" fill="{_TREE}" opacity="0.2"/>',
        f'<polyline points="{_path(mean)}" fill="none" stroke="{_TREE}" stroke-width="2"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{_TREE}"/>' for x, y in mean),
        f'<text x="{_BESIDE + 8}" y="{line + 4:.1f}" fill="{_LINE}">ranked engine</text>',
        f'<text x="{_BESIDE + 8}" y="{last + 4:.1f}" fill="{_TREE}">tree engine</text>',
        f'<text x="{middle}" y="{_BELOW + 38}" text-anchor="middle">height of the tree</text>',
        f'<text transform="translate(14 {(_BELOW + _TOP) / 2}) rotate(-90)" text-anchor="middle">'
        "speed-up</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _path(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _axes(scale: Scale, heights: Sequence[int]) -> list[str]:
    """Draw lines across with their speed-ups, and heights below."""
    lines = []
    for tick in range(0, scale.top + 1, scale.step):
        y, opacity = scale.y(tick), 0.15 if tick else 0.8
        lines += [
            f'<path d="M{_LEFT} {y}H{_BESIDE}" stroke="currentColor" opacity="{opacity}"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>',
        ]
    below = f'y="{_BELOW + 18}" text-anchor="middle"'
    return [*lines, *(f'<text x="{scale.x(height)}" {below}>{height}</text>' for height in heights)]


# the page


def figures(trials: list[Trial], heights: list[int], size: int) -> str:
    """Write one row a height."""
    rows = []
    for height in (*heights, RANKED):
        ups = [trial.speed_up(height) for trial in trials]
        one = 1000 * np.mean([trial.updated[height] for trial in trials], axis=0)
        rows.append(
            [
                str(height or "ranked"),
                f"{trials[0].buckets[height]:,}" if height else "",
                *(f"{part:.1f}" for part in one),
                f"{np.mean(ups):.1f}",
                f"{min(ups):.1f} to {max(ups):.1f}",
                f"{np.mean([trial.against_anew(height) for trial in trials]):.1f}",
            ]
        )
    head = (
        "height",
        "bucket:",
        "insert and coreset:",
        "delete and coreset:",
        "solving:",
        "speed-up:",
        "from, to:",
        "against building anew:",
    )
    anew = 1000 * float(np.mean([trial.anew for trial in trials]))
    return _FIGURES.format(size=size, anew=anew) + table(head, rows)


def main(arguments: list[str] | None = None) -> str:
    """Run the experiment, print its page and give it back."""
    parser = _parser()
    options = _checked(parser, arguments)
    base = load(parser, options, covertype, made_up_covertype)
    _check_counts(parser, options, len(base.X))
    heights, seen = sorted(set(options.heights)), machine()
    run(0, made_up_covertype(6000), heights[:1], size=1000, z=60)  # so that imports are not counted
    trials: list[Trial] = []
    for seed in range(options.seeds):
        trials.append(run(seed, base, heights, size=options.size, z=options.outliers))
        print(_line(seed, trials[-1], heights), file=sys.stderr)
    about = _ABOUT.format(
        z=options.outliers,
        name=base.name,
        rows=len(base.X) - _CHANGES,
        columns=base.X.shape[1],
        command=command_of(parser, options),
        machine=seen,
        size=options.size,
        trials=len(trials),
        last=len(trials) - 1,
        changes=_CHANGES,
        baseline=np.mean([trial.everything for trial in trials]),
    )
    drawn = "## The picture\n\n" + picture(trials, heights) + "\n" + _SEEN
    page = "\n".join([about, drawn, "## The figures\n\n" + figures(trials, heights, options.size)])
    print(page)
    if options.out:
        options.out.write_text(page)
    return page


def _line(seed: int, trial: Trial, heights: list[int]) -> str:
    low, high = heights[0], heights[-1]
    return (
        f"seed {seed}: everything {trial.everything:.1f} s; speed-up {trial.speed_up(low):.1f} at height "
        f"{low}, {trial.speed_up(high):.1f} at {high}, {trial.speed_up(RANKED):.1f} ranked"
    )


def _parser() -> Parser:
    parser = Parser(
        "experiments.figure3c",
        "Times updates of coresets of Covertype against solving everything again, in Markdown.",
    )
    parser.add_argument(
        "--heights",
        type=int,
        nargs="+",
        default=list(range(1, 11)),
        help="heights of the trees (default: 1 to 10)",
    )
    parser.add_argument("--size", type=int, default=4000, help="rows of the coreset (default: 4000)")
    return parser


def _checked(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.checked(arguments)
    if min(options.heights) < 1 or max(options.heights) > 20:
        parser.error(f"--heights {min(options.heights)} to {max(options.heights)} must be from 1 to 20")
    if options.size < 200:
        parser.error(f"--size {options.size} is too few rows for 55 parameters; take 200 or more")
    return options


def _check_counts(parser: Parser, options: argparse.Namespace, rows: int) -> None:
    if max(4 * options.outliers, 2 * options.size) > rows - _CHANGES:
        parser.error(
            f"{rows} rows are fewer than four times --outliers {options.outliers}, "
            f"or than twice --size {options.size}"
        )


if __name__ == "__main__":
    main()
