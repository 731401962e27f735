"""Sites with rows that change: moments, names, stores, what is refused, and what a site tells: no more than it must."""

import pickle
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.passes import finish, plan
from duramen.distributed import federation as sites_module
from duramen.distributed import summarize
from duramen.distributed.federation import Federation, Site, read_off
from tests.distributed.sites import check, rows_of, together, two_sites
from tests.support import PROBLEMS, SAMPLERS, SUITS, assert_same_coreset, at_once, quietly


def n_rows_of(summary):
    return sum(len(part.keys) for part in (summary.kept, summary.suspects) if part is not None)


def test_rows_may_come_while_others_are_asked():
    both, settings = two_sites()
    all_rows = together(both.values())
    late = rows_of("logistic", 700, 8, start=90_000)

    def meanwhile(plan):
        if plan.number == 2 and -5 not in both["berlin"].rows:
            both["berlin"].insert(*late)
            both["berlin"].insert([0.0, 0.0], 1, ids=-5)
        return both["paris"].summary(plan)

    federation = Federation([both["berlin"], meanwhile], **settings)
    check(federation, all_rows, settings)
    assert len(both["berlin"]) == 2701
    check(federation, both.values(), settings)


def test_a_deletion_waits_until_a_summary_is_complete(monkeypatch):
    monkeypatch.setattr(sites_module, "_TOGETHER", 500)
    both, settings = two_sites()
    rows, going = both["berlin"].rows, []
    look = rows.points
    with ThreadPoolExecutor(1) as pool:

        def points(ids):
            if not going:
                going.append(pool.submit(rows.delete, rows.ids[-10:]))
                wait(going, timeout=0.2)
            return look(ids)

        monkeypatch.setattr(rows, "points", points)
        assert both["berlin"].summary(plan(**settings)).n_rows == 2000
    assert going[0].exception() is None
    assert len(both["berlin"]) == 1990


def test_every_summary_is_of_one_moment():
    both, settings = two_sites(n=1000)
    federation = Federation(both, **settings)
    federation.coreset()

    def feed():
        for step in range(40):
            both["berlin"].insert(*rows_of("logistic", 100, step, start=5000 + 100 * step))
            if step % 4 == 3:
                both["berlin"].delete(np.arange(5000 + 100 * step, 5100 + 100 * step))

    with ThreadPoolExecutor(1) as pool:
        feeding = pool.submit(feed)
        while not feeding.done():
            assert federation.coreset().n_points % 100 == 0
        feeding.result()
    assert check(federation, both.values(), settings).n_points == 5000


def test_futures_are_waited_for_once_all_were_asked():
    both, settings = two_sites()
    began = []
    with ThreadPoolExecutor(2) as pool:

        def ask(site):
            def work(plan):
                while len(began) % 2:  # until the other was asked, too
                    pass
                return site.answer(plan)

            return lambda plan: began.append(1) or pool.submit(work, plan)

        federation = Federation([ask(site) for site in both.values()], **settings)
        check(federation, both.values(), settings)


def test_sites_may_join_and_leave():
    both, settings = two_sites()
    federation = Federation({"berlin": both["berlin"]}, **settings)
    assert check(federation, [both["berlin"]], settings).n_points == 2000
    federation.sites["paris"] = both["paris"].answer
    federation.sites["nowhere"] = Site(dm.DynamicCoreset(**settings))
    assert check(federation, both.values(), settings).n_points == 4000
    del federation.sites["berlin"]
    assert check(federation, [both["paris"]], settings).n_points == 2000


def test_names_stay_at_their_site():
    both, settings = two_sites(n=300)
    names = [f"patient {row}" for row in range(300)]
    for site in both.values():
        site.delete(site.rows.ids)
    X, y, _, _ = rows_of("logistic", 300)
    both["berlin"].insert(X, y, ids=names)
    both["paris"].insert(-X, y, ids=[f"{name} of paris" for name in names])
    federation = Federation(both, **settings)
    core = check(federation, both.values(), settings)
    assert "patient" not in str(both["berlin"].answer(federation._next))
    known = [int(one) for one in core.ids if one in both["berlin"].rows]
    assert set(both["berlin"].rows.names_of(known)) <= set(names)


