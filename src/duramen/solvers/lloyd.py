"""Fits of centres: k-means--, Weiszfeld's iteration and its variants, and means for Bregman divergences.

The nearest centre of each row is remembered from one iteration to the next: we
keep an upper bound on the distance to its own centre and a lower bound on the
distance to every other (Hamerly 2010). When the centres move, the first grows by
the move of its centre, the second falls by the longest move of any. While the
first is below the second, the row's nearest centre is what it was, and the row is
skipped: in the last iterations nearly all are. All distances that are returned
are computed from the differences themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np

from duramen.arrays import Array, row_products, take_rows
from duramen.losses.base import ignore_overflow, lengths
from duramen.losses.centres import (
    FEW_COLUMNS,
    first_least,
    nearest_squared,
    only_true,
    squared_differences,
    sum_by_centre,
)
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.trimming import Fit, Iterate, Problem, kept_sum

# of the mean distance: a centre this close to a point lies on it, or beside it
_COINCIDENT, _BESIDE = 1e-12, 1e-3
_CORRECTIONS = 64  # after so many, sums are computed from scratch
_CANCELLED = 1e4  # how many times the cost its terms may be: cancellation then loses four digits
_SAFE = 1e-9  # relative slack of all bounds, for rounding
_VANISHING = 1e-300  # squares below it may have lost their digits
_MARGIN = 0.05  # of a distance: how far centres may move before the rows beyond it are found again
_FEW = 1 << 18  # rows times centres up to which one product takes less time than bounds: measured


class MeanFit(Fit):
    """Means of the points each centre owns: the best centres for any Bregman divergence."""

    needs: ClassVar[tuple[str, ...]] = ("n_centres", "outside", "inside", "of_one_centre")

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.loss: Any = problem.loss
        self.numbers = np.empty(0, dtype=np.intp)  # of the centre that owns each point

    def losses(self, theta: Array) -> Array:
        values, numbers = self.loss.values_and_cache(theta, self.problem.X)
        self.numbers = numbers.astype(np.intp)
        return values

    def refit(self, here: Iterate) -> Array:
        centres = here.theta.reshape(-1, self.problem.points.n_columns)
        mass, means = self.means(centres, here.kept)
        return self.loss.inside(self.refill(means, mass, here)).reshape(here.theta.shape)

    def means(self, centres: Array, weights: Array) -> tuple[Array, Array]:
        """Compute the weight of each cluster, and the weighted mean of its points."""
        mass, total = cluster_sums(self.problem.X, None, self.numbers, weights, centres)
        return mass, centres + total / _positive(mass)

    def refill(self, centres: Array, mass: Array, here: Iterate) -> Array:
        """Move each centre without kept points to the kept point with the largest remaining loss."""
        empty = np.flatnonzero(~(mass > 0))
        if not empty.size:
            return centres
        worst = np.where(here.kept > 0, here.losses, -1.0)
        most = min(empty.size, len(worst))
        far = np.argpartition(worst, -most)[-most:]
        far = far[np.argsort(-worst[far], kind="stable")]
        far = far[worst[far] > 0]
        centres = centres.copy()
        centres[empty[: far.size]] = self.problem.X[far]
        return centres


class DistanceFit(MeanFit):
    """Means weighted by the slope of each point's loss: Weiszfeld's iteration and its variants."""

    needs = (*MeanFit.needs, "height", "pull")

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        X, k = problem.X, self.loss.n_centres
        few = len(X) * k <= _FEW and X.shape[1] <= FEW_COLUMNS
        self.nearest = ScreenedCentres(X) if few else NearestCentres(X)
        self.numbers = self.nearest.numbers
        self.squared = np.empty(0)
        # the slope of h at a distance of zero: 1 for k-median, which has a kink there
        self.kink = float(self.loss.pull(np.array([1e-200]))[0]) * 1e-100

    def restart(self) -> None:
        self.nearest.restart()

    def losses(self, theta: Array) -> Array:
        self.nearest.move(theta.reshape(-1, self.problem.points.n_columns))
        self.squared = self.nearest.squared()
        return self.loss.height(self.squared)

    def means(self, centres: Array, weights: Array) -> tuple[Array, Array]:
        pulls = weights * self.loss.pull(self.squared)
        if self.kink > 1e-50:
            return self._past_kinks(centres, weights, pulls)
        return super().means(centres, pulls)

    def _past_kinks(self, centres: Array, kept: Array, pulls: Array) -> tuple[Array, Array]:
        """Compute weighted means where a point under or beside a centre holds it back.

        Vardi and Zhang (2000): with R the pull of the other points, a centre on a point of weight w stays
        there if ``w >= |R|``; else it moves ``1 - w / |R|`` of the way that the others pull it.
        Beside a point, where its pull is finite but immense, a centre would leave it in tiny steps only,
        so it moves as freely there too. Where the points beside it do hold it, they pull like any other.
        """
        numbers, k = self.numbers, len(centres)
        distances = np.sqrt(self.squared)
        scale = kept_sum(distances, kept) / max(float(kept.sum()), np.finfo(np.float64).tiny)
        beside = np.flatnonzero(distances <= _BESIDE * scale)
        hold = self.kink * np.bincount(numbers[beside], kept[beside], minlength=k)
        rest = pulls.copy()
        rest[beside] = 0.0
        mass, total = cluster_sums(self.problem.X, None, numbers, rest, centres)
        means = centres + _free_step(total, mass, hold)
        escaping = np.linalg.norm(total, axis=1) > hold
        near = beside[(distances[beside] > _COINCIDENT * scale) & ~escaping[numbers[beside]]]
        if near.size:
            more, added = cluster_sums(self.problem.X, near, numbers[near], pulls[near], centres)
            under = hold - self.kink * np.bincount(numbers[near], kept[near], minlength=k)
            moved = centres + _free_step(total + added, mass + more, under)
            means = np.where((more > 0)[:, None], moved, means)
        return mass + hold, means


def _free_step(total: Array, mass: Array, hold: Array) -> Array:
    """Step as far towards the weighted means as the pull exceeds what holds the centres back."""
    pull = np.linalg.norm(total, axis=1)
    free = pull > hold
    part = np.where(free, 1 - np.divide(hold, pull, out=np.zeros_like(pull), where=free), 0.0)
    return part[:, None] * total / _positive(mass)


def _positive(mass: Array) -> Array:
    """Return weights to divide by, (k, 1): 1 in place of 0."""
    return np.where(mass > 0, mass, 1.0)[:, None]


def cluster_sums(
    X: Array, rows: Array | None, numbers: Array, weights: Array, origins: Array, *, costs: bool = False
) -> tuple[Array, ...]:
    """Sum over ``rows`` (None for all), whose clusters and weights are given, for each cluster.

    Return its weight (k,) and the sum of the gaps to its origin (k, d); with ``costs`` also that of their
    squares (k,), and how many points have weight, less those that lose it (k,). Differences are taken row by
    row, so that data far from the origin lose no digits.
    """
    k, d = origins.shape

    def work(chunk: slice) -> tuple[Array, ...]:
        owners, parts = numbers[chunk], weights[chunk]
        gaps = (X[chunk] if rows is None else take_rows(X, rows[chunk])) - origins.take(owners, axis=0)
        gaps[(parts == 0).nonzero()] = 0.0  # a row that is set aside, however far, does not count
        total = sum_by_centre(gaps, owners, parts, k)
        columns = (parts * row_products(gaps, gaps), np.sign(parts)) if costs else ()
        mass, *more = (np.bincount(owners, column, minlength=k) for column in (parts, *columns))
        return mass, total, *more

    return sum_over_chunks(work, len(weights), rows_per_chunk(24 * d))


class KMeansFit(DistanceFit):
    """Means of the kept points of each cluster, whose sums are corrected for the rows that changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.kept = problem.points.weights.copy()
        self.aside = np.empty(0, dtype=np.intp)  # rows whose weight is set aside
        self.corrections = _CORRECTIONS  # since the sums were computed from scratch
        # what :func:`cluster_sums` returned, and for which cluster and weight of each row
        self.sums: tuple[Array, ...] = ()
        self.owners, self.counted = self.numbers, self.kept

    def restart(self) -> None:
        super().restart()
        self.corrections = _CORRECTIONS

    def evaluate(self, theta: Array) -> Iterate:
        self._update(self._trim(self.nearest.move(theta)), theta)
        cost, terms = self._cost(theta)
        if cost * _CANCELLED < terms:
            self._sum_all(theta)
            cost, _ = self._cost(theta)
        return Iterate(theta, np.empty(0), self.kept, max(cost, 0.0))

    def refit(self, here: Iterate) -> Array:
        mass, total, _, counts = self.sums
        mass = np.where(counts > 0, mass, 0.0)
        if not mass.all():
            here = here._replace(losses=self.nearest.squared())
        return self.refill(self.origins + total / _positive(mass), mass, here)

    def _trim(self, moved: Array) -> Array:
        """Set weight aside; return the rows that may have changed, in cluster or in weight."""
        weights = self.problem.points.weights
        aside, left = np.empty(0, dtype=np.intp), np.empty(0)
        if self.problem.z > 0:
            above, left = self.trim.among(self.nearest.beyond, self.nearest.squared)
            touched = (left < weights.take(above)).nonzero()[0]
            aside, left = above.take(touched), left.take(touched)
        changed = np.zeros(len(weights), dtype=bool)
        for rows in (moved, self.aside, aside):
            changed[rows] = True
        self.kept[self.aside] = weights.take(self.aside)
        self.kept[aside] = left
        self.aside = aside
        return changed.nonzero()[0]

    def _update(self, rows: Array, centres: Array) -> None:
        """Correct the sums for the change of ``rows``, or compute them from scratch if too much changed."""
        if self.corrections >= _CORRECTIONS:
            return self._sum_all(centres)
        owners, numbers = self.owners.take(rows), self.numbers.take(rows)
        before, kept = self.counted.take(rows), self.kept.take(rows)
        changed = ((owners != numbers) | (before != kept)).nonzero()[0]
        if changed.size > len(self.kept) // 8:
            return self._sum_all(centres)
        if changed.size:
            rows = rows.take(changed)
            self.owners[rows], self.counted[rows] = numbers.take(changed), kept.take(changed)
            twice = np.concatenate((rows, rows))
            clusters = np.concatenate((owners.take(changed), numbers.take(changed)))
            weights = np.concatenate((-before.take(changed), kept.take(changed)))
            parts = cluster_sums(self.problem.X, twice, clusters, weights, self.origins, costs=True)
            self.sums = tuple(one + other for one, other in zip(self.sums, parts, strict=True))
        self.corrections += 1
        return None

    def _sum_all(self, centres: Array) -> None:
        self.origins, self.corrections = centres, 0
        self.owners, self.counted = self.numbers.copy(), self.kept.copy()
        self.sums = cluster_sums(self.problem.X, None, self.owners, self.counted, centres, costs=True)

    def _cost(self, centres: Array) -> tuple[float, float]:
        """Compute the cost of all kept points, and the sizes of its terms, which may cancel."""
        mass, total, squares, _ = self.sums
        gaps = centres - self.origins
        shift = float(mass @ row_products(gaps, gaps))
        cross = 2 * float((gaps * total).sum())
        return float(squares.sum()) - cross + shift, float(squares.sum()) + abs(cross) + shift


