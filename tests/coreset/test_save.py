"""Save then load is identity: every bit, every field, and what can be made from it."""

import contextlib
import dataclasses
import json
import math
import stat
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import save
from tests.conformance.cases import CASES, COSH
from tests.coreset.cores import CityBlock, kmeans_core, logistic_core, own_loss_core, sparse_core
from tests.support import assert_identical_array, assert_identical_coreset

FIXTURE = Path(__file__).parent / "data" / "format-1.parquet"
LABELS = {
    "sign": ["bool", "int8", "uint8", "int64", ">i4", "float16", "float32", "float64"],
    "class": ["int8", "uint8", "int64", ">i4", "float16", "float32", "float64"],
    "count": ["uint8", "int64", "uint64", "float16", "float32", "float64"],
    "real": ["float16", "float32", "float64", ">f8"],
    None: [None],
}
CONTAMINATED = next(case for case in CASES if case.name == "contaminated")
STORED = [case for case in CASES if case.loss != dm.BregmanLoss(3, COSH)]
names = st.one_of(st.sampled_from(["duramen:weight", "duramen:y", "x0", "x1", "", "a.b", "id"]), st.text())


def round_trip(core, folder, **given):
    path = folder / "core.parquet"
    core.save(path)
    return dm.load_coreset(path, **given)


@pytest.fixture
def path(tmp_path):
    logistic_core().save(tmp_path / "core.parquet")
    return tmp_path / "core.parquet"


@st.composite
def cores(draw):
    """Draw a loss, and with it rows, labels, weights and ids of all kinds."""
    case = draw(st.sampled_from(STORED))
    n = draw(st.integers(2, 40))
    X, y = case.data(seed=draw(st.integers(0, 9)), n=n)
    X = X.astype(draw(st.sampled_from([np.float32, np.float64])))
    if case.label is not None:
        dtype = np.dtype(draw(st.sampled_from(LABELS[case.label])))
        y = (y > 0).astype(dtype) if dtype.kind in "bu" and case.label == "sign" else y.astype(dtype)
        X = sparse.csr_array(np.where(X > 0.3, X, 0)) if draw(st.booleans()) else X
    whole = st.integers(-(2**63), 2**63 - 1)
    ids = draw(st.one_of(st.none(), st.lists(whole, min_size=n, max_size=n, unique=True)))
    core = dm.robust_coreset(
        X,
        y,
        loss=case.loss,
        size=draw(st.integers(2, 45)),
        n_outliers=draw(st.sampled_from([0, 0.1, 1])),
        anchor=case.theta(np.random.default_rng(0)),
        ids=None if ids is None else np.array(ids, dtype=np.int64),
        sample_weight=draw(st.sampled_from([None, np.linspace(0.1, 3, n)])),
        calibrate=draw(st.booleans()),
        random_state=draw(st.integers(0, 9)),
    )
    named = draw(st.one_of(st.none(), st.lists(names, min_size=X.shape[1], max_size=X.shape[1])))
    return dataclasses.replace(core, columns=None if named is None else tuple(named))


@pytest.mark.slow
@settings(max_examples=100)
@given(core=cores())
def test_save_then_load_is_identity(core, tmp_path_factory):
    assert_identical_coreset(core, round_trip(core, tmp_path_factory.mktemp("saved", numbered=True)))


def of_odd_numbers(X):
    given = {"anchor": np.zeros(X.shape[1] + 1), "sampler": "uniform"}
    return dm.robust_coreset(X, [0, 1, 1], loss=dm.LogisticLoss(), size=3, **given)


def of_a_case(case):
    """Build the coreset of a loss with an anchor that is found."""
    return dm.robust_coreset(*case.data(n=200), loss=case.loss, size=40, n_outliers=4, random_state=0)


def of_a_large_anchor():
    theta = np.random.default_rng(0).normal(size=(3, 4))
    anchor = dm.Anchor(theta, 1.0, np.arange(2**40, 2**40 + 500_000))
    return dataclasses.replace(kmeans_core(), anchor=anchor)


