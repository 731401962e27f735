"""Fits of centres: k-means--, Weiszfeld's iteration and its variants, and means for Bregman divergences.

A row is compared with all centres again only when bounds on its distances (Hamerly 2010) no longer show that
its nearest centre is what it was: in the last iterations, hardly ever. All distances that are returned are
computed from the differences themselves.
"""

from __future__ import annotations

from contextlib import nullcontext
from operator import add
from typing import Any, ClassVar

import numpy as np

from duramen.arrays import Array, row_products, take_rows
from duramen.losses.base import lengths
from duramen.losses.centres import (
    FEW_COLUMNS,
    least_two,
    nearest_squared,
    squared_differences,
    squared_gaps,
    sum_by_centre,
)
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.trimming import Fit, Iterate, Problem, kept_sum, kept_unchecked, set_aside

# of the mean distance: a centre this close to a point lies on it, or beside it
_COINCIDENT, _BESIDE = 1e-12, 1e-3
_CORRECTIONS = 64  # after so many, sums are computed from scratch
_CANCELLED = 1e4  # how many times the cost its terms may be: cancellation then loses four digits
_SAFE = 1e-9  # relative slack of all bounds, for rounding
_VANISHING = 1e-300  # squares below it may have lost their digits


class MeanFit(Fit):
    """Means of the points each centre owns: the best centres for any Bregman divergence."""

    needs: ClassVar[tuple[str, ...]] = ("n_centres", "inside", "costs")
    numbers: Array  # of the centre that owns each point

    def evaluate(self, theta: Array) -> Iterate:
        values, self.numbers = self.loss.values_and_cache(theta, self.problem.X)
        return self.problem.at(theta, values)

    def refit(self, here: Iterate) -> Iterate:
        centres = here.theta.reshape(-1, self.problem.points.n_columns)
        mass, means = self.means(centres, here.kept)
        return self.evaluate(self.loss.inside(self.refill(means, mass, here)).reshape(here.theta.shape))

    def means(self, centres: Array, kept: Array) -> tuple[Array, Array]:
        """Compute the weight of each cluster, and the weighted mean of its points."""
        mass, total = cluster_sums(self.problem.X, None, self.numbers, kept, centres)
        return mass, centres + total / _positive(mass)

    def refill(self, centres: Array, mass: Array, here: Iterate) -> Array:
        """Move each centre without kept points to the kept point with the largest remaining loss."""
        empty = np.flatnonzero(~(mass > 0))
        if empty.size:
            worst = np.where(here.kept > 0, here.losses, 0.0)
            far = np.argsort(-worst, kind="stable")[: empty.size]
            far = far[worst[far] > 0]
            centres[empty[: far.size]] = self.problem.X[far]
        return centres


class DistanceFit(MeanFit):
    """Means weighted by the slope of each point's loss: Weiszfeld's iteration and its variants."""

    needs = (*MeanFit.needs, "height", "pull")
    squared: Array  # distance of each point to its centre

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nearest = NearestCentres(problem.X)
        self.numbers = self.nearest.numbers
        # the slope of h at a distance of zero: 1 for k-median, which has a kink there
        self.kink = self.loss.pull(np.array([1e-200])).item() * 1e-100

    def evaluate(self, theta: Array) -> Iterate:
        self.nearest.move(theta.reshape(-1, self.problem.points.n_columns))
        self.squared = self.nearest.squared()
        return self.problem.at(theta, self.loss.height(self.squared))

    def means(self, centres: Array, kept: Array) -> tuple[Array, Array]:
        """Compute weighted means where a point under or beside a centre may hold it back.

        Beside a point, where its pull is finite but immense, a centre would leave it in tiny steps only, so
        points beside a centre count as lying on it. Where they hold it, they pull like any other.
        """
        pulls = kept * self.loss.pull(self.squared)
        if self.kink < 1e-50:
            return super().means(centres, pulls)
        distances = np.sqrt(self.squared)
        scale = kept_sum(distances, kept) / self.problem.kept_weight
        weight, steps = self._steps(centres, kept, pulls, distances <= _BESIDE * scale)
        held = ~steps.any(axis=1)
        if held.any():
            steps[held] = self._steps(centres, kept, pulls, distances <= _COINCIDENT * scale)[1][held]
        return weight, centres + steps

    def _steps(self, centres: Array, kept: Array, pulls: Array, under: Array) -> tuple[Array, Array]:
        """Compute the weight of each cluster, and the step of its centre, where some points lie under theirs.

        Vardi and Zhang (2000): with R the pull of the other points, a centre on a point of weight w stays
        there if ``w >= |R|``; else it moves ``1 - w / |R|`` of the way that the others pull it.
        """
        hold = self.kink * np.bincount(self.numbers, kept * under, minlength=len(centres))
        mass, total = cluster_sums(self.problem.X, None, self.numbers, np.where(under, 0.0, pulls), centres)
        pull = np.linalg.norm(total, axis=1)
        part = np.where(pull > hold, 1 - hold / pull, 0.0)
        return mass + hold, part[:, None] * total / _positive(mass)


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
        gaps = _block(X, chunk if rows is None else rows[chunk]) - origins.take(owners, axis=0)
        gaps[(parts == 0).nonzero()] = 0.0  # a row that is set aside, however far, does not count
        total = sum_by_centre(gaps, owners, parts, k)
        columns = [parts, parts * row_products(gaps, gaps), np.sign(parts)] if costs else [parts]
        mass, *more = (np.bincount(owners, column, minlength=k) for column in columns)
        return mass, total, *more

    return sum_over_chunks(work, len(weights), rows_per_chunk(24 * d))


