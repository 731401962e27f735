"""What the tests of dynamic coresets share: problems with data, a plain model of who is here, and the oracle."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import duramen as dm

FIELDS = ("threshold", "n_suspected", "n_points", "n_outliers", "calibrated", "seed", "sampler")


@dataclass(frozen=True)
class Problem:
    """A loss, rows that suit it, and an anchor that makes many losses tie on whole-numbered rows."""

    name: str
    loss: dm.Loss
    theta: tuple
    label: str | None = None
    positive: bool = False

    @property
    def n_columns(self) -> int:
        shape = np.shape(self.theta)
        if self.label is None:
            return shape[1]
        return shape[-1] - 1

    def anchor(self, radius=0.01):
        return dm.Anchor(np.array(self.theta, dtype=float), radius)

    def rows(self, rng, n, whole=False):
        """Make n rows, some of them far out; whole numbers, so that losses tie, if asked."""
        X = rng.normal(scale=1.5, size=(n, self.n_columns))
        X[rng.random(n) < 0.1] *= 6.0
        if whole:
            X = np.round(X)
        return np.exp(np.clip(X, -5, 5) / 2) if self.positive else X

    def labels(self, rng, n):
        return {
            None: None,
            "sign": rng.choice([-1, 1], size=n),
            "real": np.round(rng.normal(size=n) * 4) / 4,
            "class": rng.integers(3, size=n),
        }[self.label]


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("logistic", dm.LogisticLoss(), (1.0, 0.0, 0.5), "sign"),
        Problem("squared", dm.SquaredLoss(), (1.0, -1.0, 0.0), "real"),
        Problem("huber", dm.HuberLoss(0.7), (1.0, -1.0, 0.0), "real"),
        Problem("k-means", dm.KMeansLoss(3), ((0.0, 0.0), (2.0, 2.0), (-2.0, 1.0))),
        Problem("k-median", dm.KMedianLoss(3), ((0.0, 0.0), (2.0, 2.0), (-2.0, 1.0))),
        Problem("softmax", dm.SoftmaxLoss(3), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)), "class"),
        Problem("bregman", dm.BregmanLoss(2, "kl"), ((1.0, 1.0), (3.0, 0.5)), positive=True),
    )
}


class Striped(dm.RankedSampler):
    """A user's own: three strata by the first column, scores by the second."""

    def scores(self, seen):
        return 1 + np.abs(np.asarray(seen.points.X[:, 1], dtype=float))

    def strata(self, seen):
        return np.clip(np.floor(seen.points.X[:, 0]), -1, 1).astype(np.int64)


class Heaviest(dm.Sampler):
    """A user's own black box: the heaviest points, and one of the rest by chance."""

    def reduce(self, points, size, rng):
        if len(points) <= size:
            return points
        order = np.lexsort((points.ids, -points.weights))
        return points.take(np.append(order[: size - 1], rng.choice(order[size - 1 :])))


SAMPLERS = {
    "uniform": "uniform",
    "layered": "layered",
    "leverage": "leverage",
    "sensitivity": "sensitivity",
    "auto": "auto",
    "own": Striped(),
}

SUITS = [
    (name, sampler)
    for name, problem in PROBLEMS.items()
    for sampler in SAMPLERS
    if sampler != "sensitivity" or name not in ("k-median",)
]


def weights_of(rng, n, kind):
    """Make weights: none, whole ones, real ones, or from a millionth to a million with zeros among them."""
    if kind == "none":
        return None
    if kind == "whole":
        return rng.integers(1, 4, size=n).astype(float)
    if kind == "real":
        return rng.exponential(size=n) + 0.01
    weights = 10.0 ** rng.uniform(-6, 6, size=n)
    weights[rng.random(n) < 0.15] = 0.0
    return weights


KINDS = ("none", "whole", "real", "wild")


def quietly(call, *args, **kwargs):
    """Call without the warning that a ball is too large for sensitivities to say much."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the ball of radius")
        warnings.filterwarnings("ignore", message="the solution is")
        return call(*args, **kwargs)


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


def assert_same(core, other, rtol=1e-9, fields=FIELDS):
    """Hold two coresets against each other, in all that they are made of."""
    np.testing.assert_array_equal(core.ids, other.ids)
    np.testing.assert_allclose(core.weights, other.weights, rtol=rtol)
    np.testing.assert_allclose(core.inclusion, other.inclusion, rtol=max(rtol, 1e-12))
    for name in ("suspected", "groups", "own_weights", "X"):
        np.testing.assert_array_equal(getattr(core, name), getattr(other, name), err_msg=name)
    if core.y is not None or other.y is not None:
        np.testing.assert_array_equal(core.y, other.y)
    for name in fields:
        mine, theirs = getattr(core, name), getattr(other, name)
        same = mine == pytest.approx(theirs, rel=1e-12) if isinstance(mine, float) else mine == theirs
        assert same, f"{name}: {mine} and {theirs}"


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
    assert_same(core, expected)
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
    view = dyn._state.view
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