@pytest.mark.parametrize(
    "make",
    [
        *(partial(of_a_case, case) for case in STORED),
        logistic_core,
        kmeans_core,
        sparse_core,
        of_a_large_anchor,
        lambda: sparse_core(np.float32),
        lambda: kmeans_core(size=500),
        lambda: kmeans_core(n_outliers=20, suspects=0),
        lambda: kmeans_core(n_outliers=20, sampler=dm.UniformSampler(), calibrate=False),
        lambda: logistic_core(anchor=None, calibrated=False),
        lambda: logistic_core(inclusion=np.full(60, np.nan), calibrated=False),
        lambda: logistic_core(columns=("Größe", "温度", "a\nb")),
        lambda: logistic_core(columns=("same", "same", "same")),
        lambda: logistic_core(columns=("duramen:weight", "duramen:id", "x0")),
        lambda: logistic_core(columns=("\0", "\ud800", "a" * 10_000)),
        lambda: of_odd_numbers(np.array([[0.0, -0.0], [-0.0, 5e-324], [1.7e308, -1.7e308]])),
        lambda: of_odd_numbers(sparse.csr_array(([0.0, -0.0, 3.0], [1, 0, 2], [0, 1, 1, 3]), shape=(3, 5))),
        lambda: of_odd_numbers(sparse.csr_array((3, 5))),
    ],
)
def test_cores_of_many_kinds(make, tmp_path):
    core = make()
    assert_identical_coreset(core, round_trip(core, tmp_path))


class MyLogistic(dm.LogisticLoss):
    """A subclass may do anything: it is not the built-in."""


@dataclasses.dataclass(frozen=True)
class LogisticLoss(dm.LogisticLoss):
    """Called like the built-in, and not it."""


class Silent(CityBlock):
    def __repr__(self):
        raise RuntimeError("no name")


@pytest.mark.parametrize(
    ("make", "loss", "name"),
    [
        (own_loss_core, CityBlock(), r"CityBlock\(\)"),
        (own_loss_core, Silent(), "Silent"),
        (logistic_core, MyLogistic(), "MyLogistic"),
        (logistic_core, LogisticLoss(), "LogisticLoss"),
        (kmeans_core, dm.BregmanLoss(3, COSH), "BregmanLoss"),
    ],
    ids=["custom", "without a repr", "subclass", "namesake", "divergence"],
)
def test_a_loss_that_is_not_built_in_must_be_passed(make, loss, name, tmp_path):
    core = dataclasses.replace(make(), loss=loss)
    with pytest.raises(ValueError, match=rf"core.parquet was made with a custom loss, {name}.* pass it"):
        round_trip(core, tmp_path)
    again = round_trip(core, tmp_path, loss=loss)
    assert again.loss is loss
    assert_identical_coreset(core, again)


class Mine(dm.LogisticLoss):
    """A base that no file can hold."""


def contaminated_core(loss=None, **given):
    X, y = CONTAMINATED.data(n=200)
    loss = dm.ContaminatedLoss() if loss is None else loss
    return dm.robust_coreset(X, y, loss=loss, size=40, random_state=0, **given)


def test_a_contaminated_loss_comes_back_with_its_distance(tmp_path):
    """From its anchor, which has it already, or where there is none, from the file's loss."""
    core, path = contaminated_core(), tmp_path / "core.parquet"
    no_anchor = dataclasses.replace(core, anchor=None, calibrated=False)
    for one in (
        core,
        no_anchor,
        contaminated_core(dm.ContaminatedLoss(dm.LogisticLoss(fit_intercept=False))),
    ):
        again = round_trip(one, tmp_path)
        assert_identical_coreset(one, again)
        assert again.loss.base == one.loss.base
        assert_identical_array(one.loss.frame, again.loss.frame)
        assert one.loss.farthest == again.loss.farthest
    core.save(path)
    saved = json.loads(pq.read_metadata(path).metadata[b"duramen"])
    base = {"class": "LogisticLoss", "fields": {"fit_intercept": True}}
    assert saved["loss"]["fields"] == {"base": base, "frame": None, "farthest": 64.0}
    assert set(saved["anchor"]["frozen"]) >= {"distance", "farthest"}
    assert_identical_coreset(core, round_trip(core, tmp_path, loss=dm.ContaminatedLoss()))
    with pytest.raises(ValueError, match=r"was made for ContaminatedLoss.*, not for loss=LogisticLoss"):
        dm.load_coreset(path, loss=dm.LogisticLoss())
    again = dm.robust_coreset(
        *CONTAMINATED.data(n=200),
        loss=dm.load_coreset(path).loss,
        size=40,
        anchor=core.anchor,
        random_state=0,
    )
    assert_identical_coreset(core, again)


