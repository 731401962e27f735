"""Solving with outliers, on any weighted points."""

from duramen.solvers.anchor import find_anchor
from duramen.solvers.problem import Solution, Status, Step
from duramen.solvers.solve import solve

__all__ = ["Solution", "Status", "Step", "find_anchor", "solve"]
