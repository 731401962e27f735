"""Weighted points: what goes in, what is refused, and that nothing is copied or changed needlessly."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def matrix(X):
    """Make a matrix of NumPy's own kind, of which it warns that it may go one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix(X)


def same(one, two):
    dense = [p.X.toarray() if sparse.issparse(p.X) else p.X for p in (one, two)]
    parts = [(getattr(one, name), getattr(two, name)) for name in ("y", "weights", "ids")]
    return all(np.array_equal(*pair) for pair in (dense, *parts))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_are_viewed_and_keep_their_type_and_order(dtype, order):
    rows = np.asarray(X, dtype=dtype, order=order)
    rows.flags.writeable = False
    points = dm.points(rows)
    assert points.X.dtype == dtype
    assert np.shares_memory(points.X, rows)
    assert points.X.strides == rows.strides


@pytest.mark.usefixtures("two_threads")
def test_a_memory_map_is_not_read_into_memory(tmp_path):
    n = 200_000
    np.save(tmp_path / "rows.npy", np.ones((n, 20), dtype=np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    points = dm.points(mapped)
    values = dm.KMeansLoss(1).values(np.zeros((1, 20)), points.X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.shares_memory(points.X, mapped)
    assert (values == 20).all()
    assert peak < mapped.nbytes  # weights, ids and values are 20 bytes per row, the rows 80


OTHER = {
    "lists": (X.tolist(), np.float64),
    "tuples": (tuple(map(tuple, X.astype(int))), np.float64),
    "int32": (X.astype(np.int32), np.float64),
    "bool": (X > 2, np.float64),
    "half": (X.astype(np.float16), np.float32),
    "big-endian": (X.astype(">f8"), np.float64),
    "long": (X.astype(np.longdouble), np.float64),
    "matrix": (matrix(X), np.float64),
    "reversed": (X[::-1, ::-1], np.float64),
    "unmasked": (np.ma.masked_invalid(X), np.float64),
}


@pytest.mark.parametrize("given, dtype", OTHER.values(), ids=OTHER)
def test_other_arrays(given, dtype):
    points = dm.points(given)
    assert points.X.dtype == np.dtype(dtype)
    assert type(points.X) is np.ndarray
    np.testing.assert_array_equal(points.X, np.asarray(given, dtype=dtype))


def test_defaults_and_repr():
    points = dm.points(X)
    assert points.y is None
    assert points.weights.tolist() == [1.0, 1.0, 1.0]
    assert points.ids.tolist() == [0, 1, 2]
    assert points.ids.dtype == np.int64
    assert (len(points), points.n_columns, points.total_weight) == (3, 2, 3.0)
    shown = "WeightedPoints: 3 rows x 2 columns of float64, labelled, total weight 3"
    assert repr(dm.points(X, [0, 1, 1])) == shown
    assert "sparse float64, total" in repr(dm.points(sparse.csr_array(X)))


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_points_are_frozen_and_pickling_is_identity(form):
    mine = form(X)
    points = dm.points(mine, [1, 0, 1], [1, 2, 0], [5, 3, 9])
    again = pickle.loads(pickle.dumps(points))
    assert same(points, again)
    for some in (points, again):
        rows = some.X.data if sparse.issparse(some.X) else some.X
        for part in (rows, some.y, some.weights, some.ids):
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 9
    with pytest.raises(AttributeError):
        points.X = X
    mine[0, 0] = 1.0  # the caller's array stays writeable


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array])
def test_sparse_rows(form):
    points = dm.points(form(X))
    assert isinstance(points.X, sparse.csr_array)
    assert same(points, dm.points(X))
    joined = dm.WeightedPoints.concat([points.take([2]), points.take([0, 1])])
    np.testing.assert_array_equal(joined.X.toarray(), X[[2, 0, 1]])


def test_csr_is_not_copied_and_entries_given_twice_are_added():
    rows = sparse.csr_array(sparse.random(1000, 50, density=0.1, format="csr", random_state=0))
    assert np.shares_memory(dm.points(rows).X.data, rows.data)
    assert dm.points(rows.astype(np.float32)).X.dtype == np.float32
    twice = sparse.csr_array((np.ones(3), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert dm.points(twice).X.toarray().tolist() == [[0, 2], [1, 0]]
    assert twice.nnz == 3


BAD = [
    ("nan", [[1.0, 2.0], [np.nan, 1.0]], {}, ValueError, r"X has NaN in row 1, column 0; fill or drop"),
    ("infinity", [[1.0, np.inf], [np.nan, 1.0]], {}, ValueError, r"X has inf in row 0, column 1"),
    ("sparse nan", sparse.csr_array([[0, 1.0], [0, 0], [0, np.nan]]), {}, ValueError, r"NaN in row 2, column 1"),
    ("one dimension", [1.0, 2.0], {}, ValueError, r"two-dimensional.*found shape \(2,\); one row is X\[None, :\]"),
    ("three dimensions", np.zeros((2, 2, 2)), {}, ValueError, r"found shape \(2, 2, 2\)"),
    ("a number", 3.0, {}, ValueError, r"found shape \(\)"),
    ("no rows", np.zeros((0, 3)), {}, ValueError, r"X is empty: it has shape \(0, 3\)"),
    ("no columns", np.zeros((3, 0)), {}, ValueError, r"X is empty: it has shape \(3, 0\)"),
    ("empty list", [], {}, ValueError, r"found shape \(0,\)"),
    ("ragged", [[1.0, 2.0], [3.0]], {}, ValueError, r"different lengths; row 1 has 1 values, row 0 has 2"),
    ("nested", [[1, [2, 3]], [4, 5]], {}, ValueError, r"each entry must be one number"),
    ("enormous id", X[:1], {"ids": [2**64]}, TypeError, r"ids has type object"),
    ("text", [[1.0, 2.0], [3.0, "x"]], {}, TypeError, r"X holds 'x' \(str\) in row 1, column 1; encode"),
    ("none", [[1.0, None], [3.0, 4.0]], {}, ValueError, r"X has a missing value \(None\) in row 0, column 1"),
    ("objects", np.array([[1.0, 2]], dtype=object), {}, TypeError, r"type object.*convert it to numbers"),
    ("complex", [[1.0, 2j]], {}, TypeError, r"X holds .* \(complex\) in row 0.*real numbers"),
    ("dates", np.array([["2020-01-01"]], dtype="M8[D]"), {}, TypeError, r"row 0.*times as seconds"),
    ("masked", np.ma.array(X, mask=[[0, 0], [0, 1], [0, 0]]), {}, ValueError, r"masked value in row 1"),
    ("short y", X, {"y": [1, 2]}, ValueError, r"y has 2 values for 3 rows of X"),
    ("long weights", X, {"weights": np.ones(4)}, ValueError, r"weights has 4 values for 3 rows"),
    ("wide y", X, {"y": np.ones((3, 1))}, ValueError, r"y must have one value per row; found shape \(3, 1\)"),
    ("nan y", X, {"y": [0, 1, np.nan]}, ValueError, r"y has NaN in row 2"),
    ("text y", X, {"y": ["a", "b", "c"]}, TypeError, r"y holds 'a' \(str\) in row 0"),
    ("ragged y", X, {"y": [[1], [1, 2], [3]]}, ValueError, r"y has rows of different lengths; row 1 has 2 values, row 0 has 1"),
    ("negative weight", X, {"weights": [1, -2, -3]}, ValueError, r"must not be negative; row 1 has -2"),
    ("infinite weight", X, {"weights": [1, np.inf, 1]}, ValueError, r"weights has inf in row 1"),
    ("heavy", X[:2], {"weights": [1e308, 1e308]}, ValueError, r"weights add up to infinity; scale them down"),
    ("repeated id", X, {"ids": [4, 9, 4]}, ValueError, r"id 4 of row 0 occurs again in row 2"),
    ("float ids", X, {"ids": [1.0, 2.0, 3.0]}, TypeError, r"ids must be integers; found type float64"),
    ("bool ids", X[:2], {"ids": [True, False]}, TypeError, r"ids must be integers"),
    ("huge id", X[:1], {"ids": np.array([2**63], dtype=np.uint64)}, ValueError, r"fit in int64; row 0 has 9223372036854775808"),
]  # fmt: skip


@pytest.mark.parametrize("_, rows, more, error, message", BAD, ids=[case[0] for case in BAD])
def test_bad_input_gets_one_clear_error(_, rows, more, error, message):
    with pytest.raises(error, match=message):
        dm.points(rows, **more)


def test_the_first_bad_row_of_many_is_named_whatever_the_threads():
    rows = np.zeros((100_000, 3), dtype=np.float32)
    rows[[70_000, 99_000], 2] = np.nan
    rows[10] = np.finfo(np.float32).max  # a sum that overflows is not an infinity in the data
    for _ in range(5):
        with pytest.raises(ValueError, match="row 70000, column 2"):
            dm.points(rows)
    rows[70_000:] = 0
    dm.points(rows)


def test_ids_repeated_far_apart():
    ids = np.random.default_rng(0).permutation(50_000)
    ids[40_000] = ids[123]
    with pytest.raises(ValueError, match=f"id {ids[123]} of row 123 occurs again in row 40000"):
        dm.points(np.ones((50_000, 1)), ids=ids)


@st.composite
def some_points(draw, columns=2, first_id=0):
    n = draw(st.integers(1, 8))
    numbers = st.floats(-1e6, 1e6, width=32)
    rows = draw(st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=n, max_size=n))
    labels = draw(st.none() | st.lists(st.integers(0, 1), min_size=n, max_size=n))
    weights = draw(st.lists(st.floats(0, 5), min_size=n, max_size=n))
    ids = [first_id + i for i in draw(st.permutations(range(n)))]
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return dm.points(np.array(rows, dtype=dtype), labels, weights, ids)


@given(some_points(), st.data())
def test_what_is_taken_apart_can_be_joined_again(points, data):
    cut = data.draw(st.integers(0, len(points)))
    parts = [points.take(slice(cut)), points.take(slice(cut, None))]
    assert same(dm.WeightedPoints.concat(parts), points)
    order = np.array(data.draw(st.permutations(range(len(points)))))
    back = np.argsort(order)
    assert same(points.take(order).take(back), points)
    mask = points.weights > 1
    assert same(points.take(mask), points.take(np.flatnonzero(mask)))


@given(some_points(), some_points(first_id=100), some_points(first_id=200))
def test_joining_is_associative(a, b, c):
    concat = dm.WeightedPoints.concat
    if len({p.y is None for p in (a, b, c)}) > 1:
        with pytest.raises(ValueError, match=r"with (no )?labels"):
            concat([a, b, c])
        return
    assert same(concat([concat([a, b]), c]), concat([a, concat([b, c])]))
    assert concat([a, b, c]).X.dtype == np.result_type(a.X, b.X, c.X)


def test_take_views_a_slice_and_refuses_what_it_cannot_take():
    points = dm.points(X)
    for which in ([3], [True, False]):
        with pytest.raises(IndexError):
            points.take(which)
    with pytest.raises(ValueError, match="id 1 of row 0 occurs again in row 1"):
        points.take([1, 1])
    for which in (1, [0.5], [[0, 1]], "all"):
        with pytest.raises(IndexError, match="one-dimensional array of integers or booleans, or a slice"):
            points.take(which)
    assert np.shares_memory(points.take(slice(1, 3)).X, X)
    assert len(points.take([])) == 0
    assert len(points.take(np.zeros(3, dtype=bool))) == 0


def test_concat_refuses_what_does_not_fit():
    concat = dm.WeightedPoints.concat
    points = dm.points(X)
    with pytest.raises(ValueError, match="at least one"):
        concat([])
    with pytest.raises(ValueError, match=r"2 columns, .* 1 columns"):
        concat([points, dm.points([[1.0]], ids=[7])])
    with pytest.raises(ValueError, match="occurs again"):
        concat([points, points])
    with pytest.raises(ValueError, match=r"dense, .* sparse, "):
        concat([points, dm.points(sparse.csr_array(X), ids=[7, 8, 9])])