def test_plans_do_not_reveal_the_rows_of_an_anchor():
    both, settings = two_sites()
    plans = []

    def wire(site):
        return lambda plan: plans.append(pickle.dumps(plan)) or site.summary(plan)

    federation = Federation([wire(site) for site in both.values()], **settings)
    made_of = federation.coreset().anchor.ids
    federation.reanchor(federation.anchor)
    np.testing.assert_array_equal(federation.coreset().anchor.ids, made_of)
    assert len(made_of) > 100
    assert len(plans) == 8
    assert not any(made_of[:4].tobytes() in sent or made_of[-4:].tobytes() in sent for sent in plans)


def test_a_store_keeps_the_rows_of_a_site(tmp_path):
    both, settings = two_sites()
    path = tmp_path / "berlin.duramen"
    with dm.open_store(path, create=True, **settings) as store:
        Site(store).insert(*rows_of("logistic", 2000))
        federation = Federation([Site(store), both["paris"]], **settings)
        core = check(federation, [Site(store), both["paris"]], settings)
    with dm.open_store(path, read_only=True) as store:
        federation.sites[0] = Site(store).answer
        assert_same_coreset(federation.coreset(), core)
        assert read_off(store, federation._next) is not None
        federation.reanchor([1.0, 0.0, 0.0])  # one that is only read cannot follow, and answers all the same
        check(federation, [Site(store), both["paris"]], settings)
        assert read_off(store, federation._next) is None


def test_a_site_of_another_problem_answers_too():
    _, settings = two_sites()
    holders = [
        dm.DynamicCoreset(**settings | {"random_state": 1}),
        dm.DynamicCoreset(**settings | {"sampler": "uniform"}),
        dm.DynamicCoreset(**settings | {"calibrate": False}),
        dm.DynamicCoreset(dm.SmoothHingeLoss(), 5),
        dm.DynamicCoreset(**settings | {"n_outliers": 5000}),
        dm.DynamicCoreset(**settings, engine="tree"),
    ]
    sites = [Site(rows) for rows in holders]
    for place, site in enumerate(sites):
        site.insert(*rows_of("logistic", 300, place, start=1000 * place))
    federation = Federation(sites, **settings)
    before = [rows.anchor for rows in holders]
    check(federation, sites, settings)
    for place in (0, 3, 5):  # of another seed, loss or engine: they stay as they are
        assert holders[place].anchor is before[place]
    assert [read_off(site.rows, federation._next) for site in sites] == [None] * 6


def refused(error, match, sites, **more):
    settings = {"loss": dm.LogisticLoss(), "size": 100, "n_outliers": 0.05, "random_state": 3, **more}
    with pytest.raises(error, match=match):
        Federation(sites, **settings).coreset()


def test_errors_name_the_site():
    both, settings = two_sites()

    def broken(plan):
        raise OSError("no route to host")

    refused(RuntimeError, "site 'b' did not answer: OSError: no route", {"a": both["berlin"], "b": broken})
    refused(TypeError, "site 1: return what Site.answer .*; found int", [both["berlin"], lambda plan: 7])
    refused(TypeError, "site 'a': a site is a Site, or a function.*found int", {"a": 3})
    refused(ValueError, "site 0: these 3 bytes are not a summary", [lambda plan: b"abc"])
    other = plan(**settings | {"random_state": 4})
    refused(ValueError, "site 0: .*different plans", [lambda plan: both["berlin"].answer(other)])
    refused(ValueError, "site 0: .*different plans", [lambda plan: both["berlin"].summary(other)])
    refused(ValueError, "there are no sites", {})
    refused(ValueError, "there are no points", [Site(dm.DynamicCoreset(**settings))])
    refused(ValueError, "theta has shape", both, anchor=[0.0])
    refused(ValueError, "not below the total weight 4000", both, n_outliers=4000)
    refused(ValueError, "size=0", both, size=0)
    twice = [both["berlin"], both["berlin"].summary]
    refused(ValueError, "ids must be distinct; id .* occurs in more than one row", twice)


