"""Data beyond memory, to fit on: a scan or a Dask collection, of which only summaries are held.

One pass counts and samples (:class:`Intake`); every coreset takes one more,
around whatever anchor; and one looks at the solution (:class:`Looking`). What
they give is what data in memory gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.coreset import Coreset
from duramen.estimators.data import SOME_SEED, Data, Look
from duramen.estimators.gathering import Change, Partitions, Preparation, Scanned, source_of
from duramen.estimators.looking import Looking
from duramen.estimators.recipe import Recipe
from duramen.losses import KMeansLoss
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.robust.passes import Plan, Summary, Tally, finish, plan
from duramen.robust.passes.census import Census, Counting
from duramen.rows import Array
from duramen.sampling import Sampler
from duramen.trimming import outlier_weight

__all__ = ["Beyond", "Wanted"]

_ANY = KMeansLoss(1)  # a loss that takes any labels


class Wanted(NamedTuple):
    """What a fit must know of all rows before it begins, beside how many there are.

    ``loss`` refuses labels that it cannot take; ``classes``: which labels there
    are; ``distinct``: whether so many rows differ; ``some``: a sample to measure a
    scale on. ``dense``: that no rows are sparse.
    """

    loss: Loss = _ANY
    classes: bool = False
    distinct: int = 0
    some: bool = False
    dense: bool = False


class Intake(NamedTuple):
    """What the first pass tells."""

    census: Summary
    classes: Array | None
    class_weights: Array
    distinct: Array | None
    some: Census | None


class Taking:
    """The first pass, under way."""

    def __init__(self, step: Plan, wanted: Wanted) -> None:
        self._wanted, self._tally = wanted, Tally(step)
        self._classes: Array | None = None
        self._weights = np.empty(0)
        self._distinct: Array | None = None
        self._some = Counting(_ANY, SOME_SEED) if wanted.some else None

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Take in some rows."""
        if self._wanted.dense and sparse.issparse(points.X):
            raise TypeError("dense rows are needed, and these are sparse; pass their toarray()")
        self._tally.add(points, before)
        if self._wanted.classes:
            assert points.y is not None
            self._count(points.y, points.weights)
        if self._wanted.distinct:
            self._tell_apart(points.X)
        if self._some is not None:
            self._some.add(points)

    def absorb(self, summary: Intake) -> None:
        """Take in what came elsewhere."""
        self._tally.absorb(summary.census)
        if summary.classes is not None:
            self._count(summary.classes, summary.class_weights)
        if summary.distinct is not None:
            self._tell_apart(summary.distinct)
        if self._some is not None and summary.some is not None:
            self._some.absorb(summary.some)

    def summary(self) -> Intake:
        """Give all that is known."""
        some = None if self._some is None else self._some.summary()
        return Intake(self._tally.summary(), self._classes, self._weights, self._distinct, some)

    def _count(self, labels: Array, weights: Array) -> None:
        known = labels[:0] if self._classes is None else self._classes
        codes = _codes(labels, known)
        if (codes < 0).any():
            names = np.unique(labels)
            if names.dtype.kind == "f" and (names != np.floor(names)).any():
                odd = names[names != np.floor(names)][0]
                raise ValueError(
                    f"a label such as {odd:g} is no class; a classifier takes whole numbers, True and False, "
                    "or text"
                )
            self._classes = np.union1d(known, names)
            counts = np.zeros(len(self._classes))
            counts[_codes(known, self._classes)] = self._weights
            self._weights, codes = counts, _codes(labels, self._classes)
        self._weights = self._weights + np.bincount(codes, weights, minlength=len(self._weights))

    def _tell_apart(self, X: Any) -> None:
        enough, found = self._wanted.distinct, self._distinct
        looked, n = 4 * enough, X.shape[0]
        while n and (found is None or len(found) < enough):
            rows = X[:looked]
            found = np.unique(rows if found is None else np.concatenate([found, rows]), axis=0)[:enough]
            if looked >= n:
                break
            looked *= 8
        self._distinct = found


def encoded(points: WeightedPoints, classes: Array) -> WeightedPoints:
    """Let the labels of points be the numbers of their classes."""
    assert points.y is not None
    codes = _codes(points.y, classes)
    if (codes < 0).any():
        label = points.y[codes < 0][0].item()
        raise ValueError(
            f"the label {label!r} was not there in the first pass; every pass must meet the same"
        )
    return WeightedPoints._trusted(points.X, codes, points.weights, points.ids)


