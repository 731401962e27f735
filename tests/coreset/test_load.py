"""Files that are no coreset, or no longer one, are refused in one clear error; old ones still load."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duramen as dm
from tests.coreset.cores import logistic_core, sparse_core
from tests.coreset.test_save import FIXTURE
from tests.support import assert_identical_coreset


@pytest.fixture
def path(tmp_path):
    logistic_core().save(tmp_path / "core.parquet")
    return tmp_path / "core.parquet"


def refused(path, message):
    """Check that loading raises one ValueError that names the file and says this."""
    with pytest.raises(ValueError, match=message) as caught:
        dm.load_coreset(path)
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def rewrite(path, change=lambda table: table, **state):
    """Write the file again with another table, or with another state."""
    table = pq.read_table(path)
    said = json.loads(table.schema.metadata[b"duramen"])
    said.update(state)
    table = change(table).replace_schema_metadata({b"duramen": json.dumps(said).encode()})
    pq.write_table(table, path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dm.load_coreset(tmp_path / "nowhere.parquet")
    with pytest.raises(OSError, match="directory"):
        dm.load_coreset(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR", b"age,weight\n1,2\n", b"\x00" * 100])
def test_not_a_parquet_file(path, content):
    path.write_bytes(content)
    refused(path, "is not a Parquet file; load_coreset reads what Coreset.save wrote")


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_short(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: max(int(share * len(whole)), 4)])
    refused(path, "was cut short: .* copy it again, or save the coreset again")


def test_a_parquet_file_of_something_else(path):
    pq.write_table(pa.table({"a": [1, 2]}), path)
    refused(path, "holds no coreset; .* dm.robust_coreset makes a coreset of data")


def test_a_newer_format(path):
    rewrite(path, format=2)
    assert refused(path, "upgrade").endswith(
        "core.parquet: format 2 is newer than this library reads (1); upgrade duramen"
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '{"version": "1"}', '{"format": "new"}', "[" * 9999]
)
def test_metadata_that_cannot_be_read(path, text):
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"duramen": text}), path)
    refused(path, "is damaged: its metadata cannot be read .* save the coreset again")


@pytest.mark.parametrize("name", ["x1", "duramen:weight", "duramen:id", "duramen:y", "duramen:inclusion"])
def test_a_column_that_is_missing(path, name):
    rewrite(path, lambda table: table.drop_columns([name]))
    refused(path, f"is damaged: its column '{name}' is missing; copy it again")


def test_rows_that_are_missing(path):
    rewrite(path, lambda table: table.slice(0, 59))
    refused(path, "is damaged: it has 59 rows where 60 were saved")


@pytest.mark.parametrize("place", range(14))
def test_state_that_is_missing(path, place):
    said = json.loads(pq.read_schema(path).metadata[b"duramen"])
    names = sorted(set(said) - {"format", "version"})
    del said[names[place]]
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"duramen": json.dumps(said)}), path)
    refused(path, "is damaged: ")


@pytest.mark.parametrize(
    "state",
    [
        {"anchor": 3},
        {"anchor": {"theta": {"shape": [2, 2], "values": [1.0]}, "radius": 0.0, "ids": [], "frozen": {}}},
        {"columns": 7},
        {"features": ["x0"]},
        {"features": None},
        {"loss": {"class": "NoSuchLoss", "fields": {}}},
        {"loss": None},
        {"n_columns": 2},
        {"n_outliers": "many"},
        {"n_points": None},
        {"n_points": 401},
        {"seed": 1},
        {"sparse": True},
        {"types": {}},
        {"types": None},
    ],
    ids=str,
)
def test_state_that_is_wrong(path, state):
    rewrite(path, **state)
    refused(path, "is damaged: ")


def as_text(table, name):
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array(["a"] * len(table)))


def with_gaps(table, name):
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array([None, *table[name].to_pylist()[1:]]))


def other(table, name):
    place = table.schema.get_field_index(name)
    values = table[name].to_numpy().copy()
    values[0] = values[1] if values.dtype.kind == "i" else values[0] + 1
    return table.set_column(place, name, pa.array(values))


@pytest.mark.parametrize("name", ["x0", "duramen:weight", "duramen:id"])
def test_columns_of_another_content(path, name):
    whole = path.read_bytes()
    for change, message in (
        (as_text, f"its column '{name}' has gaps, or holds no numbers"),
        (with_gaps, f"its column '{name}' has gaps, or holds no numbers"),
        (
            other,
            "ids must be distinct"
            if name == "duramen:id"
            else r"not what was saved \(the checksum differs\)",
        ),
    ):
        path.write_bytes(whole)
        rewrite(path, lambda table, change=change: change(table, name))
        refused(path, message)


def test_lists_that_do_not_fit_each_other(tmp_path):
    path = tmp_path / "sparse.parquet"
    sparse_core().save(path)
    whole = path.read_bytes()

    def with_list(name, row, entries):
        def change(table):
            place = table.schema.get_field_index(name)
            lists = table[name].to_pylist()
            lists[row] = entries
            return table.set_column(place, name, pa.array(lists))

        return change

    for change, message in (
        (
            with_list("duramen:features", 0, [1, 2, 3, 4, 5]),
            "lists of features and of values differ in length",
        ),
        (with_list("duramen:values", 0, None), "has gaps, or holds no numbers"),
        (lambda table: table.drop_columns(["duramen:values"]), "column 'duramen:values' is missing"),
    ):
        path.write_bytes(whole)
        rewrite(path, change)
        refused(path, message)
    path.write_bytes(whole)
    rewrite(path, n_columns=3)
    refused(path, "is damaged: ")


@settings(max_examples=100)
@given(data=st.data())
def test_any_flipped_bit_is_noticed_or_harmless(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("flipped", numbered=True) / "core.parquet"
    whole = bytearray(FIXTURE.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    try:
        core = dm.load_coreset(path)
    except ValueError as error:
        assert str(path) in str(error)  # noqa: PT017 (either is right)
    else:  # in what only other readers look at, such as statistics
        assert_identical_coreset(core, dm.load_coreset(FIXTURE))


def test_format_1_still_loads():
    """The file was written by version 0.1.0; it must never be written again."""
    core = dm.load_coreset(FIXTURE)
    assert core.loss == dm.HuberLoss(0.7, fit_intercept=False)
    assert core.columns == ("Größe", "x", "x")
    assert core.ids.tolist() == [-9223372036854775807, -3, 0, 12, 9223372036854775807]
    assert core.X.dtype == np.float32
    expected = [[-0.0, 0.1, 1e-30], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.5, 0.25, 0.125], [1e30, -7.0, 8.0]]
    np.testing.assert_array_equal(core.X, np.array(expected, dtype=np.float32))
    assert np.signbit(core.X[0, 0])
    assert core.y.dtype == np.float16
    assert core.y.tolist() == [0.5, -1.0, 2.0, 0.0, 65504.0]
    assert core.weights.tolist() == [1.5, 0.1, 1 / 3, 2.0, 1.0]
    assert core.own_weights.tolist() == [1.5, 0.1, 0.25, 1.0, 1.0]
    assert core.inclusion.tolist() == [1.0, 1.0, 0.75, 0.5, 1.0]
    assert core.groups.tolist() == [0, 0, 1, 1, -1]
    assert core.suspected.tolist() == [False, False, False, False, True]
    assert (core.threshold, core.n_points, core.n_suspected, core.n_outliers) == (12.75, 9, 1, 0.1)
    assert (core.sampler, core.calibrated, core.seed) == ("LayeredSampler()", False, 2**63 - 1)
    assert (core.anchor.theta.tolist(), core.anchor.radius) == ([0.1, -0.0, 1e-30], 1 / 3)
    assert core.anchor.ids.tolist() == [12, -3]
    assert {name: part.tolist() for name, part in core.anchor.frozen.items()} == {
        "layers": [0.0, 2.5],
        "leverage": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    }
