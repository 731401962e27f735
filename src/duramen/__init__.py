"""Robust, fully-dynamic coresets: small weighted summaries of large, changing, contaminated data."""

from importlib.metadata import version as _version

from duramen import theory
from duramen.ball import Anchor, Ball
from duramen.certificate import Certificate, certify
from duramen.coreset import Coreset, Estimate, load_coreset
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
from duramen.robust import robust_coreset
from duramen.sampling import (
    LayeredSampler,
    LeverageSampler,
    RankedSampler,
    Sampler,
    Seen,
    SensitivitySampler,
    UniformSampler,
)
from duramen.solvers import Solution, Status, Step, find_anchor, solve
from duramen.trimming import trimmed_objective

__version__ = _version("duramen")

__all__ = [
    "Anchor",
    "Ball",
    "BregmanLoss",
    "Certificate",
    "Coreset",
    "CustomDivergence",
    "Estimate",
    "HuberLoss",
    "KMeansLoss",
    "KMedianLoss",
    "LayeredSampler",
    "LeverageSampler",
    "LogisticLoss",
    "Loss",
    "MissingPropertyError",
    "PoissonLoss",
    "RankedSampler",
    "Sampler",
    "Seen",
    "SensitivitySampler",
    "SmoothHingeLoss",
    "Solution",
    "SquaredLoss",
    "Status",
    "Step",
    "TruthDiscoveryLoss",
    "UniformSampler",
    "WeightedPoints",
    "certify",
    "find_anchor",
    "load_coreset",
    "points",
    "robust_coreset",
    "solve",
    "theory",
    "trimmed_objective",
]
