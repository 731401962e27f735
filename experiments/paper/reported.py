"""What the paper reports: Tables 1 and 2, and the names of its methods."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SAMPLERS", "TABLE1", "TABLE2", "TITLE", "Reported"]

TITLE = """\
Wang, Guo and Ding, *Robust and Fully-Dynamic Coreset for Continuous-and-Bounded Learning (With Outliers)
Problems* (NeurIPS 2021)"""

SAMPLERS = {"GSP": "layered", "Uniform": "uniform", "QR": "leverage"}
"""The paper's samplers, and what they are called here."""


class Reported(NamedTuple):
    """A row of a table: the loss over that of the fit on everything, and how much faster it is."""

    ratio: float
    speed_up: float


TABLE1 = {
    ("GSP", 4000): Reported(1.046, 26.9),
    ("GSP", 8000): Reported(1.031, 19.19),
    ("Uniform", 4000): Reported(1.134, 45.8),
    ("Uniform", 8000): Reported(1.050, 29.1),
    ("QR", 4000): Reported(1.025, 23.4),
    ("QR", 8000): Reported(1.012, 17.9),
}
"""Logistic regression on Covertype, by method and size; all with the hybrid framework (+)."""

TABLE2 = {
    ("GSP", 5000): Reported(1.016, 41.1),
    ("GSP", 10_000): Reported(1.008, 15.4),
    ("Uniform", 5000): Reported(1.029, 78.9),
    ("Uniform", 10_000): Reported(1.011, 46.9),
}
"""k-means with k = 10 on 3Dspatial, by method and size; all with the hybrid framework (+)."""
