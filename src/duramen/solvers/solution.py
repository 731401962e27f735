"""What a solver returns: the solution, and why it stopped there."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from duramen.losses.base import Loss
from duramen.rows import Array

__all__ = ["Solution", "Status", "Step"]


class Status(enum.Enum):
    """Why a solver stopped; the value says it in words."""

    CONVERGED = "the objective fell by less than tol of itself"
    SETTLED = "nothing moves any more"
    UNBOUNDED = "the objective has no minimum: it falls towards zero as theta grows"
    MAX_ITER = "max_iter was reached"
    STOPPED = "the callback asked for it"

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain."""
        return self in (Status.CONVERGED, Status.SETTLED)


class Step(NamedTuple):
    """Where a solver stands, for a callback: after ``n_iter`` iterations of start number ``start``."""

    start: int
    n_iter: int
    objective: float
    theta: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """Parameters with a low trimmed objective, and how they were found.

    Attributes
    ----------
    theta : array
        The parameters; intercept last, or (k, d) centres.
    objective : float
        What was minimised: f_z(theta, X), and ``penalty`` where there is one.
    penalty : float
        ``l2 / 2`` times the squared length of the coefficients; 0 for centres.
    outliers : array of int64
        The ids of the points that were set aside, the largest loss first. Of
        the last one a part may be kept.
    aside : array
        How much weight of each of them was set aside; in sum z.
    history : array (n_iter + 1,)
        The objective at the start and after each iteration; it never rises.
    status : Status
        Why it stopped.
    n_iter : int
        How many iterations the best start took.
    start_objectives : array
        The objective that each start reached.
    loss, n_points, total_weight
        What was solved.
    """

    theta: Array
    objective: float
    penalty: float
    outliers: Array
    aside: Array
    history: Array
    status: Status
    start_objectives: Array
    loss: Loss
    n_points: int
    total_weight: float

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __post_init__(self) -> None:
        for array in (self.theta, self.outliers, self.aside, self.history, self.start_objectives):
            array.flags.writeable = False

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain, by the tolerance given."""
        return self.status.converged

    @property
    def n_iter(self) -> int:
        """How many iterations the best start took."""
        return len(self.history) - 1

    @property
    def n_outliers(self) -> float:
        """The weight that was set aside: z."""
        return float(self.aside.sum())

    def __repr__(self) -> str:
        kept = self.total_weight - self.n_outliers
        mean = f" ({(self.objective - self.penalty) / kept:.6g} a unit of kept weight)"
        penalty = f", {self.penalty:.4g} of it the penalty" if self.penalty else ""
        starts = f", best of {len(self.start_objectives)} starts" if len(self.start_objectives) > 1 else ""
        verdict = "converged" if self.converged else "NOT CONVERGED"
        return (
            f"Solution: {self.loss!r} on {self.n_points:,} points, theta {self.theta.shape}\n"
            f"  objective {self.objective:,.6g}{mean}{penalty}\n"
            f"  {len(self.outliers):,} points set aside, weight {self.n_outliers:,.6g} of "
            f"{self.total_weight:,.6g}\n"
            f"  {verdict} after {self.n_iter} iterations{starts}: {self.status.value}"
        )
