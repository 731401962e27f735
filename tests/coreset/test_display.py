"""How a coreset is shown: at a prompt, in a notebook, as a pandas data frame."""

import dataclasses
import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest

import duramen as dm
from duramen.coreset.coreset import Estimate
from duramen.coreset.display import interval, number
from tests.coreset.cores import CityBlock, kmeans_core, logistic_core, own_loss_core, sparse_core
from tests.report.cores import Page

MAKES = {
    "logistic": logistic_core,
    "k-means": kmeans_core,
    "all kept": lambda: kmeans_core(size=500),
    "sparse": sparse_core,
    "own loss": own_loss_core,
    "no anchor": lambda: logistic_core(anchor=None, calibrated=False),
}


def test_two_lines_say_it_all_and_what_there_is_not_is_left_out():
    first, second = repr(logistic_core()).splitlines()
    rows = "60 weighted rows x 3 columns for 400 points, 12 of the rows for 15 suspected outliers"
    assert first == f"Coreset: {rows}"
    sampler = re.escape("SensitivitySampler(kind='auto', quiet=True)")
    assert re.fullmatch(
        rf"  LogisticLoss\(fit_intercept=True\), n_outliers 10, {sampler}, calibrated; "
        r"at the anchor f_z = [\d.]+ \+- [\d.]+",
        second,
    )
    assert "suspected" not in repr(kmeans_core())
    assert "anchor" not in repr(logistic_core(anchor=None))
    assert "not calibrated" in repr(logistic_core(calibrated=False))
    core = dm.robust_coreset([[1.0], [2.0]], loss=dm.KMeansLoss(1), size=1, random_state=0)
    assert repr(core).startswith("Coreset: 1 weighted row x 1 column for 2 points\n")


class Broken(CityBlock):
    def __repr__(self):
        raise RuntimeError("no name")

    def values(self, theta, X, y=None):
        raise RuntimeError("no values")


class Noisy(CityBlock):
    def values(self, theta, X, y=None):
        return np.log(np.zeros(len(X))) * -1  # warns, and is infinite


@pytest.mark.parametrize("loss", [Broken(), Noisy()])
def test_nothing_is_raised_and_nothing_warned(loss):
    core = dataclasses.replace(own_loss_core(), loss=loss)
    for text in (repr(core), core._repr_html_()):
        assert type(loss).__name__ in text or "CityBlock" in text


def test_the_error_bar_is_left_out_where_it_would_take_long():
    rng = np.random.default_rng(0)
    n, d = 3000, 280
    plain = np.zeros(n)
    core = logistic_core(
        points=dm.points(rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 0, 1)),
        suspected=plain > 0,
        own_weights=plain + 1,
        inclusion=plain + 0.5,
        groups=plain.astype(np.int32),
        anchor=dm.Anchor(np.zeros(d + 1), 0.1),
    )
    assert repr(core).endswith(f"f_z = {number(2990 * np.log(2))}")
    assert "error bar not known" in core._repr_html_()


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_the_table_is_self_contained_and_has_the_value_at_the_anchor(make):
    core = make()
    html = core._repr_html_()
    table = Page(html)
    if core.anchor is None:
        assert "f_z at the anchor not computed" in table.text
    else:
        assert interval(core.estimate(core.anchor.theta)) in table.text
    assert set(re.findall(r"(?:color|background):([^;\"]+)", html)) <= {"inherit", "none"}
    assert {tag for tag, _ in table.tags} == {"table", "caption", "b", "tbody", "tr", "th", "td"}
    assert {name for _, attrs in table.tags for name in attrs} == {"style", "scope"}


def test_the_table_says_what_there_is():
    core = logistic_core()
    cells = Page(core._repr_html_()).texts
    facts = dict(zip(cells[2::2], cells[3::2], strict=True))
    assert "".join(cells[:2]) == "Coreset: 60 weighted rows x 3 columns for 400 points"
    assert facts["suspected outliers"] == "12 rows for 15 points"
    assert facts["outliers to set aside, z"] == "10"
    assert facts["threshold"].startswith(number(core.threshold))
    assert facts["anchor"].startswith("theta (4,), radius")
    assert facts["weights"].endswith("total 400")
    assert "±" in facts["f_z at the anchor"]


