"""Coresets as pandas data frames."""

import sys

import numpy as np
import pandas as pd
import pytest

import duramen as dm
from tests.coreset.cores import kmeans_core, logistic_core, sparse_core


def test_a_frame_has_it_all():
    core = logistic_core()
    frame = core.to_pandas()
    assert list(frame) == ["x0", "x1", "x2", "y", "weight", "suspected"]
    assert frame.index.name == "id"
    np.testing.assert_array_equal(frame.index, core.ids)
    np.testing.assert_array_equal(frame[["x0", "x1", "x2"]], core.X)
    for name, column in {"y": core.y, "weight": core.weights, "suspected": core.suspected}.items():
        np.testing.assert_array_equal(frame[name], column)
        assert frame[name].dtype == column.dtype


def test_names_come_from_the_data():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["age", "weight"])
    core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=10, random_state=0)
    frame = core.to_pandas()
    assert list(frame) == ["age", "weight", "duramen:weight", "suspected"]
    np.testing.assert_array_equal(frame["weight"], core.X[:, 1])
    np.testing.assert_array_equal(frame["duramen:weight"], core.weights)


def test_two_columns_of_one_name():
    frame = logistic_core(columns=("a", "a", "duramen:y")).to_pandas()
    assert list(frame) == ["a", "a", "duramen:y", "y", "weight", "suspected"]


def test_float32_stays_float32_and_labels_may_be_missing():
    core = dm.robust_coreset(np.eye(5, dtype=np.float32), loss=dm.KMeansLoss(1), size=3, random_state=0)
    frame = core.to_pandas()
    assert set(frame.dtypes[:5]) == {np.dtype(np.float32)}
    assert "y" not in frame


def test_sparse_rows_become_sparse_columns():
    core = sparse_core()
    frame = core.to_pandas()
    assert isinstance(frame["x0"].dtype, pd.SparseDtype)
    np.testing.assert_array_equal(frame.iloc[:, :40].to_numpy(dtype=float), core.X.toarray())


def test_a_frame_is_the_callers_own():
    core = kmeans_core()
    before = core.X.copy()
    frame = core.to_pandas()
    frame.iloc[:, 0] = -1.0
    frame["weight"] = 0.0
    np.testing.assert_array_equal(core.X, before)
    assert core.weights.min() > 0


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"Coreset.to_pandas needs pandas; pip install 'duramen\[frames\]'"):
        kmeans_core().to_pandas()