def test_a_contaminated_loss_of_a_custom_base_must_be_passed(tmp_path):
    core = contaminated_core(dm.ContaminatedLoss(Mine()))
    with pytest.raises(
        ValueError, match=r"was made with a custom loss, ContaminatedLoss\(base=Mine.* pass it"
    ):
        round_trip(core, tmp_path)
    assert_identical_coreset(core, round_trip(core, tmp_path, loss=dm.ContaminatedLoss(Mine())))


def deep(levels):
    state = {"class": "LogisticLoss", "fields": {"fit_intercept": True}}
    for _ in range(levels):
        state = {"class": "ContaminatedLoss", "fields": {"base": state}}
    return state


@pytest.mark.parametrize(
    "fields",
    [
        {"base": {"class": "KMeansLoss", "fields": {"k": 2}}},
        {"base": {"class": "NoSuchLoss", "fields": {}}},
        {"base": {"class": "LinearLoss", "fields": {}}},
        {"base": {"class": None, "repr": "Mine()"}},
        {"base": {"class": "LogisticLoss"}},
        {"base": {"class": ["LogisticLoss"], "fields": {}}},
        {"base": deep(1)},
        {"base": deep(400)},
        {"base": None},
        {"base": "LogisticLoss"},
        {"base": 3, "frame": {"class": "LogisticLoss", "fields": {}}},
        {"frame": {"shape": [4, 3], "values": [1.0]}},
        {"frame": {"shape": [10**12, 10**12], "values": [1.0]}},
        {"frame": {"shape": [2, 3], "values": [1.0] * 5 + [math.nan]}},
        {"frame": {"shape": [2, 3], "values": [1.0] * 5 + [math.inf]}},
        {"frame": {"shape": [6], "values": [1.0] * 6}},
        {"frame": {"shape": [1, 6], "values": [1.0] * 6}},
        {"frame": {"shape": [2, 3], "values": [1.0] * 6}},  # of one column
        {"frame": {"shape": "far", "values": [1.0] * 6}},
        {"frame": {"shape": [2, 3]}},
        {"frame": {}},
        {"frame": [1.0]},
        {"frame": "far"},
        {"frame": None},
        {"farthest": "far"},
        {"farthest": -1.0},
        {"farthest": math.nan},
        {"farthest": 65},
        {"fit_intercept": False},
        {"more": 1},
    ],
    ids=lambda fields: str(fields)[:60],
)
def test_a_contaminated_loss_that_is_wrong(fields, tmp_path):
    """Also where its checksum is right: someone meant it."""
    path = tmp_path / "core.parquet"
    dataclasses.replace(contaminated_core(), anchor=None, calibrated=False).save(path)
    forge(path, lambda state: state["loss"]["fields"].update(fields))
    refused(path, "is damaged: |was made with a custom loss|does not fit")


@pytest.mark.parametrize(
    "frozen",
    [
        {"distance": {"shape": [6], "values": [1.0] * 6}},
        {"distance": {"shape": [3, 2], "values": [1.0] * 6}},  # of two columns
        {"distance": {"shape": [2, 3], "values": [math.nan] * 6}},
        {"distance": None},
        {"farthest": {"shape": [2], "values": [1.0, 2.0]}},
        {"farthest": {"shape": [1], "values": [-1.0]}},
        {"farthest": None, "distance": None},
    ],
    ids=str,
)
def test_an_anchor_whose_distance_is_wrong(frozen, tmp_path):
    path = tmp_path / "core.parquet"
    contaminated_core().save(path)
    kept = {name for name, state in frozen.items() if state is None}

    def change(state):
        found = {**state["anchor"]["frozen"], **frozen}
        state["anchor"]["frozen"] = {name: one for name, one in found.items() if name not in kept}

    forge(path, change)
    refused(path, "is damaged: |does not fit: the robust distance was measured on 2 columns; X has 3")


def forge(path, change):
    """Change the state of a file, and make its checksum right again."""
    table = pq.read_table(path)
    state = json.loads(table.schema.metadata[b"duramen"])
    before = json.dumps(state, sort_keys=True)
    change(state)
    assert json.dumps(state, sort_keys=True) != before
    core = dm.load_coreset(path)
    beside = {name: getattr(core, field) for name, field in save._COLUMNS.items() if name in state["types"]}
    with contextlib.suppress(ValueError):  # for NaN, no checksum is right
        state["crc32"] = save._checksum(state, core.X, beside)
    pq.write_table(table.replace_schema_metadata({b"duramen": json.dumps(state).encode()}), path)


