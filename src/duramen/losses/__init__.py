"""Learning problems: one family per module, all under one abstract loss."""

from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.bregman import BregmanLoss, CustomDivergence, Divergence
from duramen.losses.centres import DistanceLoss, KMeansLoss, KMedianLoss, TruthDiscoveryLoss
from duramen.losses.contaminated import ContaminatedLoss
from duramen.losses.linear import (
    HuberLoss,
    LinearLoss,
    LogisticLoss,
    PoissonLoss,
    QuantileLoss,
    SmoothHingeLoss,
    SquaredLoss,
)
from duramen.losses.softmax import SoftmaxLoss

__all__ = [
    "BregmanLoss",
    "ContaminatedLoss",
    "CustomDivergence",
    "DistanceLoss",
    "Divergence",
    "HuberLoss",
    "KMeansLoss",
    "KMedianLoss",
    "LinearLoss",
    "LogisticLoss",
    "Loss",
    "MissingPropertyError",
    "PoissonLoss",
    "QuantileLoss",
    "SmoothHingeLoss",
    "SoftmaxLoss",
    "SquaredLoss",
    "TruthDiscoveryLoss",
]
