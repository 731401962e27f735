"""The public names, pinned: adding or losing one is a decision, not an accident."""

import subprocess
import sys

import duramen as dm


def test_public_names():
    assert sorted(dm.__all__) == [
        "Anchor", "AnchorReport", "AnchoredPoints", "Ball", "BregmanLoss", "Certificate", "ContaminatedLoss", "Coreset", "CustomDivergence", "DamagedStoreError", "DynamicCoreset", "Estimate", "HuberLoss",
        "KMeansLoss", "KMedianLoss", "LayeredSampler", "LeverageSampler", "LogisticLoss", "Loss",
        "MissingPropertyError", "PoissonLoss", "QuantileLoss", "RankedSampler", "RobustBregmanClustering", "RobustKMeans", "RobustKMedians",
        "RobustLinearRegression", "RobustLogisticRegression", "RowError", "Sampler", "SensitivitySampler",
        "SmoothHingeLoss", "SoftmaxLoss", "Solution", "SquaredLoss", "Status", "Step", "Store", "StoreLockedError", "TruthDiscovery", "TruthDiscoveryLoss", "UniformSampler",
        "WeightedPoints", "certify", "find_anchor", "load_coreset", "open_store", "points", "robust_coreset", "scan", "solve", "theory",
        "trimmed_objective",
    ]  # fmt: skip
    assert all(hasattr(dm, name) for name in dm.__all__)


def test_the_old_name_of_anchored_points_stays():
    assert dm.Seen is dm.AnchoredPoints


def test_importing_brings_in_no_extra():
    code = (
        "import sys, duramen; "
        "heavy = {'pandas', 'polars', 'pyarrow', 'matplotlib', 'dask', 'rich', 'sklearn'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
