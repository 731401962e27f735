"""How well an anchor still fits data that have changed since."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AnchorReport"]

_FAR = 4.0  # radii; closer by, chance alone may have made the radius too small: it comes from two samples
_MOST_LATE = 0.5  # of the points; then most of them had no say in the anchor


@dataclass(frozen=True)
class AnchorReport:
    """What has become of the anchor's world since it was made.

    Attributes
    ----------
    radius : float or None
        How far from the anchor a solution may be for the constants to hold; None without an anchor.
    distance : float or None
        How far the latest solution is; None if there is none.
    n_points : int
        How many points are here.
    n_late : int
        How many of them came, or were changed, after the anchor was made.
    n_sample, n_sample_gone : int
        How many points the anchor was made from, and how many of these were deleted or changed since.
    reason : str or None
        Why there is no anchor yet, where there is none.

    Examples
    --------
    >>> AnchorReport(radius=0.5, distance=2.7, n_points=100, n_late=10, n_sample=50, n_sample_gone=1)
    AnchorReport: reanchor() is advised
      the latest solution is 2.7 from the anchor, outside the radius of 0.5: bounds no longer hold there
      10 of 100 points (10%) came or changed since
      1 of the 50 points it was made from were deleted or changed
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
        if not self.radius or self.distance is None:
            return True
        return self.distance <= self.radius * (1 + 1e-9)

    @property
    def is_outside(self) -> bool:
        """Whether the latest solution is clearly outside, by four times the radius: then a fit warns."""
        return bool(self.radius) and self.distance is not None and self.distance > _FAR * (self.radius or 0.0)

    @property
    def late_share(self) -> float:
        """Which share of the points came or changed since."""
        return self.n_late / self.n_points if self.n_points else 0.0

    @property
    def advised(self) -> bool:
        """Whether ``reanchor()`` is advised: the solution is far outside, or most points are new."""
        made_here = self.n_sample > 0  # one that was handed in owes nothing to these points
        return self.radius is not None and (self.is_outside or (made_here and self.late_share > _MOST_LATE))

    def __repr__(self) -> str:
        if self.radius is None:
            return f"AnchorReport: no anchor yet; {self.reason}"
        verdict = (
            "the anchor holds" if self.holds else "the solution is a little outside, as chance may have it"
        )
        if self.advised:
            verdict = "reanchor() is advised"
        return "\n  ".join([f"AnchorReport: {verdict}", self._where(), *self._who()])

    def _where(self) -> str:
        if self.distance is None:
            return f"no solution yet to compare with; radius {self.radius:.4g}"
        if not self.radius:
            return f"the latest solution is {self.distance:.4g} from the anchor, which has no radius"
        where = f"the latest solution is {self.distance:.4g} from the anchor"
        if self.holds:
            return f"{where}, within the radius of {self.radius:.4g}"
        return f"{where}, outside the radius of {self.radius:.4g}: bounds no longer hold there"

    def _who(self) -> list[str]:
        lines = [f"{self.n_late:,} of {self.n_points:,} points ({self.late_share:.0%}) came or changed since"]
        if self.n_sample:
            gone = f"{self.n_sample_gone:,} of the {self.n_sample:,} points it was made from"
            lines.append(f"{gone} were deleted or changed")
        return lines
