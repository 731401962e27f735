"""What the tests share: problems with data, weights, and the comparison of two coresets."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import view
from duramen.distributed import Plan, finish, merge, plan, summarize

COLUMNS = ("y", "weights", "ids", "suspected", "own_weights", "inclusion", "groups")
FACTS = ("threshold", "n_points", "n_suspected", "n_outliers", "sampler", "calibrated", "seed")


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
        return np.shape(self.theta)[-1] - self.loss.parameter_shape(0)[-1]

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
        Problem("contaminated", dm.ContaminatedLoss(), (1.0, 0.0, 0.5, 2.0, 0.0, 2.0, 0.0), "sign"),
        Problem(
            "contaminated softmax",
            dm.ContaminatedLoss(dm.SoftmaxLoss(3)),
            ((1.0, 0.0, 0.0, 2.0, 0.0), (0.0, 1.0, 0.0, 2.0, 0.0), (0.0, 0.0, 0.0, 2.0, 0.0)),
            "class",
        ),
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


SAMPLERS = {**{name: name for name in (*view.SAMPLERS, "auto")}, "own": Striped()}

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


def tables(text):
    """Read the tables of a Markdown page: the cells of each, row by row, the head first."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        found += [[rows[0], *rows[2:]]] if rows else []
    return found


def run_together(write, *reads):
    """Let one write, and others read until it is done; raise what any of them raised."""
    errors, done, counts = [], threading.Event(), [0] * len(reads)

    def guarded(act, place=None):
        try:
            if place is None:
                act()
            else:
                while not (done.is_set() and counts[place]):
                    act()
                    counts[place] += 1
        except BaseException as error:
            errors.append(error)
        finally:
            if place is None:
                done.set()

    threads = [threading.Thread(target=guarded, args=(read, place)) for place, read in enumerate(reads)]
    threads.append(threading.Thread(target=guarded, args=(write,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return counts


def data(name="logistic", n=400, heavy="real", seed=0, whole=False):
    """Make points of a problem, with ids that are neither in order nor dense."""
    problem, rng = PROBLEMS[name], np.random.default_rng(seed)
    X, y, weights = problem.rows(rng, n, whole), problem.labels(rng, n), weights_of(rng, n, heavy)
    return dm.points(X, y, weights, rng.permutation(3 * n)[:n] - n)


def cut(points, cuts=(), order=None):
    """Make a function that gives the points in batches; two equal cuts make an empty one."""
    points = points if order is None else points.take(order)
    ends = [*sorted(cuts), len(points)]
    return lambda: (points.take(slice(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=True))


def at_once(points, **chosen):
    """Build the coreset of all points by the one call."""
    return quietly(
        dm.robust_coreset, points.X, points.y, sample_weight=points.weights, ids=points.ids, **chosen
    )


@st.composite
def any_problem(draw):
    """Draw points of any kind, where to cut them in which order, and anything to ask of them."""
    name, sampler = draw(st.sampled_from(SUITS))
    problem, n, seed = PROBLEMS[name], draw(st.integers(1, 250)), draw(st.integers(0, 5))
    points = data(name, n, draw(st.sampled_from(KINDS)), seed, whole=draw(st.booleans()))
    total = points.total_weight
    assume(total)
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(n)
    if draw(st.booleans()):  # the worst there is for the edge: it moves with every point
        order = np.argsort(problem.loss.measure(points).values(problem.anchor().theta, points.X, points.y))
    z = draw(st.sampled_from([0, 0.02, 0.3, 0.9, min(points.weights.max() / total, 0.5)]))
    chosen = {
        "loss": problem.loss,
        "sampler": SAMPLERS[sampler],
        "anchor": problem.anchor(),
        "size": draw(st.integers(6 if sampler == "own" else 2, 80)),  # a row for each stratum
        "n_outliers": float(z * total) if draw(st.booleans()) and z * total >= 1 else z,
        "suspects": draw(st.sampled_from(["auto", 0, 1.0, 4.0])),
        "calibrate": draw(st.booleans()),
        "random_state": seed,
    }
    return points, draw(st.lists(st.integers(0, n), min_size=2, max_size=20)), order, chosen


def streamed(batches, **chosen):
    """Build the coreset in passes over batches, each made by a call."""
    step = plan(**chosen)
    while isinstance(step, Plan):
        step = quietly(finish, summarize(batches(), step))
    return step


def in_parts(parts, step, send=lambda summary, step: summary):
    """Make all passes from here on, each with one summary per part, which may be sent as something else."""
    while isinstance(step, Plan):
        step = quietly(finish, reduce(merge, [send(summarize(part, step), step) for part in parts]))
    return step


def assert_same_coreset(one, other, rtol=1e-9, facts=FACTS):
    """Check that two coresets have the same rows, and weights that agree to ``rtol``."""
    for name in COLUMNS:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None and name in ("weights", "inclusion"):
            np.testing.assert_allclose(mine, theirs, rtol=rtol, err_msg=name)
        elif mine is not None:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
    np.testing.assert_array_equal(
        *(part.toarray() if sparse.issparse(part) else part for part in (one.X, other.X))
    )
    assert one.X.dtype == other.X.dtype
    for name in facts:
        mine, theirs = getattr(one, name), getattr(other, name)
        same = mine == pytest.approx(theirs, rel=1e-12) if isinstance(mine, float) else mine == theirs
        assert same, f"{name}: {mine} and {theirs}"


def assert_identical_coreset(one, other):
    """Check that two coresets are the same, bit for bit, with their anchors and estimates."""
    _assert_identical_rows(one.X, other.X)
    for name in COLUMNS:
        assert_identical_array(getattr(one, name), getattr(other, name))
    for name in ("loss", "columns", *FACTS):
        assert getattr(one, name) == getattr(other, name), name
        assert type(getattr(one, name)) is type(getattr(other, name)), name
    assert_identical_anchor(one.anchor, other.anchor)
    if one.anchor is not None:
        np.testing.assert_array_equal(one.estimate(one.anchor.theta), other.estimate(one.anchor.theta))


def assert_identical_anchor(one, other):
    """Check that two anchors, and what is frozen with them, are the same, bit for bit."""
    assert (one is None) == (other is None)
    if one is None:
        return
    assert one.radius == other.radius
    assert_identical_array(one.theta, other.theta)
    assert_identical_array(one.ids, other.ids)
    assert sorted(one.frozen) == sorted(other.frozen)
    for name in one.frozen:
        assert_identical_array(np.asarray(one.frozen[name]), np.asarray(other.frozen[name]))


def assert_identical_array(one, other):
    """Check that two arrays have the same type, shape and bytes, or are both None."""
    assert (one is None) == (other is None)
    if one is not None:
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def _assert_identical_rows(one, other):
    assert sparse.issparse(one) == sparse.issparse(other)
    assert one.shape == other.shape
    for part in ("data", "indices", "indptr") if sparse.issparse(one) else ():
        assert_identical_array(getattr(one, part), getattr(other, part))
    if not sparse.issparse(one):
        assert_identical_array(one, other)