class _MovingCentres:
    """The nearest centre of each row, its ``numbers``, as ``centres`` move."""

    def __init__(self, X: Array) -> None:
        self.X = X
        self.centres = np.empty((0, X.shape[1]))
        self.numbers = np.zeros(len(X), dtype=np.intp)

    def restart(self) -> None:
        """Reset all that depends on earlier moves."""

    def squared(self, rows: Array | None = None) -> Array:
        """Compute the squared distances of rows (None for all) to their own centres."""
        squared = np.empty(len(self.X) if rows is None else len(rows))

        def work(chunk: slice) -> None:
            which = chunk if rows is None else rows[chunk]
            squared[chunk] = _gaps(_block(self.X, which), self.centres, self.numbers[which])

        with ignore_overflow():
            for_each_chunk(work, len(squared), rows_per_chunk(32 * self.X.shape[1]))
        return squared

    def _at_least(self, level: float, rows: Array) -> tuple[Array, Array]:
        squared = self.squared(rows)
        far = squared >= level
        return (rows, squared) if far.all() else (rows[far], squared[far])


class ScreenedCentres(_MovingCentres):
    """Each row's nearest centre, the first of equally near ones, by one product of all rows and centres.

    With x and c relative to a fixed point, ``|c|^2 - 2 <x, c>`` ranks the centres c of a row x. Where
    rounding, or an overflow, leaves several that may be nearest, the differences themselves decide.
    """

    def __init__(self, X: Array) -> None:
        super().__init__(X)
        self.shift = np.median(X[:: len(X) // 256 + 1], axis=0)
        with ignore_overflow():
            there = _block(X, slice(None)) - self.shift  # in double precision
            self.sizes = 4 * row_products(there, there)  # so that they overflow first
            self.columns = np.vstack((there.T, np.ones(len(X))))

    def move(self, centres: Array) -> Array:
        """Move the centres (k, d) to new places; return the rows whose nearest centre changed."""
        self.centres = centres.copy()
        there = centres - self.shift
        sizes = row_products(there, there)
        rounding = _rounding(self.sizes, 4 * sizes, len(self.shift))
        scores = np.column_stack((-2 * there, sizes)) @ self.columns
        least = scores.min(axis=0)
        self.farthest = least + (self.sizes / 4 + rounding)
        numbers, doubtful = only_true(scores <= least + 2 * rounding)
        if doubtful.size:
            numbers[doubtful] = first_least(squared_differences(_block(self.X, doubtful), centres))[1]
        rows = (numbers != self.numbers).nonzero()[0]
        self.numbers[rows] = numbers[rows]
        return rows

    def beyond(self, level: float) -> tuple[Array, Array]:
        """Find the rows whose squared distance is ``level`` or more, and these squared distances."""
        return self._at_least(level, (~(self.farthest < level)).nonzero()[0])


class NearestCentres(_MovingCentres):
    """Each row's nearest centre, with bounds that are kept up to date as the centres move.

    ``reach + moved[numbers]`` bounds the distance of a row to its own centre
    from above. ``slack`` is the gap from ``reach`` to a lower bound on the
    distance to every other centre: the row certainly keeps its centre while
    ``slack > moved[numbers] + travelled``. The entries of a row stay as they are
    while it is skipped.
    """

    def __init__(self, X: Array) -> None:
        super().__init__(X)
        self.reach, self.slack = np.zeros(len(X)), np.zeros(len(X))
        self.restart()

    def restart(self) -> None:
        self.centres = self.centres[:0]
        self.moved = np.empty(0)  # how far each centre has moved, step by step
        self.travelled = 0.0  # the longest of each step's moves, added up
        self.far_level, self.far_until = -1.0, -1.0
        self.far_rows = np.empty(0, dtype=np.intp)  # rows that may lie beyond the level, up to far_until

    def move(self, centres: Array) -> Array:
        """Move the centres (k, d) to new places; return the rows whose nearest centre changed."""
        before, self.centres = self.centres, centres.copy()
        if not len(before):
            self.moved = np.zeros(len(centres))
            every = np.arange(len(self.X))
            self._settle(every)
            return every
        steps = lengths(centres - before) * (1 + _SAFE)
        self.moved = self.moved + steps
        self.travelled += float(steps.max())
        limits = self.moved + self.travelled
        return self._settle(self._rows_where(lambda at: self.slack[at] <= limits.take(self.numbers[at])))

    def beyond(self, level: float) -> tuple[Array, Array]:
        """Find the rows whose squared distance is ``level`` or more, and these squared distances."""
        # the candidates are found with a margin, and stay valid until the centres have moved by it
        if self.far_level != level or self.travelled > self.far_until:
            distance = float(np.sqrt(level))
            least = distance * (1 - _MARGIN) * (1 - _SAFE)
            self.far_rows = self._rows_where(
                lambda at: self.reach[at] >= least - self.moved.take(self.numbers[at])
            )
            self.far_level, self.far_until = level, self.travelled + _MARGIN * distance
        return self._at_least(level, self.far_rows)

    def _rows_where(self, test: Callable[[slice], Array]) -> Array:
        found: dict[int, Array] = {}

        def work(chunk: slice) -> None:
            found[chunk.start] = np.flatnonzero(test(chunk)) + chunk.start

        with ignore_overflow():
            for_each_chunk(work, len(self.X))
        return np.concatenate([found[start] for start in sorted(found)])

    def _settle(self, rows: Array) -> Array:
        """Compare rows with all centres; return those whose nearest centre changed."""
        k, d = self.centres.shape
        few = d <= FEW_COLUMNS
        compare = _by_differences if few else partial(_by_products, shift=np.median(self.centres, axis=0))
        changed = np.zeros(len(rows), dtype=bool)

        def work(chunk: slice) -> None:
            which = rows[chunk]
            numbers, squared, others = compare(_block(self.X, which), self.centres)
            reach = np.sqrt(squared) - self.moved.take(numbers)
            changed[chunk] = numbers != self.numbers[which]
            self.numbers[which], self.reach[which] = numbers, reach
            self.slack[which] = others * (1 - _SAFE) + self.travelled - reach

        calm = nullcontext() if few else one_blas_thread()  # with few columns there are no products
        with calm, ignore_overflow():
            for_each_chunk(work, len(rows), rows_per_chunk(8 * (3 * d + 2 * k)))
        return rows[changed]


def _block(X: Array, which: slice | Array) -> Array:
    rows = X[which] if isinstance(which, slice) else take_rows(X, which)
    if rows.dtype == np.float64 and rows.flags.c_contiguous and rows.flags.aligned:
        return rows
    return np.require(rows, dtype=np.float64, requirements=["C", "A"])


def _by_differences(block: Array, centres: Array) -> tuple[Array, Array, Array]:
    costs = squared_differences(block, centres)
    least, first = first_least(costs)
    costs[first, np.arange(len(first))] = np.inf
    return first, least, np.sqrt(costs.min(axis=0))


def _by_products(block: Array, centres: Array, shift: Array) -> tuple[Array, Array, Array]:
    """Screen by one product, of rows and centres relative to ``shift``; decide close cases exactly."""
    there, moved = block - shift, centres - shift
    sizes, squares = row_products(moved, moved), row_products(there, there)
    scores = (-2 * moved) @ there.T
    scores += sizes[:, None]
    least, first = first_least(scores)
    scores[first, np.arange(len(first))] = np.inf
    second = scores.min(axis=0)
    rounding = _rounding(squares, sizes, block.shape[1])
    squared = _gaps(block, centres, first)
    others = np.sqrt(np.maximum(second + squares - rounding, 0.0))
    close = np.flatnonzero(~(second - least > 2 * rounding))
    if close.size:
        squared[close], first[close] = nearest_squared(block[close], centres)
        others[close] = 0.0
    return first, squared, others


def _rounding(squares: Array, sizes: Array, d: int) -> Array:
    """Bound the rounding errors of |c|^2 - 2 <x, c>, from the squared lengths of the x, and of the c."""
    return 8 * (d + 8) * np.finfo(np.float64).eps * (squares + sizes.max()) + _VANISHING


def _gaps(block: Array, centres: Array, numbers: Array) -> Array:
    gap = centres.take(numbers, axis=0)
    gap -= block
    return row_products(gap, gap)
