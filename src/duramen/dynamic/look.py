"""What an engine is: it keeps the suspected inliers while points come and go.

An engine holds no data. A point is a slot, a small number that the holder gave
it and may give to another point once this one is gone; the engine asks the
holder for rows, labels, weights and ids when it looks at them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from duramen.arrays import Array, scratch_rows
from duramen.ball import Anchor
from duramen.coreset.view import anchored_points
from duramen.losses.base import Loss
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.parallel import for_each_chunk, one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers import (
    AnchoredPoints,
    LayeredSampler,
    LeverageSampler,
    RankedSampler,
    Sampler,
    SensitivitySampler,
    UniformSampler,
)
from duramen.samplers.base import size_measures
from duramen.samplers.calibration import CalibrationFeatures, calibration_features
from duramen.samplers.ranks import uniforms

__all__ = ["Engine", "Holder", "Scored", "Scorer", "moderate"]


_FEW = 1000  # rows; to keep BLAS to one thread takes longer than their products


class Scored(NamedTuple):
    """What a look finds, of many points or of one.

    Marks are what the loss noted by the way; they are kept where they are one
    number a point. A rank is infinite where the sampler gave no score.
    """

    losses: Any
    cache: Any
    ranks: Any
    strata: Any


class Scorer:
    """What is known of points, seen from an anchor.

    Parameters
    ----------
    loss : Loss
    anchor : Anchor
        With all that the sampler froze.
    sampler : Sampler
    seed : int
    size : int
        Of the coreset: no more is known of a point than so many can be calibrated to.
    calibrate : bool
    probe : WeightedPoints
        Some points such as will come.
    """

    def __init__(
        self,
        loss: Loss,
        anchor: Anchor,
        sampler: Sampler,
        seed: int,
        *,
        size: int,
        calibrate: bool,
        probe: WeightedPoints,
    ) -> None:
        self.loss, self.anchor, self.sampler, self.seed = loss, anchor, sampler, seed
        self.ranked = sampler if isinstance(sampler, RankedSampler) else None
        self.known: CalibrationFeatures | None = None
        if calibrate and self.ranked is not None:
            self.known = calibration_features(loss, anchor, size, probe)
        first = self.many(probe.take(slice(0, 1)))
        self.mark_type = None if first.cache is None else first.cache.dtype
        self.strata_type = None if first.strata is None else first.strata.dtype
        self.never_fails = _never_fails(loss, sampler, anchor)

    def many(self, points: WeightedPoints) -> Scored:
        """Scorer at points that were not looked at before.

        Raises
        ------
        ValueError
            If a row or a label is none that the loss can take; nothing has changed.
        """
        seen, cache = anchored_points(self.anchor, points, self.loss, cached=self.known is not None)
        cache = cache if cache is not None and np.ndim(cache) == 1 else None
        losses = np.asarray(seen.losses, dtype=np.float64)
        if self.ranked is None:
            return Scored(losses, cache, None, None)
        return Scored(losses, cache, *self._ranked(self.ranked, seen))

    def _ranked(self, sampler: RankedSampler, seen: AnchoredPoints) -> tuple[Array, Array | None]:
        """Compute ranks and strata, by chunks on all cores."""
        ranks = uniforms(self.seed, seen.points.ids)
        probe = sampler.strata(seen.take(slice(0, 1)))
        strata = None if probe is None else np.empty(len(seen), dtype=_numbers(sampler, probe).dtype)

        def work(chunk: slice) -> None:
            part = seen.take(chunk)
            _divide(ranks[chunk], sampler, part)
            if strata is not None:
                strata[chunk] = _numbers(sampler, sampler.strata(part))

        with one_blas_thread() if len(seen) > _FEW else nullcontext():
            for_each_chunk(work, len(seen), scratch_rows(seen.points.X))
        return ranks, strata

    def contributions(self, X: Array, y: Array | None, weights: Any, losses: Array, cache: Any) -> Array:
        """Compute what rows add to the totals that are known: (m, q)."""
        assert self.known is not None
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            columns = self.known.columns_of(X, y, losses, cache)
            columns *= weights
        return columns


def _numbers(sampler: RankedSampler, strata: Any) -> Array:
    """Check the numbers of strata."""
    numbers = np.asarray(strata)
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{sampler!r} gave strata of type {numbers.dtype}; they must be whole numbers")
    if numbers.dtype == np.uint64:
        if numbers.size and int(numbers.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{sampler!r} gave the stratum {numbers.max()}; numbers must fit in int64")
        return numbers.astype(np.int64)
    return numbers


def _divide(ranks: Array, sampler: RankedSampler, seen: AnchoredPoints) -> None:
    """Divide by weight times score; a score that is not a positive number makes an infinite rank."""
    scores = np.asarray(sampler.scores(seen))
    if scores.shape != (len(seen),):
        raise ValueError(
            f"{sampler!r} gave scores of shape {scores.shape} for {len(seen)} points; one a point is needed"
        )
    with np.errstate(invalid="ignore"):
        ranks /= size_measures(seen.points.weights, scores)
        ranks[~((scores > 0) & (scores < np.inf))] = np.inf


def _never_fails(loss: Loss, sampler: Sampler, anchor: Anchor) -> bool:
    """Tell whether a look at checked rows of moderate size cannot raise: one that is ours all through."""
    ours = isinstance(loss, (LinearLoss, SoftmaxLoss, DistanceLoss)) and type(loss).__module__.startswith(
        "duramen."
    )
    scored = type(sampler) in (UniformSampler, LayeredSampler, LeverageSampler, SensitivitySampler)
    return ours and scored and bool(np.abs(anchor.theta).max() < moderate(np.float64))


def moderate(dtype: Any) -> float:
    """Give a size below which numbers can be multiplied with each other, and squared, without overflow."""
    return float(np.finfo(dtype).max ** 0.3)


class Holder(Protocol):
    """What holds the points: gives them by slot."""

    def points(self, slots: Array) -> WeightedPoints:
        """Give the points in these slots, one or more, in that order and with their own weights."""


class Engine(ABC):
    """Keeps the suspected inliers, and chooses rows that stand for them.

    What is in it, and in what state, is a function of the sequence of single
    operations: many at once give what the same ones give one after the other.
    """

    @abstractmethod
    def add(self, slot: int) -> None:
        """Take a point in; its data is in the holder already, and must not change while it is here."""

    @abstractmethod
    def remove(self, slot: int) -> None:
        """Let a point go; its data is still in the holder."""

    def add_many(self, slots: Array) -> None:
        """Take points in, in the order given."""
        for slot in slots.tolist():
            self.add(slot)

    def remove_many(self, slots: Array) -> None:
        """Let points go, in the order given."""
        for slot in slots.tolist():
            self.remove(slot)

    @abstractmethod
    def __len__(self) -> int:
        """Say how many points are in it."""

    @abstractmethod
    def check(self) -> None:
        """Raise AssertionError, with its number and text, if an invariant of the class is broken."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """How many bytes its own arrays take, without what the holder has."""