class KMeansFit(DistanceFit):
    """Means of the kept points of each cluster, whose sums are corrected for the rows that changed."""

    # what :func:`cluster_sums` returned, around which centres, for which clusters and weights of rows
    sums: tuple[Array, ...]
    origins: Array
    owners: Any = -1
    counted: Any = -1.0
    corrections = 0  # since the sums were computed from scratch
    level = np.inf  # of squared distances, above which the weight was about 2 z

    def evaluate(self, theta: Array) -> Iterate:
        self.nearest.move(theta)
        kept = self.problem.points.weights.copy()
        if self.problem.z > 0:
            rows, left = self._set_aside()
            kept[rows] = left
        self._update(theta, kept)
        cost, terms = self._cost(theta)
        if cost * _CANCELLED < terms:
            self._update(theta, kept, exact=True)
            cost, _ = self._cost(theta)
        return Iterate(theta, np.empty(0), kept, max(float(cost), 0.0))

    def refit(self, here: Iterate) -> Iterate:
        mass, total, _, counts = self.sums
        mass = np.where(counts > 0, mass, 0.0)
        if not mass.all():
            here = here._replace(losses=self.nearest.squared())
        return self.evaluate(self.refill(self.origins + total / _positive(mass), mass, here))

    def _set_aside(self) -> tuple[Array, Array]:
        """Set weight z aside, among the rows above the level if they weigh enough."""
        points, z = self.problem.points, self.problem.z
        rows, squared = self.nearest.beyond(self.level)
        weights = points.weights.take(rows)
        if not z < weights.sum():
            squared, twice = self.nearest.squared(), min(2 * z, (z + points.total_weight) / 2)
            rows, left = set_aside(squared, points.weights, twice, points.ids)
            squared, weights = squared[rows], points.weights[rows]
            self.level = squared[left < weights].min()
        return rows, kept_unchecked(squared, weights, z, points.ids.take(rows))

    def _update(self, centres: Array, kept: Array, *, exact: bool = False) -> None:
        """Correct the sums for the rows that changed; if many did, or if ``exact``, compute them again."""
        rows = ((self.owners != self.numbers) | (self.counted != kept)).nonzero()[0]
        if exact or self.corrections == _CORRECTIONS or len(rows) > len(kept) // 8:
            self.origins, self.owners, self.corrections = centres, self.numbers.copy(), 0
            self.sums = cluster_sums(self.problem.X, None, self.owners, kept, centres, costs=True)
        else:  # take them out of the clusters that they were in, and add them to those they are in
            clusters = np.concatenate((self.owners.take(rows), self.numbers.take(rows)))
            weights = np.concatenate((-self.counted.take(rows), kept.take(rows)))
            parts = cluster_sums(
                self.problem.X, np.tile(rows, 2), clusters, weights, self.origins, costs=True
            )
            self.sums = tuple(map(add, self.sums, parts))
            self.owners[rows] = self.numbers.take(rows)
            self.corrections += 1
        self.counted = kept

    def _cost(self, centres: Array) -> tuple[float, float]:
        """Compute the cost of all kept points, and the sizes of its terms, which may cancel."""
        mass, total, squares, _ = self.sums
        gaps = centres - self.origins
        own, cross, shift = squares.sum(), 2 * (gaps * total).sum(), mass @ row_products(gaps, gaps)
        return own - cross + shift, own + abs(cross) + shift


