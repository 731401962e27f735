"""Laws of passes: merging is associative and commutative, bytes change nothing, and all data at once is the same."""

import pickle
import time
import tracemalloc
from contextlib import nullcontext
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import candidates, view
from duramen.coreset import passes as plans
from duramen.distributed import Plan, Summary, finish, merge, plan, summarize
from tests.support import (
    PROBLEMS,
    SAMPLERS,
    SUITS,
    any_problem,
    assert_same_coreset,
    at_once,
    cut,
    data,
    in_parts,
    quietly,
    streamed,
)


def asked(name="logistic", sampler="leverage", **more):
    problem = PROBLEMS[name]
    chosen = {"size": 30, "n_outliers": 0.1, "random_state": 3, "sampler": SAMPLERS[sampler], **more}
    return {"loss": problem.loss, **chosen}


def through_bytes(summary, step):
    """Write a summary and read it again; it is what it was, also as a pickle."""
    assert pickle.loads(pickle.dumps(summary)) == summary
    again = Summary.from_bytes(summary.to_bytes(), step)
    assert again == summary
    return again


def second(points, **chosen):
    """Plan the second pass."""
    return quietly(finish, summarize(points, plan(**chosen)))


def one_way_and_another(points, cuts=(300, 700), *send, **chosen):
    core = in_parts(list(cut(points, cuts)()), plan(**chosen), *send)
    assert_same_coreset(core, at_once(points, **chosen))


@pytest.mark.slow
@settings(max_examples=150)
@given(any_problem(), st.randoms(use_true_random=False))
def test_merging_is_associative_and_commutative_to_the_last_byte(problem, random):
    points, cuts, order, chosen = problem
    batches = list(cut(points, cuts, order)())
    for step in (plan(**chosen), second(points, **chosen)):
        summaries = [summarize(batch, step) for batch in batches]
        a, b, c = summaries[:3]
        assert merge(a, b) == merge(b, a)
        assert merge(merge(a, b), c) == merge(a, merge(b, c))
        whole = reduce(merge, summaries)
        shuffled = list(summaries)
        random.shuffle(shuffled)
        while len(shuffled) > 1:  # a tree of any shape
            left = shuffled.pop(random.randrange(len(shuffled)))
            right = shuffled.pop(random.randrange(len(shuffled)))
            shuffled.append(merge(left, right))
        assert shuffled[0] == whole
        nothing = summarize([], step)
        assert merge(nothing, whole) == whole == merge(whole, nothing)


@pytest.mark.slow
@settings(max_examples=120)
@given(any_problem())
def test_neither_batches_nor_parts_nor_order_matter_and_bytes_and_pickles_are_the_summary_again(problem):
    points, cuts, order, chosen = problem
    batches = cut(points, cuts, order)

    def sent(summary, step):
        return through_bytes(summary, pickle.loads(pickle.dumps(step)))

    core = at_once(points, **chosen)
    assert_same_coreset(in_parts(list(batches()), plan(**chosen), sent), core)
    assert_same_coreset(streamed(batches, **chosen), core)


@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
def test_a_summary_is_left_as_it_was(name, sampler):
    points = data(name, n=300)
    step = second(points, **asked(name, sampler))
    first, rest = cut(points, (100,))()
    a, b = summarize(first, step), summarize(rest, step)
    before = a.to_bytes(), b.to_bytes()
    whole = merge(a, b)
    assert_same_coreset(quietly(finish, whole), quietly(finish, whole))
    assert (a.to_bytes(), b.to_bytes()) == before


@pytest.mark.parametrize("sampler", view.SAMPLERS)
def test_the_sample_for_the_anchor_is_one_wherever_the_points_are(sampler, few_sampled):
    """More points than the anchor's sample has: still nothing shows of how they were cut."""
    for name in ("logistic", "k-means"):
        points = data(name, n=3000, heavy="none")
        for cuts in ((), (1, 2, 2900), range(0, 3000, 250)):
            one_way_and_another(points, cuts, **asked(name, sampler, size=100))


