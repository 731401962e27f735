"""How long the parts of a fit on a coreset take."""

from __future__ import annotations

from typing import Any, NamedTuple

import duramen as dm
from experiments.paper.fits import timed

__all__ = ["Stages", "stages_of"]


class Stages(NamedTuple):
    """Seconds that the parts of a fit on a coreset take."""

    anchor: float
    building: float
    solving: float


def stages_of(X: Any, y: Any, loss: dm.Loss, size: int, z: int, seed: int, **solving: Any) -> Stages:
    """Time the parts of ``robust_coreset`` and ``solve`` one by one."""
    points = dm.points(X, y)
    anchor, first = timed(lambda: dm.find_anchor(points, loss, z, random_state=seed))
    core, second = timed(
        lambda: dm.robust_coreset(X, y, loss=loss, size=size, n_outliers=z, anchor=anchor, random_state=seed)
    )
    _, third = timed(lambda: dm.solve(core, random_state=seed, **solving))
    return Stages(first, second, third)
