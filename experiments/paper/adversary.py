"""Three adversaries, each of which plants a share of the training rows in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import duramen as dm
from duramen.arrays import Array
from experiments.paper.data import Contaminated, Planting, Table, noisy_rows, split

__all__ = ["ATTACKS", "Attack", "contaminated"]

_FAR, _TIGHT = 30.0, 0.1  # how far the cluster lies, and its own spread, in standard deviations
_LOOKED_AT = 20_000  # rows that the adversary fits: enough to know where a model is sure
_L2 = 1.0  # some kinds of soil bear one class only: without a penalty their coefficients drift


class Attack(NamedTuple):
    """An adversary: which rows it takes, what it does to them, and both in words."""

    name: str
    title: str
    about: str
    choose: Callable[[Array, int, np.random.Generator], Array]
    plant: Planting


def contaminated(table: Table, attack: Attack | None, share: float, held_out: int, seed: int) -> Contaminated:
    """Hold random rows out, and let an adversary, if there is one, plant a share of the others."""
    rng = np.random.default_rng(seed)
    data = split(table, held_out, rng)
    if attack is not None:
        data.planted[attack.choose(data.X, round(share * len(data.X)), rng)] = True
        attack.plant(data.X, data.y, data.planted, rng)
    return data


def random_rows(X: Array, count: int, rng: np.random.Generator) -> Array:
    """Choose rows at random."""
    return rng.choice(len(X), count, replace=False)


def rows_of_most_leverage(X: Array, count: int, rng: np.random.Generator) -> Array:
    """Choose the rows that are longest in the frame in which the spread is the same in all directions."""
    frame = np.linalg.pinv(_covariance(X), rcond=1e-9, hermitian=True)
    centred = X - X.mean(axis=0)
    leverage = np.einsum("ij,ij->i", centred @ frame, centred)
    return np.argsort(-leverage, kind="stable")[:count]


def flipped_labels(X: Array, y: Array, chosen: Array, rng: np.random.Generator) -> None:
    """Give the chosen rows the other label."""
    y[chosen] = -y[chosen]


def far_cluster(X: Array, y: Array, chosen: Array, rng: np.random.Generator) -> None:
    """Move the chosen rows to one place where the clean model is sure, with the label it speaks against.

    Columns of two values at most stay as they are: a row between them gives itself away.
    """
    seen = X[:_LOOKED_AT], y[:_LOOKED_AT]
    theta = dm.solve(dm.points(*seen), dm.LogisticLoss(), l2=_L2).theta
    least, most = X.min(axis=0), X.max(axis=0)
    wide = np.flatnonzero(((least < X) & (most > X)).any(axis=0))
    towards = _sure_direction(_covariance(X), theta[:-1], wide)
    rows = np.flatnonzero(chosen)
    X[np.ix_(rows, wide)] = _FAR * towards + _TIGHT * X[np.ix_(rows, wide)]
    y[rows] = -1


def _sure_direction(covariance: Array, coefficients: Array, wide: Array) -> Array:
    """Find the direction in the wide columns that costs a model most to be blind in.

    A model that is, must do without ``u.theta``; least of it can be had back by other columns along
    ``S theta``, S the covariance of the wide columns given the others.
    """
    others = np.setdiff1d(np.arange(len(coefficients)), wide)
    across = covariance[np.ix_(wide, others)]
    known = across @ np.linalg.pinv(covariance[np.ix_(others, others)], rcond=1e-9, hermitian=True) @ across.T
    towards = (covariance[np.ix_(wide, wide)] - known) @ coefficients[wide]
    return towards / np.linalg.norm(towards)


def _covariance(X: Array) -> Array:
    centred = X - X.mean(axis=0)
    return centred.T @ centred / len(X)


ATTACKS = (
    Attack(
        "noise",
        "random noise",
        "Random rows get Gaussian noise of standard deviation 10 on every column, and their labels are "
        "shuffled among them: the contamination of [Table 1](table1.md).",
        random_rows,
        noisy_rows,
    ),
    Attack(
        "flips",
        "flips at leverage points",
        "The rows of the largest leverage get the label opposite to their own, and are not moved. Leverage "
        "is x' S^+ x, where x is a training row less the mean, S the covariance of all training rows before "
        "the attack, and S^+ its pseudo-inverse.",
        rows_of_most_leverage,
        flipped_labels,
    ),
    Attack(
        "cluster",
        "a tight far cluster",
        f"Random rows are moved to one place {_FAR:g} standard deviations out, where the clean model is sure "
        f"of the label +1, and get the label -1. They keep {_TIGHT:g} of their own spread. The direction is "
        "S theta, with theta the coefficients of a model of clean rows and S the covariance of the columns "
        "that are moved, given the others: of all directions the one that costs a model most to be wrong "
        "in. Columns of at most two values (Covertype's soil types and wilderness areas) stay as they are: "
        "planted rows look like rows.",
        random_rows,
        far_cluster,
    ),
)
"""The adversaries, in the order of the page."""