def test_rows_that_are_not_alike_are_refused_also_by_a_frozen_anchor():
    both, settings = two_sites()
    federation = Federation(both, **settings)
    federation.coreset()
    single = Site(dm.DynamicCoreset(**settings))
    X, y, _, ids = rows_of("logistic", 50, start=-50)
    single.insert(X.astype(np.float32), y, ids=ids)
    federation.sites["tokyo"] = single
    message = "site 'tokyo': .* some have 2 columns of float64, with labels, others 2 columns of float32"
    with pytest.raises(ValueError, match=message):
        federation.coreset()
    other = Site(dm.DynamicCoreset(**settings))
    other.insert(X, y > 0, ids=ids)
    federation.sites["tokyo"] = other
    for call in (federation.coreset, federation.reanchor):
        with pytest.raises(ValueError, match="site 'tokyo': the labels of the batches do not match"):
            call()
    del federation.sites["tokyo"]
    check(federation, both.values(), settings)


def test_bad_arguments_of_a_site():
    both, settings = two_sites()
    with pytest.raises(TypeError, match="DynamicCoreset or a Store; found ndarray"):
        Site(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="max_rows=0"):
        Site(both["berlin"].rows, max_rows=0)
    with pytest.raises(TypeError, match="pass ids that no other site has"):
        both["berlin"].insert([[0.0, 0.0]], [1])
    with pytest.raises(KeyError, match="id 70000 is not here"):
        both["berlin"].delete([0, 70_000])
    assert 0 in both["berlin"].rows
    with pytest.raises(TypeError, match="takes a Plan, or the pickle of one; found int"):
        both["berlin"].answer(pickle.dumps(3))
    federation = Federation(both, **settings)
    for wrong in (-1, "many", np.nan):
        with pytest.raises((TypeError, ValueError), match="n_outliers"):
            federation.set_outliers(wrong)


def looking(name, sampler, anchor, z, floor=None, **more):
    """Plan a second pass over rows of a problem."""
    asked = {"loss": PROBLEMS[name].loss, "sampler": SAMPLERS[sampler], "random_state": 7, **more}
    points = dm.points(*rows_of(name, 500, 9)[:2])
    step = quietly(finish, quietly(summarize, points, plan(anchor=anchor, n_outliers=z, **asked)))
    if floor is None:
        return asked, step
    losses = step.view.loss.values(step.view.anchor.theta, points.X, points.y)
    return asked, replace(step, floor=float(np.quantile(losses, floor)))


@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
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
        assert read_off(rows, second) is not None
        assert (read.n_rows, read.n_points) == (plain.n_rows, plain.n_points)
        assert (read.suspects is None) == (plain.suspects is None)
        if plain.suspects is not None:
            same_points(read.suspects.points, plain.suspects.points)
            np.testing.assert_array_equal(read.suspects.keys, plain.suspects.keys)
        mine, theirs = read, plain
        np.testing.assert_array_equal(mine.numbers, theirs.numbers)
        np.testing.assert_array_equal(mine.counts, theirs.counts)
        assert mine.weights == theirs.weights  # exactly
        same_points(mine.kept.points, theirs.kept.points)
        np.testing.assert_array_equal(mine.kept.strata, theirs.kept.strata)
        np.testing.assert_allclose(mine.kept.keys, theirs.kept.keys, rtol=1e-9)
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
    assert (read_off(both["berlin"].rows, federation._next) is not None) == finite
    both["berlin"].delete([-1, -2])
    check(federation, both.values(), settings)
    assert read_off(both["berlin"].rows, federation._next) is not None


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
        assert n_rows_of(both["berlin"].summary(first)) == n
    guarded = {place: Site(site.rows, max_rows=500) for place, site in both.items()}
    federation = Federation(guarded, **settings, anchor=anchor.anchor)
    core = check(federation, both.values(), settings)
    assert_same_coreset(core, anchor.coreset())
    message = "site 'berlin': the summary would have 2,000 rows, but max_rows=500"
    with pytest.raises(PermissionError, match=message):
        federation.reanchor()
    assert federation.anchor is not None
    federation.coreset()


def test_the_sample_of_the_first_pass_is_no_larger_than_it_must_be(few_sampled):
    both, settings = two_sites()
    assert n_rows_of(both["paris"].summary(plan(**settings))) == 301
    core = check(Federation(both, **settings), both.values(), settings)
    expected = at_once(together(both.values()), **settings)
    np.testing.assert_array_equal(core.anchor.theta, expected.anchor.theta)
