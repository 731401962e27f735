"""Find the anchor of changing data, score points as seen from it, and report how well it still fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from duramen.coreset.save import anchor_state
from duramen.losses.base import Anchor

_FAR = 4.0  # radii; closer by, chance alone may have made the radius too small: it comes from two samples
_MOST_LATE = 0.5  # of the points; then most of them had no influence on the anchor


@dataclass(frozen=True)
class AnchorReport:
    """How well the anchor still fits the points.

    Attributes
    ----------
    radius : float or None
        How far from the anchor a solution may be for the constants to hold; None without an anchor.
    distance : float or None
        How far from the anchor the latest solution is; None if there is none.
    n_points : int
        The number of points.
    n_late : int
        How many of them were inserted or updated after the anchor was found.
    n_sample, n_sample_gone : int
        How many points the anchor was found on, and how many of these were deleted or updated since.
    reason : str or None
        Why there is no anchor yet, if there is none.

    Examples
    --------
    >>> AnchorReport(radius=0.5, distance=2.7, n_points=100, n_late=10, n_sample=50, n_sample_gone=1)
    AnchorReport: reanchor() is advised
      the latest solution is 2.7 from the anchor; bounds hold within its radius of 0.5
      10 of 100 points (10%) were inserted or updated since
      1 of the 50 points it was made from were deleted or updated
    """

    radius: float | None
    distance: float | None
    n_points: int
    n_late: int
    n_sample: int
    n_sample_gone: int
    reason: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the latest solution is within the radius; True while there is none, or no radius."""
        return (self.distance or 0.0) <= (self.radius or math.inf) * (1 + 1e-9)

    @property
    def is_outside(self) -> bool:
        """Whether the latest solution is clearly outside, by four times the radius: then a fit warns."""
        return (self.distance or 0.0) > (self.radius or math.inf) * _FAR

    @property
    def late_share(self) -> float:
        """The fraction of the points inserted or updated since."""
        return self.n_late / max(1, self.n_points)

    @property
    def advised(self) -> bool:
        """Whether ``reanchor()`` is advised: the solution is far outside, or most points are new."""
        found_here = self.n_sample > 0  # one that was passed in does not depend on these points
        return self.is_outside or (found_here and self.late_share > _MOST_LATE)

    def __repr__(self) -> str:
        if self.radius is None:
            return f"AnchorReport: no anchor yet; {self.reason}"
        verdict = "the anchor holds" if self.holds else "the solution is slightly outside, perhaps by chance"
        solution = "no solution yet to compare with the anchor"
        if self.distance is not None:
            solution = f"the latest solution is {self.distance:.4g} from the anchor"
        late = f"{self.n_late:,} of {self.n_points:,} points ({self.late_share:.0%})"
        gone = f"{self.n_sample_gone:,} of the {self.n_sample:,} points it was made from"
        lines = [
            f"AnchorReport: {'reanchor() is advised' if self.advised else verdict}",
            f"{solution}; bounds hold within its radius of {self.radius:.4g}",
            f"{late} were inserted or updated since",
            f"{gone} were deleted or updated",
        ]
        return "\n  ".join(lines if self.n_sample else lines[:-1])


def same_anchor(one: Anchor, other: Anchor) -> bool:
    """Return whether two anchors lead to the same choices, whichever points they were found on."""
    mine, theirs = ({**anchor_state(anchor), "ids": None} for anchor in (one, other))
    return mine == theirs
