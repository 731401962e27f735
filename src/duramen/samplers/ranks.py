"""Ranks: one selection for every sampler.

Each point has a pseudo-random number u(id) in (0, 1), a hash of a seed and its
id, and a size measure a = weight times score. Its rank is u / a, and the sample
of m points has the m smallest ranks. With t the next rank, a sampled
point was included with probability pi = min(1, a t), and weight / pi estimates
its share of any sum without bias: priority sampling, which draws without
replacement (Duffield, Lund and Thorup 2007).

Nothing here depends on the order of the points, or on earlier points: the
sample is a function of the points that are present.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.parallel import for_each_chunk

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_STEPS = [(int(shift), int(factor)) for shift, factor in _SPREAD]
_ALL = 2**64 - 1
_STEP = 2.0**40  # shares are rounded to multiples of one over it


def uniform_of(seed: int, name: int) -> float:
    """Compute u of one id, in a microsecond.

    Examples
    --------
    >>> uniform_of(7, -3) == float(uniforms(7, np.array([-3]))[0])
    True
    """
    return ((_mix_one(name * int(_GOLDEN) + _start(seed)) >> 11) + 0.5) * 2.0**-53


@functools.lru_cache(maxsize=64)
def _start(seed: int) -> int:
    return _mix_one(seed + int(_GOLDEN))


def _mix_one(number: int) -> int:
    number &= _ALL
    for shift, factor in _STEPS:
        number = ((number ^ (number >> shift)) * factor) & _ALL
    return number ^ (number >> 31)


def uniforms(seed: int, ids: Array) -> Array:
    """Compute u(id): (n,) numbers in (0, 1), by Steele, Lea and Flood's splitmix64 of seed and id.

    Examples
    --------
    >>> uniforms(0, np.array([1, 2, 3])) == uniforms(0, np.array([3, 1, 2]))[[1, 2, 0]]
    array([ True,  True,  True])
    """
    start = np.uint64(_start(seed))
    result = np.empty(len(ids))

    def work(chunk: slice) -> None:
        number = result[chunk].view(np.uint64)
        np.multiply(ids[chunk].astype(np.int64, copy=False).view(np.uint64), _GOLDEN, out=number)
        number += start
        _mix(number, np.empty_like(number))
        number >>= np.uint64(11)
        np.add(number, 0.5, out=result[chunk])
        result[chunk] *= 2.0**-53

    for_each_chunk(work, len(ids), 1 << 16)
    return result


def _mix(number: Array, scratch: Array) -> None:
    """Mix the bits of every number, in place."""
    for shift, factor in _SPREAD:
        np.right_shift(number, shift, out=scratch)
        number ^= scratch
        number *= factor
    np.right_shift(number, np.uint64(31), out=scratch)
    number ^= scratch


def smallest(ranks: Array, ids: Array, m: int) -> tuple[Array, float]:
    """Find the ``m`` smallest ranks, ties by id, and the next rank.

    Infinite ranks count as absent. Where no more than m are finite, all
    of them are found and the next rank is infinity.

    Returns
    -------
    rows : array of at most m positions, in the order of their ranks
    threshold : float

    Notes
    -----
    Cost: one comparison per point, as ranks are random: a subsample bounds the
    m smallest of all.

    Examples
    --------
    >>> rows, threshold = smallest(np.array([0.4, 0.1, 0.3, 0.2]), np.arange(4), 2)
    >>> rows, float(threshold)
    (array([1, 3]), 0.3)
    """
    step = len(ranks) // 4096
    limit = np.inf if step < 2 else _likely_limit(ranks[::step], (m + 1) / step)
    rows = np.flatnonzero(ranks <= limit)
    if len(rows) <= m and np.isfinite(limit):
        rows = np.flatnonzero(ranks < np.inf)
    elif not np.isfinite(limit):
        rows = rows[ranks[rows] < np.inf]
    if len(rows) > m + 1:
        order = np.argpartition(ranks[rows], m)
        rows = rows[ranks[rows] <= ranks[rows[order[m]]]]  # with all that tie there
    rows = rows[np.lexsort((ids[rows], ranks[rows]))]
    threshold = float(ranks[rows[m]]) if len(rows) > m else np.inf
    return rows[:m], threshold


def _likely_limit(probes: Array, expected: float) -> float:
    """Find a rank below which a subsample has clearly more ranks than ``expected``; infinite if none."""
    place = int(expected + 6 * expected**0.5 + 6)
    return np.inf if place >= len(probes) else float(np.partition(probes, place)[place])


class Draw(NamedTuple):
    """A sample: positions, the inclusion probability of each, and its group."""

    rows: Array
    inclusion: Array
    groups: Array


def draw(seed: int, ranks: Array, ids: Array, groups: Array | None, sizes: Array) -> Draw:
    """Draw ``sizes[g]`` points from each group g; ``groups`` None means one group.

    Points of infinite rank, and those in groups below zero, belong to none.
    """
    if groups is None:
        return _make_draw(seed, ranks, ids, *smallest(ranks, ids, int(sizes[0])), 0)
    few = _candidates(ranks, groups, sizes)
    short = np.bincount(groups[few][groups[few] >= 0], minlength=len(sizes)) <= sizes
    if short.any():  # the limit was too low, or there are no more
        few = np.union1d(few, np.flatnonzero((groups >= 0) & short[groups]))
    few = few[(groups[few] >= 0) & (ranks[few] < np.inf)]
    few = few[np.lexsort((ids[few], ranks[few], groups[few]))]
    mine = groups[few]
    ends = np.searchsorted(mine, np.arange(len(sizes))) + sizes
    thresholds = np.full(len(sizes), np.inf)
    more = np.bincount(mine, minlength=len(sizes)) > sizes
    thresholds[more] = ranks[few[ends[more]]]
    few = few[np.arange(len(few)) < ends[mine]]
    return _make_draw(seed, ranks, ids, few, thresholds[groups[few]], groups[few])


def _make_draw(seed: int, ranks: Array, ids: Array, rows: Array, threshold: Any, group: Any) -> Draw:
    """Compute the probabilities with which rows are below the threshold; a measure is u over rank."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inclusion = uniforms(seed, ids[rows]) / ranks[rows] * threshold
    return Draw(rows, np.fmin(inclusion, 1.0), np.full(len(rows), group, dtype=np.int32))


