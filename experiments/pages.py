"""What figures of the experiments are asked to reach, and whether they do."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Target"]


class Target(NamedTuple):
    """What a figure should reach: ``asked``, or better still ``aim``."""

    asked: float
    aim: float | None = None
    at_most: bool = True

    def reached(self, figure: float, goal: float | None = None) -> bool:
        """Tell whether a figure is as good as ``goal``, or as what was asked."""
        goal = self.asked if goal is None else goal
        return figure <= goal if self.at_most else figure >= goal

    def verdict(self, figure: float) -> str:
        """Say whether the figure, as measured and not as printed, does what was asked."""
        if not self.reached(figure):
            return "MISSED"
        return "met, the aim too" if self.aim is not None and self.reached(figure, self.aim) else "met"
