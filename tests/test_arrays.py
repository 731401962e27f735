"""Rows: data frames of several libraries, and norms."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import duramen as dm
from duramen.arrays import row_norms

COLUMNS = {"age": [31.0, 44.0, 58.0], "visits": [1, 0, 7], "member": [True, False, True]}
EXPECTED = np.array([[31.0, 1, 1], [44, 0, 0], [58, 7, 1]])

MAKES = {
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas on arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "arrow table": pa.table,
    "arrow batch": pa.RecordBatch.from_pydict,
}
every_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@every_make
def test_mixed_columns_become_rows(make):
    points = dm.points(make(COLUMNS))
    np.testing.assert_array_equal(points.X, EXPECTED)
    assert points.X.dtype == np.float64
    floats = {"a": [0.5, 1.5, -2.5], "b": [0.1, 0.2, 0.3]}
    np.testing.assert_array_equal(dm.points(make(floats)).X, np.column_stack(list(floats.values())))
    assert dm.points(make(floats)).X.dtype == np.float64
    small = make({"a": np.full(3, 0.5, dtype=np.float32), "b": np.array([1, 0, 1], dtype=np.int8)})
    assert dm.points(small).X.dtype == np.float32
    values = dm.LogisticLoss().values(np.ones(4), make(COLUMNS), make({"y": [0, 1, 1]})["y"])
    np.testing.assert_array_equal(values, dm.LogisticLoss().values(np.ones(4), EXPECTED, [0, 1, 1]))


@every_make
def test_labels_weights_and_ids_from_columns(make):
    frame = make({"y": [0, 1, 1], "w": [0.5, 1.0, 2.0], "id": [10, 30, 20]})
    points = dm.points(EXPECTED, frame["y"], frame["w"], frame["id"])
    assert points.y.tolist() == [0, 1, 1]
    assert points.weights.tolist() == [0.5, 1.0, 2.0]
    assert points.ids.tolist() == [10, 30, 20]


BAD_COLUMNS = {
    "missing": ({"age": [31.0, 44.0], "visits": [1, None]}, ValueError, r"X has NaN in row 1, column 1 \('visits'\)"),
    "missing float": ({"a": [0.5, None], "b": [0.5, 1.5]}, ValueError, r"X has NaN in row 1, column 0 \('a'\)"),
    "text": ({"city": ["Pau", "Dax"]}, TypeError, r"X, column 'city', holds 'Pau' \(str\) in row 0; encode"),
    "times": ({"when": np.array(["2020-01-01"], dtype="M8[us]")}, TypeError, "column 'when', .*times as seconds"),
    "missing boolean": ({"a": [True, None]}, ValueError, r"column 'a', has a missing value \((None|<NA>)\) in row 1"),
}  # fmt: skip


@every_make
@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_a_bad_value_is_named_with_its_column(make, name):
    columns, error, message = BAD_COLUMNS[name]
    with pytest.raises(error, match=message):
        dm.points(make(columns))


def nullable(values, dtype):
    return pd.DataFrame({"a": pd.array(values, dtype=dtype)})


NO_ROWS = r"X is empty: it has shape \(0, 1\)"
PAIRS = {"a": pl.Array(pl.Int64, 2)}
BAD_FRAMES = {
    "categories": (pd.DataFrame({"kind": pd.Categorical(["x", "y"])}), TypeError, "column 'kind', holds 'x'"),
    "nullable integer": (nullable([1, None], "Int64"), ValueError, r"NaN in row 1, column 0 \('a'\)"),
    "nullable boolean": (nullable([True, None], "boolean"), ValueError, r"column 'a', has a missing value \(<NA>\) in row 1"),
    "lazy": (pl.DataFrame(COLUMNS).lazy(), TypeError, r"lazy frame; call .collect\(\) on it first"),
    "no rows, pandas": (pd.DataFrame({"a": []}, dtype=float), ValueError, NO_ROWS),
    "no rows, polars": (pl.DataFrame({"a": []}, schema={"a": pl.Float64}), ValueError, NO_ROWS),
    "no columns": (pd.DataFrame(index=[1, 2]), ValueError, "X is empty"),
    "a record": (pl.DataFrame({"a": [{"x": 1, "y": 2}]}), (TypeError, ValueError), "column 'a'"),
    "records": (pl.DataFrame({"a": [{"x": 1, "y": 2}] * 2}), (TypeError, ValueError), "column 'a'"),
    "an array": (pl.DataFrame({"a": [[1, 2]]}, schema=PAIRS), (TypeError, ValueError), "column 'a'"),
    "arrays": (pl.DataFrame({"a": [[1, 2]] * 2}, schema=PAIRS), (TypeError, ValueError), "column 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_is_not_a_table_of_numbers_is_refused(name):
    frame, error, message = BAD_FRAMES[name]
    with pytest.raises(error, match=message):
        dm.points(frame)


def test_a_pandas_frame_of_floats_is_viewed():
    block = np.asfortranarray(np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32))
    frame = pd.DataFrame(block, copy=False)
    assert np.shares_memory(dm.points(frame).X, block)


def test_pandas_nullable_columns():
    whole = pd.DataFrame({"a": pd.array([1, 2], dtype="Int64"), "b": pd.array([0.5, 1.5], dtype="Float32")})
    np.testing.assert_array_equal(dm.points(whole).X, [[1, 0.5], [2, 1.5]])
    small = pd.DataFrame({"b": pd.array([0.5, 1.5], dtype="Float32")})
    assert dm.points(small).X.dtype == np.float32
    with pytest.raises(ValueError, match="y has NaN in row 0"):
        dm.points([[1.0], [2.0]], y=pd.Series([None, 1], dtype="Int64"))


def test_columns_of_unusual_names_and_a_narwhals_frame():
    import narwhals as nw

    np.testing.assert_array_equal(dm.points(nw.from_native(pl.DataFrame(COLUMNS))).X, EXPECTED)
    for frame in (
        pd.DataFrame([[1, 2.5], [3, 4.5]], columns=["a", "a"]),
        pa.Table.from_arrays([pa.array([1, 3]), pa.array([2.5, 4.5])], names=["a", "a"]),
        pd.DataFrame({0: [1, 3], "column_names": [2.5, 4.5]}),
    ):
        np.testing.assert_array_equal(dm.points(frame).X, [[1, 2.5], [3, 4.5]])


class Unreadable:
    """A column of numbers that NumPy does not know."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not implemented for Int128")


def test_the_error_of_a_column_that_cannot_be_read():
    with pytest.raises(TypeError, match=r"y cannot be read as numbers, .*: not implemented for Int128"):
        dm.points([[1.0], [2.0]], y=Unreadable())


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_norms_do_not_overflow_or_vanish(form):
    unit = np.random.default_rng(0).normal(size=(50, 4))
    unit[3] = 0
    unit[:, 1] = 0
    for scale in (1e-200, 1e-160, 1.0, 1e160, 1e200):
        expected = np.linalg.norm(unit, axis=1) * scale
        np.testing.assert_allclose(row_norms(form(unit * scale)), expected, rtol=1e-12)
    together = form(np.array([[3e-200, 4e-200], [3.0, 4.0], [3e200, 4e200], [0.0, 0.0]]))
    np.testing.assert_allclose(row_norms(together), [5e-200, 5.0, 5e200, 0.0], rtol=1e-14)