@pytest.mark.parametrize("form", [np.float32, np.asfortranarray, sparse.csr_array])
def test_rows_of_every_form_go_through_bytes(form):
    points = data("logistic", n=500, heavy="none")
    X = points.X.astype(np.float32) if form is np.float32 else form(points.X)
    one_way_and_another(dm.points(X, points.y, ids=points.ids), (200,), through_bytes, **asked())


def test_a_sample_that_misjudged_the_largest_losses_costs_one_more_pass(few_sampled, monkeypatch):
    points = data("logistic", n=3000, heavy="none")
    chosen = asked(n_outliers=0.1)
    monkeypatch.setattr(plans, "_floor", lambda losses, sample, share: float(np.sort(losses)[-3]))
    one_way_and_another(points, (1000, 2000), **chosen)
    third = finish(summarize(points, second(points, **chosen)))
    assert isinstance(third, Plan)
    assert third.number == 3


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_a_part_sends_few_inliers_among_its_suspects(share):
    """What a part sends is a little more than its share of the suspected, not all that may be suspected."""
    rng = np.random.default_rng(0)
    points = dm.points(rng.normal(size=(60_000, 3)))
    step = second(points, loss=dm.KMeansLoss(2), size=50, n_outliers=share, random_state=0)
    part = summarize(points.take(slice(0, 6000)), step)
    expected = 1.5 * share * 6000
    assert expected - 5 * expected**0.5 <= len(part.suspects.keys) <= 1.7 * expected + 60


@pytest.mark.parametrize("sampler", ["uniform", "leverage", "sensitivity"])
def test_bytes_do_not_grow_with_the_rows(sampler):
    """They are those of the rows that may be chosen or suspected, and a few sums."""
    rng = np.random.default_rng(0)
    chosen = {"loss": dm.SquaredLoss(), "size": 100, "n_outliers": 200, "random_state": 0, "sampler": sampler}
    X = rng.normal(size=(200_000, 4))
    points = dm.points(X, X[:, 0] + rng.normal(size=200_000))
    step = second(points, **chosen)
    sizes = [len(summarize(points.take(slice(0, n)), step).to_bytes()) for n in (100_000, 200_000)]
    row = 8 * (4 + 1 + 1 + 1)  # the columns, the label, the id, and a rank or a loss
    assert max(sizes) <= row * (101 + 301) + 1500
    assert max(sizes) == pytest.approx(min(sizes), rel=0.02)


def test_bytes_of_layers_are_bounded_too():
    """A layer has no more than size + 1 rows, and there is one for each doubling of the loss."""
    points = dm.points(np.random.default_rng(0).normal(size=(200_000, 2)))
    chosen = {"loss": dm.KMeansLoss(1), "size": 50, "n_outliers": 100, "random_state": 0}
    step = second(points, **chosen, sampler="layered")
    summary = summarize(points, step)
    assert len(summary.to_bytes()) <= 8 * 5 * (51 * len(summary.numbers) + 151) + 4000


def test_what_does_not_go_together_is_refused():
    points = data(n=300)
    step = second(points, **asked())
    good = summarize(points, step)
    other = summarize(points, second(points, **asked(random_state=4)))
    with pytest.raises(ValueError, match="different plans"):
        merge(good, other)
    with pytest.raises(ValueError, match="different plans"):
        Summary.from_bytes(other.to_bytes(), step)
    with pytest.raises(ValueError, match=r"id .* occurs in more than one row"):
        finish(merge(good, good))
    for few in (100, 0):
        with pytest.raises(ValueError, match=rf"first pass had 300 rows.* and pass 2 had {few} and"):
            finish(summarize(points.take(slice(0, few)), step))
    for wrong in (lambda: merge(good, 3), lambda: finish(step), lambda: finish(good.to_bytes())):
        with pytest.raises(TypeError, match=r"merge and finish take a Summary; found (int|Plan|bytes)"):
            wrong()
    with pytest.raises(TypeError, match=r"summarized by a Plan.*found Coreset"):
        summarize(points, finish(good))
    single = dm.points(points.X.astype(np.float32), points.y)
    with pytest.raises(ValueError, match=r"2 columns of float64.*2 columns of float32"):
        merge(*(summarize(one, plan(**asked())) for one in (points, single)))


