"""forget and absorb: the coreset is the one built from scratch, and a change that fails changes nothing."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import duramen as dm
from duramen.estimators import base
from tests import support
from tests.estimators.cases import every_default, take


def fitted(case, X, y, **settings):
    return case.fit(X, y, updatable=True, **{"coreset_size": 500, **settings})


def assert_same_coreset(one, two):
    """Rows are chosen alike; weights agree but for the rounding of sums."""
    support.assert_same_coreset(one, two, rtol=1e-9 if one.X.dtype == np.float64 else 1e-6, facts=())


def assert_is_a_fit_of(case, model, X, y, ids, weights=None, n_outliers=None):
    """All that is fitted is about these rows, as their ids name them."""
    np.testing.assert_array_equal(model.dynamic_.ids, ids)
    theta, loss = model.solution_.theta, model.solution_.loss
    losses, n_outliers = loss.values(theta, X, y), case.share if n_outliers is None else n_outliers
    worst = np.lexsort((-ids, -losses))[: round(n_outliers * len(X))]
    if weights is None and n_outliers:
        np.testing.assert_array_equal(model.outliers_, ids[worst])
        assert model.threshold_ == pytest.approx(losses[worst[-1]])
    objective = dm.trimmed_objective(dm.points(X, y, weights), theta, loss=loss, n_outliers=n_outliers)
    assert model.trimmed_loss_ == pytest.approx(objective)
    assert model.objective_ == model.coreset_.estimate(theta)
    assert model.coreset_size_ == len(model.coreset_)
    assert_same_coreset(model.coreset_, model.dynamic_.coreset())
    assert model.dynamic_.solution is model.solution_
    if hasattr(model, "labels_"):
        np.testing.assert_array_equal(model.labels_, model.predict(X))


def rebuilt(case, model, X, y, ids, weights=None, n_outliers=None):
    n_outliers = case.share if n_outliers is None else n_outliers
    asked = {"loss": case.loss, "size": model.dynamic_.size, "n_outliers": n_outliers, "random_state": 0}
    return dm.robust_coreset(X, y, anchor=model.coreset_.anchor, sample_weight=weights, ids=ids, **asked)


def state(model):
    """Take down all that a failure must leave as it was."""
    live = model.dynamic_
    core = live.coreset()
    return dict(vars(model)), live.ids, core.ids, core.weights, live.solution, live.anchor, live.n_outliers


def assert_unchanged(model, before):
    attributes, ids, rows, weights, *others = before
    assert list(vars(model)) == list(attributes)
    assert all(vars(model)[name] is value for name, value in attributes.items())
    live, core = model.dynamic_, model.dynamic_.coreset()
    np.testing.assert_array_equal(live.ids, ids)
    np.testing.assert_array_equal(core.ids, rows)
    np.testing.assert_array_equal(core.weights, weights)
    assert [live.solution, live.anchor, live.n_outliers] == others
    live.check_invariants()


@every_default
class TestEveryEstimator:
    @pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
    @pytest.mark.parametrize(
        ("n", "settings"),
        [
            (3000, {}),
            (200, {"coreset_size": "auto"}),
            pytest.param(3000, {"n_rounds": 1}, marks=pytest.mark.slow),
            pytest.param(3000, {"coreset_size": "auto"}, marks=pytest.mark.slow),
            pytest.param(3000, {"sampler": "uniform", "coreset_size": 300}, marks=pytest.mark.slow),
        ],
        ids=str,
    )
    def test_what_is_kept_gives_the_coreset_of_the_fit(self, case, n, settings, dtype):
        X, y, _ = case.data(n=n)
        X = X.astype(dtype)
        model = fitted(case, X, y, **settings)
        assert_same_coreset(model.dynamic_.coreset(), model.coreset_)
        plain = case.fit(X, y, **{"coreset_size": 500, **settings})
        np.testing.assert_array_equal(model.solution_.theta, plain.solution_.theta)
        np.testing.assert_array_equal(model.outliers_, plain.outliers_)
        assert not hasattr(plain, "dynamic_")
        report = model.dynamic_.anchor_report
        assert case.name == "truth" or report().n_late == 0

    def test_forgotten_rows_leave_no_trace_in_the_coreset(self, case):
        X, y, planted = case.data()
        model = fitted(case, X, y)
        gone = np.concatenate([np.flatnonzero(planted)[:30], model.coreset_.ids[:100], [7, 2999]])
        gone = np.unique(gone)
        left = np.setdiff1d(np.arange(3000), gone)
        anchor = model.coreset_.anchor
        assert model.forget(gone[::-1]) is model
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[left], take(y, left), left))
        assert dm.dynamic.anchoring.same_anchor(model.coreset_.anchor, anchor)
        assert_is_a_fit_of(case, model, X[left], take(y, left), left)

    def test_rows_that_are_absorbed_are_as_good_as_there_from_the_start(self, case):
        X, y, _ = case.data(n=3600)
        model = fitted(case, X[:3000], take(y, slice(3000)))
        assert model.absorb(X[3000:3400], take(y, slice(3000, 3400))) is model
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3000, 3400))
        model.absorb(X[3400:], take(y, slice(3400, None)))
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3400, 3600))
        assert_same_coreset(model.coreset_, rebuilt(case, model, X, y, np.arange(3600)))
        assert_is_a_fit_of(case, model, X, y, np.arange(3600))
        assert model.trimmed_loss_ < 1.03 * case.fit(X, y, coreset_size=500).trimmed_loss_

    def test_to_absorb_and_forget_again_is_to_do_nothing(self, case):
        X, y, _ = case.data(n=3100)
        model = fitted(case, X[:3000], take(y, slice(3000)))
        before = model.coreset_, model.solution_.theta, model.trimmed_loss_
        model.absorb(X[3000:], take(y, slice(3000, None))).forget(model.absorbed_ids_)
        assert_same_coreset(model.coreset_, before[0])
        assert model.trimmed_loss_ == pytest.approx(before[2], rel=0.01)

    @pytest.mark.slow
    def test_weights_and_rows_without_any(self, case):
        X, y, _ = case.data(n=2200)
        weights = np.random.default_rng(1).integers(0, 3, size=2200).astype(float)
        weights[[0, 1999, 2000, 2199]] = 0
        model = fitted(case, X[:2000], take(y, slice(2000)), sample_weight=weights[:2000])
        model.absorb(X[2000:], take(y, slice(2000, None)), weights[2000:])
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(2000, 2200))
        live = np.flatnonzero(weights)
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[live], take(y, live), live, weights[live]))
        gone = live[::7]
        model.forget(gone)
        left = np.setdiff1d(live, gone)
        core = rebuilt(case, model, X[left], take(y, left), left, weights[left])
        assert_same_coreset(model.coreset_, core)
        assert_is_a_fit_of(case, model, X[left], take(y, left), left, weights[left])
        with pytest.raises(KeyError, match="id 2199 is not here"):
            model.forget(2199)
        model.absorb(X[:1], take(y, slice(1)))
        assert model.absorbed_ids_ == [2200]

    def test_everything_is_kept_where_everything_was_fitted_on(self, case):
        X, y, _ = case.data(n=800, share=0.01)  # fewer than are set aside, whichever rows are taken
        model = fitted(case, X[:700], take(y, slice(700)), coreset_size=None)
        model.forget(np.arange(100)).absorb(X[700:], take(y, slice(700, None)))
        assert model.coreset_ is None
        assert model.coreset_size_ == 700
        assert model.objective_.std_error == 0
        rest = np.arange(100, 800)
        np.testing.assert_array_equal(model.dynamic_.coreset().ids, rest)
        found = case.fit(X[rest], take(y, rest), coreset_size=None)
        assert model.trimmed_loss_ <= 1.05 * found.trimmed_loss_

    @pytest.mark.slow
    def test_few_rows_are_all_kept_until_they_are_many(self, case):
        X, y, _ = case.data(n=900)
        model = fitted(case, X[:300], take(y, slice(300)))
        first = model.dynamic_
        model.forget(np.arange(20)).absorb(X[300:500], take(y, slice(300, 500)))
        assert model.coreset_size_ == 480
        assert model.dynamic_ is first
        model.absorb(X[500:], take(y, slice(500, None)))
        assert model.dynamic_ is not first
        left = np.arange(20, 900)
        assert_is_a_fit_of(case, model, X[left], take(y, left), left)
        refitted = case.fit(X, y, coreset_size=500, sample_weight=np.where(np.arange(900) < 20, 0.0, 1.0))
        assert_same_coreset(model.coreset_, refitted.coreset_)
        np.testing.assert_allclose(model.solution_.theta, refitted.solution_.theta)

    def test_a_failure_changes_nothing(self, case, monkeypatch):
        X, y, _ = case.data()
        model = fitted(case, pd.DataFrame(X, columns=list("abc")), y)
        before = state(model)
        bad = X[:5].copy()
        bad[3, 1] = np.nan
        new = pd.DataFrame(X[:5], columns=list("abc"))
        with pytest.raises(ValueError, match="NaN in row 3, column 1"):
            model.absorb(pd.DataFrame(bad, columns=list("abc")), take(y, slice(5)))
        with pytest.raises(ValueError, match="feature names"):
            model.absorb(new[["b", "a", "c"]], take(y, slice(5)))
        with pytest.raises(ValueError, match=r"(?i)weight"):
            model.absorb(new, take(y, slice(5)), sample_weight=-np.ones(5))
        with pytest.raises(KeyError, match="id 3000 is not here; it was deleted or never inserted"):
            model.forget([5, 3000])
        with pytest.raises(ValueError, match="distinct"):
            model.forget([5, 5])
        with pytest.raises(ValueError, match="no rows would be left"):
            model.forget(np.arange(3000))
        assert_unchanged(model, before)

        def failing(*_):
            raise KeyboardInterrupt

        changes = (lambda: model.forget(np.arange(0, 3000, 3)), lambda: model.absorb(new, take(y, slice(5))))
        for where, name in ((base, "refit"), (type(model), "_print_sizes")):  # before all is set, and after
            monkeypatch.setattr(where, name, failing)
            for change in changes:
                with pytest.raises(KeyboardInterrupt):
                    change()
                assert_unchanged(model, before)
            monkeypatch.undo()
        model.absorb(new, take(y, slice(5)))
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3000, 3005))
        assert model.coreset_.columns == ("a", "b", "c")

    def test_without_rows_kept_it_says_what_to_do(self, case):
        X, y, _ = case.data(n=300)
        for change in (lambda model: model.forget([0]), lambda model: model.absorb(X, y)):
            with pytest.raises(NotFittedError):
                change(case.make(updatable=True))
            with pytest.raises(ValueError, match=r"fitted with updatable=False.* set updatable=True and fit"):
                change(case.fit(X, y))

    @pytest.mark.slow
    def test_pickled_and_cloned(self, case):
        X, y, _ = case.data()
        model = fitted(case, X, y)
        twin = pickle.loads(pickle.dumps(model))
        fresh = clone(model)
        assert fresh.updatable is True
        assert not hasattr(fresh, "dynamic_")
        for one in (model, twin, fresh.fit(X, y)):
            one.forget(np.arange(500))
        for one in (twin, fresh):
            np.testing.assert_array_equal(one.coreset_.weights, model.coreset_.weights)
            np.testing.assert_array_equal(one.solution_.theta, model.solution_.theta)

    def test_a_fit_starts_over(self, case):
        X, y, _ = case.data(n=1000)
        model = fitted(case, X, y)
        model.forget([0, 1]).absorb(X[:2], take(y, slice(2)))
        model.fit(X, y)
        np.testing.assert_array_equal(model.dynamic_.ids, np.arange(1000))
        assert not hasattr(model, "absorbed_ids_")
        model.set_params(updatable=False).fit(X, y)
        assert not hasattr(model, "dynamic_")

    @pytest.mark.slow
    def test_settings_changed_after_a_fit_wait_for_the_next(self, case):
        X, y, _ = case.data()
        one, two = fitted(case, X, y), fitted(case, X, y)
        two.set_params(n_outliers=0.3, n_init=3, random_state=99, coreset_size=100, sampler="uniform")
        for name in ("C", "alpha", "fit_intercept", "n_clusters", "scale"):
            if name in two.get_params():
                two.set_params(**{name: 7.0})
        two.dynamic_.set_outliers(5)
        for model in (one, two):
            model.forget([3]).absorb(X[3:4], take(y, slice(3, 4)))
        np.testing.assert_allclose(one.solution_.theta, two.solution_.theta, rtol=1e-4)
        np.testing.assert_array_equal(one.outliers_, two.outliers_)
        assert len(one.outliers_) == 60 or not case.share
        assert one.trimmed_loss_ == pytest.approx(two.trimmed_loss_)

    @pytest.mark.slow
    def test_forgetting_no_rows_after_a_new_anchor_fits_again(self, case):
        X, y, _ = case.data()
        model = fitted(case, X, y).forget(np.arange(300))
        model.dynamic_.reanchor()
        model.forget([])
        assert model.coreset_.anchor is model.dynamic_.anchor
        left = np.arange(300, 3000)
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[left], take(y, left), left))
        assert_is_a_fit_of(case, model, X[left], take(y, left), left)
