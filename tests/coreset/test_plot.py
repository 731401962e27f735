"""Plots of coresets: where rows are drawn, and what the legend says."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import sparse

import duramen as dm
from duramen.coreset.plot import principal_plane
from tests.coreset.cores import kmeans_core, logistic_core, own_loss_core, sparse_core


@pytest.fixture(autouse=True)
def _no_window():
    from matplotlib import pyplot

    mpl.use("Agg")
    yield
    pyplot.close("all")


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def drawn(axes, parts=None):
    """Collect the positions of everything."""
    return np.concatenate([part.get_offsets() for part in parts or axes.collections])


def test_two_classes_and_suspected_ones_in_a_frame_of_the_others(tmp_path):
    core = logistic_core()
    axes = core.plot()
    names = legend(axes)
    assert [name.split(" (")[0] for name in names[:3]] == ["y = -1", "y = 1", "suspected outliers"]
    assert names[2] == "suspected outliers (12)"
    assert axes.get_title() == "60 rows for 400 points, area by weight"
    assert "of variance" in axes.get_xlabel()
    assert "of variance" in axes.get_ylabel()
    assert len(drawn(axes)) == len(core)
    axes.figure.savefig(tmp_path / "two.png", dpi=40)
    assert (tmp_path / "two.png").stat().st_size > 5000
    assert np.count_nonzero(core.X[:, 0] > 20) >= 5  # far out, which do not decide the frame
    assert axes.get_xlim()[1] - axes.get_xlim()[0] < 20
    assert any(name.startswith("beyond the frame (") for name in names)
    places = drawn(axes)
    assert (places >= [axes.get_xlim()[0], axes.get_ylim()[0]]).all()
    assert (places <= [axes.get_xlim()[1], axes.get_ylim()[1]]).all()


def test_areas_go_by_weight_and_the_centres_of_the_anchor_are_marked():
    core = kmeans_core()
    axes = core.plot()
    assert legend(axes) == ["rows (50)", "the anchor's centres"]
    assert len(axes.collections[-1].get_offsets()) == 3
    areas = np.concatenate([part.get_sizes() for part in axes.collections[:-1]])  # the last are the centres
    expected = np.clip(3e4 * core.weights / core.weights.sum(), 3, 220)
    np.testing.assert_allclose(np.sort(areas), np.sort(expected))


def test_one_column_is_spread_out_or_drawn_against_its_labels():
    X = np.random.default_rng(0).normal(size=(300, 1))
    core = dm.robust_coreset(X, loss=dm.KMedianLoss(2), size=40, random_state=0)
    axes = core.plot()
    assert axes.get_xlabel() == "x0"
    assert not len(axes.get_yticks())
    places = np.sort(drawn(axes, axes.collections[:-1])[:, 0])
    np.testing.assert_array_equal(places, np.sort(core.X[:, 0]))
    given = Figure().subplots()
    core = dm.robust_coreset(X, X[:, 0] + 0.1, loss=dm.SquaredLoss(), size=40, random_state=0)
    assert core.plot(given) is given
    assert given.get_ylabel() == "y"
    places = drawn(given)
    np.testing.assert_allclose(places[:, 1], places[:, 0] + 0.1)


def test_of_many_rows_some_are_drawn_and_always_the_same():
    core = kmeans_core()
    axes = core.plot(max_points=20)
    assert axes.get_title() == "20 of 50 rows for 500 points, area by weight"
    assert legend(axes)[0] == "rows (20)"
    np.testing.assert_array_equal(drawn(axes), drawn(core.plot(max_points=20)))
    assert not np.array_equal(drawn(axes), drawn(core.plot(max_points=20, random_state=1)))


def test_sparse_rows():
    core = sparse_core()
    assert len(drawn(core.plot())) == len(core)
    known = {"loss": core.loss, "size": 50, "ids": core.ids, "anchor": core.anchor, "random_state": 0}
    dense, again = (dm.robust_coreset(X, core.y, **known) for X in (core.X.toarray(), core.X))
    np.testing.assert_allclose(drawn(dense.plot()), drawn(again.plot()))


def test_sparse_rows_that_would_not_fit_are_refused_with_a_way_out():
    wide = sparse.csr_array(([1.0, 2.0], ([0, 1], [0, 7])), shape=(30, 10**6))
    asked = {"loss": dm.LogisticLoss(), "size": 30, "anchor": np.zeros(10**6 + 1), "sampler": "uniform"}
    core = dm.robust_coreset(wide, np.arange(30) % 2, **asked)
    with pytest.raises(ValueError, match=r"30 sparse rows x 1,000,000 columns .* pass max_points=20 or less"):
        core.plot()
    core.plot(max_points=2)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, None])
def test_max_points_is_checked(wrong):
    with pytest.raises(ValueError, match=r"max_points=.* must be a whole number, 1 or more"):
        kmeans_core().plot(max_points=wrong)


TRUTH = dm.TruthDiscoveryLoss()
ODD = {
    "constant": np.ones((20, 3)),
    "one row": np.arange(3.0)[None, :],
    "one number": np.ones((1, 1)),
    "one column, huge": np.array([[-1e153], [1e153], [0.0]]),
    "constant column": np.ones((20, 1)),
    "huge": np.random.default_rng(0).normal(size=(30, 3)) * 1e150,
    "tiny": np.random.default_rng(0).normal(size=(30, 3)) * 1e-300,
    "on a line": np.outer(np.arange(20.0), [1.0, 2.0]),
    "wide": np.random.default_rng(0).normal(size=(20, 700)),
    "wide, two rows": np.random.default_rng(0).normal(size=(2, 700)),
    "large": np.random.default_rng(0).normal(size=(510, 510)).astype(np.float32),
}


@pytest.mark.parametrize("X", ODD.values(), ids=ODD)
def test_odd_rows_can_be_drawn(X, tmp_path):
    core = dm.robust_coreset(X, loss=TRUTH, size=len(X), anchor=X[0], sampler="uniform", random_state=0)
    axes = core.plot()
    assert np.isfinite(drawn(axes)).all()
    axes.figure.savefig(tmp_path / "odd.png", dpi=40)


def test_a_custom_loss_and_all_rows_suspected_or_far_out():
    assert legend(own_loss_core().plot()) == ["rows (20)"]
    core = logistic_core(suspected=np.ones(60, dtype=bool))
    assert legend(core.plot())[0] == "suspected outliers (60)"
    X = np.random.default_rng(0).normal(size=(100, 2))
    X[0] = 1e308
    far = dm.robust_coreset(X, loss=TRUTH, size=50, n_outliers=1, random_state=0)
    assert np.isfinite(drawn(far.plot())).all()


@pytest.mark.parametrize(("shape", "rtol"), [((300, 5), 1e-7), ((100, 600), 1e-6), ((600, 600), 1e-6)])
def test_the_plane_is_that_of_the_weighted_covariance(shape, rtol):
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=shape), rng.random(shape[0])
    for scale in (9, 4):
        rows += np.outer(rng.normal(size=shape[0]) * scale, rng.normal(size=shape[1]))
    plane = principal_plane(rows, weights)
    spread = np.cov(rows.T, aweights=weights, ddof=0)
    values = np.linalg.eigvalsh(spread)[::-1]
    np.testing.assert_allclose(plane.shares, values[:2] / values.sum(), rtol=rtol)
    if shape == (300, 5):
        np.testing.assert_allclose(spread @ plane.directions, plane.directions * values[:2])
        np.testing.assert_allclose(plane.middle, np.average(rows, axis=0, weights=weights))