def test_summaries_by_different_distances_are_refused():
    points = data("contaminated", n=300)
    step = second(points, **asked("contaminated"))
    frozen = step.view.anchor.frozen
    for other in ({"distance": 2 * frozen["distance"]}, {"farthest": frozen["farthest"] / 2}):
        anchor = step.view.anchor.freeze(**other)
        found = summarize(points, second(points, **asked("contaminated") | {"anchor": anchor}))
        with pytest.raises(ValueError, match="different plans"):
            merge(summarize(points, step), found)
        with pytest.raises(ValueError, match="different plans"):
            Summary.from_bytes(found.to_bytes(), step)


def test_damaged_and_newer_bytes_are_refused():
    step = plan(**asked())
    found = summarize(data(n=100), step).to_bytes()
    wrong = [(found[:-40], "damaged"), (b"", "not a summary")]
    for version, age in ((3, "a newer"), (1, "an older")):
        other = found[:4] + bytes([version, 0]) + found[6:]
        wrong.append((other, f"format {version}, of {age} version of duramen, and this one reads format 2"))
    for at in (0, 5, 30, len(found) - 2):
        flipped = found[:at] + bytes([found[at] ^ 0xFF]) + found[at + 1 :]
        wrong.append((flipped, "not a summary|format|damaged"))
    for sent, message in wrong:
        with pytest.raises(ValueError, match=message):
            Summary.from_bytes(sent, step)


TENTHS = [0.1, 0.2, 0.3, 0.7, 1.1]  # sums of them are rounded, and in another way in another order


@pytest.mark.parametrize("seed", range(8))
def test_strata_of_equal_weight_have_the_same_share_however_they_are_summed(seed):
    rng = np.random.default_rng(seed)
    weights = np.tile(rng.choice(TENTHS, 300), 3)
    X = np.repeat([1.0, 2.0], [600, 300])[:, None]
    order = rng.permutation(900)
    points = dm.points(X[order], weights=weights[order])
    chosen = {"loss": dm.KMeansLoss(1), "sampler": "layered", "anchor": np.zeros((1, 1)), "calibrate": False}
    for size in (51, 53):
        one_way_and_another(points, **chosen, size=size, random_state=seed)


@pytest.mark.parametrize("seed", range(8))
def test_bins_of_suspected_points_have_the_same_share_however_they_are_summed(seed):
    rng = np.random.default_rng(seed)
    base = rng.choice(TENTHS, 100)
    far = np.repeat(10 * 1.2 ** np.arange(6), 100)
    weights = np.concatenate([np.full(4000, 0.1), *(rng.permutation(base) for _ in range(6))])
    X = np.append(rng.normal(size=4000), far)[:, None]
    order, ids = rng.permutation(4600), rng.permutation(4600)
    points = dm.points(X[order], weights=weights[order], ids=ids)
    chosen = {"loss": dm.KMeansLoss(1), "anchor": np.zeros((1, 1)), "n_outliers": 6 * base.sum() / 1.5}
    for size in (112, 114):
        one_way_and_another(points, **chosen, size=size, sampler="uniform", random_state=seed)


@pytest.mark.parametrize("sampler", ["leverage", "uniform"])
@pytest.mark.parametrize("scale", [1e-300, 1e-295, 1e-290, 1e-200, 1e160, 1e200])
def test_weights_of_any_size_go_together(sampler, scale):
    points = data("logistic", n=3000, heavy="real")
    points = points.with_parts(weights=points.weights * scale)
    one_way_and_another(points, range(0, 3000, 500), **asked(sampler=sampler))


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_very_different_sizes_make_one_anchor(seed):
    rng = np.random.default_rng(seed)
    points = data("huber", n=300, heavy="none", seed=seed)
    points = points.with_parts(weights=10.0 ** rng.uniform(-150, 140, size=300))
    one_way_and_another(points, (50, 51), **asked("huber", "leverage", random_state=seed))


@pytest.mark.parametrize("spread", [1e-5, 1e-7, 1e-8, 1e-10])
def test_losses_that_hardly_vary_are_calibrated_alike(spread):
    rng = np.random.default_rng(0)
    X = np.column_stack([1 + spread * rng.normal(size=5000), np.zeros(5000)])
    chosen = {"loss": dm.KMeansLoss(1), "anchor": np.zeros((1, 2)), "sampler": "uniform"}
    one_way_and_another(dm.points(X), (7, 1000, 2222), **chosen, size=200, random_state=0)


