"""The table of golden cases: data, settings, and the routes by which a coreset is built.

Only public names of the package are used, so that the cases outlive any move of its modules. Rows are
multiples of 1/64 and weights need no transcendental function: the data has the same bits on every machine.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import duramen as dm

N, D, N_OUTLIERS = 300, 3, 24
DEFAULTS = {"size": 40, "n_outliers": 16}


@dataclass(frozen=True)
class Problem:
    """A loss, the labels that it takes, and a rough solution with a radius."""

    loss: dm.Loss
    theta: Any
    label: str | None = None
    positive: bool = False
    radius: float = 0.125


PROBLEMS = {
    "logistic": Problem(dm.LogisticLoss(), (1.0, -0.5, 0.0, 0.25), "sign"),
    "hinge": Problem(dm.SmoothHingeLoss(), (1.0, -0.5, 0.25, 0.0), "sign"),
    "huber": Problem(dm.HuberLoss(0.75), (1.0, -2.0, 0.5, 0.0), "real"),
    "squared": Problem(dm.SquaredLoss(), (1.0, -1.75, 0.5, 0.25), "real"),
    "poisson": Problem(dm.PoissonLoss(), (0.25, -0.125, 0.0, 0.5), "count", radius=0.015625),
    "softmax": Problem(dm.SoftmaxLoss(3), ((1, 0, 0, 0), (0, 1, 0, 0.25), (0, 0, 1, 0)), "class"),
    "k-means": Problem(dm.KMeansLoss(3), ((0.0, 0.0, 0.5), (1.5, 1.0, 0.0), (-1.5, 0.0, 0.0))),
    "one-mean": Problem(dm.KMeansLoss(1), ((0.0, 0.0, 0.0625),)),
    "k-median": Problem(dm.KMedianLoss(2), ((-1.0, 0.0, 0.0), (1.0, 0.5, 0.0))),
    "kl": Problem(dm.BregmanLoss(2, divergence="kl"), ((0.75, 0.5, 1.0), (1.5, 1.75, 1.0)), positive=True),
    "truth": Problem(dm.TruthDiscoveryLoss(), (0.125, 0.0, -0.0625)),
}


@dataclass(frozen=True)
class Data:
    """Columns of one data set; ``y`` and ``weights`` may be absent."""

    X: Any
    y: Any
    weights: Any
    ids: Any

    def take(self, rows: Any) -> Data:
        return Data(*(None if column is None else column[rows] for column in vars(self).values()))


def make_data(problem: Problem, *, weighted=False, n: int = N, seed: int = 7, ties=False) -> Data:
    """Make rows with outliers at the end, some of them twice, in an order that is not that of their ids."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, D)) * (2 if ties else 64)) / (2 if ties else 64)
    y = _labels(problem.label, X, rng)
    weights = 0.05 + 4 * rng.random(n) * rng.random(n) * rng.random(n)
    weights[rng.random(n) < 0.1] = 0.0
    X[-N_OUTLIERS:] *= 8
    if problem.positive:
        X = np.abs(X) + 0.25
    ids = rng.permutation(n) * 3 - 50
    for rows, copies in ((slice(0, 20), slice(20, 40)), (slice(-12, -6), slice(-6, None))):  # ties
        X[copies] = X[rows]
        if y is not None:
            y[copies] = y[rows]
    return Data(X, y, weights if weighted else None, ids)


def _labels(kind: str | None, X: Any, rng: np.random.Generator) -> Any:
    noise = np.round(rng.normal(size=len(X)) * 64) / 64
    if kind == "sign":
        y = np.where(X[:, 0] - X[:, 1] / 2 + noise > 0, 1, -1)
        y[-N_OUTLIERS:] *= -1
        return y
    if kind == "real":
        y = X[:, 0] - 2 * X[:, 1] + X[:, 2] / 2 + noise
        y[-N_OUTLIERS:] += 20
        return y
    return {None: None, "count": rng.integers(6, size=len(X)), "class": rng.integers(3, size=len(X))}[kind]


