"""The data of the experiments: files, made-up tables, and contamination."""

import numpy as np
import pytest

from experiments.paper import data

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def folder(tmp_path):
    """Hold files of the shape of the real ones, with 60 rows."""
    rng = np.random.default_rng(0)
    cover = {f"column{number}": rng.integers(0, 9, 60) for number in range(54)}
    pq.write_table(pa.table({**cover, "Cover_Type": np.arange(60) % 7 + 1}), tmp_path / "covertype.parquet")
    names = ("line_id", "longitude", "latitude", "altitude_m", "total_field_anomaly_nt")
    lines = {name: 100 * rng.normal(size=60) for name in names}
    pq.write_table(pa.table(lines), tmp_path / "britain_magnetic_3d.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["covertype", "survey", "made_up_covertype", "made_up_survey"])
def test_columns_are_standardised(folder, name):
    argument = 500 if name.startswith("made_up") else folder
    X = getattr(data, name)(argument).X
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1)


def test_covertype_is_class_2_against_the_rest(folder):
    table = data.covertype(folder)
    assert table.X.shape == (60, 54)
    np.testing.assert_array_equal(table.y, np.where(np.arange(60) % 7 + 1 == 2, 1, -1))


def test_the_environment_names_the_folder_and_the_survey_stands_in_under_its_own_name(folder, monkeypatch):
    monkeypatch.setenv("DURAMEN_DATA", str(folder))
    assert len(data.survey().X) == 60
    assert data.spatial(folder).name == "britain_magnetic_3d"


def check_seeds(found, again, other):
    """Check that a seed determines everything."""
    for one, two in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(found.X, other.X)


def test_planted_rows_are_moved_and_their_labels_shuffled():
    base = data.made_up_covertype(3000)
    found, again, other = (data.with_planted_rows(base, 300, 500, seed) for seed in (1, 1, 2))
    check_seeds(found, again, other)
    assert found.X.shape == (2500, 54)
    assert found.X_test.shape == (500, 54)
    assert found.planted.sum() == 300
    clean = {row.tobytes() for row in base.X}
    assert [row.tobytes() in clean for row in found.X] == (~found.planted).tolist()
    assert all(row.tobytes() in clean for row in found.X_test)
    # noise of standard deviation 10 on columns of standard deviation 1: 16,200 draws, so within 3%
    assert found.X[found.planted].std() == pytest.approx(101**0.5, rel=0.03)
    labels = dict(zip(map(bytes, base.X), base.y, strict=True))
    assert [labels[bytes(row)] for row in found.X[~found.planted]] == found.y[~found.planted].tolist()


def test_far_points_are_added():
    base = data.made_up_survey(2000)
    found, again, other = (data.with_far_points(base, 400, seed) for seed in (1, 1, 2))
    check_seeds(found, again, other)
    np.testing.assert_array_equal(found.X[~found.planted], base.X)
    assert found.planted.sum() == 400
    # 1,600 draws of standard deviation 20, and the box: within 10%
    box = (np.ptp(base.X, axis=0) ** 2).mean() / 12
    assert found.X[found.planted].std() == pytest.approx((400 + box) ** 0.5, rel=0.1)


@pytest.mark.parametrize("named", [".", "3D_spatial_network.txt"])
def test_the_road_network_is_taken_where_it_is_given(tmp_path, named):
    rows = np.column_stack([np.arange(50), np.random.default_rng(0).normal(size=(50, 3))])
    np.savetxt(tmp_path / "3D_spatial_network.txt", rows, delimiter=",")
    table = data.spatial(tmp_path / named)
    assert table.name == "3D Road Network"
    assert table.X.shape == (50, 4)


def check_refused(load, path, message):
    """Check that a file is refused, in one line."""
    with pytest.raises(data.MissingDataError, match=message) as raised:
        load(path.parent)
    assert f"{path} is not " in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1,2,3\n4,5,6\n", "it has 3 columns, and not 4"),
        ("a,b,c,d\n", "could not convert string"),
        ("1,2,3,4\n1,2,nan,4\n", "nan in row 1, column 2, counting from 0"),
        ("1,2,3,4\n1,2", "columns"),
    ],
)
def test_a_file_that_is_not_the_road_network_is_refused(tmp_path, text, message):
    path = tmp_path / "3D_spatial_network.txt"
    path.write_text(text)
    message = check_refused(data.spatial, path, message)
    assert f"{path.name} is not the UCI 3D Road Network: " in message
    assert message.endswith("; pass the original file, or another --data")


@pytest.mark.parametrize(
    "load, file", [(data.covertype, "covertype.parquet"), (data.survey, "britain_magnetic_3d.parquet")]
)
def test_a_parquet_file_that_is_something_else_is_refused(folder, load, file):
    path = folder / file
    whole, table = path.read_bytes(), pq.read_table(path)
    path.write_bytes(whole[: len(whole) // 2])
    check_refused(load, path, "original")
    missing = pa.array([None, *range(1, 60)], type=pa.float64())
    for message, wrong in {
        "no column|has 1 columns": table.select([0]),
        "nan in row 0, column": table.set_column(3, table.column_names[3], missing),
    }.items():
        pq.write_table(wrong, path)
        check_refused(load, path, message)


def test_covertype_is_downloaded_only_where_that_is_asked_for(tmp_path, monkeypatch):
    from sklearn.utils import Bunch

    monkeypatch.setenv("DURAMEN_DATA", str(tmp_path))
    fetched = Bunch(data=np.random.default_rng(0).normal(size=(20, 54)), target=np.arange(20) % 7 + 1)
    monkeypatch.setattr("sklearn.datasets.fetch_covtype", lambda: fetched)
    with pytest.raises(data.MissingDataError):
        data.covertype()
    table = data.covertype(fetch=True)
    assert table.X.shape == (20, 54)
    np.testing.assert_array_equal(table.y == 1, fetched.target == 2)
