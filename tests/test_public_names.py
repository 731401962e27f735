"""The public names, pinned: adding or losing one is a decision, not an accident."""

import subprocess
import sys

import duramen as dm


def test_public_names():
    assert sorted(dm.__all__) == [
        "Anchor", "Ball", "BregmanLoss", "CustomDivergence", "HuberLoss", "KMeansLoss", "KMedianLoss",
        "LogisticLoss", "Loss", "MissingPropertyError", "PoissonLoss", "SmoothHingeLoss", "Solution", "SquaredLoss",
        "Status", "Step", "TruthDiscoveryLoss", "WeightedPoints", "find_anchor", "points", "solve",
        "trimmed_objective",
    ]  # fmt: skip
    assert all(hasattr(dm, name) for name in dm.__all__)


def test_importing_brings_in_no_extra():
    code = (
        "import sys, duramen; "
        "heavy = {'pandas', 'polars', 'pyarrow', 'matplotlib', 'dask', 'rich'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