@pytest.mark.parametrize("expected", [3000, 2000, 30_000])
def test_parts_that_know_how_many_rows_there_are_send_their_share_of_the_sample(expected, few_sampled):
    """A plan that expects too many rows repeats the first pass."""
    points = data("logistic", n=3000, heavy="none")
    chosen = asked(size=100)
    batches = list(cut(points, range(0, 3000, 300))())
    step = plan(**chosen).expecting(expected)
    parts = [summarize(batch, step) for batch in batches]
    held = [len(part.kept.points) for part in parts if part.kept is not None]
    assert max(held) <= (75 if expected >= 3000 else 110)
    few = summarize(
        points.take(slice(0, 1)), plan(**chosen).expecting(10**9)
    )  # none of which is in the sample
    assert through_bytes(few, few.plan).n_points == 1
    found = finish(reduce(merge, parts))
    assert found.number == (1 if expected > 3000 else 2)
    assert_same_coreset(in_parts(batches, found), at_once(points, **chosen))
    assert plan(**chosen).expecting(100).limit == np.inf


class Cubed(dm.LeverageSampler):
    """Scores that what is inherited knows nothing of."""

    def scores(self, anchored):
        return super().scores(anchored) ** 3


class Shifted(dm.LayeredSampler):
    """Freezes more than what is inherited tells."""

    def freeze(self, anchored):
        return {**super().freeze(anchored), "shift": np.array([float(anchored.points.X[:, 0].mean())])}

    def scores(self, anchored):
        return 1 + np.abs(anchored.points.X[:, 0] - anchored.anchor.frozen["shift"][0])


@pytest.mark.parametrize("n_outliers", [0, 600])
@pytest.mark.parametrize("sampler", [Cubed(), Shifted()])
def test_inherited_promises_do_not_bind_a_sampler_that_overrides_scores(sampler, n_outliers):
    points = data("logistic", n=6000, heavy="none")
    chosen = {"loss": dm.LogisticLoss(), "size": 100, "random_state": 1, "sampler": sampler}
    chosen["n_outliers"] = n_outliers
    one_way_and_another(points, range(0, 6000, 300), **chosen)
    layers = dm.robust_coreset(points.X, points.y, **chosen | {"sampler": "layered"}).anchor
    given = dm.Anchor(layers.theta, layers.radius, frozen=dict(layers.frozen))
    one_way_and_another(points, (100,), **chosen, anchor=given)


