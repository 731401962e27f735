"""The pictures of how-it-works.md and data-flow.md: what the library computes on small made-up data.

``python tools/pictures.py`` writes docs/pictures/*.svg. Each function here
returns a figure and one sentence with its facts, which becomes the title of the
file; a test checks that the sentences in the files are those of the library now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import duramen as dm
from duramen.coreset.view import largest_losses
from duramen.dynamic.tree import Tree
from duramen.samplers.base import AnchoredPoints, freeze, smallest, strata_of, uniforms
from duramen.trimming import kept_weights

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
PLAIN, SUSPECT, ACCENT, GREY, INK = "#3b6fb6", "#b5179e", "#d98032", "#8a8a8a", "#333333"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "duramen",
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
}
Picture = tuple[Figure, str]


def overview() -> Picture:
    """Draw the way of the rows, with the numbers of one run."""
    X, y, z = _two_classes(50_000)
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=1000, n_outliers=z, random_state=0)
    assert core.anchor is not None
    outer, n_inner = int(core.suspected.sum()), len(X) - core.n_suspected
    inner = len(core) - outer
    figure, (axes,) = _sheet(8.4, 3.3)
    axes.set(xlim=(-0.5, 100.5), ylim=(4, 38))
    axes.axis("off")
    boxes = {
        "data": (0, 15, 13, f"data\n{len(X):,} rows\nz = {z:,}", GREY),
        "anchor": (18, 15, 17, f"anchor\nfrom {len(core.anchor.ids):,}\nrows", GREY),
        "inner": (44, 25, 18, f"{n_inner:,}\nsuspected\ninliers", PLAIN),
        "outer": (44, 5, 18, f"{core.n_suspected:,}\nsuspected\noutliers", SUSPECT),
        "ranks": (67, 25, 15, "sampler,\nranks,\ncalibration", PLAIN),
        "bins": (67, 5, 15, "bins of loss,\nranks", SUSPECT),
        "core": (87, 15, 13, f"coreset\n{inner} + {outer}\nrows", ACCENT),
    }
    ways = "data anchor, anchor inner, anchor outer, inner ranks, outer bins, ranks core, bins core"
    _draw_flow(axes, boxes, ways)
    axes.text(43.5, 21, "split at the threshold", va="center", fontsize=9.5, color=INK)
    return figure, (
        f"From data to a coreset: {len(X):,} rows are split at the anchor into {n_inner:,} suspected inliers "
        f"and {core.n_suspected:,} suspected outliers; {inner} and {outer} weighted rows stand for them."
    )


def flow() -> Picture:
    """Draw how rows become candidates and candidates a coreset, with the modules that do it."""
    figure, (axes,) = _sheet(9.6, 4.4)
    axes.set(xlim=(-0.5, 100.5), ylim=(-6, 59))
    axes.axis("off")
    boxes = {
        "arrays": (0, 45, 19, "arrays\nX, y", GREY),
        "files": (0, 30, 19, "files and batches\ndm.scan", GREY),
        "parts": (0, 15, 19, "partitions and sites\nDask, Spark, ...", GREY),
        "live": (0, 0, 19, "a live table\nDynamicCoreset,\nStore", GREY),
        "view": (26, 22, 17, "view\nanchor, sampler:\nloss, rank and\nstratum per row", ACCENT),
        "batch": (50, 45, 17, "one batch", PLAIN),
        "merged": (50, 22, 17, "summaries\nof batches,\nmerged", PLAIN),
        "lists": (50, 0, 17, "sorted lists,\nkept up to date", PLAIN),
        "choose": (74, 22, 11, "choose", SUSPECT),
        "core": (90, 22, 10, "coreset", ACCENT),
    }
    ways = "arrays view, files view, parts view, live view, view batch, view merged, view lists"
    _draw_flow(axes, boxes, f"{ways}, batch choose, merged choose, lists choose, choose core")
    axes.text(58.5, 38, "candidates", ha="center", va="center", fontsize=11, color=PLAIN)
    return figure, (
        "How data flows: arrays are scored in one batch, files and partitions in many whose summaries merge, "
        "and a live table keeps sorted lists; all three are candidates, from which one function chooses."
    )


def split() -> Picture:
    """Draw losses at the anchor in order, and the two sides of the threshold."""
    rng = np.random.default_rng(3)
    middles = np.array([[0.0, 0.0], [6.0, 1.0], [2.0, 6.0]])
    X = np.concatenate([middles[i] + rng.normal(size=(80, 2)) for i in range(3)])
    X = np.concatenate([X, rng.uniform(-9, 15, size=(12, 2))])
    points, loss, z = dm.points(X), dm.KMeansLoss(3), 12
    anchor = dm.find_anchor(points, loss, z, random_state=0)
    losses = loss.values(anchor.theta, X)
    rows = largest_losses(losses, points.ids, points.weights, 1.5 * z)
    outer, threshold = np.isin(np.arange(len(X)), rows), losses[rows].min()
    aside = kept_weights(losses, points.weights, z, points.ids) == 0
    figure, (plane, curve) = _sheet(8.4, 3.9, (1, 1.25))
    plane.scatter(*X[~outer].T, s=11, color=PLAIN, label="suspected inlier")
    plane.scatter(*X[outer].T, s=32, color=SUSPECT, marker="x", label="suspected outlier")
    plane.scatter(*anchor.theta.T, s=130, color=ACCENT, marker="*", edgecolor=INK, lw=0.7, label="anchor")
    plane.set(title="the data, and the anchor", xticks=[], yticks=[], aspect="equal")
    plane.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=1, handletextpad=0.2)
    order = np.argsort(losses)
    place, heights = np.arange(len(X)), losses[order]
    for side, colour, mark in ((~outer[order], PLAIN, "o"), (outer[order], SUSPECT, "x")):
        curve.scatter(place[side], heights[side], s=9 if mark == "o" else 30, color=colour, marker=mark)
    curve.axhline(threshold, color=INK, lw=1, ls="--")
    curve.text(2, threshold * 1.2, f"threshold {threshold:.1f}", color=INK)
    edge = len(X) - int(aside.sum())
    curve.axvspan(edge - 0.5, len(X), color="#dddddd", lw=0, zorder=0)
    curve.annotate(
        f"set aside:\nz = {z}", (edge + 3, 0.02), (edge - 70, 0.011), arrowprops={"arrowstyle": "->"}
    )
    curve.set(
        yscale="log", title="losses at the anchor, in order", xlabel="points, from the smallest loss up"
    )
    curve.set_ylabel("f(anchor, x)")
    return figure, (
        f"The split: of {len(X)} points the {len(rows)} of the largest losses at the anchor are "
        f"suspected outliers, from a threshold of {threshold:.1f} on; the worst {z} are set aside."
    )


def layers() -> Picture:
    """Draw the layers around one centre, and how the rows are shared out between them."""
    rng = np.random.default_rng(1)
    X = rng.standard_t(5, size=(700, 2))
    mine, sizes, ends = _layers_of(dm.points(X), dm.KMeansLoss(1), dm.Anchor([[0.0, 0.0]], 0.5), 100)
    counts = np.bincount(mine)
    figure, (plane, bars) = _sheet(8.4, 4.0, (1.15, 1))
    colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.85, len(sizes)))
    plane.scatter(*X.T, s=6, c=colours[mine], lw=0)
    for number, end in enumerate(ends):
        plane.add_patch(mpl.patches.Circle((0, 0), end**0.5, fill=False, lw=1, color=colours[number]))
    plane.scatter(0, 0, s=110, color=ACCENT, marker="*", edgecolor=INK, lw=0.7, zorder=3)
    reach = 1.06 * ends[-2] ** 0.5
    plane.set(title="layers around the anchor (*)", xlim=(-reach, reach), ylim=(-reach, reach))
    plane.set(xticks=[], yticks=[], aspect="equal")
    numbers = np.arange(len(sizes))
    bars.barh(numbers + 0.2, counts / counts.sum(), 0.38, color=GREY, label="of the points")
    bars.barh(numbers - 0.2, sizes / sizes.sum(), 0.38, color=colours, label="of the rows drawn")
    for number, (count, drawn) in enumerate(zip(counts, sizes, strict=True)):
        bars.text(count / counts.sum() + 0.01, number + 0.2, f"{count}", va="center", fontsize=9)
        bars.text(drawn / sizes.sum() + 0.01, number - 0.2, f"{drawn}", va="center", fontsize=9)
    bars.set(yticks=numbers, xlim=(0, 1), title="a layer's share", xlabel="share")
    bars.set_ylabel("layer")
    bars.legend(loc="upper right")
    return figure, (
        f"The layers: {len(X)} points in {len(sizes)} layers, each twice as high in loss as the one before, "
        f"of {', '.join(map(str, counts))} points, from which {', '.join(map(str, sizes))} rows are drawn."
    )


def ranks() -> Picture:
    """Draw measures and random numbers, the line that cuts off the sample, and what an update does to it."""
    seed, m, new = 2, 6, 18
    both = np.arange(new + 1)
    ids = both[:-1]
    measures = np.append(0.4 + 2.2 * uniforms(1, ids), 2.0)  # weight times score
    numbers = uniforms(seed, both)
    figure, (plane, lines) = _sheet(8.4, 4.2, (1, 1.3))
    rows, limit = smallest(numbers[ids] / measures[ids], ids, m)
    chosen = np.isin(ids, rows)
    plane.fill_between([0, 3], [0, 3 * limit], color="#e3ecf7", lw=0)
    plane.plot([0, 3], [0, 3 * limit], color=PLAIN, lw=1.2)
    plane.scatter(measures[ids][chosen], numbers[ids][chosen], s=34, color=PLAIN)
    plane.scatter(measures[ids][~chosen], numbers[ids][~chosen], s=34, facecolor="white", edgecolor=GREY)
    plane.text(2.95, 3 * limit + 0.04, "u = a t", ha="right", color=PLAIN)
    plane.set(xlim=(0, 3), ylim=(-0.015, 1), xlabel="size measure a", title="in the sample: below the line")
    plane.set_ylabel("random number u(id)")
    samples = []
    for base, names, words in ((2, ids, "before"), (1, both, f"id {new} comes"), (0, ids, f"id {new} goes")):
        here = numbers[names] / measures[names]
        rows, limit = smallest(here, names, m)
        samples.append(sorted(names[rows].tolist()))
        inside = np.isin(names, rows)
        lines.hlines(base, 0, 0.42, color="#cccccc", lw=1, zorder=0)
        lines.vlines(limit, base - 0.22, base + 0.22, color=PLAIN, lw=1.4)
        lines.text(limit, base - 0.42, "t", color=PLAIN, ha="center")
        for part, look in ((inside, {"color": PLAIN}), (~inside, {"facecolor": "white", "edgecolor": GREY})):
            shown = part & (here < 0.42)
            lines.scatter(here[shown], np.full(shown.sum(), base), s=46, **look)
        if new in names:
            lines.scatter(here[-1], base, s=46, color=ACCENT, zorder=3)
            lines.text(here[-1], base + 0.17, f"{new}", ha="center", fontsize=9.5, color=ACCENT)
        lines.text(0.42, base + 0.3, words, ha="right")
    lines.set(ylim=(-0.6, 2.65), xlim=(-0.01, 0.43), yticks=[], xlabel="rank u / a")
    lines.set_title(f"the m = {m} smallest ranks; t is the next")
    lines.spines["left"].set_visible(False)
    gone = sorted(set(samples[0]) - set(samples[1]))
    assert samples[0] == samples[2]
    return figure, (
        f"The ranks: of {len(ids)} points the {m} smallest ranks are those of ids "
        f"{', '.join(map(str, samples[0]))}; when id {new} comes it takes the place of id {gone[0]}, and "
        "when it goes the sample is what it was."
    )


def tree() -> Picture:
    """Draw what one deletion touches in a merge-and-reduce tree, and in lists of ranks."""
    size, gone = 20, 47
    grown = Tree(_Line(), dm.UniformSampler(), seed=0, node_size=10, bucket_size=size)
    grown.add(np.arange(135))
    grown.choose(10)
    before = set(grown._nodes)
    grown.remove(np.array([gone]))
    stale = before - set(grown._nodes)
    count = -(-len(grown) // size)
    figure, (left, right) = _sheet(8.4, 3.9, (1.35, 1))
    middles = {(level, i): ((i << level) + min((i + 1) << level, count)) / 2 for level, i in before}
    place = {node: (x, node[0]) for node, x in middles.items()}
    for level, i in before:
        for child in ((level - 1, 2 * i), (level - 1, 2 * i + 1)):
            if child in before:
                pair = np.transpose([place[level, i], place[child]])
                left.plot(*pair, color=ACCENT if child in stale else "#bbbbbb", lw=1.3, zorder=0)
    for node, (x, base) in place.items():
        fill = ACCENT if node in stale else "white"
        left.scatter(x, base, s=230, color=fill, edgecolor=INK, lw=0.9)
    for bucket in range(count):
        hot, full = bucket == count - 1, min(len(grown) / size - bucket, 1.0)
        frame = {"fill": False, "edgecolor": INK, "lw": 1}
        left.add_patch(Rectangle((bucket + 0.12, -1.15), 0.76, 0.62, **frame))
        fill = ACCENT if (0, bucket) in stale else "#d7d7d7"
        left.add_patch(Rectangle((bucket + 0.12, -1.15), 0.76 * full, 0.62, color=fill, lw=0))
        left.text(bucket + 0.5, -1.6, "hot" if hot else f"{bucket}", ha="center", fontsize=9.5)
    left.set(xlim=(-0.1, count + 0.1), ylim=(-1.85, 3.5))
    left.set_title(f"tree: {len(stale)} of {len(before)} nodes rebuilt")
    left.axis("off")
    lost, came = _draw_lists(right)
    return figure, (
        f"The engines: when a point leaves bucket {gone // size}, the tree fills its place from the hot "
        f"bucket and rebuilds {len(stale)} of {len(before)} nodes; when id {lost} leaves its list of "
        f"ranks, id {came} steps in."
    )


def _draw_lists(axes: Any) -> tuple[int, int]:
    """Draw lists of ranks, one sampled point that leaves, and the one that steps in: their ids."""
    X = np.random.default_rng(5).exponential(size=(27, 1))
    points, loss, anchor = dm.points(X), dm.KMedianLoss(1), dm.Anchor([[0.0]], radius=0.1)
    layers_now, sizes, _ = _layers_of(points, loss, anchor, 9)
    order = np.argsort(uniforms(2, points.ids))
    lists = [order[layers_now[order] == layer] for layer in range(len(sizes))]
    left = np.delete(points.ids, lists[0][1])
    assert np.array_equal(_layers_of(points.take(left), loss, anchor, 9)[1], sizes)
    for layer, (ids, drawn) in enumerate(zip(lists, sizes, strict=True)):
        for cell, name in enumerate(ids):
            out = layer == 0 and cell == 1
            colour = ACCENT if out else PLAIN if cell < drawn + (layer == 0) else "white"
            look = {"facecolor": colour, "edgecolor": INK, "lw": 0.8}
            axes.add_patch(Rectangle((cell, -1.6 * layer), 0.88, 0.9, **look))
            ink = INK if colour == "white" else "white"
            axes.text(
                cell + 0.44, 0.42 - 1.6 * layer, f"{name}", ha="center", va="center", fontsize=8.5, color=ink
            )
        axes.text(-0.3, 0.45 - 1.6 * layer, f"{layer}", ha="right", va="center")
    axes.annotate("leaves", (1.44, 0.95), (0.4, 2.1), arrowprops={"arrowstyle": "->"})
    axes.annotate("steps in", (sizes[0] + 0.44, 0.95), (sizes[0], 2.1), arrowprops={"arrowstyle": "->"})
    axes.set(xlim=(-1.5, max(map(len, lists)) + 0.1), ylim=(-1.6 * len(lists), 3.4))
    axes.set_title("ranks: one entry of one list")
    axes.axis("off")
    return int(lists[0][1]), int(lists[0][sizes[0]])


def calibration() -> Picture:
    """Draw the factors on the weights, and the error around the anchor with and without them."""
    X, y, z = _two_classes(20_000)
    loss, points = dm.LogisticLoss(), dm.points(X, y)
    anchor = dm.find_anchor(points, loss, z, random_state=0)
    way = np.array([1.0, 1.0, -1.0, 0.0, 1.0]) / 2 * anchor.radius
    steps = np.linspace(-3, 3, 25)
    thetas = [anchor.theta + step * way for step in steps]
    truth = np.array([dm.trimmed_objective(points, theta, loss=loss, n_outliers=z) for theta in thetas])
    errors: dict[bool, list[Any]] = {False: [], True: []}
    cores: dict[bool, Any] = {}
    for seed in range(12):
        for calibrate in (False, True):
            known = {"loss": loss, "size": 500, "n_outliers": z, "anchor": anchor, "random_state": seed}
            core = cores[calibrate] = dm.robust_coreset(X, y, calibrate=calibrate, **known)
            anchor = core.anchor
            errors[calibrate].append([core.objective(theta) for theta in thetas] / truth - 1)
    figure, (left, right) = _sheet(8.4, 3.7, (1, 1.25))
    inner = ~cores[True].suspected
    drawn, after = cores[False].weights[inner], cores[True].weights[inner]
    ends = np.array([drawn.min() * 0.8, drawn.max() * 1.3])
    for factor, words in ((3, "x 3"), (1, ""), (1 / 3, "/ 3")):
        left.plot(ends, factor * ends, color="#999999", lw=1, ls="-" if factor == 1 else "--")
        left.text(ends[1], factor * ends[1], words, va="center")
    left.scatter(drawn, after, s=9, color=PLAIN, alpha=0.6, lw=0)
    left.set(xscale="log", yscale="log", xlabel="weight as drawn", title="weights")
    left.set_ylabel("weight calibrated")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
    left.minorticks_off()
    for calibrate, colour in ((False, GREY), (True, PLAIN)):
        for number, one in enumerate(errors[calibrate]):
            label = ("calibrated" if calibrate else "as drawn") if number == 0 else None
            right.plot(steps, 100 * np.asarray(one), color=colour, lw=1.3, alpha=0.8, label=label)
    right.set(title="error of the objective, 12 seeds", xlabel="distance from the anchor, in radii")
    right.set_ylabel("error in %")
    right.legend(loc="upper right", ncols=2)
    right.set_ylim(-11, 13)
    middle = [float(np.abs(np.array(errors[c])[:, len(steps) // 2]).mean()) for c in (False, True)]
    return figure, (
        f"Calibration: over 12 seeds the mean error of the objective at the anchor is {middle[0]:.1%} as "
        f"drawn and {middle[1]:.2%} calibrated; no weight changes by more than a factor of 3."
    )


def bars() -> Picture:
    """Draw the intervals of many seeds at one theta, and what the data say."""
    X, y, z = _two_classes(20_000)
    loss, points = dm.LogisticLoss(), dm.points(X, y)
    anchor = dm.find_anchor(points, loss, z, random_state=0)
    theta = anchor.theta + anchor.radius / 3
    truth = dm.trimmed_objective(points, theta, loss=loss, n_outliers=z)
    found = []
    for seed in range(60):
        core = dm.robust_coreset(X, y, loss=loss, size=500, n_outliers=z, anchor=anchor, random_state=seed)
        anchor = core.anchor
        found.append(core.estimate(theta))
    figure, (axes,) = _sheet(8.4, 2.9)
    inside = [one.low <= truth <= one.high for one in found]
    for seed, (one, holds) in enumerate(zip(found, inside, strict=True)):
        axes.vlines(seed, one.low, one.high, color=PLAIN if holds else ACCENT, lw=2.6)
        axes.scatter(seed, one.value, s=9, color=INK, zorder=3)
    axes.axhline(truth, color=INK, lw=1, ls="--")
    axes.set(xlabel="seed", title=f"95% intervals: {sum(inside)} of {len(found)} hold the truth (dashed)")
    axes.set_ylabel("objective")
    axes.margins(x=0.01)
    return figure, (
        f"Error bars: of {len(found)} coresets of 500 rows, {sum(inside)} have a 95% interval that holds the "
        "objective on all the data."
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "data-flow": flow,
    "how-overview": overview,
    "how-split": split,
    "how-layers": layers,
    "how-ranks": ranks,
    "how-tree": tree,
    "how-calibration": calibration,
    "how-error-bars": bars,
}


def _draw_flow(axes: Any, boxes: dict[str, tuple[float, float, float, str, str]], ways: str) -> None:
    """Draw boxes (left, base, width, words, colour) and arrows between them, "one other, ..."."""
    for x, base, width, words, colour in boxes.values():
        look = {"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
        axes.add_patch(FancyBboxPatch((x + 0.6, base + 0.6), width - 1.2, 10.8, **look))
        axes.text(x + width / 2, base + 6, words, ha="center", va="center", fontsize=9.5)
    for way in ways.split(", "):
        (x, base, width, *_), (to, floor, *_) = (boxes[name] for name in way.split())
        start, end = (x + width + 0.3, base + 6), (to - 0.3, floor + 6)
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=INK))


class _Line:
    """Points on a line: the holder that a tree asks for the points in its slots."""

    weights = np.ones(1000)

    def points(self, slots: Any) -> dm.WeightedPoints:
        return dm.points(slots[:, None] + 0.0, ids=slots)


def _two_classes(n: int) -> tuple[Any, Any, int]:
    """Make two classes, and 2% of rows far out with the wrong label."""
    rng = np.random.default_rng(0)
    X, z = rng.standard_t(4, size=(n, 4)), n // 50
    y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0, 1, -1)
    X[:z], y[:z] = np.array([12.0, -6.0, 0.0, 0.0]) + rng.normal(size=(z, 4)), -1
    return X, y, z


def _layers_of(points: Any, loss: Any, anchor: Any, size: int) -> tuple[Any, Any, Any]:
    """Cut points into layers: the layer of each, how many rows are drawn from each layer, where each ends."""
    sampler = dm.LayeredSampler()
    seen = freeze(sampler, AnchoredPoints(points, loss, anchor, loss.values(anchor.theta, points.X)))
    numbers = sampler.strata(seen)
    strata, _ = strata_of(numbers, points.weights)
    groups, sizes = sampler.allocate(strata, size)
    mine = groups[np.searchsorted(strata.numbers, numbers)]
    lowest, unit = seen.anchor.frozen["layers"]
    first = 1 + int(strata.numbers[groups == 0].max())  # the exponent at which layer 0 ends
    return mine, sizes, lowest + unit * 2.0 ** (first + np.arange(len(sizes)))


def _sheet(width: float, height: float, ratios: tuple[float, ...] = (1,)) -> tuple[Figure, list[Any]]:
    """Make a figure with panels side by side, their widths in these ratios."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05, w_pad=0.1)
    return figure, list(figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0])


def save(name: str, folder: Path = FOLDER) -> str:
    """Write one picture, the same bytes every time; return its title."""
    with mpl.rc_context(STYLE):
        figure, fact = PICTURES[name]()
        metadata = {"Title": fact, "Date": None, "Creator": None}
        figure.savefig(folder / f"{name}.svg", metadata=metadata)
    return fact


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        print(f"{name}: {save(name)}")


if __name__ == "__main__":
    main()
