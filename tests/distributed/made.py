"""Points as Dask collections, cut anywhere; two equal cuts make an empty partition."""

import numpy as np
import pytest

import duramen as dm
from duramen.distributed import dask as dmd
from tests.support import assert_same_coreset, at_once, quietly

dask = pytest.importorskip("dask", reason="needs duramen[dask]")
da = pytest.importorskip("dask.array", reason="needs duramen[dask]")
dd = pytest.importorskip("dask.dataframe", reason="needs duramen[dask]")
pd = pytest.importorskip("pandas", reason="needs duramen[dask]")

LOGISTIC = {"loss": dm.LogisticLoss(), "size": 60, "n_outliers": 0.05, "random_state": 3}


def at_home(table, features, **chosen):
    """Build the coreset of a frame in memory, with the ids that rows have there."""
    return dm.robust_coreset(table[features], table["y"], **{**LOGISTIC, **chosen})


def pandas_of(points):
    """Write points as a frame: x0, x1, ..., y, heavy, key."""
    frame = pd.DataFrame(points.X, columns=[f"x{column}" for column in range(points.n_columns)])
    if points.y is not None:
        frame["y"] = points.y
    return frame.assign(heavy=points.weights, key=points.ids)


def pieces_of(table, cuts=(), order=None):
    """Cut a frame, with its rows in any order."""
    table = table if order is None else table.iloc[order]
    ends = [*sorted(cuts), len(table)]
    return [table.iloc[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def itself(piece):
    return piece


def frame_of(points, cuts=(100, 250), order=None):
    """Make a Dask DataFrame, and say which column is what."""
    table = pandas_of(points)
    frame = dd.from_map(itself, pieces_of(table, cuts, order), meta=table.iloc[:0])
    return frame, {"label": "y" if points.y is not None else None, "weight": "heavy", "id": "key"}


def arrays_of(points, cuts=(100, 250), order=None):
    """Make Dask arrays; those of labels, weights and ids are cut elsewhere."""
    points = points if order is None else points.take(order)
    lengths = tuple(np.diff([0, *sorted(cuts), len(points)]).tolist())
    X = da.from_array(points.X, chunks=(lengths, max(1, points.n_columns - 1)))
    more = {"y": points.y, "sample_weight": points.weights, "ids": points.ids}
    return X, {
        name: da.from_array(np.array(column), chunks=97)
        for name, column in more.items()
        if column is not None
    }


def assert_law(points, collection, **chosen):
    """Build the coreset of a collection, and compare it with that of all points at once."""
    chosen = {"size": 60, "n_outliers": 0.05, "random_state": 3, **chosen}
    rows, columns = collection
    core, expected = quietly(dmd.robust_coreset, rows, **columns, **chosen), at_once(points, **chosen)
    assert_same_coreset(core, expected)
    np.testing.assert_array_equal(core.anchor.theta, expected.anchor.theta)
    return core
