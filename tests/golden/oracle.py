"""A naive oracle of the whole coreset, from the rows, the settings and the state of the anchor.

It shares no code with the package, not even the hash, and does everything the slow way: it sorts all points,
and computes every rank, threshold and weight by its definition. Whatever route the package takes (memory, a
scan, Dask, updates, a store), it must arrive at these ids and groups exactly, and at these weights to nine
digits. Only what the anchor froze (theta, its radius, the layers, the leverage frame, the means behind
sensitivities) is taken as given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from tests.golden.plain import AtAnchor, look

EPS = 2.0**-52
CLASSIFIERS, CLASSES = ("logistic", "hinge"), ("logistic", "hinge", "softmax")
LINEAR = ("logistic", "hinge", "huber", "squared", "poisson")


@dataclass(frozen=True)
class Asked:
    """What a coreset is asked for: as for ``robust_coreset``, with the names of loss and sampler."""

    loss: str
    sampler: str
    size: int
    n_outliers: float
    random_state: int
    suspects: float = 1.5
    beta: float | None = None
    calibrate: bool = True


class Expected(NamedTuple):
    """The coreset, in the order of ids."""

    ids: Any
    weights: Any
    inclusion: Any
    groups: Any
    threshold: float
    n_suspected: int
    n_points: int
    calibrated: bool


class Point(NamedTuple):
    """A point of positive weight, with what it is drawn by."""

    loss: float
    id: int
    weight: float
    row: int  # in the columns of what is known at the anchor
    kind: int  # the number of its class, if there are classes


class Drawn(NamedTuple):
    """A point of the coreset."""

    point: Point
    weight: float
    inclusion: float
    group: int


def oracle(asked: Asked, anchor: Any, X: Any, y: Any, weights: Any, ids: Any) -> Expected:
    """Compute the coreset of points as seen from an anchor with ``theta``, ``radius`` and ``frozen``."""
    live, seen, points = live_points(asked, anchor, X, y, weights, ids)
    seed = int(np.random.default_rng(asked.random_state).integers(2**63))
    outer, inner = split(points, asked)
    sizes = share(asked, len(outer), len(inner))
    name = best_sampler(asked, anchor) if asked.sampler == "auto" else asked.sampler
    apart = missed(outer, inner, sizes[0]) if name != "layered" else []
    chosen = draw(seed, outer, dict.fromkeys(outer, 1.0), *rungs(outer, sizes[0], apart))
    chosen = [one._replace(group=-1 - one.group) for one in chosen]
    scored = dict(zip(inner, scores(name, seen, anchor, X[live], inner), strict=True))
    groups = layers(inner, sizes[1], anchor) if name == "layered" else classes(inner, sizes[1])
    others = sorted(draw(seed, inner, scored, *groups, name != "layered"), key=lambda one: one.point.id)
    calibrated = asked.calibrate and 0 < sizes[1] < len(inner)
    if calibrated:
        columns = known_columns(seen, anchor, sizes[1])
        totals = [math.fsum(p.weight * columns[p.row, q] for p in inner) for q in range(columns.shape[1])]
        drawn = np.array([one.weight for one in others])
        adjusted = calibrate(columns[[one.point.row for one in others]], drawn, np.array(totals))
        others = [one._replace(weight=float(w)) for one, w in zip(others, adjusted, strict=True)]
    core = sorted(chosen + others, key=lambda one: one.point.id)
    found = ([one.point.id for one in core], [one.weight for one in core], [one.inclusion for one in core])
    threshold = min((p.loss for p in outer), default=math.inf)
    return Expected(*found, [one.group for one in core], threshold, len(outer), len(points), calibrated)


def live_points(
    asked: Asked, anchor: Any, X: Any, y: Any, weights: Any, ids: Any
) -> tuple[list[int], AtAnchor, list[Point]]:
    """Look at the points of positive weight: zero weight is the same as absent."""
    live = [row for row in range(len(ids)) if weights[row] > 0]
    seen = look(asked.loss, anchor.theta, anchor.radius, X[live], None if y is None else y[live])
    columns = zip(live, seen.values, strict=True)
    kinds = [int(one > 0) * int(one) for one in y] if asked.loss in CLASSES else [0] * len(ids)
    points = [
        Point(float(f), int(ids[row]), float(weights[row]), at, kinds[row])
        for at, (row, f) in enumerate(columns)
    ]
    return live, seen, points


def frozen(asked: Asked, anchor: Any, X: Any, y: Any, weights: Any, ids: Any) -> dict[str, Any]:
    """Compute what a sampler freezes of the suspected inliers; for leverage F F', which fixes all lengths."""
    live, seen, points = live_points(asked, anchor, X, y, weights, ids)
    _, inner = split(points, asked)
    rows = [p.row for p in inner]
    shares = np.array([p.weight for p in inner]) / math.fsum(p.weight for p in inner)
    if asked.sampler == "layered":
        lowest = min(p.loss for p in inner)
        return {"layers": np.array([lowest, shares @ seen.values[rows] - lowest])}
    if asked.sampler == "sensitivity":
        columns = (seen.values, seen.lipschitz, seen.smooth, seen.hessian, seen.deviation)
        means = [0.0 if column is None else shares @ column[rows] for column in columns]
        gradient = shares @ seen.gradients[rows] if seen.convex or seen.smooth is not None else np.array(0.0)
        return {"sensitivity": np.array(means), "sensitivity_gradient": gradient}
    Z = np.column_stack([X[live][rows], np.ones(len(rows))])
    moment = Z.T @ (shares[:, None] * Z)
    moment += np.diag(np.diag(moment)) / len(rows)  # as if each column had been seen once more
    return {"leverage": np.linalg.inv(moment) / Z.shape[1]}


