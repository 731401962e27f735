"""Learning problems: one family a module, all under one abstract loss."""

from duramen.losses.base import Loss, MissingPropertyError
from duramen.losses.bregman import BregmanLoss
from duramen.losses.classification import LogisticLoss, SmoothHingeLoss
from duramen.losses.clustering import KMeansLoss, KMedianLoss, TruthDiscoveryLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.divergences import CustomDivergence, Divergence
from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.losses.regression import HuberLoss, PoissonLoss, SquaredLoss

__all__ = [
    "BregmanLoss",
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
    "SmoothHingeLoss",
    "SoftmaxLoss",
    "SquaredLoss",
    "TruthDiscoveryLoss",
]
