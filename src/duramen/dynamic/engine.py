"""What an engine is: it keeps the suspected inliers while points come and go.

An engine holds no data. A point is a slot, a small number that the holder gave
it and may give to another point once this one is gone; the engine asks the
holder for rows, labels, weights and ids when it looks at them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from duramen.points import WeightedPoints
from duramen.rows import Array

__all__ = ["Engine", "Holder"]


class Holder(Protocol):
    """What holds the points: gives them by slot."""

    def points(self, slots: Array) -> WeightedPoints:
        """Give the points in these slots, one or more, in that order and with their own weights."""


class Engine(ABC):
    """Keeps the suspected inliers, and chooses rows that stand for them.

    What is in it, and in what state, is a function of the sequence of single
    operations: many at once give what the same ones give one after the other.
    """

    @abstractmethod
    def add(self, slot: int) -> None:
        """Take a point in; its data is in the holder already, and must not change while it is here."""

    @abstractmethod
    def remove(self, slot: int) -> None:
        """Let a point go; its data is still in the holder."""

    def add_many(self, slots: Array) -> None:
        """Take points in, in the order given."""
        for slot in slots.tolist():
            self.add(slot)

    def remove_many(self, slots: Array) -> None:
        """Let points go, in the order given."""
        for slot in slots.tolist():
            self.remove(slot)

    @abstractmethod
    def __len__(self) -> int:
        """Say how many points are in it."""

    @abstractmethod
    def check(self) -> None:
        """Raise AssertionError, with its number and text, if an invariant of the class is broken."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """How many bytes its own arrays take, without what the holder has."""
