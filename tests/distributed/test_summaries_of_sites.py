"""What a site tells: what looking at all its rows gives, and no more than it must."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.passes import finish, plan
from duramen.distributed import site as sites_module
from duramen.distributed import summarize
from duramen.distributed.federation import Federation
from duramen.distributed.site import Site, rows_in, selection_of
from tests.distributed.sites import check, every_suit, rows_of, together, two_sites
from tests.support import PROBLEMS, SAMPLERS, assert_same_coreset, at_once, quietly


def looking(name, sampler, anchor, z, floor=None, **more):
    """Plan a second pass over rows of a problem."""
    asked = {"loss": PROBLEMS[name].loss, "sampler": SAMPLERS[sampler], "random_state": 7, **more}
    points = dm.points(*rows_of(name, 500, 9)[:2])
    step = quietly(finish, quietly(summarize, points, plan(anchor=anchor, n_outliers=z, **asked)))
    if floor is None:
        return asked, step
    losses = asked["loss"].values(step.view.anchor.theta, points.X, points.y)
    looks = replace(step.view, floor=float(np.quantile(losses, floor)))
    return asked, replace(step, view=looks, fingerprint="")


@every_suit
@pytest.mark.parametrize(
    "heavy, floor, z, own",
    [("none", 0.0, 30, 0), ("whole", 0.9, 30, 0.3), ("real", 0.0, 0, 0.1), ("wild", 0.95, 80, 0.05)],
)
def test_what_is_read_off_is_what_looking_at_all_rows_gives(name, sampler, heavy, floor, z, own):
    asked, second = looking(name, sampler, PROBLEMS[name].anchor(), z, floor, size=40)
    rows = dm.DynamicCoreset(n_outliers=own, **asked)
    site = Site(rows)
    for seed in range(2):
        quietly(site.insert, *rows_of(name, 200, seed, heavy, start=300 * seed))
        read, plain = quietly(site.summary, second), quietly(summarize, rows.points(), second)
        assert selection_of(rows, second.view) is not None
        assert (read.n_rows, read.body.n_points) == (plain.n_rows, plain.body.n_points)
        assert (read.body.suspects is None) == (plain.body.suspects is None)
        if plain.body.suspects is not None:
            same_points(read.body.suspects.points, plain.body.suspects.points)
            np.testing.assert_array_equal(read.body.suspects.losses, plain.body.suspects.losses)
        mine, theirs = read.body.inliers, plain.body.inliers
        np.testing.assert_array_equal(mine.numbers, theirs.numbers)
        np.testing.assert_array_equal(mine.counts, theirs.counts)
        assert mine.weights == theirs.weights  # exactly
        assert mine.stratified == theirs.stratified
        same_points(mine.kept.points, theirs.kept.points)
        np.testing.assert_array_equal(mine.kept.strata, theirs.kept.strata)
        np.testing.assert_allclose(mine.kept.ranks, theirs.kept.ranks, rtol=1e-9)
        scale = np.abs(theirs.totals.values).max()
        np.testing.assert_allclose(mine.totals.values, theirs.totals.values, rtol=1e-9, atol=1e-12 * scale)
        quietly(site.delete, rows.ids[::3])


def same_points(one, other):
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.weights, other.weights)
    if one.y is not None:
        np.testing.assert_array_equal(one.y, other.y)


def test_rows_are_looked_at_once_for_each_anchor(monkeypatch):
    both, settings = two_sites()
    federation = Federation(both, **settings)
    federation.coreset()

    def unasked(*_):
        raise AssertionError("all rows were looked at")

    monkeypatch.setattr(sites_module, "summarize", unasked)
    for step in range(3):
        both["berlin"].insert(*rows_of("logistic", 50, 5 + step, start=10_000 + 100 * step))
        both["paris"].delete(both["paris"].rows.ids[:7])
        check(federation, both.values(), settings)
    with pytest.raises(RuntimeError, match="site 'berlin' did not answer: AssertionError: all rows were"):
        federation.reanchor()


def test_one_question_to_each_site_is_enough_while_few_more_are_suspected():
    both, settings = two_sites()
    asked = []

    def wire(place):
        return lambda plan: asked.append((place, plan.number)) or both[place].answer(pickle.dumps(plan))

    federation = Federation({place: wire(place) for place in both}, **settings)
    check(federation, both.values(), settings)
    assert asked == [(place, number) for number in (1, 2) for place in both]
    for step in range(10):
        asked.clear()
        both["berlin"].insert(*rows_of("logistic", 40, 5 + step, start=10_000 + 100 * step))
        check(federation, both.values(), settings)
        assert asked == [(place, 2) for place in both]
    both["paris"].insert(*rows_of("logistic", 9000, 50, start=50_000))
    asked.clear()
    check(federation, both.values(), settings)
    assert asked == [(place, 2) for place in both] * 2  # three times the rows: too few suspects were held
    asked.clear()
    check(federation, both.values(), settings)
    assert len(asked) == 2


@pytest.mark.parametrize("far, finite", [(1e7, True), (1e30, True), (1e120, True), (1e200, False)])
def test_rows_far_beyond_all_others_take_no_digits_from_the_rest(far, finite):
    both, settings = two_sites(name="squared", anchor=PROBLEMS["squared"].anchor())
    both["berlin"] = Site(dm.DynamicCoreset(dm.SquaredLoss(), 100, random_state=3))
    both["berlin"].insert(*rows_of("squared", 2000))
    both["berlin"].insert([[far, -far], [0.3, far]], [0.0, 1.0], ids=[-1, -2])
    federation = Federation(both, **settings)
    core = check(federation, both.values(), settings)
    assert {-1, -2} & set(core.ids[core.suspected].tolist())
    assert (selection_of(both["berlin"].rows, federation._next.view) is not None) == finite
    both["berlin"].delete([-1, -2])
    check(federation, both.values(), settings)
    assert selection_of(both["berlin"].rows, federation._next.view) is not None


def test_a_loss_that_is_infinite_must_be_suspected():
    anchor = PROBLEMS["squared"].anchor()
    both, settings = two_sites(name="squared", anchor=anchor, sampler="layered", n_outliers=0)
    federation = Federation(both, **settings)
    federation.coreset()
    both["berlin"].insert([1e200, 0.0], 1.0, ids=-1)
    with pytest.raises(ValueError, match="site 'berlin': id -1 has the loss inf at the anchor"):
        federation.coreset()
    federation.set_outliers(1)
    settings["n_outliers"] = 1
    assert check(federation, both.values(), settings).n_suspected == 2


def test_with_an_anchor_that_has_all_the_sampler_needs_no_sample_leaves():
    both, settings = two_sites()
    anchor = Federation(both, **settings)
    anchor.coreset()
    for given, n in ((anchor.anchor, 1), (anchor.anchor.theta, 2000), (None, 2000)):
        first = plan(**settings, anchor=given)
        assert rows_in(both["berlin"].summary(first)) == n
    guarded = {place: Site(site.rows, max_rows=500) for place, site in both.items()}
    federation = Federation(guarded, **settings, anchor=anchor.anchor)
    core = check(federation, both.values(), settings)
    assert_same_coreset(core, anchor.coreset())
    message = "site 'berlin': the summary would have 2,000 rows, and max_rows=500"
    with pytest.raises(PermissionError, match=message):
        federation.reanchor()
    assert federation.anchor is not None
    federation.coreset()


def test_the_sample_of_the_first_pass_is_no_larger_than_it_must_be(few_sampled):
    both, settings = two_sites()
    assert rows_in(both["paris"].summary(plan(**settings))) == 301
    core = check(Federation(both, **settings), both.values(), settings)
    expected = at_once(together(both.values()), **settings)
    np.testing.assert_array_equal(core.anchor.theta, expected.anchor.theta)