def _candidates(ranks: Array, groups: Array, sizes: Array) -> Array:
    """Find rows that probably hold the smallest ranks of every group, by a limit for each."""
    step = len(ranks) // 16384
    if step < 2:
        return np.arange(len(ranks))
    probes, probe_groups = ranks[::step], groups[::step]
    limits = np.full(len(sizes) + 1, -np.inf)  # the last: for groups below zero
    for group, size in enumerate(sizes):
        limits[group] = _likely_limit(probes[probe_groups == group], size / step)
    return np.flatnonzero(ranks <= limits[groups])


def scale_weights(found: Draw, own: Array, totals: Array, rest: Callable[[int, Array], float]) -> Array:
    """Divide weights by inclusion probabilities, and scale them to the total weight of each group.

    Points that were certain to be included represent only themselves and keep
    their weight; the others are scaled to what is left.

    Parameters
    ----------
    found : Draw
    own : array
        The weights of the rows found.
    totals : array
        The weight of each group.
    rest : function
        ``rest(group, kept)`` returns the weight of a group without the rows ``found.rows[kept]``.

    Examples
    --------
    >>> found = Draw(np.arange(3), np.array([1.0, 0.5, 0.4]), np.zeros(3, dtype=int))
    >>> scale_weights(found, np.ones(3), np.array([6.0]), lambda group, kept: 5.0)
    array([1.        , 2.22222222, 2.77777778])
    """
    scaled = own / found.inclusion
    certain = found.inclusion >= 1
    for group in np.unique(found.groups):
        mine = np.flatnonzero(found.groups == group)
        kept, others = mine[certain[mine]], mine[~certain[mine]]
        left = float(totals[group]) - float(own[kept].sum())
        if left < 0.5 * totals[group]:  # a difference of sums would lose the digits of light points
            left = rest(int(group), kept)
        if len(others):
            scaled[others] *= left / scaled[others].sum()
        elif left:  # only certain points were drawn: they must represent the others too
            scaled[mine] *= 1 + left / own[mine].sum()
    return scaled


def apportion(shares: Any, capacities: Any, size: int) -> Array:
    """Share ``size`` out in proportion to ``shares``, within capacities.

    The result is integers that add up to ``size``, or to all capacities together:
    no more than its capacity for each, and at least two, or one if they are many.
    Where a share exceeds its capacity, the rest is shared out among the others; what
    rounding leaves goes to the largest remainders, the first of equals.

    Examples
    --------
    >>> apportion([1.0, 1.0, 8.0], [100, 100, 3], 10)
    array([4, 3, 3])
    """
    room = np.asarray(capacities, dtype=np.int64)
    size = min(int(size), int(room.sum()))
    least = np.minimum(room, 2 if 2 * len(room) <= size else 1)
    if size < least.sum():
        raise ValueError(f"size={size} is below {least.sum()}, one for each group")
    shares = np.asarray(shares, dtype=np.float64)
    shares = shares / max(float(shares.max()), np.finfo(float).tiny)
    shares = np.maximum(np.rint(shares * _STEP) / _STEP, 1e-9)  # so that the rounding of sums hardly matters
    low, high = 0.0, float(room.max()) / float(shares.min())
    for _ in range(100):  # the level at which clipped shares add up
        level = (low + high) / 2
        if not low < level < high:
            break
        if np.clip(level * shares, least, room).sum() < size:
            low = level
        else:
            high = level
    parts = np.clip(low * shares, least, room)
    sizes = np.floor(parts).astype(np.int64)
    order = np.argsort(np.where(sizes < room, sizes - parts, np.inf), kind="stable")
    sizes[order[: size - int(sizes.sum())]] += 1
    return sizes