def test_a_loss_that_contradicts_the_file_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"anchor's theta has shape \(2,\); LogisticLoss.* needs shape \(3,\); pass the"
    ):
        round_trip(own_loss_core(), tmp_path, loss=dm.LogisticLoss())
    core = logistic_core()
    assert_identical_coreset(core, round_trip(core, tmp_path, loss=dm.LogisticLoss()))
    for other in (dm.LogisticLoss(fit_intercept=False), dm.KMeansLoss(2), CityBlock()):
        with pytest.raises(
            ValueError, match=r"core.parquet was made for LogisticLoss.*, not for loss=.*; leave loss out"
        ):
            round_trip(core, tmp_path, loss=other)
    for wrong, found in ((dm.LogisticLoss, "the class LogisticLoss; call it"), ("logistic", "'logistic'")):
        with pytest.raises(TypeError, match=f"loss must be a Loss, .* found {found}"):
            round_trip(core, tmp_path, loss=wrong)
    numbers = logistic_core(loss=dm.HuberLoss(np.float32(0.7), fit_intercept=np.True_))
    assert round_trip(numbers, tmp_path).loss == numbers.loss


def test_metadata_is_saved_in_the_same_file(tmp_path):
    path, metadata = tmp_path / "core.parquet", {"names": {"7": "Größe"}, "more": [1, None, 0.5]}
    logistic_core().save(path, metadata=metadata)
    core = dm.load_coreset(path)
    assert core.metadata == metadata
    assert round_trip(core, tmp_path).metadata == metadata  # kept, and left out with an empty one
    core.save(path, metadata={})
    assert dm.load_coreset(path).metadata == {}
    assert round_trip(logistic_core(), tmp_path).metadata is None
    core.save(path, metadata={2: 10, 10: 2})
    assert dm.load_coreset(path).metadata == {"2": 10, "10": 2}
    for wrong in ({"a": np.zeros(2)}, {"a": float("nan")}):
        with pytest.raises((TypeError, ValueError), match="JSON cannot hold this metadata"):
            core.save(path, metadata=wrong)


def test_other_readers_see_the_rows(path):
    core = logistic_core(columns=("age", "age", "duramen:weight"))
    core.save(path)
    frame = pd.read_parquet(path)
    assert list(frame)[:3] == ["age", "age [1]", "x2"]
    assert [name for name in frame if name.startswith("duramen:")] == [
        "duramen:y", "duramen:weight", "duramen:id", "duramen:suspected", "duramen:own_weight",
        "duramen:inclusion", "duramen:group",
    ]  # fmt: skip
    np.testing.assert_array_equal(frame["duramen:weight"], core.weights)
    np.testing.assert_array_equal(frame[["age", "age [1]", "x2"]], core.X)


def test_the_file_contains_no_pickle(path):
    metadata = pq.read_metadata(path).metadata
    assert set(metadata) == {b"duramen", b"ARROW:schema"}
    assert metadata[b"duramen"].startswith(b'{"anchor"')
    assert f'"version": "{dm.__version__}"'.encode() in metadata[b"duramen"]
    assert b'"format": 1' in metadata[b"duramen"]


def failing(*arguments, **given):
    arguments[1].write(b"PAR1 and some more")
    raise OSError(28, "No space left on device")


def test_a_failed_save_leaves_everything_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "core.parquet"
    kmeans_core().save(path)
    before = path.read_bytes()
    monkeypatch.setattr(pq, "write_table", failing)
    for place in (path, tmp_path / "new.parquet"):
        with pytest.raises(OSError, match="No space left"):
            logistic_core().save(place)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        logistic_core().save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_replaces_what_was_there(tmp_path):
    path = tmp_path / "core.parquet"
    path.write_text("something else")
    path.chmod(0o640)
    logistic_core().save(str(path))
    assert_identical_coreset(logistic_core(), dm.load_coreset(str(path)))
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    kmeans_core().save(link)
    assert link.is_symlink()
    assert_identical_coreset(kmeans_core(), dm.load_coreset(path))