@dataclass(frozen=True, eq=False)
class Beyond:
    """Data beyond memory, as a fit needs it.

    Attributes
    ----------
    source : Scanned or Partitions
    prepare : Preparation
    intake : Intake
        Of the rows before any change.
    censuses : dict
        What is known of the rows, and the sample for an anchor, by the seed of it.
    """

    source: Scanned | Partitions
    prepare: Preparation
    intake: Intake
    censuses: dict[int, Census] = field(default_factory=dict)

    @classmethod
    def of(
        cls, X: Any, y: Any, sample_weight: Any, recipe: Recipe, *, labelled: bool, wanted: Wanted
    ) -> Beyond:
        """Make the first pass over a scan or a Dask collection; the recipe's random state is the seed.

        Raises
        ------
        TypeError, ValueError
            If it cannot be fitted on.
        """
        first = _first(wanted.loss, recipe.random_state, recipe.sampler)
        source, prepare = source_of(X, y, sample_weight, labelled=labelled), Preparation(labelled)
        if source.classes is not None and labelled and not wanted.classes:
            raise ValueError(
                f"labels must be numbers; the scan's are text: {source.classes[:3]}; take another label="
            )
        intake = source.gather(partial(Taking, first, wanted), prepare, "census")
        data = cls(source, prepare, intake, {first.problem.seed: intake.census.body})
        if not data.n_points:
            rows = "all weights are zero" if data._census.n_rows else "there are no rows"
            raise ValueError(
                f"{rows}, so that there is nothing to fit; at least one row must weigh something"
            )
        return data

    @property
    def _census(self) -> Any:
        return self.intake.census.body

    @property
    def n_points(self) -> int:
        """How many rows weigh anything."""
        return int(self._census.n_points)

    @property
    def n_columns(self) -> int:
        """How many columns a row has."""
        return int(self._census.form.n_columns)

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns, as scikit-learn takes them: all text, or none."""
        names = self.source.names
        if names is None or not all(isinstance(name, str) for name in names):
            return None
        return np.array(names, dtype=object)

    @property
    def classes(self) -> Array:
        """The labels of all rows, sorted; text where the scan made numbers of it."""
        labels = self.intake.classes
        assert labels is not None
        names = self.source.classes
        return labels if names is None else np.array(names)[labels.astype(np.intp)]

    def numbered(self) -> Beyond:
        """Have labels be the numbers of their classes from now on."""
        assert self.intake.classes is not None
        return self.changed(partial(encoded, classes=self.intake.classes))

    def changed(self, change: Change) -> Beyond:
        """Have all points changed from now on, by a function that can be pickled."""
        return replace(self, prepare=replace(self.prepare, change=change))

    def build(self, recipe: Recipe, size: int, seed: int, anchor: Any) -> Coreset:
        """Build a coreset, in one pass."""
        step: Plan | Coreset = plan(
            loss=recipe.loss,
            size=size,
            n_outliers=recipe.n_outliers,
            sampler=recipe.sampler,
            anchor=anchor,
            random_state=seed,
        )
        assert isinstance(step, Plan)
        step = finish(Summary(step, self._counted(seed)))
        while isinstance(step, Plan):
            step = finish(self._gather(partial(Tally, step), "choose"))
        return step

    def look(self, recipe: Recipe, theta: Array) -> Look:
        """Look at every row once."""
        z = outlier_weight(recipe.n_outliers, self._census.total)
        return self._gather(partial(Looking, recipe.loss, theta, z), "look").look(z)

    def named(self, outliers: Array) -> Array:
        """Give the ids of outliers: themselves."""
        return outliers

    def some(self) -> Data:
        """Take some rows by chance, before any change."""
        assert self.intake.some is not None
        points = self.intake.some.sample()
        return Data(points.X, points.y, points.weights, points.ids)

    def class_weights(self, n_classes: int) -> Array:
        """Weigh the classes."""
        return self.intake.class_weights

    def distinct(self, enough: int) -> int:
        """Count the distinct rows."""
        assert self.intake.distinct is not None
        return min(enough, len(self.intake.distinct))

    def _gather(self, begin: Callable[[], Any], told: str) -> Any:
        return self.source.gather(begin, self.prepare, told)

    def _counted(self, seed: int) -> Census:
        """Give the census whose sample was drawn by a seed, with points as they are now."""
        first = _first(_ANY, seed)
        number = first.problem.seed
        if number not in self.censuses:
            plain = Preparation(self.prepare.labelled)
            self.censuses[number] = self.source.gather(partial(Tally, first), plain, "census").body
        census, change = self.censuses[number], self.prepare.change
        if change is None or census.held is None:
            return census
        return replace(census, held=census.held._replace(points=change(census.held.points)))


def _first(loss: Loss, seed: int, sampler: Sampler | str = "auto") -> Plan:
    """Plan a first pass: the census is the same for every size, anchor and solution."""
    return plan(loss=loss, size=2, sampler=sampler, random_state=seed)


def _codes(labels: Array, classes: Array) -> Array:
    """Find the numbers of classes, which are sorted; -1 for those that are not there."""
    if not len(classes):
        return np.full(len(labels), -1, dtype=np.intp)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[codes] == labels, codes, -1)
