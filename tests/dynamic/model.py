"""A plain model of which rows are in a dynamic coreset, and the oracle: build the coreset of what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import duramen as dm
from tests.support import assert_same_coreset, quietly


def anew(points, settings, n_outliers, anchor, shuffle=None):
    """Build the coreset of these points by the one call, with their rows in any order."""
    order = np.arange(len(points)) if shuffle is None else shuffle.permutation(len(points))
    return quietly(
        dm.robust_coreset,
        points.X[order],
        None if points.y is None else points.y[order],
        sample_weight=points.weights[order],
        ids=points.ids[order],
        n_outliers=n_outliers,
        anchor=anchor,
        **settings,
    )


def assert_law(dyn, settings, n_outliers, seed=0):
    """See that the coreset is what building it anew from the points that are here gives, errors too."""
    points = dyn.points()
    if dyn.anchor is None:
        heavy = points.take(np.flatnonzero(points.weights > 0))
        if not len(heavy):
            with pytest.raises(ValueError, match="all weights are zero"):
                dyn.coreset()
            return None
        core = dyn.coreset()
        np.testing.assert_array_equal(core.ids, heavy.ids)
        np.testing.assert_array_equal(core.weights, heavy.weights)
        return core
    shuffle = np.random.default_rng(seed)
    try:
        expected = anew(points, settings, n_outliers, dyn.anchor, shuffle)
    except ValueError:
        with pytest.raises(ValueError):
            quietly(dyn.coreset)
        return None
    core = quietly(dyn.coreset)
    assert_same_coreset(core, expected)
    assert core.anchor is dyn.anchor
    return core


def suspected_by_sorting(losses, ids, weights, z, suspects=1.5):
    """Take points from the top of (loss, id), while what was taken weighs less than is to be suspected."""
    total = weights.sum()
    wanted = min(min(suspects * z, (z + total) / 2), total)
    taken, held = set(), 0.0
    for row in np.lexsort((ids, losses))[::-1]:
        if held >= wanted * (1 - 64 * np.finfo(float).eps):
            break
        if weights[row] > 0:
            taken.add(int(ids[row]))
            held += weights[row]
    return taken


def view_of(dyn):
    """Give the view, with all that came looked at."""
    view = dyn._state.candidates
    view.catch_up()
    return view


def suspects_of(dyn):
    """Read the ids of the suspected from the state."""
    view = view_of(dyn)
    return set(dyn._state.slots.ids[view.suspects.slots()].tolist())


class Model:
    """Who is here, in a plain dict: id -> row, label and weight."""

    def __init__(self, labelled):
        self.labelled = labelled
        self.points: dict[int, tuple[Any, Any, float]] = {}

    def __len__(self):
        return len(self.points)

    @property
    def ids(self):
        return sorted(self.points)

    @property
    def total(self):
        return float(sum(weight for _, _, weight in self.points.values()))

    def put(self, ids, X, y, weights):
        for row, name in enumerate(np.atleast_1d(ids).tolist()):
            old = self.points.get(name)
            label = None if not self.labelled else float(y[row]) if y is not None else old[1]
            weight = float(weights[row]) if weights is not None else 1.0 if old is None else old[2]
            self.points[name] = (np.array(X[row]), label, weight)

    def drop(self, ids):
        for name in np.atleast_1d(ids).tolist():
            del self.points[name]

    def assert_is(self, dyn):
        """See that the same points are there, row by row."""
        assert dyn.ids.tolist() == self.ids
        assert len(dyn) == len(self)
        if not self.points:
            return
        found = dyn.points()
        rows, labels, weights = zip(*(self.points[name] for name in self.ids), strict=True)
        np.testing.assert_array_equal(found.X, np.array(rows))
        np.testing.assert_array_equal(found.weights, weights)
        if self.labelled:
            np.testing.assert_array_equal(found.y, labels)
        assert dyn.total_weight == pytest.approx(self.total, rel=1e-12)
