"""What is learned of a table, how it is applied to another, and what is refused."""

import itertools
import json
import math
import statistics
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.io import Encoding, learn_encoding, open_table
from duramen.io.encoding import number_learner
from duramen.io.tables import Column, Kind
from tests.io.files import arrow_table, gathered, write, written

PEOPLE = {
    "age": [30.0, None, 50.0, 20.0],
    "colour": ["red", "blue", None, "red"],
    "code": [2, 10, None, 10],
    "old": [True, None, False, False],
    "y": ["no", "yes", "no", "yes"],
    "w": [1.0, 2.0, 0.0, 4.0],
    "key": ["a", "b", "c", "d"],
    "day": pa.array([1, 2, 3, 4], pa.date32()),
}
FORMATS = ["a.parquet", "a.csv", "a.feather"]


def people(folder, name="a.parquet", **changed):
    return open_table(written(folder, name, arrow_table(**{**PEOPLE, **changed})))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "impute, age, old", [("mean", 100 / 3, 1 / 3), ("median", 30.0, 0.0), ("zero", 0.0, 0.0)]
)
def test_imputing(tmp_path, name, impute, age, old):
    table = people(tmp_path, name)
    used = ["age", "colour", "code", "old"]
    encoding = learn_encoding(table, features=used, one_hot=["colour", "code"], impute=impute)
    assert encoding.names == ("age", "colour=blue", "colour=red", "code=2", "code=10", "old")
    assert gathered(encoding, table).X.tolist() == [
        [30, 0, 1, 1, 0, 1],
        [age, 1, 0, 0, 1, old],
        [50, 0, 1, 0, 1, 0],
        [20, 0, 1, 0, 1, 0],
    ]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "roles, column, row",
    [
        ({"features": ["age"]}, "age", 1),
        ({"features": ["old"]}, "old", 1),
        ({"features": ["w", "colour"], "one_hot": ["colour"]}, "colour", 2),
        ({"features": ["w"], "label": "age"}, "age", 1),
        ({"features": ["w"], "label": "age", "impute": "mean"}, "age", 1),
        ({"features": ["w"], "label": "colour", "impute": "mean"}, "colour", 2),
        ({"features": ["w"], "weight": "age", "impute": "mean"}, "age", 1),
        ({"features": ["w"], "id": "code", "impute": "mean"}, "code", 2),
        ({"features": ["w"], "id": "colour", "impute": "mean"}, "colour", 2),
    ],
)
def test_missing_values_are_refused_with_their_place(tmp_path, name, roles, column, row):
    table = people(tmp_path, name)
    place = f"line {row + 2} " if name == "a.csv" else f"row {row} "
    with pytest.raises(ValueError, match=f"column '{column}' has no value in {place}") as caught:
        gathered(learn_encoding(table, **roles), table)
    assert ("impute it" in str(caught.value)) == ("impute" not in roles and column in roles["features"])


@pytest.mark.parametrize(
    "roles, message",
    [
        ({"label": "yy"}, r"no column 'yy' \(label\); did you mean 'y'\? It has 'age', 'colour'"),
        ({"features": ["Age"]}, r"no column 'Age' \(features\); did you mean 'age'"),
        (
            {"features": ["age"], "one_hot": ["hue"]},
            "the list of features has no column 'hue' \\(one_hot\\); it has 'age'",
        ),
        (
            {"features": ["age"], "one_hot": ["colour"]},
            "the list of features has no column 'colour' \\(one_hot\\)",
        ),
        ({"features": ["age", "age"]}, "'age' is given as features and features; name each column once"),
        ({"label": "age", "features": ["age"]}, "'age' is given as label and features"),
        ({"label": "y", "id": "y"}, "'y' is given as label and id"),
        ({"features": []}, "no column left for the features"),
        ({"features": ["colour"]}, r"'colour' holds text.*one_hot=..colour...*features="),
        ({"features": ["day"]}, "'day' holds dates or times"),
        ({"features": ["day"], "one_hot": ["day"]}, "'day' holds dates or times"),
        ({"features": ["w"], "label": "day"}, "column 'day' holds dates or times"),
        ({"features": ["w"], "weight": "y"}, "column 'y' holds text; weights are numbers"),
        ({"features": ["y"], "one_hot": ["y"], "id": "w"}, "column 'w' holds numbers; ids are whole"),
        ({"features": ["age"], "impute": "mode"}, "impute='mode'"),
        ({"features": "age"}, "features='age' is a string"),
        ({"features": ["colour"], "one_hot": "colour"}, "one_hot='colour' is a string"),
    ],
)
def test_roles_that_are_refused(tmp_path, roles, message):
    with pytest.raises(TypeError if "is a string" in message else ValueError, match=message):
        learn_encoding(people(tmp_path), **roles)