def uniform(seed: int, name: int) -> float:
    """Compute u(id) in (0, 1): two rounds of splitmix64, of the seed and then of the id."""

    def mix(number: int) -> int:
        number %= 2**64
        number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
        return number ^ (number >> 31)

    step = 0x9E3779B97F4A7C15
    return (mix(name * step + mix(seed + step)) // 2**11 + 0.5) / 2**53


def split(points: list[Point], asked: Asked) -> tuple[list[Point], list[Point]]:
    """Suspect the largest (loss, id), as few as weigh enough; a rounding error of a sum does not count as weight."""
    total = math.fsum(p.weight for p in points)
    z = float(asked.n_outliers)
    if z < 1:
        z *= total
        z = float(round(z)) if abs(z - round(z)) <= 4 * EPS * round(z) else z
    enough = min(asked.suspects * z, (z + total) / 2, total)
    down = sorted(points, key=lambda p: (p.loss, p.id), reverse=True)
    count, slack = 0, 64 * EPS * enough
    while enough > 0 and count < len(down):
        before, weight = math.fsum(p.weight for p in down[:count]), down[count].weight
        if before >= enough - (slack if weight > slack else 0):
            break
        count += 1
    return down[:count], down[count:]


def share(asked: Asked, n_outer: int, n_inner: int) -> tuple[int, int]:
    """Share the size: a fifth for the suspected, or all of them with beta=0; and one point for each side."""
    if n_outer + n_inner <= asked.size:
        return n_outer, n_inner
    outer = n_outer if asked.beta is not None else min(n_outer, max(round(0.2 * asked.size), 1))
    outer = min(max(outer, asked.size - n_inner), asked.size - (n_inner > 0))
    return outer, asked.size - outer


def missed(outer: list[Point], inner: list[Point], size: int) -> list[int]:
    """List the classes that only suspected points have, and of which fewer than 200 are expected."""
    if size >= len(outer):
        return []
    heavy = weight_of(outer)
    total, known = math.fsum(heavy.values()), {p.kind for p in inner}
    found = [k for k in heavy if k not in known and size * heavy[k] / total < 200 * (1 - 1e-9)]
    return found if len(found) < min(size // 2, len(heavy)) else []


def weight_of(points: list[Point]) -> dict[int, float]:
    """Add up the weight of each class, in ascending order."""
    return {k: math.fsum(p.weight for p in points if p.kind == k) for k in sorted({p.kind for p in points})}


def rungs(outer: list[Point], size: int, apart: list[int]) -> tuple[list[int], list[int]]:
    """Group the suspected by their loss: eighths of a doubling, pooled in pairs until each has four points.

    Some classes are groups of their own, after the others.
    """
    least = min(200, size // (2 * len(apart) + 2))
    few = [min(least, sum(p.kind == k for p in outer)) for k in sorted(apart)]
    rest, size = [p for p in outer if p.kind not in apart], size - sum(few)
    names = [math.floor(8 * math.log2(p.loss)) if p.loss > 0 else -16000 for p in rest]
    while 4 * len(set(names)) > size and len(set(names)) > 1:
        names = [name >> 1 if max(names) > min(names) + 1 else 0 for name in names]
    numbers, sizes = apportioned(names, [p.weight for p in rest], size, lambda name, weight: weight)
    place = dict(zip(rest, numbers, strict=True))
    own = {k: len(sizes) + at for at, k in enumerate(sorted(apart))}
    return [place[p] if p in place else own[p.kind] for p in outer], sizes + few


def classes(inner: list[Point], size: int) -> tuple[list[int], list[int]]:
    """Group classes together, after each class of which so few points are expected that it could be missed."""
    heavy = weight_of(inner)
    total, k = math.fsum(heavy.values()), len(heavy)
    least = min(200, max(size // (2 * k), 1 if size >= k else 0)) if k else 0
    rare = [one for one in heavy if size * heavy[one] / total < least * (1 - 1e-9) and size < len(inner)]
    few = [min(least, sum(p.kind == one for p in inner)) for one in rare]
    groups = [rare.index(p.kind) if p.kind in rare else len(rare) for p in inner]
    return groups, [*few, size - sum(few)]


def layers(inner: list[Point], size: int, anchor: Any) -> tuple[list[int], list[int]]:
    """Group points by the exponent of their loss above the lowest, in frozen units; the low ones together."""
    if not inner:
        return [], []
    lowest, unit = anchor.frozen["layers"]
    heights = [max((p.loss - lowest) / unit, 0.0) for p in inner]
    exponents = [min(max(math.frexp(h)[1] - 1, -60), 1000) if h > 0 else -60 for h in heights]
    total = math.fsum(p.weight for p in inner)
    mean = math.fsum(p.weight / total * 1.5 * 2.0**e for p, e in zip(inner, exponents, strict=True))
    floor = math.floor(math.log2(mean) + 1e-9)
    names = [max(e - floor + 1, 0) for e in exponents]
    while len(set(names)) > max(1, size // 2):
        names = [max(name - 1, 0) for name in names]
    return apportioned(names, [p.weight for p in inner], size, lambda name, weight: weight * 2 ** (name / 2))


def apportioned(names: list[int], weights: list[float], size: int, worth: Any) -> tuple[list[int], list[int]]:
    """Number groups from the lowest name up, and share the size by what they are worth.

    In proportion, but at least two for each (or one, if that is too many) and no more than there are. What
    rounding down leaves goes to the largest remainders, the first of equals.
    """
    kinds = sorted(set(names))
    room = [names.count(kind) for kind in kinds]
    heavy = [math.fsum(w for name, w in zip(names, weights, strict=True) if name == kind) for kind in kinds]
    shares = [worth(kind, weight) for kind, weight in zip(kinds, heavy, strict=True)]
    shares = [max(round(s / max(shares) * 2**40) / 2**40, 1e-9) for s in shares]
    least = [min(n, 2 if 2 * len(kinds) <= size else 1) for n in room]

    def parts(level: float) -> list[float]:
        return [min(max(level * s, a), b) for s, a, b in zip(shares, least, room, strict=True)]

    low, high = 0.0, max(room, default=0) / min(shares, default=1)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(parts(middle)) < size else (low, middle)
    exact = parts(low)
    sizes = [math.floor(part) for part in exact]
    order = sorted(range(len(kinds)), key=lambda g: (sizes[g] == room[g], sizes[g] - exact[g], g))
    for group in order[: size - sum(sizes)]:
        sizes[group] += 1
    return [kinds.index(name) for name in names], sizes


def draw(
    seed: int,
    points: list[Point],
    scored: dict[Point, float],
    groups: list[int],
    sizes: list[int],
    together: bool = False,
) -> list[Drawn]:
    """Take the smallest ranks u / a of every group, with a = weight times score, ties by id.

    If ``together``, all points take part in the draw from the last group.
    """
    measure = {p: max(p.weight * scored[p], 1e-290) for p in points}
    ranked = sorted(
        (group, uniform(seed, p.id) / measure[p], p.id, p) for group, p in zip(groups, points, strict=True)
    )
    drawn: list[Drawn] = []
    every = sorted(one[1:] for one in ranked)
    if (
        together
        and len(sizes) > 1
        and all(one[0] < len(sizes) - 1 for one in ranked if one[1:] in every[: sizes[-1]])
    ):
        together, sizes = False, [*sizes[:-1], min(sizes[-1], max(sizes[:-1]))]
    for group, members in groupby(ranked, key=lambda one: one[0]):
        mine = list(members)
        few, following = mine[: sizes[group]], mine[sizes[group] :]
        if together and group == len(sizes) - 1:
            few = [one for one in mine if one[1:] in every[: sizes[group]]]
            following = [one for one in mine if one not in few]
        threshold = following[0][1] if following else math.inf
        if together and group == len(sizes) - 1:
            threshold = every[sizes[group]][0] if len(every) > sizes[group] else math.inf
        taken = [(p, min(1.0, measure[p] * threshold)) for _, _, _, p in few]
        drawn += scale(group, taken, math.fsum(p.weight for *_, p in following))
    return drawn


def scale(group: int, taken: list[tuple[Point, float]], rest: float) -> list[Drawn]:
    """Divide weights by probabilities, scaled to the group's weight; points that were certain keep theirs."""
    certain = [p for p, inclusion in taken if inclusion >= 1]
    raw = math.fsum(p.weight / inclusion for p, inclusion in taken if inclusion < 1)
    own = math.fsum(p.weight for p, inclusion in taken if inclusion < 1)
    factor = (own + rest) / raw if raw else 1.0
    stretch = 1.0 if raw else 1 + rest / math.fsum(p.weight for p in certain)
    return [
        Drawn(p, p.weight * stretch if inclusion >= 1 else p.weight / inclusion * factor, inclusion, group)
        for p, inclusion in taken
    ]


def best_sampler(asked: Asked, anchor: Any) -> str:
    """Choose a sampler by the loss, the radius, and whether there are 50 rows per parameter."""
    few = asked.size < 50 * np.size(anchor.theta)
    if asked.loss == "softmax" or (asked.loss in CLASSIFIERS and not (few and anchor.radius > 0)):
        return "leverage"
    return "sensitivity" if asked.loss in LINEAR and anchor.radius > 0 else "layered"


def scores(name: str, seen: AtAnchor, anchor: Any, X: Any, inner: list[Point]) -> list[float]:
    """Compute how much a unit of weight of each point matters."""
    if name in ("uniform", "layered"):
        return [1.0] * len(inner)
    if name == "leverage":
        images = np.column_stack([X, np.ones(len(X))]) @ anchor.frozen["leverage"]
        every = 1 + np.sqrt((images**2).sum(axis=1))
    elif name == "sensitivity":
        every = sensitivities(seen, anchor)
    else:
        raise ValueError(f"there are no scores of the sampler {name!r} here")
    return [float(every[p.row]) for p in inner]


def sensitivities(seen: AtAnchor, anchor: Any) -> Any:
    """Bound f(theta, x) over the mean loss, for all theta in the ball: the least of all bounds, at least 1."""
    value, slope, bend, twist, deviation = anchor.frozen["sensitivity"]
    gradient, reach = anchor.frozen["sensitivity_gradient"].ravel(), anchor.radius
    lows, costs, fractions = [0.0], [], []
    for constant, mean in ((seen.lipschitz, slope * reach), (seen.deviation, deviation)):
        if constant is not None:
            lows.append(value - mean)
            costs.append(seen.values + constant * (reach if constant is seen.lipschitz else 1))
    for alpha, mean in ((seen.smooth, bend), (seen.hessian, twist)):
        if alpha is not None or seen.convex:
            falls = 0.0 if seen.convex else mean
            lows.append(value - reach * np.linalg.norm(gradient) - falls * reach**2 / 2)
        if alpha is not None:
            costs.append(seen.values + reach * _norms(seen.gradients) + alpha * reach**2 / 2)
            fractions.append(largest_fraction(seen, alpha, value, gradient, falls, reach))
    if max(lows) <= 0:
        return np.maximum(np.min(costs, axis=0) / value, 1) if value > 0 else np.ones(len(seen.values))
    return np.maximum(np.min([*fractions, *(cost / max(lows) for cost in costs)], axis=0), 1)


def largest_fraction(
    seen: AtAnchor, alpha: Any, value: float, gradient: Any, bend: float, reach: float
) -> Any:
    """Find the t at which (f - t F) + l |g - t G| + (alpha + t A) l^2 / 2 vanishes, by bisection."""
    least = value - reach * np.linalg.norm(gradient) - bend * reach**2 / 2
    if least <= 0:
        return np.full(len(seen.values), np.inf)
    low = np.zeros(len(seen.values))
    high = (seen.values + reach * _norms(seen.gradients) + alpha * reach**2 / 2) / least
    for _ in range(100):
        t = (low + high) / 2
        pulls = _norms(seen.gradients - t[:, None] * gradient)
        above = seen.values - t * value + reach * pulls + (alpha + t * bend) * reach**2 / 2 > 0
        low, high = np.where(above, t, low), np.where(above, high, t)
    return low


def known_columns(seen: AtAnchor, anchor: Any, size: int) -> Any:
    """List what weights are calibrated to: the loss, the nearest centre, the gradient; ten points for each."""
    columns = [seen.values[:, None]]
    if seen.nearest is not None:
        columns.append(np.eye(len(anchor.theta))[seen.nearest])
    columns.append(seen.gradients)
    while len(columns) > 1 and 10 * sum(part.shape[1] for part in columns) > size:
        columns.pop()
    return np.hstack(columns)


def calibrate(columns: Any, weights: Any, totals: Any) -> Any:
    """Multiply weights by factors between 1/3 and 3, so that they come near the totals and keep their sum.

    The factors minimise a bounded distance with a ridge on each total (ten points over how many it hangs on);
    no total is followed by more than five standard errors. Newton steps on the dual, each by a dense solve.
    They end when a step gains no more than 1e-12, which is part of the result: it is not exact to nine digits.
    """
    shares = weights / weights.sum()
    means = shares @ columns
    apart = columns - means
    used = np.abs(apart).max(axis=0) > 1e-6 * np.abs(means)
    spread = np.where(used, np.sqrt(shares @ apart**2), 1.0)
    apart = np.where(used, apart / spread, 0.0)
    ridge = np.append(0.0, 10 * np.where(used, shares**2 @ apart**4, 1.0))
    reach = 5 * np.sqrt(shares**2 @ apart**2)
    off = np.rint((totals / weights.sum() - means) / spread * 2**32) / 2**32
    goal = np.append(1.0, np.where(used, np.clip(off, -reach, reach), 0.0))
    design = np.column_stack([np.ones(len(weights)), apart])

    def dual(tilt: Any) -> float:
        score = design @ tilt
        rise = score / 3 + 4 / 3 * np.logaddexp(0, 2 * score - np.log(3))
        return float(shares @ rise + ridge @ tilt**2 / 2 - goal @ tilt)

    tilt, curvature, last = np.zeros(len(goal)), None, math.inf
    for _ in range(50):
        part = 1 / (1 + 3 * np.exp(-2 * (design @ tilt)))
        factors = 1 / 3 + 8 / 3 * part
        slope = (shares * factors) @ design - goal + ridge * tilt
        if curvature is None:
            bends = shares * 16 / 3 * part * (1 - part)
            curvature = design.T @ (bends[:, None] * design) + np.diag(ridge + 1e-12)
        step = -np.linalg.solve(curvature, slope)
        gain = -float(slope @ step)
        if not gain > 1e-12:
            break
        length = 1.0
        while dual(tilt + length * step) > dual(tilt) - 1e-4 * length * gain and length >= 1e-6:
            length /= 2
        if length < 1 or gain > last / 10:
            curvature = None
        tilt, last = tilt + length * step, gain
    calibrated = shares * (1 / 3 + 8 / 3 / (1 + 3 * np.exp(-2 * (design @ tilt))))
    return calibrated * (weights.sum() / calibrated.sum())


def _norms(rows: Any) -> Any:
    return np.sqrt((rows**2).sum(axis=1))