@dataclass(frozen=True)
class Case:
    """One coreset: what it is of, how it is asked for, and by which route."""

    problem: str
    sampler: Any
    route: str
    weighted: bool = False
    # "found", "given" with a radius, "theta" alone, or "frozen": one that was used before
    anchor: str = "given"
    data: dict[str, Any] = field(default_factory=dict)
    form: str = "dense"  # "sparse", "float32", "rows": rows without their own ids
    note: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        sampler = self.sampler if isinstance(self.sampler, str) else type(self.sampler).__name__
        parts = [self.problem, sampler, self.route, "weighted" if self.weighted else "unit", self.anchor]
        parts += [part for part in (self.form, self.note) if part not in ("dense", "")]
        return " ".join(parts)

    @property
    def probe(self) -> Any:
        """The theta at which the coreset's estimate is recorded."""
        theta = np.array(PROBLEMS[self.problem].theta, dtype=float)
        return theta + np.arange(theta.size).reshape(theta.shape) / 64

    def points(self) -> Data:
        data = make_data(PROBLEMS[self.problem], weighted=self.weighted, **self.data)
        X = {"sparse": _sparse, "float32": np.float32}.get(self.form, np.asarray)(data.X)
        return replace(data, X=X, ids=None if self.form == "rows" else data.ids)

    def settings(self) -> dict[str, Any]:
        chosen = {"loss": PROBLEMS[self.problem].loss, "sampler": self.sampler, "random_state": 11}
        chosen |= DEFAULTS | self.options
        chosen = {name: value for name, value in chosen.items() if value is not None}
        given = self._anchor(chosen)
        return chosen if given is None else chosen | {"anchor": given}

    def build(self) -> dm.Coreset:
        """Build the coreset by the route of this case; advice on balls and sizes is of no concern here."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the ball of radius|the theorem requires")
            return ROUTES[self.route](self.points(), self.settings())

    def _anchor(self, chosen: dict[str, Any]) -> Any:
        problem = PROBLEMS[self.problem]
        if self.anchor == "found":
            return None
        if self.anchor == "theta":
            return np.array(problem.theta, dtype=float)
        given = dm.Anchor(problem.theta, problem.radius)
        if self.anchor == "given":
            return given
        other = make_data(problem, seed=23)
        asked = {name: chosen[name] for name in ("loss", "sampler", "size", "n_outliers")}
        return dm.robust_coreset(other.X, other.y, **asked, anchor=given, random_state=0).anchor


def _sparse(X: Any) -> Any:
    """Keep a third of the entries, in compressed rows."""
    return sparse.csr_array(np.where(np.arange(X.size).reshape(X.shape) % 3 == 0, X, 0.0))


def in_memory(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    return dm.robust_coreset(data.X, data.y, sample_weight=data.weights, ids=data.ids, **chosen)


def scanned(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    """Scan five batches of uneven length: points where rows have ids, and tuples where they have none."""
    cuts = [0, 1, 60, 61, 200, data.X.shape[0]]
    parts = [data.take(slice(start, stop)) for start, stop in itertools.pairwise(cuts)]
    if data.ids is None:
        batches = [(part.X, part.y, part.weights) for part in parts]
    else:
        batches = [dm.points(part.X, part.y, part.weights, part.ids) for part in parts]
    return dm.robust_coreset(dm.scan(batches), **chosen)


def in_passes(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    """Summarize seven parts in each pass, and merge them in a random tree, every step through bytes."""
    from duramen.distributed import Plan, Summary, finish, merge, plan, summarize

    ids = np.arange(len(data.X)) if data.ids is None else data.ids
    points, rng = dm.points(data.X, data.y, data.weights, ids), np.random.default_rng(len(ids))
    rows = np.array_split(rng.permutation(len(ids)), 7)
    step: Any = plan(**chosen)
    while isinstance(step, Plan):
        sent = [summarize(points.take(part), step).to_bytes() for part in rows]
        while len(sent) > 1:
            one, other = (Summary.from_bytes(sent.pop(int(rng.integers(len(sent)))), step) for _ in range(2))
            sent.append(merge(one, other).to_bytes())
        step = finish(Summary.from_bytes(sent[0], step))
    return step


def federated(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    """Keep every third row at one of three sites, which share only summaries."""
    from duramen.distributed import Federation, Site

    own = {**chosen, "n_outliers": 0}
    sites = [Site(dm.DynamicCoreset(**own)) for _ in range(3)]
    for first, site in enumerate(sites):
        part = data.take(np.arange(first, len(data.ids), 3))
        site.insert(part.X, part.y, part.weights, part.ids)
    return Federation(sites, **chosen).coreset()


def dask_array(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    import dask
    import dask.array as da

    from duramen.distributed.dask import robust_coreset

    X = da.from_array(data.X, chunks=((70, 1, len(data.X) - 71), (D,)))
    columns = {"y": data.y, "sample_weight": data.weights, "ids": data.ids}
    given = {name: da.from_array(part, chunks=97) for name, part in columns.items() if part is not None}
    with dask.config.set(scheduler="synchronous"):
        return robust_coreset(X, **given, **chosen)


def dask_frame(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from duramen.distributed.dask import robust_coreset

    frame = pd.DataFrame(data.X, columns=[f"x{column}" for column in range(D)])
    columns = {"label": data.y, "weight": data.weights, "id": data.ids}
    given = {name: part for name, part in columns.items() if part is not None}
    with dask.config.set(scheduler="synchronous"):
        rows = dd.from_pandas(frame.assign(**given), npartitions=4)
        return robust_coreset(rows, **{name: name for name in given}, **chosen)


def dynamic(data: Data, chosen: dict[str, Any], **engine: Any) -> dm.Coreset:
    dyn = dm.DynamicCoreset(**chosen, **engine)
    for change in changes(data, chosen["n_outliers"]):
        change(dyn)
    return dyn.coreset()


def merged(data: Data, chosen: dict[str, Any]) -> dm.Coreset:
    """Merge three dynamic coresets of some rows each, which need a whole anchor in common."""
    parts = [data.take(np.arange(start, len(data.ids), 3)) for start in range(3)]
    dyns = [dm.DynamicCoreset(**chosen) for _ in parts]
    for dyn, part in zip(dyns, parts, strict=True):
        dyn.insert(part.X, part.y, part.weights, part.ids)
    return dyns[0].merge(dyns[1].merge(dyns[2])).coreset()


def stored(data: Data, chosen: dict[str, Any], **engine: Any) -> dm.Coreset:
    """Keep the rows in a file, which is closed and opened again halfway and at the end."""
    steps = changes(data, chosen["n_outliers"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.duramen"
        with dm.open_store(path, create=True, synchronous="normal", **chosen, **engine) as store:
            for change in steps[:4]:
                change(store)
        with dm.open_store(path, synchronous="normal", sampler=chosen["sampler"]) as store:
            for change in steps[4:]:
                change(store)
        with dm.open_store(path, read_only=True, sampler=chosen["sampler"]) as store:
            return store.coreset()


def changes(data: Data, n_outliers: float) -> list[Callable[[Any], Any]]:
    """Plan insertions, deletions and updates that leave exactly these rows behind, and so many outliers.

    Every seventh row comes with the contents of its neighbour, and is corrected later; 45 rows come that are
    deleted again, one of them twice; rows come and go in batches and one at a time.
    """
    n = data.X.shape[0]
    data = replace(data, ids=np.arange(n) if data.ids is None else data.ids)
    wrong = np.arange(0, n, 7)
    before = np.arange(n)
    before[wrong] -= 1  # the last row for the first
    first = replace(data.take(before), ids=data.ids)
    extra = replace(data.take(np.arange(40, 85)), ids=10_000 + np.arange(45))
    extra = replace(extra, X=extra.X * 2)
    right = data.take(wrong)

    def insert(part: Data) -> Callable[[Any], Any]:
        return lambda dyn: dyn.insert(part.X, part.y, part.weights, part.ids)

    def delete(ids: Any) -> Callable[[Any], Any]:
        return lambda dyn: dyn.delete(ids)

    def update(part: Data) -> Callable[[Any], Any]:
        return lambda dyn: dyn.update(part.ids, part.X, part.y, part.weights)

    singles = [insert(first.take(slice(row, row + 1))) for row in range(120, 130)]
    return [
        insert(first.take(slice(0, 120))),
        insert(extra.take(slice(0, 40))),
        *singles,
        lambda dyn: dyn.set_outliers(40),
        delete(extra.ids[:20]),
        insert(first.take(slice(130, n))),
        insert(extra.take(slice(40, 45))),
        *(delete(name) for name in extra.ids[20:23].tolist()),
        insert(extra.take(slice(20, 21))),
        delete(first.ids[50:60]),
        update(right.take(slice(0, 7))),
        lambda dyn: dyn.set_outliers(2),
        insert(first.take(slice(50, 60))),
        lambda dyn: dyn.set_outliers(n_outliers),
        update(right.take(slice(7, None))),
        *(update(data.take(slice(row, row + 1))) for row in (280, 42, 3)),
        delete(extra.ids[[20, *range(23, 45)]]),
    ]


ROUTES = {
    "memory": in_memory,
    "scan": scanned,
    "passes": in_passes,
    "federation": federated,
    "dask-array": dask_array,
    "dask-frame": dask_frame,
    "ranked": partial(dynamic, engine="ranked"),
    "tree": partial(dynamic, engine="tree", bucket_size=64),
    "merged": merged,
    "store": stored,
    "store-tree": partial(stored, engine="tree", bucket_size=64),
}


class ByLength(dm.RankedSampler):
    """A user's own scores and strata."""

    def scores(self, seen: Any) -> Any:
        return 1 + np.abs(np.asarray(seen.points.X[:, 0], dtype=float))

    def strata(self, seen: Any) -> Any:
        return np.clip(np.floor(seen.points.X[:, 1]), -1, 1).astype(np.int64)