def test_a_new_file_has_the_usual_rights(path):
    other = path.with_name("other")
    other.write_text("")
    assert path.stat().st_mode == other.stat().st_mode


def test_where_no_file_can_be(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"core.parquet: there is no folder .*such; create it first"):
        logistic_core().save(tmp_path / "no" / "such" / "core.parquet")
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        logistic_core().save(tmp_path)


def refused(path, message):
    """Check that loading raises one ValueError that names the file and says this."""
    with pytest.raises(ValueError, match=message) as caught:
        dm.load_coreset(path)
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def rewrite(path, change=lambda table: table, place=None, **state):
    """Write the file again with another table, with another state, or without what stands at a place of it."""
    table = pq.read_table(path)
    saved = json.loads(table.schema.metadata[b"duramen"]) | state
    if place is not None:
        del saved[sorted(set(saved) - {"format", "version"})[place]]
    table = change(table).replace_schema_metadata({b"duramen": json.dumps(saved).encode()})
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
    refused(path, "is damaged: .* copy it again, or save the coreset again")


def test_a_parquet_file_of_something_else(path):
    pq.write_table(pa.table({"a": [1, 2]}), path)
    refused(path, "without a coreset; .* dm.robust_coreset builds a coreset from data")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '{"version": "1"}', '{"format": "new"}', "[" * 9999]
)
def test_metadata_that_cannot_be_read(path, text):
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"duramen": text}), path)
    refused(path, "is damaged: its metadata cannot be read .* save the coreset again")


@pytest.mark.parametrize("place", range(14))
def test_state_that_is_missing(path, place):
    rewrite(path, place=place)
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
        {"n_columns": 2}, {"n_outliers": "many"}, {"n_points": None}, {"n_points": 401}, {"seed": 1},
        {"sparse": True}, {"types": {}}, {"types": None}, {"format": 2},
    ],
    ids=str,
)  # fmt: skip
def test_state_that_is_wrong(path, state):
    rewrite(path, **state)
    newer = r"core.parquet: format 2 is newer than this library reads \(1\); upgrade duramen$"
    refused(path, newer if "format" in state else "is damaged: ")


def test_sparse_rows_of_too_few_columns(path):
    sparse_core().save(path)
    rewrite(path, n_columns=3)
    refused(path, "is damaged: ")


def without(name):
    return lambda table: table.drop_columns([name])


def with_values(name, change):
    """Make a function that replaces a column's list of values."""

    def changed(table):
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array(change(table[name].to_pylist())))

    return changed


SOME = ("x0", "duramen:weight", "duramen:id")
GAPS, OTHER = "has missing values, or is not numeric", r"differs from what was saved \(checksum mismatch\)"
MISSING = "is damaged: its column '{}' is missing; copy it again"
NAMED = ["x1", "duramen:weight", "duramen:id", "duramen:y", "duramen:inclusion"]
LENGTHS = "is damaged: indices and data should have the same size"


@pytest.mark.parametrize(
    ("core", "change", "message"),
    [
        *((logistic_core, without(name), MISSING.format(name)) for name in NAMED),
        (logistic_core, lambda table: table.slice(0, 59), "is damaged: it has 59 rows where 60 were saved"),
        *(
            (logistic_core, with_values(name, change), f"its column '{name}' {GAPS}")
            for name in SOME
            for change in (lambda values: ["a"] * len(values), lambda values: [None, *values[1:]])
        ),
        *(
            (logistic_core, with_values(name, lambda values: [values[0] + 1, *values[1:]]), OTHER)
            for name in SOME[:2]
        ),
        (logistic_core, with_values("duramen:id", lambda v: [v[1], *v[1:]]), "ids must be distinct"),
        (sparse_core, with_values("duramen:features", lambda v: [[1, 2, 3, 4, 5], *v[1:]]), LENGTHS),
        (sparse_core, with_values("duramen:values", lambda v: [v[0][:-1], *v[1:]]), LENGTHS),
        (sparse_core, with_values("duramen:values", lambda v: [None, *v[1:]]), f"'duramen:values' {GAPS}"),
        (sparse_core, without("duramen:values"), MISSING.format("duramen:values")),
    ],
)
def test_columns_of_another_content(path, core, change, message):
    core().save(path)
    rewrite(path, change)
    refused(path, message)


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
