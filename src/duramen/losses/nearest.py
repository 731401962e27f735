"""The nearest of k centres, exactly, and without an (n, k, d) array.

The fast way to all distances is one matrix product, from |x - c|^2 = |x|^2 -
2 <x, c> + |c|^2; but far from the origin, or close to a centre, that difference
of large numbers has no digits left. So the product only *screens*: with bounds
on its rounding error it leaves, for each row, the centres that may be nearest
(almost always one), and the distance to those is computed from the differences
themselves. In few columns, differences to all centres take less time than the
product. Both are exact to rounding, and a row's result is the same, bit for
bit, at any position.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from duramen.arrays import Array, dense_block, row_products
from duramen.losses.base import ignore_overflow
from duramen.parallel import for_each_chunk, rows_per_chunk

FEW_COLUMNS = 16  # up to here differences beat the screening product (docs/speed.md)

Kernel = Callable[[Array], tuple[Array, Array]]


def nearest_squared(X: Array, centres: Array, *, numbered: bool = True) -> tuple[Array, Array]:
    """Compute each row's squared distance to its nearest centre, and that centre's number.

    Of equally near centres, the first. Cost: O(n k d), and memory for the result.
    Without ``numbered`` the numbers may be left at zero, which saves time.
    """
    k, d = centres.shape
    if d <= FEW_COLUMNS:
        return least_cost(X, lambda block: _by_differences(block, centres, numbered), scratch=d + 2 * k)
    shift = np.median(centres, axis=0)  # a far centre must not move it away from the others
    moved = centres - shift
    sizes = row_products(moved, moved)
    # rounding moves a score by at most (d + 8) units of (|x| + |c|)^2 <= 2 |x|^2 + 2 |c|^2
    unit = 4 * (d + 8) * np.finfo(X.dtype).eps

    def costs(pairs: Array, numbers: Array) -> Array:
        pairs -= centres[numbers]
        return row_products(pairs, pairs)

    def kernel(block: Array) -> tuple[Array, Array]:
        there = block - shift
        low = (-2 * moved) @ there.T
        low += ((1 - unit) * sizes)[:, None]
        limit = (low + (2 * unit * sizes)[:, None]).min(axis=0)
        limit += 2 * unit * row_products(there, there)
        return least_among(block, low, limit, costs)

    return least_cost(X, kernel, scratch=3 * d + 6 * k)


def least_cost(X: Array, kernel: Kernel, scratch: int) -> tuple[Array, Array]:
    """Run a kernel (block to costs and centre numbers) over all rows, by chunks on all cores.

    ``scratch`` is how many numbers per row the kernel keeps at a time.
    """
    n = X.shape[0]
    costs, numbers = np.empty(n, dtype=X.dtype), np.empty(n, dtype=np.int32)

    def work(chunk: slice) -> None:
        with ignore_overflow():
            costs[chunk], numbers[chunk] = kernel(dense_block(X, chunk))

    for_each_chunk(work, n, rows_per_chunk(scratch * X.dtype.itemsize))
    return costs, numbers


def sum_by_centre(rows: Array, numbers: Array, weights: Array, k: int) -> Array:
    """Sum weight times row over the rows of each of k centres: (k, d)."""
    ends = np.arange(len(weights) + 1)
    return np.asarray(sparse.csc_array((weights, numbers, ends), shape=(k, len(weights))) @ rows)


def least_among(
    block: Array, low: Array, limit: Array, costs: Callable[[Array, Array], Array]
) -> tuple[Array, Array]:
    """Compute the least cost of each row among the centres that may have it.

    ``low`` (k, b) bounds the cost of each centre from below, up to a term of
    the row alone, and ``limit`` (b,) that of the cheapest from above. ``costs``
    computes the cost itself, from gathered rows (which it may overwrite) and the
    numbers of their centres. A bound that is NaN excludes nothing.
    """
    numbers, rows = np.nonzero(~(low > limit))
    exact = np.empty(len(rows), dtype=block.dtype)
    for start in range(0, len(rows), len(block)):  # no more scratch memory when many centres remain
        part = slice(start, start + len(block))
        exact[part] = costs(block[rows[part]], numbers[part])
    least, first = np.full(len(block), np.inf, dtype=block.dtype), np.zeros(len(block), dtype=np.int32)
    if len(rows) == len(block):  # one centre per row, as nearly always
        least[rows], first[rows] = exact, numbers
        return least, first
    np.minimum.at(least, rows, exact)
    won = np.flatnonzero(exact == least[rows])[::-1]  # the last written, hence the first centre, stays
    first[rows[won]] = numbers[won]
    return least, first


def squared_differences(block: Array, centres: Array) -> Array:
    """Compute all squared distances, (k, b), column by column for all centres: few calls on long arrays.

    A block in Fortran order is not copied.
    """
    columns, coordinates = np.ascontiguousarray(block.T), centres.T[:, :, None]
    total = columns[0] - coordinates[0]
    np.multiply(total, total, out=total)
    term = np.empty_like(total)
    for column, coordinate in zip(columns[1:], coordinates[1:], strict=True):
        np.subtract(column, coordinate, out=term)
        np.multiply(term, term, out=term)
        np.add(total, term, out=total)
    return total


def first_least(costs: Array) -> tuple[Array, Array]:
    """Find the least of each column of (k, b) costs, and the first row that has it."""
    least = costs.min(axis=0)
    has_least = costs == least
    first, tied = only_true(has_least)
    first[tied] = has_least[:, tied].argmax(axis=0)
    return least, first


def only_true(table: Array) -> tuple[Array, Array]:
    """Find the only true entry of each column of a table (k, b); also return the columns without just one."""
    short = np.min_scalar_type(-len(table))  # argmax would take ten times as long
    rows = np.einsum("i,ij->j", np.arange(len(table), dtype=short), table.view(np.int8))
    return rows.astype(np.int32), (table.sum(axis=0, dtype=short) != 1).nonzero()[0]


def _by_differences(block: Array, centres: Array, numbered: bool) -> tuple[Array, Array]:
    total = squared_differences(block, centres)
    if numbered:
        return first_least(total)
    return total.min(axis=0), np.zeros(len(block), dtype=np.int32)