@pytest.mark.parametrize("later", FORMATS)
def test_what_was_learned_serves_other_files(tmp_path, later):
    table = people(tmp_path, colour=["red", "blue", "blue", "red"], age=[1.0, 2, 3, 4], code=[1, 2, 3, 4])
    encoding = learn_encoding(table, "y", ["age", "colour", "code"], "w", "key", ["colour", "code"])
    assert (encoding.label, encoding.weight, encoding.id) == ("y", "w", "key")
    assert encoding.classes == ["no", "yes"]
    (tmp_path / "later").mkdir()
    few = arrow_table(age=[5], colour=["red"], code=[3], y=["yes"], w=[1], key=["new"])
    other = open_table(written(tmp_path / "later", later, few))
    rows = gathered(encoding, other)
    assert rows.X.tolist() == [[5, 0, 1, 0, 0, 1, 0]]
    assert (rows.y.tolist(), rows.ids) == ([1.0], ["new"])
    alone = gathered(replace(encoding, label=None, weight=None, id=None), other)
    assert (alone.y, alone.weights, alone.ids) == (None, None, None)
    assert alone.X.tolist() == rows.X.tolist()
    place = "line 2" if later == "a.csv" else "row 0"
    for column, value in (("colour", "green"), ("code", 7), ("y", "perhaps")):
        changed = few.set_column(few.column_names.index(column), column, [[value]])
        other = open_table(written(tmp_path / "later", later, changed))
        message = f"column '{column}' holds '?{value}'?, which was not seen.*{place}"
        with pytest.raises(ValueError, match=message):
            gathered(encoding, other)
    other = open_table(written(tmp_path / "later", later, few.drop_columns(["age"])))
    with pytest.raises(ValueError, match="no column 'age'"):
        gathered(encoding, other)


def test_a_column_that_changed_its_type_is_refused(tmp_path):
    encoding = learn_encoding(people(tmp_path), features=["w", "y"], one_hot=["y"])
    with pytest.raises(ValueError, match="column 'w' holds text, not numbers"):
        gathered(encoding, people(tmp_path, w=["1", "2", "3", "4"]))
    with pytest.raises(ValueError, match="column 'y' holds whole numbers, not text"):
        gathered(encoding, people(tmp_path, y=[1, 2, 3, 4]))


@pytest.mark.parametrize("name", FORMATS)
def test_labels(tmp_path, name):
    for column, classes, y in (
        ("w", None, PEOPLE["w"]),
        ("y", ["no", "yes"], [0, 1, 0, 1]),
        ("old", [False, True], [1, 0, 0, 0]),
    ):
        table = people(tmp_path, name, old=[True, False, False, False])
        encoding = learn_encoding(table, column, ["key"], one_hot="auto")
        assert encoding.classes == classes
        assert gathered(encoding, table).y.tolist() == y


def test_too_many_categories_and_none_at_all(tmp_path):
    table = open_table(written(tmp_path, "a.csv", arrow_table(a=[f"n{i}" for i in range(1001)])))
    with pytest.raises(ValueError, match="'a' has more than 1,000 different values; leave the column out"):
        learn_encoding(table, one_hot=["a"])
    empty = open_table(written(tmp_path, "a.parquet", arrow_table(a=pa.nulls(3, pa.float64()), b=[1, 2, 3])))
    for impute in ("mean", "median"):
        with pytest.raises(ValueError, match="'a' has no value in any row"):
            learn_encoding(empty, impute=impute)
    clash = open_table(written(tmp_path, "a.parquet", arrow_table(a=["x"], **{"a=x": [1.0]})))
    with pytest.raises(ValueError, match="more than one column is called 'a=x'"):
        learn_encoding(clash, one_hot=["a"])


def test_negative_weights_and_ids_beyond_int64_are_refused(tmp_path):
    table = people(tmp_path, w=[1.0, 1.0, -1.0, 1.0], key=pa.array([1, 2, 2**63, 3], pa.uint64()))
    with pytest.raises(ValueError, match="column 'w' is negative in row 2"):
        gathered(learn_encoding(table, features=["code"], impute="zero", weight="w"), table)
    with pytest.raises(ValueError, match=f"column 'key' holds {2**63}, beyond the largest int64 in row 2"):
        gathered(learn_encoding(table, features=["w"], id="key"), table)


def test_a_pass_is_made_only_if_something_must_be_learned(tmp_path):
    seen = []
    table = people(tmp_path)
    learn_encoding(table, "w", ["age"], each=seen.append)
    learn_encoding(table, "w", ["age"], impute="zero", each=seen.append)
    assert not seen
    learn_encoding(table, "y", ["age"], each=seen.append)
    assert [len(batch) for batch in seen] == [4]
    assert seen[0].done == 1


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_means_are_exact_and_medians_too(values, cuts):
    array = np.array(values)
    edges = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    mean, median = number_learner("mean", 1), number_learner("median", 1)
    for start, stop in itertools.pairwise(edges):
        for seen in (mean, median):
            seen.add(Column([array[start:stop]], Kind.REAL))
    assert mean.result("a").fill == float(sum(map(Fraction, values), Fraction(0)) / len(values))
    assert median.result("a").fill == float(statistics.median(map(Fraction, values)))


