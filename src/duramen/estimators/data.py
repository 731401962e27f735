"""All the data of a fit: what is done with every row of it, and the data that is in memory."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from duramen.coreset import Coreset
from duramen.estimators.recipe import Recipe
from duramen.points import WeightedPoints
from duramen.robust import robust_coreset
from duramen.robust.sample import SAMPLE, anchor_sample
from duramen.rows import Array, Rows
from duramen.solvers.problem import count_distinct
from duramen.trimming import kept_sum, kept_weights, outlier_weight

__all__ = ["SOME_SEED", "AllRows", "Data", "Look"]

SOME_SEED = 0
"""Of the sample that a scale is measured on: the same in every fit."""


class Look(NamedTuple):
    """What one look at all rows tells of a solution.

    ``outliers`` are as ``AllRows.named`` takes them, the largest loss first, with
    their labels and weights; ``marks`` are None where rows are not held.
    """

    trimmed_loss: float
    outliers: Array
    threshold: float
    marks: Array | None
    outlier_labels: Array | None
    outlier_weights: Array


class AllRows(Protocol):
    """All the data, wherever it is: what a fit does with every row of it."""

    @property
    def n_points(self) -> int:
        """How many rows weigh anything."""

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""

    def build(self, recipe: Recipe, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset around an anchor, or around one that is found."""

    def look(self, recipe: Recipe, theta: Array) -> Look:
        """Look at every row once."""

    def named(self, outliers: Array) -> Array:
        """Give the ids of outliers, which are row numbers where nothing else was given."""

    def some(self) -> Data:
        """Take some rows by chance, always the same: enough to measure a scale."""

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes, whose numbers are the labels."""

    def distinct(self, enough: int) -> int:
        """Count the distinct rows of positive weight, up to ``enough``."""


class Data(NamedTuple):
    """Checked rows, labels as the loss takes them, weights, and where the rows stood if not all are here.

    Then ``n_given`` is how many rows there were.
    """

    X: Rows
    y: Array | None = None
    weights: Array | None = None
    ids: Array | None = None
    n_given: int = 0

    @property
    def n_points(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""
        return int(self.X.shape[1])

    def named(self, outliers: Array) -> Array:
        """Give the ids of rows."""
        return outliers if self.ids is None else self.ids[outliers]

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes."""
        codes = np.asarray(self.y).astype(np.intp)
        return np.bincount(codes, self.weights, minlength=n_classes).astype(np.float64)

    def distinct(self, enough: int) -> int:
        """Count the distinct rows."""
        return count_distinct(self.X, self.weights, enough)

    def some(self) -> Data:
        """Take some rows by chance, always the same: enough to measure a scale."""
        if self.n_points <= SAMPLE:
            return self
        all_rows = WeightedPoints._unlooked(self.X, self.y, self.weights, self.ids)
        some = anchor_sample(all_rows, SOME_SEED)
        return Data(some.X, some.y, some.weights, some.ids)

    def median(self, values: Array) -> float:
        """Take the median of one value a row, by weight."""
        order = np.argsort(values)
        steps = np.arange(1.0, len(order) + 1) if self.weights is None else np.cumsum(self.weights[order])
        place = np.searchsorted(steps, steps[-1] / 2 * (1 - 1e-12))
        above = np.searchsorted(steps, steps[-1] / 2 * (1 + 1e-12))
        return float(values[order[[place, above]]].mean())

    def build(self, recipe: Recipe, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset."""
        return robust_coreset(
            self.X,
            self.y,
            loss=recipe.loss,
            size=size,
            n_outliers=recipe.n_outliers,
            sampler=recipe.sampler,
            anchor=anchor,
            sample_weight=self.weights,
            ids=self.ids,
            random_state=seed,
        )

    def look(self, recipe: Recipe, theta: Array) -> Look:
        """Look at every row once: f_z, the rows set aside, the least loss among them, and marks."""
        losses, marks = recipe.loss.values_and_marks(theta, self.X, self.y)
        weights = np.ones(len(losses)) if self.weights is None else self.weights
        kept = kept_weights(losses, weights, outlier_weight(recipe.n_outliers, float(weights.sum())))
        rows = np.flatnonzero(kept < weights)
        rows = rows[np.lexsort((-rows, -losses[rows]))]
        threshold = float(losses[rows[-1]]) if len(rows) else np.inf
        labels = None if self.y is None else self.y[rows]
        return Look(kept_sum(losses, kept), rows, threshold, marks, labels, weights[rows])