class Spread(dm.RankedSampler):
    """Makes more strata than a small number has room for."""

    def scores(self, anchored):
        return np.ones(len(anchored))

    def strata(self, anchored):
        return anchored.points.ids % 40_000

    def allocate(self, strata, size):
        return (np.asarray(strata.numbers) >= 36_000).astype(int), np.array([size // 2, size - size // 2])


def test_any_number_of_strata_goes_through_bytes():
    points = dm.points(np.random.default_rng(0).normal(size=(41_000, 1)))
    chosen = {"loss": dm.KMeansLoss(1), "size": 40, "anchor": np.zeros((1, 1)), "sampler": Spread()}
    one_way_and_another(points, (30_000,), through_bytes, **chosen, random_state=0, calibrate=False)


@pytest.mark.parametrize(
    "one, other",
    [
        ({"loss": dm.HuberLoss(1.0)}, {"loss": dm.HuberLoss(5.0)}),
        ({"loss": dm.KMeansLoss(2)}, {"loss": dm.KMeansLoss(3)}),
        ({"n_outliers": 5}, {"n_outliers": 6}),
        ({"sampler": dm.LeverageSampler(2)}, {"sampler": dm.LeverageSampler(3)}),
        ({"size": 10}, {"size": 11}),
    ],
)
def test_plans_of_different_problems_do_not_go_together(one, other):
    chosen = {"loss": dm.SquaredLoss(), "size": 10, "random_state": 0}
    marks = [plan(**chosen | which).fingerprint for which in (one, one, other)]
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.slow
def test_many_small_batches_cost_no_more_than_their_number():
    """Twice the batches take about twice the time: not what is held, at every one."""
    points = dm.points(np.random.default_rng(0).normal(size=(8000, 2)))

    def seconds(n):
        start = time.process_time()
        summarize((points.take(slice(at, at + 1)) for at in range(n)), step)
        return time.process_time() - start

    step = plan(loss=dm.KMeansLoss(1), size=10, random_state=0)
    seconds(500)
    assert min(seconds(8000) for _ in range(2)) < 8 * min(seconds(2000) for _ in range(2))


def assert_law(points, batches=None, *, anchor=None, **chosen):
    """Build a coreset from batches, and compare it with that of all points at once."""
    chosen = {"size": 60, "n_outliers": 0.05, "random_state": 3, **chosen}
    batches = batches or cut(points, (100, 250))
    core = streamed(batches, anchor=anchor, **chosen)
    assert_same_coreset(core, at_once(points, anchor=anchor, **chosen))
    return core


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["logistic", "huber", "k-means"])
def test_the_anchor_found_gives_the_same_coreset_again(name, sampler):
    problem, points = PROBLEMS[name], data(name, n=3000)
    core = assert_law(points, cut(points, range(0, 3000, 271)), loss=problem.loss, sampler=SAMPLERS[sampler])
    assert_law(points, loss=problem.loss, sampler=SAMPLERS[sampler], anchor=core.anchor)
    asked = {"loss": problem.loss, "n_outliers": 0.05}
    thetas = core.anchor.theta, dm.solve(points, **asked).theta
    near, best = (dm.trimmed_objective(points, theta, **asked) for theta in thetas)
    assert near < 1.2 * best


@pytest.mark.parametrize("sampler", view.SAMPLERS)
def test_many_small_batches_of_many_points(sampler):
    """Held points are cut again and again; equal losses and few values of them make ties at the edge."""
    points = data(n=20_000, heavy="none", whole=True)
    batches = cut(points, range(0, 20_000, 37))
    loss, anchor = PROBLEMS["logistic"].loss, PROBLEMS["logistic"].anchor()
    assert_law(points, batches, loss=loss, sampler=sampler, anchor=anchor, n_outliers=100, size=50)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("sampler", ["layered", "leverage"])
def test_memory_does_not_grow_with_the_points(sampler, rising, monkeypatch):
    """Five times the points, by the same batches, take no more: also where every point is suspected for a while."""

    def peak(n_batches):
        def batches():
            for number in range(n_batches):
                rng = np.random.default_rng(number)
                scale = 2 + 2 * rising * number / n_batches
                X = np.round(scale * rng.normal(size=(2000, 8)))  # whole losses, so that layers are soon full
                yield dm.points(X, ids=2000 * number + np.arange(2000))

        chosen = {"loss": dm.KMeansLoss(1), "anchor": dm.Anchor(np.zeros((1, 8)), 0.1)}
        tracemalloc.start()
        streamed(batches, size=200, n_outliers=500, sampler=sampler, random_state=0, **chosen)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for module in (view, candidates):
        monkeypatch.setattr(module, "SAMPLE", 1000)
    peak(2)  # what is loaded once
    few, many = peak(20), peak(100)
    assert many < 1.6 * few  # what is held is up to twice what is needed, as the last cut has it
    assert many < 100 * 2000 * 8 * 8 / 5  # a fifth of the data


@pytest.mark.parametrize("n_outliers, refuses", [(3, False), (1, True)])
def test_infinite_losses_must_be_suspected(n_outliers, refuses):
    points = data("squared", n=300, heavy="none")
    X = np.array(points.X)
    X[[20, 150, 290]] = 1e200
    points = dm.points(X, points.y, ids=points.ids)
    chosen = {"loss": dm.SquaredLoss(), "anchor": dm.Anchor([1.0, 1.0, 0.0], 0.01), "sampler": "layered"}
    chosen |= {"n_outliers": n_outliers, "suspects": 1.0}
    with pytest.raises(ValueError, match="has the loss inf") if refuses else nullcontext():
        assert assert_law(points, **chosen).n_suspected == 3
