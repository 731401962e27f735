"""The figures of the attacks, in the order in which pages and pictures need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duramen.arrays import Array
from experiments.paper.experiment import Records

__all__ = ["LINES", "MEASURES", "PAIRS", "ROBUST", "TOLERANCE", "TRIMMED", "Measure", "Sheet"]

TRIMMED, ROBUST = "everything, trimmed", "robust, calibrated"
LINES = ("everything, blind", TRIMMED, "plain", "plain, calibrated", ROBUST, "robust, z = 5%")
"""The ways to fit that are drawn."""

PAIRS = {"As drawn": ("plain", "robust"), "Calibrated": ("plain, calibrated", ROBUST)}
"""Plain and robust coresets that differ in nothing else."""

TOLERANCE = 0.02
"""A fit holds while it loses no more than this."""


class Measure(NamedTuple):
    """A figure of a fit: how much worse it is than what it is measured by, as a share; 0 is as good."""

    name: str
    title: str
    beside: str
    lost: Callable[[Records, Records], float]


MEASURES = (
    Measure(
        "accuracy",
        "Accuracy on clean test rows",
        "points of accuracy lost against the informed fit",
        lambda fit, record: record["informed"]["accuracy"] - fit["accuracy"],
    ),
    Measure(
        "loss",
        "Loss on clean training rows",
        "% above the informed fit's",
        lambda fit, record: fit["clean"] / record["informed"]["clean"] - 1,
    ),
    Measure(
        "objective",
        "The trimmed objective on all training rows",
        "% above the best trimmed fit's",
        lambda fit, record: fit["loss"] / record["least"] - 1,
    ),
)
"""Accuracy, the loss on clean rows, and f_z."""


class Sheet:
    """What every fit came to, by attack and share; without contamination all attacks are the same."""

    def __init__(self, records: Records, shares: tuple[float, ...], trials: int) -> None:
        self.records, self.shares, self.trials = records, tuple(sorted(shares)), trials

    @property
    def ways(self) -> list[str]:
        """The names of the ways to fit, in their order."""
        return list(next(iter(self.records.values()))["fits"])

    def each(self, attack: str, figure: Callable[[Records], float]) -> Array:
        """Collect a figure of the records of an attack: one row a trial, one column a share."""
        return np.array(
            [[figure(self._record(attack, share, seed)) for share in self.shares] for seed in self._seeds]
        )

    def lost(self, measure: Measure, way: str, attack: str) -> Array:
        """Collect how much a way to fit loses: one row a trial, one column a share."""
        return self.each(attack, lambda record: measure.lost(record["fits"][way], record))

    def found(self, way: str, attack: str) -> Array:
        """Collect which part of the planted rows is set aside: one column a share above 0."""
        planted = [place for place, share in enumerate(self.shares) if share > 0]
        return self.each(attack, lambda record: record["fits"][way].get("found", np.nan))[:, planted]

    def reach(self, measure: Measure, way: str, attack: str) -> float | None:
        """Find the largest share up to which a way to fit holds in every trial; None if it never does."""
        worst = self.lost(measure, way, attack).max(axis=0)
        held = int(np.argmax(np.append(worst > TOLERANCE, True)))
        return self.shares[held - 1] if held else None

    def seconds(self, way: str) -> list[float]:
        """Collect how long a way to fit took, over all steps."""
        return [one["fits"][way]["building"] + one["fits"][way]["solving"] for one in self.records.values()]

    @property
    def _seeds(self) -> range:
        return range(self.trials)

    def _record(self, attack: str, share: float, seed: int) -> Records:
        found: Records = self.records[f"{attack if share > 0 else 'none'} {share:g} {seed}"]
        return found
