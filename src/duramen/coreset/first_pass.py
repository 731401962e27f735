"""The first pass: how many points there are, what they weigh, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from duramen.arrays import refuse_nonfinite
from duramen.coreset.candidates import BottomK, RankedPoints
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import SAMPLE, chances, sample_of
from duramen.losses.base import Loss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.trimming import check_points_and_loss

__all__ = ["FirstPass", "FirstPassResult", "Form", "form_of"]


class Form(NamedTuple):
    """What all batches have in common."""

    n_columns: int
    dtype: str
    sparse: bool
    labelled: bool


def form_of(points: WeightedPoints) -> Form:
    """Tell what rows are like."""
    X = points.X
    return Form(points.n_columns, X.dtype.name, sparse.issparse(X), points.y is not None)


@dataclass(frozen=True, eq=False)
class FirstPassResult:
    """What the first pass tells of the points that came.

    Attributes
    ----------
    n_rows, n_points : int
        How many rows there are, and how many of them weigh anything.
    weight : ExactSums
        What they weigh.
    form : Form or None
        What the rows are like; None where there are none.
    classes : tuple of float
        The smallest and the largest label, for a loss that classifies.
    kept : RankedPoints or None
        Those of the smallest random numbers, of those that weigh anything, in the order of their ids.
    """

    n_rows: int
    n_points: int
    weight: ExactSums
    form: Form | None
    classes: tuple[float, ...]
    kept: RankedPoints | None

    @property
    def is_short(self) -> bool:
        """Whether more points should have been sampled than are held."""
        n_held = 0 if self.kept is None else len(self.kept.points)
        return n_held <= SAMPLE and n_held < self.n_points

    @property
    def total(self) -> float:
        """What all points weigh."""
        return float(self.weight.values[0])

    def sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight: what ``anchor_sample`` takes of all at once.

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
            raise ValueError(
                "all weights are zero: there is nothing to stand for; pass some positive weights"
            )
        return sample_of(self.kept.points, self.kept.ranks)


@final
class FirstPass:
    """The first pass, under way.

    Parameters
    ----------
    loss : Loss
    seed : int
    limit : float
        A random number that all who are sampled stay below, as good as certainly.
    """

    def __init__(self, loss: Loss, seed: int, limit: float = np.inf) -> None:
        self._loss, self._seed, self._limit = loss, seed, limit
        self._lowest = BottomK(SAMPLE + 1)
        self._weight = ExactSums(1)
        self._form: Form | None = None
        self._classes: set[float] = set()
        self.n_rows, self._n_points = 0, 0

    def add(self, points: WeightedPoints) -> None:
        """Take in a batch, or raise TypeError or ValueError if the loss cannot take it."""
        loss = self._loss
        check_points_and_loss(points, loss)
        if isinstance(loss, LinearLoss) and points.y is None:
            raise ValueError(f"{loss!r} needs labels; pass y, one label a row")
        self._agree(form_of(points))
        refuse_nonfinite(points.X)
        if points.y is not None and isinstance(loss, (LinearLoss, SoftmaxLoss)):
            loss.check_labels(points.y)
            if isinstance(loss, LinearLoss) and loss.classifies:
                self._name_classes(float(points.y.min()), float(points.y.max()))
        numbers = chances(self._seed, points.ids, points.weights)
        if self._limit < np.inf:
            numbers[numbers > self._limit] = np.inf
        self._lowest.add(points, numbers, np.zeros(len(points), dtype=np.int8))
        self._weight.add_column(0, points.weights)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: FirstPassResult) -> None:
        """Take in all that another has."""
        if other.form is not None:
            self._agree(other.form)
        if other.classes:
            self._name_classes(*other.classes)
        if other.kept is not None:
            self._lowest.add(other.kept.points, other.kept.ranks, other.kept.strata)
        self._weight.absorb(other.weight)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> FirstPassResult:
        """Give what is known, in one order whatever the order in which it came."""
        held = self._lowest.held()
        if held is not None:
            held = held.by_id()
        classes = tuple(sorted({min(self._classes), max(self._classes)})) if self._classes else ()
        return FirstPassResult(self.n_rows, self._n_points, self._weight, self._form, classes, held)

    def _agree(self, form: Form) -> None:
        """Raise ValueError unless rows are like those before them."""
        if self._form is None:
            self._form = form
        if form == self._form:
            return
        mine, its = (_told(one) for one in (self._form, form))
        raise ValueError(f"batches do not go together: some have {mine}, others {its}; make them alike")

    def _name_classes(self, *classes: float) -> None:
        """See that classes are named in one way in all batches."""
        self._classes |= set(classes)
        try:
            check: Any = self._loss
            check.check_labels(np.array(sorted(self._classes)))
        except ValueError:
            raise ValueError(
                f"the labels of the batches do not go together: {self._loss!r} does not take "
                f"{sorted(self._classes)} at once; name the classes in one way"
            ) from None


def _told(form: Form) -> str:
    kind = f"{'sparse ' if form.sparse else ''}{form.dtype}"
    return f"{form.n_columns} columns of {kind}, {'with' if form.labelled else 'without'} labels"
