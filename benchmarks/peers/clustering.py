"""Clustering: britain_magnetic_3d with far points planted, and clean."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans

import duramen as dm
from benchmarks.peers import ours
from benchmarks.peers.contender import (
    Contender,
    Entry,
    Forgetting,
    Learner,
    Refit,
    Refitted,
    Screened,
    centres_of,
    trimmed,
)
from benchmarks.peers.part import Counts, Part, Score
from benchmarks.peers.shared import Table, made_up_survey, survey, with_far_points
from benchmarks.peers.streams import River
from benchmarks.peers.task import ARRIVALS, Task

__all__ = ["PART"]

_K = 10
_LOSS = dm.KMeansLoss(_K)
_STARTS = 5  # as RobustKMeans has it by default

_ABOUT = """\
k-means with 10 clusters on {name}: {n:,} points of {d} standardised columns, in random order. *Planted*:
{z:,} of these are uniform in the bounding box of the others, and moved by noise of standard deviation
20. *Clean*: without those, and every method that takes z is still given {z:,}. By default, faiss samples
256 points per cluster.
"""


def _planted(table: Table, counts: Counts, seed: int) -> Task:
    return _task(table, counts.planted, counts.planted, seed)


def _clean(table: Table, counts: Counts, seed: int) -> Task:
    return _task(table, 0, counts.planted, seed)


def _task(table: Table, planted: int, z: int, seed: int) -> Task:
    """Plant far points among all but the rows that come later, and shuffle."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.X))
    later, there = order[:ARRIVALS], order[ARRIVALS:]
    data = with_far_points(table._replace(X=table.X[there]), planted, seed)
    mixed = rng.permutation(len(data.X))
    X = np.concatenate([data.X[mixed], table.X[later]])
    return Task(X, None, data.planted[mixed], z, X[:0], np.empty(0), seed)


def _informed(task: Task) -> np.ndarray:
    return centres_of(KMeans(_K, n_init=10, random_state=task.seed).fit(task.clean()[0]))


def _loss(theta: np.ndarray, X: np.ndarray, y: np.ndarray | None) -> float:
    return float(_LOSS.values(theta, X).mean())


def _lost(theta: np.ndarray, task: Task) -> float:
    nearest = _LOSS.nearest(theta, task.first(task.n)[0])
    planted, clean = (np.bincount(nearest[which], minlength=_K) for which in (task.planted, ~task.planted))
    return float(np.sum(clean <= planted))


def _kmeans(seed: int, n_init: int = 1) -> Refit:
    """Fit from scratch at first, then from the last centres."""

    def refit(X: Any, y: Any, last: Any) -> KMeans:
        start = {"n_init": n_init} if last is None else {"n_init": 1, "init": last.cluster_centers_}
        return KMeans(_K, random_state=seed, **start).fit(X)

    return refit


def _squares(model: KMeans, X: np.ndarray, y: None) -> np.ndarray:
    return model.transform(X).min(axis=1) ** 2


def _refitted(task: Task, n_init: int = 1) -> Contender:
    return Refitted(task, _kmeans(task.seed, n_init), centres_of)


def _trimmed(task: Task) -> Contender:
    return Refitted(task, trimmed(_kmeans(task.seed), _squares, task.z), centres_of)


def _screened(task: Task) -> Contender:
    return Screened(task, _kmeans(task.seed), centres_of)


def _mini_batches(task: Task) -> Contender:
    return Learner(task, MiniBatchKMeans(_K, random_state=task.seed), centres_of)


def _river(task: Task) -> Contender:
    from river.cluster import KMeans as OneByOne

    def theta_of(model: Any) -> np.ndarray:
        columns = range(task.X.shape[1])
        return np.array([[centre[j] for j in columns] for centre in model.centers.values()])

    return River(task, OneByOne(n_clusters=_K, halflife=0.01, seed=task.seed), theta_of)


class Faiss(Forgetting):
    """faiss.Kmeans; it works on float32, which is all that is kept."""

    def __init__(self, task: Task, *, all_rows: bool = False) -> None:
        super().__init__(task)
        self._all_rows, self._count = all_rows, task.n

    def fit(self) -> None:
        self._X = self.task.X.astype(np.float32)
        self._train(None)

    def _train(self, start: np.ndarray | None) -> None:
        import faiss

        most = {"max_points_per_centroid": len(self._X)} if self._all_rows else {}
        model = faiss.Kmeans(self._X.shape[1], _K, seed=self.task.seed + 1, **most)
        model.train(self._X[: self._count], init_centroids=start)
        self._centres = model.centroids

    def absorb(self) -> None:
        self._count += 1
        self._train(self._centres)

    def forget(self) -> None:
        self._count -= 1
        self._train(self._centres)

    def held(self) -> tuple[int, int]:
        return self.task.nbytes // 2, self.task.nbytes // 2

    @property
    def theta(self) -> np.ndarray:
        return self._centres.astype(np.float64)


PART = Part(
    title="Clustering",
    about=_ABOUT,
    tables=(survey, made_up_survey),
    states={"planted": _planted, "clean": _clean},
    entries=[
        *ours.entries(
            ours.Problem(
                partial(dm.RobustKMeans, _K),
                "RobustKMeans(10, n_outliers=z)",
                centres_of,
                _LOSS,
                {"n_starts": _STARTS},
            )
        ),
        Entry("k-means", "`KMeans(10)`", _refitted),
        Entry("k-means-10", "`KMeans(10, n_init=10)`", partial(_refitted, n_init=10)),
        Entry("mini-batches", "`MiniBatchKMeans(10)`", _mini_batches, "`partial_fit`", "fitted from scratch"),
        Entry("faiss", "`faiss.Kmeans(4, 10)`", Faiss, package="faiss-cpu"),
        Entry(
            "faiss-all",
            "`faiss.Kmeans(4, 10, max_points_per_centroid=n)`",
            partial(Faiss, all_rows=True),
            package="faiss-cpu",
        ),
        Entry(
            "isolation-forest",
            "`IsolationForest` and `KMeans`",
            _screened,
            "judged by the forest; fitted again, from the last model on",
            "fitted from scratch",
        ),
        Entry("trimming", "`KMeans` trimmed by hand", _trimmed),
        Entry(
            "river",
            "`river.cluster.KMeans(10, halflife=0.01)`",
            _river,
            "`learn_one`",
            "fitted from scratch",
            package="river",
        ),
    ],
    informed=_informed,
    loss=_loss,
    score=Score(
        "centres lost", "centres with no more clean points than planted ones around them", ".1f", True, _lost
    ),
)
