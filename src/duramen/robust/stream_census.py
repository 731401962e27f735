"""The first pass over batches: how many points there are, what they weigh, and a uniform sample of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.robust.stream_lowest import Lowest
from duramen.robust.stream_sums import RunningSum, sums_by_place
from duramen.rows import Array, refuse_nonfinite
from duramen.sampling.ranks import uniforms
from duramen.trimming import check_points_and_loss

__all__ = ["SAMPLE", "Batches", "Census", "Each", "Pass", "census", "chances"]

Batches = Callable[[], Iterable[WeightedPoints]]
Each = Callable[[WeightedPoints], Any]

SAMPLE = 20_000
"""How many points an anchor is made from, and all that is frozen with it, where there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample is drawn by other numbers than the coreset


@final
class Pass:
    """One pass over the batches that have rows, which are counted and weighed as they go by.

    Parameters
    ----------
    batches : function
    each : function or None
        Called with every batch once it has been looked at.

    Attributes
    ----------
    n_rows, n_points : int
        How many rows have gone by, and how many of them weigh anything.
    """

    def __init__(self, batches: Batches, each: Each | None) -> None:
        self._batches, self._each = batches, each
        self.n_rows, self.n_points = 0, 0
        self._total = RunningSum()

    def __iter__(self) -> Iterator[WeightedPoints]:
        for points in self._batches():
            if not isinstance(points, WeightedPoints):
                raise TypeError(
                    f"batches() must give points, made with dm.points(X, y); found {type(points).__name__}"
                )
            if len(points):
                yield points
                self._count(points.weights)
            if self._each is not None:
                self._each(points)

    def _count(self, weights: Array) -> None:
        sums, rounded = sums_by_place(weights, np.zeros(len(weights), dtype=np.int8), 1)
        self._total.add(sums[0], rounded[0])
        self.n_rows += len(weights)
        self.n_points += int(np.count_nonzero(weights))

    @property
    def total(self) -> float:
        """What the rows weigh that have gone by."""
        return float(self._total.value)

    @contextmanager
    def numbered(self) -> Iterator[None]:
        """Have an error about a row of the batch at hand give its number among all rows."""
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError or not self.n_rows:
                raise
            text = re.sub(r"\brow (\d+)", lambda found: f"row {int(found[1]) + self.n_rows}", str(error))
            raise ValueError(text) from error


@dataclass(frozen=True)
class Census:
    """What the first pass tells.

    Attributes
    ----------
    n_rows, n_points : int
        How many rows there are, and how many of them weigh anything.
    total : float
        What they weigh.
    sample : WeightedPoints
        At most 20,000 of those that weigh anything, by chance, in the order of their ids.
        A function of the points: the smallest random numbers of their ids.
    """

    n_rows: int
    n_points: int
    total: float
    sample: WeightedPoints


def chances(seed: int, ids: Array) -> Array:
    """Compute the random numbers by which points come into an anchor's sample: the smallest do."""
    return uniforms(seed ^ _SALT, ids)


def census(batches: Batches, loss: Loss, seed: int, each: Each | None) -> Census:
    """Count and weigh all points, and sample them.

    Raises
    ------
    TypeError, ValueError
        If batches do not go together, or have rows or labels that the loss cannot
        take, or nothing weighs anything.
    """
    lowest = Lowest(SAMPLE)
    batch_check = _BatchCheck(loss)
    passing = Pass(batches, each)
    for points in passing:
        with passing.numbered():
            batch_check(points)
        chance = np.where(points.weights > 0, chances(seed, points.ids), np.inf)
        lowest.add(points, chance, np.zeros(len(points), dtype=np.int8))
    if not passing.n_rows:
        raise ValueError("batches() gave no points; at least one row is needed")
    if not np.isfinite(passing.total):
        raise ValueError("weights add up to infinity; scale them down")
    held = lowest.held()
    if held is None:
        raise ValueError("all weights are zero: there is nothing to stand for; pass some positive weights")
    first = np.lexsort((held.points.ids, held.numbers))[:SAMPLE]
    first = first[np.argsort(held.points.ids[first])]
    sample = held.points.pick(first, held.points.weights[first])
    return Census(passing.n_rows, passing.n_points, passing.total, sample)


class _BatchCheck:
    """Refuse a batch that the loss cannot take, or that does not go with those before it."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._first: WeightedPoints | None = None
        self._classes: set[float] = set()

    def __call__(self, points: WeightedPoints) -> None:
        loss = self._loss
        check_points_and_loss(points, loss)
        if self._first is None:
            if isinstance(loss, LinearLoss) and points.y is None:
                raise ValueError(f"{loss!r} needs labels; pass y, one label a row")
            self._first = points.take(slice(0, 1)).take([0])  # of its own, so that the batch can go
        WeightedPoints.concat([self._first.take([]), points.take(slice(0, 1))])
        refuse_nonfinite(points.X)
        if points.y is not None and isinstance(loss, (LinearLoss, SoftmaxLoss)):
            loss.check_labels(points.y)
            if isinstance(loss, LinearLoss) and loss.classifies:
                self._refuse_other_classes(points.y)

    def _refuse_other_classes(self, y: Array) -> None:
        """See that classes are named in one way in all batches."""
        self._classes |= {float(y.min()), float(y.max())}
        try:
            self._loss.check_labels(np.array(sorted(self._classes)))  # type: ignore[attr-defined]
        except ValueError:
            raise ValueError(
                f"the labels of the batches do not go together: {self._loss!r} does not take "
                f"{sorted(self._classes)} at once; name the classes in one way"
            ) from None
