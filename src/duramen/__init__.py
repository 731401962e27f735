"""Robust, fully-dynamic coresets: small weighted summaries of large, changing, contaminated data."""

from importlib.metadata import version as _version

from duramen.ball import Anchor, Ball
from duramen.losses import (
    BregmanLoss,
    CustomDivergence,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    MissingPropertyError,
    PoissonLoss,
    SmoothHingeLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)
from duramen.points import WeightedPoints, points
from duramen.solvers import Solution, Status, Step, find_anchor, solve
from duramen.trimming import trimmed_objective

__version__ = _version("duramen")

__all__ = [
    "Anchor",
    "Ball",
    "BregmanLoss",
    "CustomDivergence",
    "HuberLoss",
    "KMeansLoss",
    "KMedianLoss",
    "LogisticLoss",
    "Loss",
    "MissingPropertyError",
    "PoissonLoss",
    "SmoothHingeLoss",
    "Solution",
    "SquaredLoss",
    "Status",
    "Step",
    "TruthDiscoveryLoss",
    "WeightedPoints",
    "find_anchor",
    "points",
    "solve",
    "trimmed_objective",
]
