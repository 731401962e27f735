"""The life of a table: its rows come, half of them leave, the number of outliers changes, the half returns.

A life is a list of stops. What is live at one, and how many outliers there are, is
told by the stop alone: so what all live rows cost to fit, and what that takes, is
found once for all engines that live through it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import duramen as dm
from duramen.arrays import Array
from duramen.points import WeightedPoints
from experiments.paper.data import Table, made_up_covertype, with_planted_rows
from experiments.paper.experiment import Records
from experiments.paper.fits import LOGISTIC, timed

__all__ = [
    "ALTER",
    "COME",
    "LEAVE",
    "PARTS",
    "REANCHOR",
    "RETURN",
    "SINGLES",
    "Stop",
    "Stream",
    "life_of",
    "stops_of",
    "warm_up",
]

COME, REANCHOR, LEAVE, ALTER, RETURN = (
    "all rows come",
    "`reanchor()`",
    "half of them leave",
    "z changes",
    "the half returns",
)
PARTS = 8  # stops while half of the rows leave or return; twice as many while all come
SINGLES = 256  # rows that come and go one by one at a stop; a look at new rows takes in 128

_TIMES = (2.0, 3.0, 1.0, 0.5, 1.0)  # what z is changed to, over what was planted


class Stop(NamedTuple):
    """A moment of the life: how many rows came, how many of these are gone, and z over what was planted.

    ``fitted`` says whether all live rows are fitted there, to compare with.
    """

    phase: str
    came: int
    gone: int
    times: float
    fitted: bool


def stops_of(rows: int, parts: int = PARTS) -> list[Stop]:
    """List the stops of a table's life; at the first, and at some of the others, all live rows are fitted."""
    half, quarter = rows // 2, max(1, parts // 2)
    came = [(rows * k // (2 * parts), k in (1, 2 * parts) or k % quarter == 0) for k in range(2 * parts + 1)]
    gone = [(half * k // parts, k == parts or k % 2 == 0) for k in range(parts + 1)]
    return [
        *(Stop(COME, n, 0, 1.0, fitted) for n, fitted in came[1:]),
        Stop(REANCHOR, rows, 0, 1.0, True),
        *(Stop(LEAVE, rows, n, 1.0, fitted) for n, fitted in gone[1:]),
        *(Stop(ALTER, rows, half, times, True) for times in _TIMES),
        *(Stop(RETURN, rows, n, 1.0, fitted) for n, fitted in gone[-2::-1]),
    ]


class Everything(NamedTuple):
    """What all live rows cost at their own fit, and the seconds it took."""

    loss: float
    seconds: float


class Stream:
    """Contaminated rows in the order in which they come; a row's number is its id."""

    def __init__(
        self, table: Table, z_share: float, seed: int, *, parts: int = PARTS, singles: int = SINGLES
    ) -> None:
        n = len(table.X) - singles
        self.planted, self.z_share, self.seed = round(z_share * n), z_share, seed
        self.data = with_planted_rows(table, self.planted, singles, seed)
        self.leaving = np.random.default_rng((seed, 1)).permutation(n)[: n // 2]
        self.stops = stops_of(n, parts)
        self._fits: dict[tuple[int, int, float], Everything] = {}

    def ids(self, stop: Stop) -> Array:
        """Give the ids of the rows that are live at a stop, going up."""
        live = np.arange(len(self.data.X)) < stop.came
        live[self.leaving[: stop.gone]] = False
        return np.flatnonzero(live)

    def live(self, stop: Stop) -> WeightedPoints:
        """Give the rows that are live at a stop."""
        rows: Any = self.ids(stop) if stop.gone else slice(0, stop.came)
        return dm.points(self.data.X[rows], self.data.y[rows])

    def everything(self, stop: Stop, live: WeightedPoints) -> Everything:
        """Fit all that is live at a stop, if the like was not fitted before."""
        key = stop.came, stop.gone, stop.times
        if key not in self._fits:
            z = stop.times * self.z_share
            theta, seconds = timed(lambda: dm.solve(live, LOGISTIC, z, random_state=self.seed).theta)
            self._fits[key] = Everything(_loss(live, theta, z), seconds)
        return self._fits[key]

    def changes(self, dyn: dm.DynamicCoreset, before: Stop, stop: Stop, batch: int) -> Iterator[_Change]:
        """Give the calls that lead from one stop to the next, and how many rows each changes."""
        coming = np.arange(before.came, stop.came)
        for rows in (coming, self.leaving[stop.gone : before.gone][::-1]):  # the last to leave returns first
            for part in _parts(rows, batch):
                X, y = self.data.X[part], self.data.y[part]
                yield _Change(len(part), partial(dyn.insert, X, y, ids=part))
        for part in _parts(self.leaving[before.gone : stop.gone], batch):
            yield _Change(len(part), partial(dyn.delete, part))
        if stop.times != before.times:
            yield _Change(0, partial(dyn.set_outliers, stop.times * self.z_share))
        if stop.phase == REANCHOR:
            yield _Change(0, dyn.reanchor)


class _Change(NamedTuple):
    """A call, and how many rows come or go by it."""

    rows: int
    call: Callable[[], Any]


def life_of(stream: Stream, engine: str, size: int, batch: int) -> Records:
    """Let a dynamic coreset live through it all: what every stop showed, and what it was in the end."""
    dyn = dm.DynamicCoreset(LOGISTIC, size, stream.z_share, engine=engine, random_state=stream.seed)
    seen, before, marked = [], Stop("", 0, 0, 1.0, False), None
    for stop in stream.stops:
        seen.append(_seen(stream, dyn, before, stop, batch))
        before, marked = stop, dyn.coreset() if stop.phase == REANCHOR else marked
    live = stream.live(before)
    anew = dm.robust_coreset(
        live.X,
        live.y,
        loss=LOGISTIC,
        size=size,
        n_outliers=stream.z_share,
        anchor=dyn.anchor,
        random_state=stream.seed,
    )
    assert marked is not None
    core = dyn.coreset()
    return {"stops": seen, "anew": _compared(core, anew), "marked": _compared(core, marked)}


def _seen(stream: Stream, dyn: dm.DynamicCoreset, before: Stop, stop: Stop, batch: int) -> Records:
    """Do what leads to a stop, and look around there."""
    rows, calls, seconds = 0, 0, 0.0
    for change in stream.changes(dyn, before, stop, batch):
        rows, calls, seconds = rows + change.rows, calls + 1, seconds + timed(change.call)[1]
    coreset = timed(dyn.coreset)[1]
    solution, solving = timed(partial(_solved, dyn, stream.seed))
    report = dyn.anchor_report()
    found: Records = {
        "phase": stop.phase,
        "times": stop.times,
        "points": dyn.n_points,
        "z": dyn.n_outliers,
        "changed": rows,
        "calls": calls,
        "changing": seconds,
        "coreset": coreset,
        "solving": solving,
        "late": report.late_share,
        "away": report.distance / report.radius if report.radius and report.distance is not None else None,
        "warned": report.is_outside,
        "advised": report.advised,
    }
    if stop.fitted:
        live, z = stream.live(stop), stop.times * stream.z_share
        everything = stream.everything(stop, live)
        found |= {"loss": _loss(live, solution.theta, z), "least": everything.loss}
        found |= {"everything": everything.seconds, **_one_by_one(stream, dyn)}
        if len(live) == len(stream.data.X) and dyn.anchor is not None:
            found["anchor"] = _loss(live, dyn.anchor.theta, z)
    return found


def _solved(dyn: dm.DynamicCoreset, seed: int) -> dm.Solution:
    """Solve as a user would, from the latest solution on; that the anchor is stale is told by its report."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the solution is .* from the anchor")
        return dm.solve(dyn, random_state=seed)


def _one_by_one(stream: Stream, dyn: dm.DynamicCoreset) -> Records:
    """Insert rows one by one and delete them again: seconds of each, the median and the mean.

    New rows are looked at together; the last of these looks is part of the mean.
    """
    X, y = stream.data.X_test, stream.data.y_test
    ids = len(stream.data.X) + np.arange(len(X))
    start = time.perf_counter()
    inserts = [timed(partial(dyn.insert, X[k], y[k], ids=name))[1] for k, name in enumerate(ids.tolist())]
    assert dyn.n_suspected >= 0  # asks how all points stand
    inserting = time.perf_counter() - start
    deletes = [timed(partial(dyn.delete, one))[1] for one in ids.tolist()]
    return {
        "insert": {"median": float(np.median(inserts)), "mean": inserting / len(X)},
        "delete": {"median": float(np.median(deletes)), "mean": float(np.mean(deletes))},
    }


def _compared(one: dm.Coreset, other: dm.Coreset) -> Records:
    """Say which share of the ids two coresets have in common, and how far apart the weights of these are."""
    _, ours, theirs = np.intersect1d(one.ids, other.ids, return_indices=True)
    apart = np.abs(one.weights[ours] / other.weights[theirs] - 1)
    return {
        "in_common": len(ours) / max(len(one), len(other)),
        "apart": float(np.max(apart, initial=0.0)),
    }


def _loss(live: WeightedPoints, theta: Array, z: float) -> float:
    return float(dm.trimmed_objective(live, theta, loss=LOGISTIC, n_outliers=z))


def _parts(rows: Array, batch: int) -> list[Array]:
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]


@cache
def warm_up() -> None:
    """Live a little, once, so that imports are not counted."""
    stream = Stream(made_up_covertype(700), 0.02, 0, singles=20)
    first, then = Stop("", 0, 0, 1.0, False), Stop(COME, len(stream.data.X), 0, 1.0, True)
    for engine in ("ranked", "tree"):
        dyn = dm.DynamicCoreset(LOGISTIC, 300, 0.02, engine=engine, random_state=0)
        _seen(stream, dyn, first, then, 500)