class Heaviest(dm.Sampler):
    """A user's own black box: the heaviest points, and the first of the others for all of them."""

    def reduce(self, points: Any, size: int, rng: np.random.Generator) -> Any:
        order = np.lexsort((points.ids, -points.weights))
        if len(points) <= size:
            return points
        rest = float(points.weights[order[size - 1 :]].sum())
        chosen = points.take(order[:size])
        return dm.points(chosen.X, chosen.y, np.append(chosen.weights[:-1], rest), chosen.ids)


def _case(
    problem: str, sampler: Any, route: str, weights: str = "unit", anchor: str = "given", **more: Any
) -> Case:
    own = {name: more.pop(name) for name in ("data", "form", "note") if name in more}
    return Case(problem, sampler, route, weights == "real", anchor, options=more, **own)


RAW = {"calibrate": False, "note": "raw"}
BIG = {"size": 70, "note": "70 rows"}  # enough to calibrate to a gradient
THEOREM, THEOREM_1 = {"size": None, "note": "epsilon"}, {"size": None, "note": "beta alone"}

CASES = [
    _case("logistic", "uniform", "memory"),
    _case("logistic", "layered", "memory", "real", **RAW),
    _case("logistic", "leverage", "memory", "real", **BIG),
    _case("logistic", "sensitivity", "memory", n_outliers=0.05, note="fraction"),
    _case("logistic", "auto", "memory", "real", "found", **BIG),
    _case("logistic", "auto", "memory", "unit", "theta", n_outliers=0, note="no outliers"),
    _case("logistic", "leverage", "memory", form="sparse", size=50),
    _case("squared", "layered", "memory", "real", form="float32"),
    _case("logistic", "uniform", "memory", form="rows", beta=0.0, note="all suspected kept"),
    _case("logistic", "auto", "memory", "real", "frozen", n_outliers=0.1, note="fraction"),
    _case("logistic", "uniform", "memory", "real", size=1000, note="size beyond the rows"),
    _case("logistic", "layered", "memory", size=2, n_outliers=3, note="two rows"),
    _case("hinge", "leverage", "memory", "real", "found"),
    _case("hinge", "sensitivity", "memory", "real", **RAW),
    _case("huber", "sensitivity", "memory", "unit", "found", **BIG),
    _case("huber", "auto", "memory", "real", suspects=2.5, note="more suspects"),
    _case("squared", "layered", "memory", "unit", "found"),
    _case("squared", "leverage", "memory", "real", suspects=0, note="no suspects"),
    _case("squared", "auto", "memory", "real", data={"ties": True}, note="ties", size=70),
    _case("poisson", "auto", "memory"),
    _case("poisson", "uniform", "memory", "real", n_outliers=0.3, note="fraction"),
    _case("softmax", "auto", "memory", "real", "found"),
    _case("softmax", "leverage", "memory", form="sparse", **RAW),
    _case("k-means", "auto", "memory", "unit", "found"),
    _case("k-means", "uniform", "memory", "real", data={"ties": True}, note="ties"),
    _case("k-means", "leverage", "memory", "real", "frozen", size=170, note="170 rows"),
    _case("one-mean", "sensitivity", "memory", "real", **BIG),
    _case("k-median", "layered", "memory", "real", **RAW),
    _case("k-median", "auto", "memory", "unit", "found", n_outliers=0.08, note="fraction"),
    _case("kl", "layered", "memory", "real"),
    _case("kl", "uniform", "memory", n_outliers=0, note="no outliers"),
    _case("truth", "sensitivity", "memory", "real"),
    _case("truth", "auto", "memory", "unit", "found", **BIG),
    _case("huber", ByLength(), "memory", "real"),
    _case("k-median", Heaviest(), "memory", "real"),
    _case("truth", "sensitivity", "memory", data={"n": 1500}, n_outliers=1, epsilon=0.95, **THEOREM),
    _case("truth", "layered", "memory", "real", data={"n": 100}, epsilon=0.5, beta=0.25, **THEOREM),
    _case("one-mean", "uniform", "memory", "real", "found", n_outliers=0.4, beta=0.9, **THEOREM_1),
]
CASES += [
    _case("logistic", "auto", "scan", "real", "found", **BIG),
    _case("logistic", "layered", "scan", form="sparse"),
    _case("hinge", "uniform", "scan", "real", **RAW),
    _case("squared", "sensitivity", "scan", "real", n_outliers=0.05, note="fraction"),
    _case("softmax", "leverage", "scan"),
    _case("k-means", "layered", "scan", "real", data={"ties": True}, note="ties"),
    _case("k-median", "auto", "scan", "unit", "found", form="rows"),
    _case("kl", "auto", "scan", "real", "frozen"),
    _case("huber", ByLength(), "scan", "real"),
    _case("logistic", "sensitivity", "dask-frame", "real", "found"),
    _case("huber", "uniform", "dask-frame", form="rows"),
    _case("k-means", "auto", "dask-frame", "real", n_outliers=0.05, note="fraction"),
    _case("poisson", "leverage", "dask-array", "real", **RAW),
    _case("truth", "layered", "dask-array", "unit", "found"),
    _case("softmax", "auto", "dask-array", "real", "frozen", **BIG),
    _case("logistic", "auto", "ranked", "real", "found"),
    _case("logistic", "layered", "ranked", "unit", "frozen", data={"ties": True}, note="ties"),
    _case("squared", "leverage", "ranked", "real", **BIG),
    _case("hinge", "sensitivity", "ranked", n_outliers=0.05, note="fraction"),
    _case("k-means", "uniform", "ranked", "real", "frozen", **RAW),
    _case("k-means", "layered", "ranked", "real", "found"),
    _case("kl", "layered", "ranked"),
    _case("softmax", "uniform", "ranked", n_outliers=0, note="no outliers"),
    _case("huber", "auto", "ranked", "real", "found", size=400, note="no anchor yet"),
    _case("logistic", "layered", "merged", "real", "frozen"),
    _case("k-means", "leverage", "merged", "unit", "frozen", n_outliers=0.05, note="fraction"),
    _case("logistic", "layered", "tree", "real", "found"),
    _case("k-median", "uniform", "tree", n_outliers=0.05, note="fraction"),
    _case("squared", Heaviest(), "tree", "real"),
    _case("logistic", "leverage", "store", "real", **BIG),
    _case("huber", "auto", "store", "unit", "found"),
    _case("k-means", "layered", "store", "real", "frozen", n_outliers=0.05, note="fraction"),
    _case("truth", "sensitivity", "store-tree", "real"),
]