class NearestCentres:
    """Each row's nearest centre, with bounds that are kept up to date as the centres move.

    ``reach + moved[numbers]`` bounds the distance of a row to its own centre from above. ``slack`` is the gap
    from ``reach`` to a lower bound on the distance to every other centre: the row certainly keeps its centre
    while ``slack > moved[numbers] + travelled``. The entries of a row stay as they are while it is skipped.
    """

    centres: Any = None
    moved: Any = 0.0  # how far each centre has moved, step by step
    travelled = 0.0  # the longest of each step's moves, added up

    def __init__(self, X: Array) -> None:
        self.X = X
        self.numbers = np.zeros(len(X), dtype=np.intp)
        self.reach, self.slack = np.zeros(len(X)), np.full(len(X), -np.inf)

    def move(self, centres: Array) -> None:
        """Move the centres (k, d) to new places."""
        before = centres if self.centres is None else self.centres
        self.centres = centres.copy()
        steps = lengths(centres - before) * (1 + _SAFE)
        self.moved = self.moved + steps
        self.travelled += steps.max()
        self._settle(self._rows_where(np.less_equal, self.slack, self.moved + self.travelled))

    def squared(self, rows: Array | None = None) -> Array:
        """Compute the squared distances of rows (None for all) to their own centres."""
        squared = np.empty(len(self.X) if rows is None else len(rows))

        def work(chunk: slice) -> None:
            which = chunk if rows is None else rows[chunk]
            squared[chunk] = squared_gaps(
                _block(self.X, which), self.centres.take(self.numbers[which], axis=0)
            )

        for_each_chunk(work, len(squared), rows_per_chunk(32 * self.X.shape[1]))
        return squared

    def beyond(self, level: float) -> tuple[Array, Array]:
        """Find the rows whose squared distance is ``level`` or more, and these squared distances."""
        rows = self._rows_where(np.greater_equal, self.reach, np.sqrt(level) * (1 - _SAFE) - self.moved)
        squared = self.squared(rows)
        far = squared >= level
        return rows[far], squared[far]

    def _rows_where(self, compare: np.ufunc, bounds: Array, limits: Array) -> Array:
        """Find the rows whose bounds compare so with the limits of their centres."""
        passed = np.empty(len(self.X), dtype=bool)

        def work(chunk: slice) -> None:
            compare(bounds[chunk], limits.take(self.numbers[chunk]), out=passed[chunk])

        for_each_chunk(work, len(passed))
        return passed.nonzero()[0]

    def _settle(self, rows: Array) -> None:
        """Compare rows with all centres."""
        k, d = self.centres.shape

        def work(chunk: slice) -> None:
            which = chunk if len(rows) == len(self.X) else rows[chunk]  # a slice copies nothing
            numbers, squared, others = _two_nearest(_block(self.X, which), self.centres)
            reach = np.sqrt(squared) - self.moved.take(numbers)
            self.numbers[which], self.reach[which] = numbers, reach
            self.slack[which] = others * (1 - _SAFE) + self.travelled - reach

        with one_blas_thread() if d > FEW_COLUMNS else nullcontext():  # in few columns, there are no products
            for_each_chunk(work, len(rows), rows_per_chunk(8 * (3 * d + 2 * k)))


def _block(X: Array, which: Any) -> Array:
    """Return rows of X, a slice or their numbers, in double precision."""
    return np.require(take_rows(X, which), dtype=np.float64, requirements=["C", "A"])


def _two_nearest(block: Array, centres: Array) -> tuple[Array, Array, Array]:
    """Find each row's nearest centre, its squared distance, and a lower bound on the distance to any other.

    In many columns, one product of rows and centres relative to a point among them screens; close cases are
    decided exactly.
    """
    if centres.shape[1] <= FEW_COLUMNS:
        first, least, second = least_two(squared_differences(block, centres))
        return first, least, np.sqrt(second)
    shift = np.median(centres, axis=0)
    there, moved = block - shift, centres - shift
    sizes, squares = row_products(moved, moved), row_products(there, there)
    first, least, second = least_two((-2 * moved) @ there.T + sizes[:, None])
    rounding = 8 * (len(shift) + 8) * np.finfo(np.float64).eps * (squares + sizes.max()) + _VANISHING
    squared = squared_gaps(block, centres.take(first, axis=0))
    others = np.sqrt(np.maximum(second + squares - rounding, 0.0))
    close = np.flatnonzero(~(second - least > 2 * rounding))
    if close.size:
        squared[close], first[close] = nearest_squared(block[close], centres)
        others[close] = 0.0
    return first, squared, others
