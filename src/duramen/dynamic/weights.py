"""Which weights there were: sums that change can hold only so many decades of them."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["WeightRange"]

_DECADES = 1e60  # between the lightest and the heaviest: beyond, sums of 107 bits lose the light ones


class WeightRange:
    """The lightest and the heaviest weight that came in.

    Examples
    --------
    >>> weights = WeightRange()
    >>> weights.check(1.0, 0.0)
    >>> weights.keep()
    >>> weights.check(1e-70, 1.0)
    Traceback (most recent call last):
    ValueError: weights from 1e-70 to 1 differ by more than 60 decades, ...
    """

    def __init__(self) -> None:
        self._kept = self._seen = (math.inf, 0.0)

    def check(self, weights: Any, total: float) -> None:
        """Look at weights, an array or one, that are to come to what weighs ``total``.

        Raises
        ------
        ValueError
            If they add up to infinity, or differ so much from those before that sums lose the light ones.
        """
        self._seen = lightest, heaviest = self._kept
        if isinstance(weights, float):
            more = weights
            if weights > 0:
                lightest, heaviest = min(lightest, weights), max(heaviest, weights)
        else:
            positive = weights[weights > 0]
            more = float(weights.sum())
            lightest = min(lightest, float(positive.min(initial=math.inf)))
            heaviest = max(heaviest, float(positive.max(initial=0.0)))
        if not math.isfinite(total + more):
            raise ValueError("weights add up to infinity; scale them down")
        if heaviest > _DECADES * lightest:
            raise ValueError(
                f"weights from {lightest:g} to {heaviest:g} differ by more than 60 decades, which sums that "
                "change cannot hold; scale them, or leave the light ones out"
            )
        self._seen = (lightest, heaviest)

    def keep(self) -> None:
        """Keep what was looked at, to a power of two: it must not tell the weight of one that left."""
        lightest, heaviest = self._seen
        if self._seen != self._kept:
            self._kept = self._seen = _power_of_two(lightest, up=True), _power_of_two(heaviest, up=False)

    @property
    def kept(self) -> tuple[float, float]:
        """The lightest and the heaviest that came in; (inf, 0) if none did."""
        return self._kept

    @kept.setter
    def kept(self, both: tuple[float, float]) -> None:
        self._kept = self._seen = both


def _power_of_two(weight: float, *, up: bool) -> float:
    """Round a weight to the next power of two.

    Examples
    --------
    >>> _power_of_two(3.0, up=True), _power_of_two(3.0, up=False), _power_of_two(2.0, up=True)
    (4.0, 2.0, 2.0)
    """
    share, exponent = math.frexp(weight)
    if share == 0.5 or not math.isfinite(weight) or weight == 0:
        return weight
    return math.ldexp(1.0, exponent if up else exponent - 1)
