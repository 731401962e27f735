"""The columns of the tables: what each figure is, which of ours it is compared with, and what does better.

Figures are compared as they are printed, so that the page says nothing that it does not show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.measuring import Figures, Measured

__all__ = [
    "DYNAMIC",
    "ESTIMATOR",
    "Column",
    "absorb_seconds",
    "cost",
    "first_seconds",
    "forget_seconds",
    "quality",
]

ESTIMATOR, DYNAMIC = "estimator", "dynamic"
NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes
    ----------
    name : str
    against : str
        The key of our entry that others are compared with, chosen beforehand.
    of : callable
        Finds the figure of a contender; None where there is none.
    written : callable
        Writes a figure.
    low : bool
        Whether less is better.
    """

    name: str
    against: str
    of: Callable[[Figures], float | None]
    written: Callable[[float], str]
    low: bool = True

    def text(self, figures: Figures) -> str:
        """Write the figure of a contender."""
        figure = self.of(figures)
        return NOT_SEEN if figure is None else self.written(figure)

    def texts(self, measured: Measured) -> dict[str, str]:
        """Write the available figures, by the contenders' keys."""
        texts = {key: self.text(figures) for key, figures in measured.figures.items()}
        return {key: text for key, text in texts.items() if text != NOT_SEEN}

    def best(self, measured: Measured) -> str | None:
        """Return the best figure of all contenders, as it is printed."""
        return min(self.texts(measured).values(), key=self._order, default=None)

    def winners(self, measured: Measured) -> list[str]:
        """List the keys of the peers whose figure is better than that of ours, the best first."""
        order = {key: self._order(text) for key, text in self.texts(measured).items()}
        peers = [entry.key for entry in measured.entries if not entry.ours and entry.key in order]
        return sorted((key for key in peers if order[key] < order[self.against]), key=order.__getitem__)

    def _order(self, text: str) -> float:
        figure = float(text.replace(",", "").rstrip("%"))
        return figure if self.low else -figure


def quality(measured: Measured) -> list[Column]:
    """List what measures how good the models are: loss and score, in each state of the data."""
    score = measured.part.score
    columns = []
    for state in measured.part.states:
        columns.append(Column(f"loss, {state}", ESTIMATOR, _mean_of("losses", state), _ratio))
        columns.append(
            Column(
                f"{score.name}, {state}",
                ESTIMATOR,
                _mean_of("scores", state),
                lambda figure: f"{figure:{score.written}}",
                score.low,
            )
        )
    return columns


def cost(measured: Measured) -> list[Column]:
    """List what a model costs: times over one of ours, memory over the data."""
    size = measured.nbytes

    def over(key: str, seconds: Callable[[Figures], float]) -> Callable[[Figures], float]:
        ours = seconds(measured.figures[key])
        return lambda figures: seconds(figures) / ours

    return [
        Column("first model", ESTIMATOR, over(ESTIMATOR, first_seconds), _significant),
        Column("absorb a row", DYNAMIC, over(DYNAMIC, absorb_seconds), _significant),
        Column("forget a row", DYNAMIC, over(DYNAMIC, forget_seconds), _significant),
        Column(
            "peak memory",
            ESTIMATOR,
            lambda one: max(one.peak) / measured.nbytes_clean if one.peak else None,
            _share,
        ),
        Column("held to absorb", DYNAMIC, lambda one: one.held[0] / size, _share),
        Column("held to forget", DYNAMIC, lambda one: one.held[1] / size, _share),
    ]


def first_seconds(figures: Figures) -> float:
    """Return the seconds to the first model: the best trial's, as for the others."""
    return min(figures.first)


def absorb_seconds(figures: Figures) -> float:
    """Return the seconds to a model with one row more."""
    return min(figures.absorb)


def forget_seconds(figures: Figures) -> float:
    """Return the seconds to a model with one row less: from scratch if there is no other way."""
    return min(figures.forget or figures.first)


def _mean_of(name: str, state: str) -> Callable[[Figures], float]:
    return lambda figures: float(np.mean(getattr(figures, name)[state]))


def _ratio(figure: float) -> str:
    return f"{figure:.4f}" if figure < 10 else f"{figure:,.1f}"


def _share(figure: float) -> str:
    return f"{figure:.2f}"


def _significant(figure: float) -> str:
    """Write two significant digits, without an exponent."""
    rounded = float(f"{figure:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.9f}".rstrip("0").rstrip(".")
