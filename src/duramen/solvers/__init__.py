"""Solving with outliers, on any weighted points."""

from duramen.solvers.alternate import Status, Step
from duramen.solvers.solve import Solution, solve
from duramen.solvers.starts import find_anchor

__all__ = ["Solution", "Status", "Step", "find_anchor", "solve"]
