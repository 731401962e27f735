"""The public names, pinned: adding or losing one is a decision, not an accident."""

import subprocess
import sys
from importlib import import_module

import pytest

import duramen as dm


def test_public_names():
    assert sorted(dm.__all__) == [
        "Anchor", "AnchorReport", "AnchoredPoints", "Ball", "BregmanLoss", "Certificate", "Coreset", "CustomDivergence", "DamagedStoreError", "DynamicCoreset", "Estimate", "HuberLoss",
        "KMeansLoss", "KMedianLoss", "LayeredSampler", "LeverageSampler", "LogisticLoss", "Loss",
        "MissingPropertyError", "PoissonLoss", "QuantileLoss", "RankedSampler", "RobustBregmanClustering", "RobustKMeans", "RobustKMedians",
        "RobustLinearRegression", "RobustLogisticRegression", "RowError", "Sampler", "SensitivitySampler",
        "SmoothHingeLoss", "SoftmaxLoss", "Solution", "SquaredLoss", "Status", "Step", "Store", "StoreLockedError", "TruthDiscovery", "TruthDiscoveryLoss", "UniformSampler",
        "WeightedPoints", "certify", "find_anchor", "load_coreset", "open_store", "points", "robust_coreset", "scan", "solve", "theory",
        "trimmed_objective",
    ]  # fmt: skip
    assert all(hasattr(dm, name) for name in dm.__all__)


def test_renamed_names_stay_as_aliases():
    with pytest.warns(DeprecationWarning, match="duramen.AnchoredPoints"):
        assert dm.Seen is dm.AnchoredPoints


@pytest.mark.parametrize(
    "old, name", [("tables", "open_table"), ("scanning", "Scan"), ("sampling.ranks", "smallest")]
)
def test_old_names_of_modules_stay_as_aliases(old, name):
    with pytest.warns(DeprecationWarning, match=f"^duramen.{old} is now duramen.{dm._MOVED[old]}$"):
        found = getattr(import_module(f"duramen.{old}"), name)
    assert found is getattr(import_module(f"duramen.{dm._MOVED[old]}"), name)
    assert not hasattr(import_module(f"duramen.{old}"), "absent")  # without a warning


def test_importing_brings_in_no_extra():
    code = (
        "import sys, duramen; "
        "heavy = {'pandas', 'polars', 'pyarrow', 'matplotlib', 'dask', 'rich', 'sklearn'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
