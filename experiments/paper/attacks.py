"""Plain against robust as contamination grows: three adversaries, and what each fit makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import duramen as dm
from duramen.arrays import Array
from duramen.trimming import kept_weights
from experiments.paper import attack_page, attack_plots, fits
from experiments.paper.adversary import ATTACKS, Attack, contaminated
from experiments.paper.attack_sheet import Sheet
from experiments.paper.data import Contaminated, Table
from experiments.paper.experiment import Experiment, Plots, Records, Results, Step
from experiments.paper.fits import LOGISTIC, Fit, Yardstick, timed

__all__ = ["Attacks"]

_GUESS = 0.05  # the share of outliers of one who does not know it
_STARTS = 2  # of the trimmed fits on coresets, where another costs little
_INFORMED_L2 = 1.0  # some kinds of soil bear one class only: without a penalty their coefficients drift


@dataclass(frozen=True)
class Attacks(Experiment):
    """What fits come to under each attack, by the share of planted rows."""

    table: Table
    held_out: int
    trials: int = 5
    shares: tuple[float, ...] = (0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
    size: int = 4000
    name: ClassVar[str] = "attacks"

    @property
    def settings(self) -> Records:
        counts = {"held_out": self.held_out, "rows": len(self.table.X), "size": self.size}
        return {"data": self.table.name, **counts}

    def steps(self) -> Iterator[Step]:
        for seed in range(self.trials):
            for attack in ATTACKS:
                for share in self.shares:
                    if share > 0:
                        name = f"{attack.name} {share:g} {seed}"
                        yield Step(name, partial(self._step, attack, share, seed))
            if 0 in self.shares:
                yield Step(f"none 0 {seed}", partial(self._step, None, 0.0, seed))

    def _step(self, attack: Attack | None, share: float, seed: int) -> Records:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what is left can be fitted perfectly
            return _found(contaminated(self.table, attack, share, self.held_out, seed), self.size, seed)

    def page(self, results: Results, command: str) -> str:
        facts = {
            "name": self.table.name,
            "rows": len(self.table.X) - self.held_out,
            "columns": self.table.X.shape[1],
            "held_out": self.held_out,
            "trials": self.trials,
            "size": self.size,
            "guess": _GUESS,
            "starts": _STARTS,
            "l2": _INFORMED_L2,
            "command": command,
            "where": results.where(),
        }
        return attack_page.page(self._sheet(results), facts)

    def summary(self, results: Results) -> str:
        trials = f"{self.trials} trial{'s' * (self.trials > 1)}"
        heading = f"{self.table.name} under attack, coresets of {self.size:,} rows, {trials}"
        return attack_page.summary(self._sheet(results), heading)

    def plots(self, results: Results) -> Plots:
        return attack_plots.plots(self._sheet(results))

    def _sheet(self, results: Results) -> Sheet:
        return Sheet(results.records, self.shares, self.trials)


def _found(data: Contaminated, size: int, seed: int) -> Records:
    """Fit contaminated rows in every way, and measure each fit; also the one that knows what is planted."""
    z = int(data.planted.sum())
    yardstick, points = Yardstick(data, z), dm.points(data.X, data.y)
    clean = dm.points(data.X, data.y, weights=1.0 - data.planted)
    informed, seconds = timed(lambda: dm.solve(clean, LOGISTIC, 0, l2=_INFORMED_L2).theta)
    record: Records = {"informed": _measured(yardstick, Fit(informed, len(data.X) - z, 0.0, seconds))}
    record["fits"] = {name: _measured(yardstick, fit) for name, fit in _fits(data, z, size, seed)}
    again = dm.solve(points, LOGISTIC, z, init=informed, random_state=seed).theta if z else informed
    record["least"] = min(yardstick.loss(again), record["fits"]["everything, trimmed"]["loss"])
    return record


def _fits(data: Contaminated, z: int, size: int, seed: int) -> Iterator[tuple[str, Fit]]:
    """Fit in every way, under the names that the page has for them."""
    coreset = partial(_on_coreset, data, size, seed)
    yield "everything, blind", _blind(data)
    yield "everything, trimmed", fits.on_everything(data.X, data.y, LOGISTIC, z, seed, fits.solved)
    yield "plain, blind", coreset(0, suspects=0, calibrate=False)
    yield "plain", coreset(z, suspects=0, calibrate=False)
    yield "robust", coreset(z, calibrate=False)
    yield "plain, uniform", coreset(z, sampler="uniform", suspects=0, calibrate=False)
    yield "robust, uniform", coreset(z, sampler="uniform", calibrate=False)
    yield "plain, calibrated", coreset(z, suspects=0)
    yield "robust, calibrated", coreset(z)
    yield f"robust, z = {_GUESS:.0%}", coreset(_GUESS)


def _blind(data: Contaminated) -> Fit:
    """Fit everything with scikit-learn, outliers or not."""
    model = LogisticRegression(C=np.inf, max_iter=1000)
    _, seconds = timed(lambda: model.fit(data.X, data.y))
    return Fit(np.append(model.coef_[0], model.intercept_), len(data.X), 0.0, seconds)


def _on_coreset(data: Contaminated, size: int, seed: int, z: float, **building: Any) -> Fit:
    """Build a coreset for so many outliers, and solve on it from several starts."""
    starts = _STARTS if z else 1  # without outliers there is one minimum
    building = {"sampler": "leverage", "size": size, **building}
    return fits.on_coreset(data.X, data.y, LOGISTIC, z, seed, n_starts=starts, **building)


def _measured(yardstick: Yardstick, fit: Fit) -> dict[str, float]:
    """Say what a fit came to: f_z, the loss of clean rows, accuracy, and which planted rows z takes."""
    planted, z = yardstick.data.planted, yardstick.z
    losses: Array = LOGISTIC.values(fit.theta, yardstick.data.X, yardstick.data.y)
    kept = kept_weights(losses, np.ones(len(losses)), z)
    found = {"found": float((kept[planted] == 0).mean())} if z else {}
    return {
        "loss": float(losses @ kept),
        "clean": float(losses[~planted].mean()),
        "accuracy": yardstick.accuracy(fit.theta),
        "rows": fit.rows,
        "building": fit.building,
        "solving": fit.solving,
        **found,
    }
