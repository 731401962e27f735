"""scikit-learn estimators: ``fit`` builds a robust coreset and solves on it."""

from duramen.estimators.classification import RobustLogisticRegression
from duramen.estimators.clustering import RobustBregmanClustering, RobustKMeans, RobustKMedians
from duramen.estimators.regression import RobustLinearRegression
from duramen.estimators.truth import TruthDiscovery

__all__ = [
    "RobustBregmanClustering",
    "RobustKMeans",
    "RobustKMedians",
    "RobustLinearRegression",
    "RobustLogisticRegression",
    "TruthDiscovery",
]