def test_the_sampled_median_is_near_and_the_same_for_all_batches():
    values = np.random.default_rng(0).random(300_000)
    found = set()
    for size in (300_000, 70_001, 4_096):
        seen = number_learner("median", 1)
        for start in range(0, len(values), size):
            seen.add(Column([values[start : start + size]], Kind.REAL))
        found.add(seen.result("a").fill)
    (median,) = found
    assert abs(median - 0.5) < 5 * 0.5 / math.sqrt(50_000)  # five standard deviations of a sample's median


def test_json_round_trip(tmp_path):
    table = people(tmp_path)
    for impute in (None, "mean"):
        known = {} if impute else {"age": [0.1, 1e-300, 2, 3], "colour": ["x", "é", "true", "1"]}
        table = people(tmp_path, **known, code=[1.5, 2, 3, 4], old=[True, False, False, True])
        used = ["age", "colour", "code", "old"]
        encoding = learn_encoding(table, "y", used, "w", "key", ["colour", "code", "old"], impute)
        again = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
        assert again == encoding
        assert again.names == encoding.names
        assert gathered(again, table).X.tolist() == gathered(encoding, table).X.tolist()


@pytest.mark.parametrize(
    "damage", [{"format": 2}, {"features": [{"name": "a", "kind": "odd"}]}, {"features": 3}, {"classes": 3}]
)
def test_damaged_json_is_refused(tmp_path, damage):
    state = learn_encoding(people(tmp_path), features=["age"]).to_json()
    for broken in ({**state, **damage}, {key: state[key] for key in state if key not in damage}, []):
        with pytest.raises(ValueError, match="not an encoding that this version can read"):
            Encoding.from_json(broken)


@pytest.mark.parametrize(
    "name, beside", [("a.parquet", 5), ("a.parquet", None), ("a.arrow", 5), ("a.npz", 5)]
)
def test_a_whole_number_beyond_what_floats_hold_is_named(tmp_path, name, beside):
    table = open_table(written(tmp_path, name, pa.table({"k": pa.array([beside, 2**60])})))
    with pytest.raises(ValueError, match=rf"column 'k' holds {2**60}, beyond 2\*\*53.* in row 1 "):
        next(learn_encoding(table).read(table))


def test_a_batch_counts_the_columns_that_categories_become(tmp_path):
    n = 5000
    path = written(tmp_path, "a.parquet", pa.table({"c": [f"c{row % 1000}" for row in range(n)]}))
    table = open_table(path)
    encoding = learn_encoding(table, one_hot=["c"])
    assert [len(rows) for _, rows in encoding.read(table)] == [1024] * 4 + [904]
    assert [len(batch) for batch in table.batches()] == [n]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_the_index_of_a_frame_is_not_a_feature_unless_it_is_named(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    frame = pd.DataFrame({"a": np.arange(9.0), "y": np.arange(9.0)})[2:].query("a != 4")
    table = open_table(write(pa.Table.from_pandas(frame), path))
    index = "__index_level_0__"
    assert index in table.columns
    with pytest.warns(UserWarning, match=f"{index}' was the index of a pandas frame, and is not used"):
        assert learn_encoding(table, label="y").features == ("a",)
    encoding = learn_encoding(table, label="y", id=index)  # and nothing is said
    assert encoding.features == ("a",)
    np.testing.assert_array_equal(gathered(encoding, table).ids, frame.index)
    assert learn_encoding(table, label="y", features=["a", index]).features == ("a", index)


def test_a_column_of_text_may_be_the_id(tmp_path):
    path = written(tmp_path, "a.parquet", pa.table({"who": ["x", "y"], "when": ["x", "y"], "a": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"use it as the ids with id='who'"):
        learn_encoding(open_table(path))
    with pytest.raises(ValueError, match="column 'when' holds text") as error:
        learn_encoding(open_table(path), id="who")
    assert "the ids" not in str(error.value)


def test_a_feature_called_id_is_warned_of(tmp_path):
    table = open_table(written(tmp_path, "a.parquet", pa.table({"Id": [1, 2], "a": [1.0, 2.0]})))
    with pytest.warns(UserWarning, match=r"column 'Id' is a feature; .* as the id"):
        learn_encoding(table)
    learn_encoding(table, features=["Id", "a"])  # it was asked for
    learn_encoding(table, id="Id")


def test_codes_with_leading_zeros_are_not_numbers(tmp_path):
    codes = ["01234", "1234", "5"]
    (tmp_path / "a.csv").write_text("\n".join(["zip", *codes]) + "\n")
    typed = written(tmp_path, "a.parquet", pa.table({"zip": codes}))
    encodings = [learn_encoding(open_table(path), one_hot=["zip"]) for path in (tmp_path / "a.csv", typed)]
    assert encodings[0].names == encodings[1].names == ("zip=01234", "zip=1234", "zip=5")
    (tmp_path / "b.csv").write_text("n\n2\n2.0\n10\n0\n0.5\n-1\n")
    numbers = learn_encoding(open_table(tmp_path / "b.csv"), one_hot=["n"])
    assert numbers.names == ("n=-1", "n=0", "n=0.5", "n=2", "n=10")
