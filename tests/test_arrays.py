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


@every_make
def test_float32_stays_float32(make):
    frame = make({"a": np.ones(3, dtype=np.float32), "b": np.array([1, 0, 1], dtype=np.int8)})
    assert dm.points(frame).X.dtype == np.float32


@every_make
def test_labels_weights_and_ids_from_columns(make):
    frame = make({"y": [0, 1, 1], "w": [0.5, 1.0, 2.0], "id": [10, 30, 20]})
    points = dm.points(EXPECTED, frame["y"], frame["w"], frame["id"])
    assert points.y.tolist() == [0, 1, 1]
    assert points.weights.tolist() == [0.5, 1.0, 2.0]
    assert points.ids.tolist() == [10, 30, 20]


@every_make
def test_losses_take_frames(make):
    values = dm.LogisticLoss().values(np.ones(4), make(COLUMNS), make({"y": [0, 1, 1]})["y"])
    np.testing.assert_array_equal(values, dm.LogisticLoss().values(np.ones(4), EXPECTED, [0, 1, 1]))


@every_make
def test_a_missing_value_is_named_with_its_column(make):
    frame = make({"age": [31.0, 44.0, 58.0], "visits": [1, 0, None]})
    with pytest.raises(ValueError, match=r"X has NaN in row 2, column 1 \('visits'\)"):
        dm.points(frame)


@every_make
def test_text_is_named_with_its_column(make):
    with pytest.raises(TypeError, match=r"X, column 'city', holds 'Pau' \(str\) in row 0; encode"):
        dm.points(make({"age": [1.0, 2.0], "city": ["Pau", "Dax"]}))


@every_make
def test_times_are_refused_with_a_way_out(make):
    frame = make({"when": np.array(["2020-01-01", "2020-01-02"], dtype="M8[us]")})
    with pytest.raises(TypeError, match=r"column 'when', .*turn times into numbers"):
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
    gap = pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})
    with pytest.raises(ValueError, match=r"NaN in row 1, column 0 \('a'\)"):
        dm.points(gap)
    with pytest.raises(ValueError, match="y has NaN in row 0"):
        dm.points([[1.0], [2.0]], y=pd.Series([None, 1], dtype="Int64"))


def test_two_columns_of_one_name():
    pandas = pd.DataFrame([[1, 2.5], [3, 4.5]], columns=["a", "a"])
    arrow = pa.Table.from_arrays([pa.array([1, 3]), pa.array([2.5, 4.5])], names=["a", "a"])
    for frame in (pandas, arrow):
        np.testing.assert_array_equal(dm.points(frame).X, [[1, 2.5], [3, 4.5]])


def test_a_narwhals_frame_and_columns_of_unusual_names():
    import narwhals as nw

    np.testing.assert_array_equal(dm.points(nw.from_native(pl.DataFrame(COLUMNS))).X, EXPECTED)
    frame = pd.DataFrame({0: [1.0, 2.0], "column_names": [3, 4]})
    np.testing.assert_array_equal(dm.points(frame).X, [[1, 3], [2, 4]])


def test_categories_are_refused():
    frame = pd.DataFrame({"kind": pd.Categorical(["x", "y"])})
    with pytest.raises(TypeError, match="column 'kind', holds 'x'"):
        dm.points(frame)


def test_a_lazy_frame_is_refused_with_a_hint():
    with pytest.raises(TypeError, match=r"lazy frame; call .collect\(\) on it first"):
        dm.points(pl.DataFrame(COLUMNS).lazy())


def test_an_empty_frame():
    for frame in (pd.DataFrame({"a": []}, dtype=float), pl.DataFrame({"a": []}, schema={"a": pl.Float64})):
        with pytest.raises(ValueError, match=r"X is empty: it has shape \(0, 1\)"):
            dm.points(frame)
    with pytest.raises(ValueError, match=r"X is empty"):
        dm.points(pd.DataFrame(index=[1, 2]))


def test_columns_with_several_values_per_row_are_refused():
    for n in (1, 2):
        with pytest.raises(TypeError, match="column 'a'"):
            dm.points(pl.DataFrame({"a": [{"x": 1, "y": 2}] * n}))
        with pytest.raises((TypeError, ValueError), match="column 'a'"):
            dm.points(pl.DataFrame({"a": [[1, 2]] * n}, schema={"a": pl.Array(pl.Int64, 2)}))


def test_a_missing_boolean():
    nullable = pd.DataFrame({"a": pd.array([True, None], dtype="boolean")})
    for frame in (pa.table({"a": [True, None]}), pl.DataFrame({"a": [True, None]}), nullable):
        with pytest.raises(ValueError, match=r"column 'a', has a missing value \((None|<NA>)\) in row 1"):
            dm.points(frame)


class Unreadable:
    """A column of numbers that NumPy does not know."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not implemented for Int128")


def test_the_error_of_a_column_that_cannot_be_read():
    with pytest.raises(TypeError, match="y cannot be read as numbers: not implemented for Int128"):
        dm.points([[1.0], [2.0]], y=Unreadable())


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1.0, 1e160, 1e200])
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_norms_do_not_overflow_or_vanish(form, scale):
    unit = np.random.default_rng(0).normal(size=(50, 4))
    unit[3] = 0
    unit[:, 1] = 0
    np.testing.assert_allclose(
        row_norms(form(unit * scale)), np.linalg.norm(unit, axis=1) * scale, rtol=1e-12
    )


def test_norms_of_rows_of_every_size_together():
    X = np.array([[3e-200, 4e-200], [3.0, 4.0], [3e200, 4e200], [0.0, 0.0]])
    for rows in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(row_norms(rows), [5e-200, 5.0, 5e200, 0.0], rtol=1e-14)
