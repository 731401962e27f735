"""Solving with outliers, on any weighted points."""

from duramen.solvers.anchoring import find_anchor
from duramen.solvers.solution import Solution, Status, Step
from duramen.solvers.solve import solve

__all__ = ["Solution", "Status", "Step", "find_anchor", "solve"]
