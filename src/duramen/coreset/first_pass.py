"""The first pass: the number of points, their weight, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from duramen.arrays import refuse_nonfinite
from duramen.coreset.anchor_sample import SAMPLE, chances, sample_of
from duramen.coreset.exact import ExactSums
from duramen.coreset.streaming import BottomK, RankedPoints
from duramen.coreset.view import check_points
from duramen.losses.base import Loss
from duramen.points import WeightedPoints


class Form(NamedTuple):
    """The format that all batches share."""

    n_columns: int
    dtype: str
    sparse: bool
    labelled: bool

    def __str__(self) -> str:
        kind = f"{'sparse ' if self.sparse else ''}{self.dtype}"
        return f"{self.n_columns} columns of {kind}, {'with' if self.labelled else 'without'} labels"


def form_of(points: WeightedPoints) -> Form:
    """Return the format of points."""
    X = points.X
    return Form(points.n_columns, X.dtype.name, sparse.issparse(X), points.y is not None)


@dataclass(frozen=True, eq=False)
class FirstPassResult:
    """The result of the first pass.

    Attributes
    ----------
    n_rows, n_points : int
        The number of rows, and of those with a positive weight.
    weight : ExactSums
        Their total weight.
    form : Form or None
        The format of the rows; None where there are none.
    classes : tuple of float
        The smallest and the largest label, for a loss that classifies.
    kept : RankedPoints or None
        The points of positive weight with the smallest random ranks, sorted by id.
    """

    n_rows: int
    n_points: int
    weight: ExactSums
    form: Form | None
    classes: tuple[float, ...]
    kept: RankedPoints | None

    @property
    def is_short(self) -> bool:
        """Whether fewer points were kept than the sample needs."""
        n_kept = 0 if self.kept is None else len(self.kept.points)
        return n_kept <= SAMPLE and n_kept < self.n_points

    @property
    def total(self) -> float:
        """The total weight of all points."""
        return float(self.weight.values)

    def sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight, as ``anchor_sample`` does in memory.

        Raises
        ------
        ValueError
            If there are none.
        """
        if not self.n_rows:
            raise ValueError("there are no points; at least one row is needed")
        if not np.isfinite(self.total):
            raise ValueError("weights add up to infinity; scale them down")
        if self.kept is None:
            raise ValueError("all weights are zero; pass some positive weights")
        return sample_of(self.kept.points, self.kept.ranks)


@final
class FirstPass:
    """The first pass, in progress.

    Parameters
    ----------
    loss : Loss
    seed : int
    limit : float
        A rank that no sampled point exceeds, almost certainly.
    """

    def __init__(self, loss: Loss, seed: int, limit: float = np.inf) -> None:
        self._loss, self._seed, self._limit = loss, seed, limit
        self._lowest = BottomK(SAMPLE + 1)
        self._form: Form | None = None
        self._classes: set[float] = set()
        self.n_rows, self._n_points, self._weight = 0, 0, ExactSums()

    def add(self, points: WeightedPoints) -> None:
        """Add a batch, or raise TypeError or ValueError if the loss does not accept it."""
        loss = self._loss
        check_points(points, loss)
        self._agree(form_of(points))
        refuse_nonfinite(points.X)
        if points.y is not None:
            loss.check_labels(points.y)
            if loss.classifies:
                self._check_classes(float(points.y.min()), float(points.y.max()))
        ranks = chances(self._seed, points.ids, points.weights)
        if self._limit < np.inf:
            ranks[ranks > self._limit] = np.inf
        self._lowest.add(points, ranks, np.zeros(len(points), dtype=np.int8))
        self._weight.add_rows(points.weights)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: FirstPassResult) -> None:
        """Merge another result into this one."""
        if other.form is not None:
            self._agree(other.form)
        if other.classes:
            self._check_classes(*other.classes)
        if other.kept is not None:
            self._lowest.add(*other.kept)
        self._weight.absorb(other.weight)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> FirstPassResult:
        """Return the result, the same in whatever order batches were added."""
        kept = self._lowest.kept()
        classes = tuple(sorted({min(self._classes), max(self._classes)})) if self._classes else ()
        return FirstPassResult(
            self.n_rows, self._n_points, self._weight, self._form, classes, kept and kept.by_id()
        )

    def _agree(self, form: Form) -> None:
        """Raise ValueError unless the format is that of earlier batches."""
        self._form = self._form or form
        if form != self._form:
            raise ValueError(
                f"batches do not match: some have {self._form}, others {form}; use one format for all"
            )

    def _check_classes(self, *classes: float) -> None:
        """Check that all batches use the same labels for the classes."""
        self._classes |= set(classes)
        loss: Any = self._loss
        try:
            loss.check_labels(np.array(sorted(self._classes)))
        except ValueError:
            raise ValueError(
                f"the labels of the batches do not match: {self._loss!r} does not take "
                f"{sorted(self._classes)} together; use the same labels in all batches"
            ) from None
