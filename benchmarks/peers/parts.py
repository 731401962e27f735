"""The parts of the comparison, in the order of the page."""

from __future__ import annotations

from benchmarks.peers import classification, clustering, regression
from benchmarks.peers.part import Part

__all__ = ["PARTS"]

PARTS: dict[str, Part] = {
    "classification": classification.PART,
    "clustering": clustering.PART,
    "regression": regression.PART,
}
