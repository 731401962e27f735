"""The nearest of k centres, exactly, and without an (n, k, d) array.

The fast way to all distances is one matrix product, from |x - c|^2 = |x|^2 -
2 <x, c> + |c|^2; but far from the origin, or close to a centre, that difference
of large numbers has no digits left. So the product only *screens*: with a bound
on its rounding error it leaves, for each row, the centres that may be nearest
(almost always one), and the distance to those is computed from the differences
themselves. In few columns, differences to all centres take less time than the
product. Both are exact to rounding, and a row's result is the same, bit for
bit, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from duramen.chunks import for_each_chunk, rows_per_chunk
from duramen.rows import Array, dense_block

__all__ = ["candidates", "least_cost", "least_per_row", "nearest_squared"]

_FEW_COLUMNS = 16  # up to here differences beat the screening product (docs/speed.md)

Kernel = Callable[[Array], tuple[Array, Array]]


def nearest_squared(X: Array, centres: Array, *, numbered: bool = True) -> tuple[Array, Array]:
    """Compute each row's squared distance to its nearest centre, and that centre's number.

    Of equally near centres the first. Costs O(n k d) and the result's memory.
    Without ``numbered`` the numbers are not kept, which saves a third.
    """
    if X.shape[1] <= _FEW_COLUMNS:
        return least_cost(
            X, lambda block: _by_differences(block, centres, numbered), scratch=X.shape[1] + 2 * len(centres)
        )
    shift = centres.mean(axis=0)
    moved = centres - shift
    offsets = np.einsum("ij,ij->i", moved, moved)
    reach = np.sqrt(offsets.max())

    def kernel(block: Array) -> tuple[Array, Array]:
        there = block - shift
        size = np.sqrt(np.einsum("ij,ij->i", there, there)) + reach
        rows, numbers = candidates(there, -2 * moved, offsets, size * size)
        apart = block[rows]
        apart -= centres[numbers]
        return least_per_row(len(block), rows, numbers, np.einsum("ij,ij->i", apart, apart))

    return least_cost(X, kernel, scratch=3 * X.shape[1] + 2 * len(centres))


def least_cost(X: Array, kernel: Kernel, scratch: int) -> tuple[Array, Array]:
    """Run a kernel (block to costs and centre numbers) over all rows, by chunks on all cores.

    ``scratch`` is how many numbers a row the kernel keeps at a time.
    """
    n = X.shape[0]
    costs, numbers = np.empty(n, dtype=X.dtype), np.empty(n, dtype=np.int32)

    def work(chunk: slice) -> None:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            costs[chunk], numbers[chunk] = kernel(dense_block(X, chunk))

    for_each_chunk(work, n, rows_per_chunk(scratch * X.dtype.itemsize))
    return costs, numbers


def candidates(block: Array, slopes: Array, offsets: Array, size: Array) -> tuple[Array, Array]:
    """Find the centres that may be nearest, where cost_j(x) = <slopes_j, x> + offsets_j + something of x.

    ``size`` (b,) bounds |slopes_j|.|x| + |offsets_j| over j, and the costs
    themselves: rounding moves each by at most (d + 8) units of it. Returns
    (row, centre) pairs, at least one a row, ascending in the centre for each row.
    A row with NaN has none.
    """
    scores = slopes @ block.T
    scores += offsets[:, None]
    limit = scores.min(axis=0)
    limit += size * (4 * (block.shape[1] + 8) * np.finfo(block.dtype).eps)
    numbers, rows = np.nonzero(scores <= limit)
    return rows, numbers


def least_per_row(n: int, rows: Array, numbers: Array, costs: Array) -> tuple[Array, Array]:
    """Take the smallest cost of each row's candidates; of equal ones the first centre."""
    least, first = np.full(n, np.inf, dtype=costs.dtype), np.zeros(n, dtype=np.int32)
    if len(rows) == n:  # one candidate a row, as nearly always
        least[rows], first[rows] = costs, numbers
        return least, first
    np.minimum.at(least, rows, costs)
    won = np.flatnonzero(costs == least[rows])[::-1]
    first[rows[won]] = numbers[won]
    return least, first


def _by_differences(block: Array, centres: Array, numbered: bool) -> tuple[Array, Array]:
    """Sum squared differences column by column, for all centres at once: few calls on long arrays."""
    columns, coordinates = np.ascontiguousarray(block.T), centres.T[:, :, None]
    total = np.subtract(columns[0], coordinates[0])
    np.multiply(total, total, out=total)
    term = np.empty_like(total)
    for column, coordinate in zip(columns[1:], coordinates[1:], strict=True):
        np.subtract(column, coordinate, out=term)
        np.multiply(term, term, out=term)
        np.add(total, term, out=total)
    least, first = total.min(axis=0), np.zeros(len(block), dtype=np.int32)
    if numbered:
        for number in range(len(centres) - 1, 0, -1):
            np.copyto(first, number, where=total[number] == least, casting="same_kind")
        np.copyto(first, 0, where=total[0] == least, casting="same_kind")
    return least, first
