"""Robust, fully-dynamic coresets: small weighted summaries of large, changing, contaminated data."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from duramen import theory
from duramen.certificate import Certificate, certify
from duramen.coreset import Coreset, Estimate, load_coreset
from duramen.coreset.build import robust_coreset
from duramen.dynamic import AnchorReport, DynamicCoreset
from duramen.errors import RowError
from duramen.io.scan import scan
from duramen.losses import (
    BregmanLoss,
    ContaminatedLoss,
    CustomDivergence,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    MissingPropertyError,
    PoissonLoss,
    QuantileLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)
from duramen.losses.base import Anchor, Ball
from duramen.points import WeightedPoints, points
from duramen.samplers import (
    AnchoredPoints,
    LayeredSampler,
    LeverageSampler,
    RankedSampler,
    Sampler,
    SensitivitySampler,
    UniformSampler,
)
from duramen.solvers import Solution, Status, Step, find_anchor, solve
from duramen.store import DamagedStoreError, Store, StoreLockedError, open_store
from duramen.trimming import trimmed_objective

if _TYPE_CHECKING:
    from duramen.estimators.classification import RobustLogisticRegression
    from duramen.estimators.clustering import RobustBregmanClustering, RobustKMeans, RobustKMedians
    from duramen.estimators.regression import RobustLinearRegression
    from duramen.estimators.truth import TruthDiscovery
else:

    def __getattr__(name: str) -> _Any:
        if name not in __all__:
            raise AttributeError(f"module 'duramen' has no attribute {name!r}")
        # on demand, as it imports scikit-learn, which takes a second
        return getattr(_import_module("duramen.estimators"), name)


__version__ = _version("duramen")
Seen = AnchoredPoints
"""The old name of AnchoredPoints."""


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


__all__ = [
    "Anchor",
    "AnchorReport",
    "AnchoredPoints",
    "Ball",
    "BregmanLoss",
    "Certificate",
    "ContaminatedLoss",
    "Coreset",
    "CustomDivergence",
    "DamagedStoreError",
    "DynamicCoreset",
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
    "QuantileLoss",
    "RankedSampler",
    "RobustBregmanClustering",
    "RobustKMeans",
    "RobustKMedians",
    "RobustLinearRegression",
    "RobustLogisticRegression",
    "RowError",
    "Sampler",
    "SensitivitySampler",
    "SmoothHingeLoss",
    "SoftmaxLoss",
    "Solution",
    "SquaredLoss",
    "Status",
    "Step",
    "Store",
    "StoreLockedError",
    "TruthDiscovery",
    "TruthDiscoveryLoss",
    "UniformSampler",
    "WeightedPoints",
    "certify",
    "find_anchor",
    "load_coreset",
    "open_store",
    "points",
    "robust_coreset",
    "scan",
    "solve",
    "theory",
    "trimmed_objective",
]
