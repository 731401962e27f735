"""Uniform and layered sampling (the paper's generalized spatial partition, GSP, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duramen.arrays import Array
from duramen.samplers.base import AnchoredPoints, RankedSampler, Strata, apportion
from duramen.trimming import kept_sum


@dataclass(frozen=True)
class UniformSampler(RankedSampler):
    """Draw points in proportion to their weight: the paper's Uniform (section 3.1).

    It needs no property of the loss. By Theorem 1 it gives a robust coreset by
    itself for any loss, but with an error in the number of outliers, and it is
    only useful where outliers are a fair share of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> points = dm.points(np.arange(100.0)[:, None])
    >>> dm.UniformSampler().reduce(points, 4, np.random.default_rng(0)).weights
    array([25., 25., 25., 25.])
    """

    def scores(self, anchored: AnchoredPoints) -> Array:
        return np.ones(len(anchored))


_LOWEST, _HIGHEST = -60, 1000  # exponents: below, losses are negligible beside their mean


@dataclass(frozen=True)
class LayeredSampler(RankedSampler):
    """Divide points into layers by their loss at the anchor, and draw uniformly from each.

    With r the smallest loss and T the mean of f - r, layer 0 holds the points
    with f - r below about T, and layer j those in [2^(j-1) T, 2^j T). (The
    paper's proof needs this; its text has twice as much.) A point's own exponent,
    the floor of log2((f - r) / T), uses the r and T frozen in the anchor; how many
    low exponents are pooled into layer 0 depends on the mean of the points
    present.

    Each layer has a share of the size in proportion to its weight times the
    square root of its upper end: between its share of the points and its share
    of the loss (docs/sampling.md has the measurement). The paper gives equal
    shares to all.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.concatenate([np.zeros(900), np.full(100, 30.0)])[:, None]
    >>> sampler = dm.LayeredSampler().bind(dm.KMedianLoss(1), dm.Anchor([[0.0]], radius=1.0))
    >>> core = sampler.reduce(dm.points(X), 10, np.random.default_rng(0))
    >>> [round(float(core.weights[core.X[:, 0] == x].sum()), 9) for x in (0.0, 30.0)]
    [900.0, 100.0]
    """

    needs_losses = True
    freezes = ("layers",)

    def scores(self, anchored: AnchoredPoints) -> Array:
        return np.ones(len(anchored))

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        weights = anchored.points.weights
        lowest = float(np.min(anchored.losses, initial=np.inf, where=weights > 0))
        if not np.isfinite(lowest):
            return {"layers": np.array([0.0, 1.0])}  # there are no points
        mean = kept_sum(anchored.losses, weights) / float(weights.sum()) - lowest
        return {"layers": np.array([lowest, mean if mean > 0 else 1.0])}

    def strata(self, anchored: AnchoredPoints) -> Array:
        lowest, unit = anchored.anchor.frozen["layers"].tolist()
        height = np.asarray(anchored.losses, dtype=np.float64) - lowest
        with np.errstate(over="ignore"):
            height /= unit
        np.maximum(height, 0.0, out=height)
        exponents = (height.view(np.int64) >> 52) - 1023  # the floor of log2, from the bits of the float
        return np.clip(exponents, _LOWEST, _HIGHEST).astype(np.int16)

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Pool the low exponents, and share the size out between the layers."""
        exponents = strata.numbers
        middle = np.ldexp(1.5, exponents)  # of a stratum, in frozen units
        mean = float(strata.weights / strata.weights.sum() @ middle)
        lowest = int(np.floor(np.log2(mean) + 1e-9))  # the rounding of sums must not matter
        pooled = np.maximum(exponents - lowest + 1, 0)
        while len(np.unique(pooled)) > max(1, size // 2):  # a layer needs two points
            pooled = np.maximum(pooled - 1, 0)
        layers, groups = np.unique(pooled, return_inverse=True)
        weights = np.bincount(groups, strata.weights)
        counts = np.bincount(groups, strata.counts).astype(np.int64)
        return groups, apportion(weights * 2.0 ** (layers / 2), counts, size)