def test_what_others_wrote_is_escaped():
    html = logistic_core(sampler="<script>alert('1')</script>" + "x" * 5000)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert len(html) < 5000


@pytest.mark.parametrize(
    "value, error, text",
    [
        (265_123.4, 412.3, "265,123 ± 412"),
        (1_234_567.0, 98_765.0, "1,234,567 ± 98,765"),
        (0.00123456, 0.0000321, "0.001235 ± 0.000032"),
        (5.0, 0.0, "5 ± 0"),
        (5.0, 1e-12, "5 ± 1e-12"),
        (1e20, 1e15, "1e+20 ± 1e+15"),
        (np.inf, np.nan, "inf"),
        (5.0, np.nan, "5"),
        (5.0, np.inf, "5"),
    ],
)
def test_values_are_written_to_the_errors_second_digit(value, error, text):
    assert interval(Estimate.of(value, error)) == text


def test_a_pickle_is_frozen_again():
    core = pickle.loads(pickle.dumps(logistic_core()))
    for name in ("weights", "suspected", "own_weights", "inclusion", "groups"):
        assert not getattr(core, name).flags.writeable


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
    before = core.X.copy()
    frame.iloc[:, 0] = -1.0  # which is the caller's own
    frame["weight"] = 0.0
    np.testing.assert_array_equal(core.X, before)
    assert core.weights.min() > 0


def test_names_come_from_the_data():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["age", "weight"])
    core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=10, random_state=0)
    frame = core.to_pandas()
    assert list(frame) == ["age", "weight", "duramen:weight", "suspected"]
    np.testing.assert_array_equal(frame["weight"], core.X[:, 1])
    np.testing.assert_array_equal(frame["duramen:weight"], core.weights)

    frame = logistic_core(columns=("a", "a", "duramen:y")).to_pandas()
    assert list(frame) == ["a", "a", "duramen:y", "y", "weight", "suspected"]


def test_rows_keep_their_type_and_labels_may_be_missing():
    core = dm.robust_coreset(np.eye(5, dtype=np.float32), loss=dm.KMeansLoss(1), size=3, random_state=0)
    frame = core.to_pandas()
    assert set(frame.dtypes[:5]) == {np.dtype(np.float32)}
    assert "y" not in frame
    core = sparse_core()
    frame = core.to_pandas()
    assert isinstance(frame["x0"].dtype, pd.SparseDtype)
    np.testing.assert_array_equal(frame.iloc[:, :40].to_numpy(dtype=float), core.X.toarray())


@pytest.mark.parametrize(
    ("call", "needs", "extra"),
    [
        (dm.Coreset.to_pandas, "Coreset.to_pandas needs pandas", "frames"),
        (dm.Coreset.plot, "Coreset.plot needs matplotlib", "plot"),
        (lambda core: core.save("core.parquet"), "Coreset.save needs pyarrow", "frames"),
        (lambda core: dm.load_coreset("core.parquet"), "load_coreset needs pyarrow", "frames"),
    ],
)
def test_without_a_package_it_says_what_to_install(call, needs, extra, tmp_path, monkeypatch):
    core = kmeans_core()
    monkeypatch.chdir(tmp_path)
    for module in ("pandas", "matplotlib.pyplot", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{needs}; pip install 'duramen\[{extra}\]'"):
        call(core)
    assert not list(tmp_path.iterdir())


def test_a_coreset_of_all_points_says_so():
    X = np.arange(12.0).reshape(6, 2)
    core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=6, n_outliers=1, random_state=0)
    assert repr(core).startswith("Coreset: all 6 points x 2 columns, none left out, 2 of the rows for 2 ")
