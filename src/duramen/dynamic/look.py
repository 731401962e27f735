"""The look from an anchor at points, many or one: their losses, and how they rank in the sample.

What a look finds depends on the point and the anchor alone, so it is computed
once, when a point comes, and kept beside it. One point at a time goes by a path
of its own: the checks of a batch would take longer than the point itself.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from duramen.ball import Anchor
from duramen.chunks import for_each_chunk, one_blas_thread
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.points import WeightedPoints
from duramen.robust.outlook import seen_from
from duramen.rows import Array, row_products, scratch_rows
from duramen.sampling import RankedSampler, Sampler, Seen
from duramen.sampling.base import measured
from duramen.sampling.calibration import Known, known_of
from duramen.sampling.ranks import uniform_of, uniforms

__all__ = ["Look", "Looked"]

_FEW = 1000  # rows; to keep BLAS to one thread takes longer than their products


class Looked(NamedTuple):
    """What a look finds, of many points or of one.

    Marks are what the loss noted by the way; they are kept where they are one
    number a point. A rank is infinite where the sampler gave no score.
    """

    losses: Any
    marks: Any
    ranks: Any
    strata: Any


class _Desk:
    """A place where one point after the other is put to be seen: a view of a point takes longer to make."""

    def __init__(self, loss: Loss, anchor: Anchor, n_columns: int, dtype: Any, labelled: bool) -> None:
        self._made_of = (loss, anchor, n_columns, dtype, labelled)
        self.row, self.name = np.zeros((1, n_columns), dtype=dtype), np.zeros(1, dtype=np.int64)
        self.label = np.zeros(1) if labelled else None
        self.loss = np.zeros(1, dtype=dtype)
        points = WeightedPoints._trusted(self.row, self.label, np.ones(1), self.name)
        self.seen = Seen(points, loss, anchor, self.loss)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Desk, self._made_of  # made anew: what is seen must be what is put there

    def put(self, row: Array, label: Any, name: int, loss: float) -> Seen:
        """Put a point there."""
        self.row[0] = row[0]
        self.name[0] = name
        self.loss[0] = loss
        if self.label is not None:
            self.label[0] = label[0]
        return self.seen

    def clear(self) -> None:
        """Leave nothing of the point."""
        self.row[0] = 0


class Look:
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
        self.known: Known | None = None
        if calibrate and self.ranked is not None:
            self.known = known_of(loss, anchor, size, probe)
        first = self.many(probe.take(slice(0, 1)))
        self.mark_type = None if first.marks is None else first.marks.dtype
        self.strata_type = None if first.strata is None else first.strata.dtype
        self._linear = loss if isinstance(loss, LinearLoss) else None
        parameters = np.asarray(anchor.theta.ravel(), dtype=probe.X.dtype)
        self._weights, self._intercept = parameters[: probe.n_columns].copy(), parameters[-1]
        self._encoded: dict[float, Array] = {}
        self._desk = _Desk(loss, anchor, probe.n_columns, probe.X.dtype, probe.y is not None)

    def many(self, points: WeightedPoints) -> Looked:
        """Look at points that were not looked at before.

        Raises
        ------
        ValueError
            If a row or a label is none that the loss can take; nothing has changed.
        """
        seen, marks = seen_from(self.anchor, points, self.loss, marked=self.known is not None)
        marks = marks if marks is not None and np.ndim(marks) == 1 else None
        losses = np.asarray(seen.losses, dtype=np.float64)
        if self.ranked is None:
            return Looked(losses, marks, None, None)
        return Looked(losses, marks, *self._ranked(self.ranked, seen))

    def _ranked(self, sampler: RankedSampler, seen: Seen) -> tuple[Array, Array | None]:
        """Compute ranks and strata, by chunks on all cores."""
        ranks = uniforms(self.seed, seen.points.ids)
        probe = sampler.strata(seen.take(slice(0, 1)))
        strata = None if probe is None else np.empty(len(seen), dtype=np.asarray(probe).dtype)

        def work(chunk: slice) -> None:
            part = seen.take(chunk)
            _divide(ranks[chunk], sampler, part)
            if strata is not None:
                strata[chunk] = sampler.strata(part)

        with one_blas_thread() if len(seen) > _FEW else nullcontext():
            for_each_chunk(work, len(seen), scratch_rows(seen.points.X))
        return ranks, strata

    def one(self, row: Array, label: Any, weight: float, name: int) -> Looked:
        """Look at one checked row, (1, d), with its label, (1,)."""
        if self._linear is None:
            return self._one_of_many(row, label, weight, name)
        value, mark = self._value_and_mark(self._linear, row, label)
        if not math.isfinite(mark) or math.isnan(value):
            return self._one_of_many(row, label, weight, name)  # which says what is wrong, if it is
        if self.ranked is None:
            return Looked(value, mark, None, None)
        seen = self._desk.put(row, label, name, value)
        stratum = None
        if self.strata_type is not None:
            stratum = int(self.ranked.strata(seen)[0])  # type: ignore[index]
        score = self.ranked.scores(seen)
        self._desk.clear()
        if np.shape(score) != (1,):
            return self._one_of_many(row, label, weight, name)
        found = float(score[0])
        rank = uniform_of(self.seed, name) / measured(weight, found) if 0 < found < math.inf else math.inf
        return Looked(value, mark, rank, stratum)

    def _value_and_mark(self, loss: LinearLoss, row: Array, label: Array) -> tuple[float, float]:
        encoded = self._encoded.get(label[0]) if loss.classifies else None
        if encoded is None:
            encoded = loss.encode_labels(label, row.dtype)
            if loss.classifies:
                self._encoded[float(label[0])] = encoded
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            m = row_products(row, self._weights)
            if loss.fit_intercept:
                m += self._intercept
            values, slopes = loss.pointwise_and_slope(m, encoded)
        return float(values[0]), float(slopes[0])

    def _one_of_many(self, row: Array, label: Any, weight: float, name: int) -> Looked:
        points = WeightedPoints._trusted(row, label, np.array([weight]), np.array([name], dtype=np.int64))
        return Looked(*(None if column is None else column[0] for column in self.many(points)))

    def contributions(self, points: WeightedPoints, losses: Array, marks: Array | None) -> Array:
        """Compute what points add to the totals that are known: (m, q), times their weights."""
        assert self.known is not None
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.known.columns_of(points, losses, marks) * points.weights[:, None]

    def contribution(self, row: Array, label: Any, weight: float, loss: float, mark: Any) -> Array:
        """Compute what one row, (1, d), adds: (q,)."""
        assert self.known is not None
        if self._linear is not None and self.known.gradient:
            part, pull = np.empty(self.known.n_columns), weight * float(mark)
            part[0] = weight * loss
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                np.multiply(row[0], pull, out=part[1 : row.shape[1] + 1], dtype=np.float64)
            if self._linear.fit_intercept:
                part[-1] = pull
            return part
        points = WeightedPoints._trusted(row, label, np.array([weight]), self._desk.name)
        marks = None if self.mark_type is None else np.array([mark], dtype=self.mark_type)
        return np.asarray(self.contributions(points, np.array([loss]), marks)[0])


def _divide(ranks: Array, sampler: RankedSampler, seen: Seen) -> None:
    """Divide by weight times score; a score that is not a positive number makes an infinite rank."""
    scores = np.asarray(sampler.scores(seen))
    if scores.shape != (len(seen),):
        raise ValueError(
            f"{sampler!r} gave scores of shape {scores.shape} for {len(seen)} points; one a point is needed"
        )
    with np.errstate(invalid="ignore"):
        ranks /= measured(seen.points.weights, scores)
        ranks[~((scores > 0) & (scores < np.inf))] = np.inf
