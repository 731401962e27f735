"""Bad input to a live coreset: one clear error that names the value and the way out, and nothing has changed."""

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.dynamic.anchoring import same_anchor
from tests.dynamic.model import LATE, LOGISTIC, ROW, every_engine, everywhere, live, refused, rows
from tests.support import Heaviest, assert_same_coreset

TWO, BOTH = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), [1, -1]


# the constructor

REFUSED = [
    ({"loss": dm.LogisticLoss}, TypeError, "found the class LogisticLoss; call it"),
    ({"loss": "logistic"}, TypeError, "loss must be a Loss.*found 'logistic'"),
    ({"size": 0}, ValueError, "size=0 must be a whole number, 1 or more"),
    ({"size": 10.5}, ValueError, "size=10.5 must be a whole number"),
    ({"size": None}, TypeError, "pass size=4000"),
    ({"n_outliers": -1}, ValueError, "n_outliers=-1 must be 0 or more"),
    ({"n_outliers": np.inf}, ValueError, "n_outliers=inf"),
    ({"n_outliers": "many"}, TypeError, "n_outliers='many' is not a number"),
    ({"sampler": "random"}, ValueError, "sampler='random' is not known; use one of"),
    ({"sampler": dm.UniformSampler}, TypeError, r"sampler=<class .*UniformSampler'> is not known.*such as dm.UniformSampler\(\)"),
    ({"sampler": 7}, TypeError, "sampler=7 is not known.*or pass a Sampler"),
    ({"engine": "heap"}, ValueError, "engine='heap' is not known; take 'auto', 'ranked' or 'tree'"),
    ({"engine": "ranked", "sampler": Heaviest()}, TypeError, r"Heaviest\(\) does not score each point.*engine='tree'"),
    ({"bucket_size": 10}, TypeError, "bucket_size=10 and height=None: pass engine='tree', which takes one of them"),
    ({"engine": "ranked", "height": 3}, TypeError, "bucket_size=None and height=3: pass engine='tree'"),
    ({"engine": "tree", "bucket_size": 0}, ValueError, "bucket_size=0 must be a whole number, 1 or more"),
    ({"engine": "tree", "height": 2.0}, ValueError, "height=2.0 must be a whole number"),
    ({"engine": "tree", "height": 2, "bucket_size": 9}, TypeError, "bucket_size=9 and height=2: .* takes one of them, or neither"),
    ({"suspects": -1}, ValueError, "suspects=-1 must be 'auto'"),
    ({"suspects": "few"}, ValueError, "suspects='few' must be 'auto'"),
    ({"calibrate": "no"}, TypeError, "calibrate='no' must be True or False"),
    ({"random_state": -1}, ValueError, "random_state=-1"),
    ({"random_state": "seed"}, ValueError, "random_state='seed'"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "kind", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_settings_that_cannot_be(settings, kind, message):
    with pytest.raises(kind, match=message):
        dm.DynamicCoreset(**{"loss": LOGISTIC, **settings})


ANCHORS = [
    ("here", "theta='here' must be an array of numbers"),
    (np.zeros(3), r"theta has shape \(3,\).*needs shape \(4,\)"),
    (np.full(4, np.nan), "theta must be finite"),
    (dm.Anchor(np.zeros(3), 1.0), r"theta has shape \(3,\).*needs shape \(4,\)"),
    (dm.Ball(np.zeros(3), 1.0), r"theta has shape \(3,\).*needs shape \(4,\)"),
]


@pytest.mark.parametrize(("anchor", "message"), ANCHORS, ids=["text", "short", "nan", "Anchor", "Ball"])
def test_an_impossible_anchor_is_refused_when_it_is_used(anchor, message):
    with pytest.raises(ValueError, match=message):
        dm.DynamicCoreset(LOGISTIC, size=40, anchor=anchor).insert(*rows())


def test_a_bare_anchor_where_a_radius_is_needed_is_refused():
    with pytest.raises(ValueError, match=r"pass anchor=dm.Anchor\(theta, radius\)"):
        dm.DynamicCoreset(LOGISTIC, size=40, sampler="sensitivity", anchor=np.zeros(4)).insert(*rows())


# rows that cannot come in: (X, y, weights, ids)

ARRIVALS = [
    ((np.zeros(4), 1), ValueError, "X has 4 columns; the rows here have 3"),
    ((np.zeros((2, 2)), BOTH), ValueError, "X has 2 columns; the rows here have 3"),
    ((np.zeros((2, 3, 1)), BOTH), ValueError, r"X must be two-dimensional.*found shape \(2, 3, 1\)"),
    ((5.0, 1), ValueError, r"X must be two-dimensional.*found shape \(\)"),
    (([[1.0, 2.0, 3.0], [1.0]], BOTH), ValueError, "row 1 has 1 values, row 0 has 3"),
    ((np.array([0.0, np.nan, 0.0]), 1), ValueError, "X has NaN in row 0, column 1"),
    ((np.array([0.0, 0.0, -np.inf]), 1), ValueError, "X has -inf in row 0, column 2"),
    (([[0, 0, 0], [0, np.inf, 0]], BOTH), ValueError, "X has inf in row 1, column 1"),
    ((np.ma.array(ROW, mask=[0, 1, 0]), 1), ValueError, "X has a masked value in row 0"),
    ((np.ma.array(TWO, mask=TWO > 0.5), BOTH), ValueError, "X has a masked value in row 1"),
    ((sparse.csr_array(TWO), BOTH), TypeError, r"keeps dense rows; pass X.toarray\(\).*dm.robust_coreset"),
    (([["a", 1.0, 2.0]], 1), TypeError, r"X holds 'a' \(str\) in row 0, column 0; encode it"),
    (([[None, 1.0, 2.0]], 1), ValueError, r"missing value \(None\) in row 0"),
    (([[1j, 1.0, 2.0]], 1), TypeError, "real numbers"),
    ((ROW, None), ValueError, r"LogisticLoss\(fit_intercept=True\) needs labels; pass y, one label per row"),
    ((TWO, [1]), ValueError, "y has 1 values for 2 rows"),
    ((TWO, 1), ValueError, "y has 1 values for 2 rows"),
    ((ROW, [1, -1]), ValueError, "y has 2 values for 1 rows"),
    ((ROW, 0), ValueError, r"labels are 0(\.0)?, but those here are -1.0, 1.0; LogisticLoss takes -1 and .1, or 0 and 1"),
    ((TWO, [0, 1]), ValueError, r"labels are 0(\.0)?, 1(\.0)?, but those here are -1.0, 1.0"),
    ((ROW, 2), ValueError, "2"),
    ((TWO, [1, 0.5]), ValueError, "0.5"),
    ((ROW, np.nan), ValueError, "y has NaN in row 0"),
    ((TWO, [1, np.inf]), ValueError, "y has inf in row 1"),
    ((ROW, "yes"), TypeError, "y holds 'yes'"),
    ((TWO, [1, None]), ValueError, r"y has a missing value \(None\) in row 1"),
    ((TWO, [[1, -1], [1, 1]]), ValueError, r"y must have one value per row.*found shape \(2, 2\)"),
    ((ROW, 1, -1.0), ValueError, "weights must not be negative; row 0 has -1.0"),
    ((TWO, BOTH, [1, -2]), ValueError, "weights must not be negative; row 1 has -2.0"),
    ((ROW, 1, np.nan), ValueError, "weights has NaN in row 0"),
    ((TWO, BOTH, [1, np.nan]), ValueError, "weights has NaN in row 1"),
    ((ROW, 1, np.inf), ValueError, "weights has inf in row 0"),
    ((TWO, BOTH, [1e308, 1e308]), ValueError, "weights add up to infinity; scale them down"),
    ((TWO, BOTH, [1, 2, 3]), ValueError, "weights has 3 values for 2 rows"),
    ((ROW, 1, "heavy"), TypeError, "weights holds 'heavy'"),
    ((ROW, 1, 1j), TypeError, "real numbers"),
]  # fmt: skip
arrivals = pytest.mark.parametrize(
    ("new", "kind", "message"), ARRIVALS, ids=[message for _, _, message in ARRIVALS]
)


@arrivals
@everywhere
def test_rows_that_cannot_come_in_or_take_the_place_of_others(new, kind, message, n, engine):
    dyn = live(n, engine=engine)
    with refused(dyn, kind, message):
        dyn.insert(*new)
    if new[1] is not None:  # labels may stay what they were
        many = "for 1 rows" not in message and (np.ndim(new[1]) == 1 or np.shape(new[0])[:1] == (2,))
        with refused(dyn, kind, message):
            dyn.update([3, 4] if many else 3, *new)
    assert dyn.insert(ROW, 1).tolist() == [n]


@arrivals
def test_first_rows_that_cannot_come_in(new, kind, message):
    if "rows here" in message or "those here" in message:
        pytest.skip("there are none to compare with")
    dyn = dm.DynamicCoreset(LOGISTIC, size=40)
    with pytest.raises(kind, match=message):
        dyn.insert(*new)
    assert (len(dyn), dyn.anchor_after, dyn.nbytes) == (0, None, 0)
    dyn.insert(np.zeros(7), 0)  # another width, and other labels


IDS = [
    ((ROW, 3), ValueError, "id 3 of row 0 is here already; update it, or delete it first"),
    ((TWO, [1000, 5]), ValueError, "id 5 of row 1 is here already"),
    ((TWO, [1000, 1000]), ValueError, "ids must be distinct; id 1000 of row 0 occurs again in row 1"),
    ((TWO, [1000]), ValueError, "ids has 1 values for 2 rows"),
    ((ROW, [1000, 1001]), ValueError, "ids has 2 values for 1 rows"),
    ((TWO, [[1000], [1001]]), ValueError, "ids must have one value per row"),
    ((ROW, 1000.0), TypeError, r"ids must be integers; found type float64, such as .*1000.0"),
    ((TWO, [1000.0, 1001.5]), TypeError, "ids must be integers; found type float64"),
    ((ROW, True), TypeError, "ids must be integers; found type bool"),
    ((TWO, [True, False]), TypeError, "ids must be integers; found type bool"),
    ((TWO, [None, 1000]), ValueError, r"ids has a missing value \(None\) in row 0"),
    ((TWO, [1000, np.nan]), (TypeError, ValueError), "ids has NaN in row 1"),
    ((ROW, 2**63), ValueError, "ids must fit in int64; row 0 has 9223372036854775808"),
    ((TWO, np.array([1, 2**64 - 1], dtype=np.uint64)), ValueError, "must fit in int64; row 1 has 18446744073709551615"),
    ((ROW, 2**64), (TypeError, ValueError), "18446744073709551616|int64"),
    ((ROW, -(2**63) - 1), (TypeError, ValueError), "-9223372036854775809|int64"),
    ((ROW, "ann"), TypeError, "the points here have integer ids, and so must new ones; found 'ann'"),
    ((TWO, ["ann", "bob"]), TypeError, "have integer ids.*found 'ann'"),
    ((TWO, ["ann", 7]), TypeError, "names must be strings or UUIDs; row 1 has 7"),
    ((ROW, b"ann"), TypeError, "ids"),
    ((ROW, {1000}), TypeError, "ids"),
]  # fmt: skip


@pytest.mark.parametrize(("new", "kind", "message"), IDS, ids=[message for _, _, message in IDS])
@everywhere
def test_ids_that_cannot_be(new, kind, message, n, engine):
    dyn = live(n, engine=engine)
    with refused(dyn, kind, message):
        dyn.insert(new[0], 1 if new[0].ndim == 1 else BOTH, ids=new[1])
    assert dyn.insert(ROW, 1).tolist() == [n]


MISSING = [
    (999, KeyError, "id 999 is not here; it was deleted or never inserted"),
    ([0, 1, 999], KeyError, "id 999 is not here"),
    (-1, KeyError, "id -1 is not here"),
    (2**70, KeyError, "id 1180591620717411303424 is not here"),
    ([4, 2, 4], ValueError, "ids must be distinct; id 4 of row 0 occurs again in row 2"),
    ("ann", KeyError, "id 'ann' is not here"),
    (2.0, TypeError, "ids must be integers; found type float64"),
    (True, TypeError, "ids must be integers; found type bool"),
    ([1, None], (TypeError, ValueError), r"ids has a missing value \(None\) in row 1"),
    ([[1, 2], [3, 4]], ValueError, r"ids must have one value per row.*found shape \(2, 2\)"),
    ([1, "ann"], TypeError, "ids"),
]


@pytest.mark.parametrize(("ids", "kind", "message"), MISSING, ids=[message for _, _, message in MISSING])
@everywhere
def test_ids_that_are_not_there(ids, kind, message, n, engine):
    dyn, empty = live(n, engine=engine), dm.DynamicCoreset(LOGISTIC)
    X = np.zeros((max(1, np.size(np.asarray(ids, dtype=object))), 3))
    for change in (dyn.delete, lambda ids: dyn.update(ids, X), dyn.points):
        with refused(dyn, kind, message):
            change(ids)
    for change in (empty.delete, lambda ids: empty.update(ids, X)):
        with pytest.raises(kind, match=message.replace("999", r"\d+")):
            change(ids)


@everywhere
def test_an_update_needs_a_row_for_each_id(n, engine):
    dyn = live(n, engine=engine)
    for ids, X in (([0, 1], ROW), (0, TWO), ([], ROW), ([0], np.empty((0, 3))), ([0, 1, 2], TWO)):
        with refused(dyn, ValueError, rf"X has {len(np.atleast_2d(X))} rows for {np.size(ids)} ids"):
            dyn.update(ids, X)


@every_engine
def test_a_bad_row_far_down_a_batch_is_named(engine):
    X, y = rows(80_000)
    X[70_000, 2] = np.nan
    dyn = live(engine=engine)
    for change in (lambda: dyn.insert(X, y), lambda: dyn.update(np.arange(80_000) % 300, X, y)):
        with refused(dyn, ValueError, r"X has NaN in row 70000, column 2|ids must be distinct"):
            change()
    X[70_000, 2], y[70_001] = 0.0, 7
    with refused(dyn, ValueError, "7"):
        dyn.insert(X, y)
    weights, ids = np.ones(80_000), np.arange(1000, 81_000)
    weights[70_002], y[70_001] = -1, 1
    with refused(dyn, ValueError, r"row 70002 has -1.0"):
        dyn.insert(X, y, weights)
    for wrong, message in (
        (17, "id 17 of row 70003 is here already"),
        (1000, "id 1000 of row 0 occurs again in row 70003"),
    ):
        ids[70_003] = wrong
        with refused(dyn, ValueError, message):
            dyn.insert(X, y, ids=ids)


OUTLIERS = [
    ("many", TypeError, "n_outliers='many' is not a number"),
    (None, TypeError, "n_outliers=None is not a number"),
    (True, TypeError, "n_outliers=True is not a number"),
    (-1, ValueError, "n_outliers=-1 must be 0 or more"),
    (np.nan, ValueError, "n_outliers=nan must be 0 or more"),
    (np.inf, ValueError, "n_outliers=inf is not below the total weight"),
    (300, ValueError, "n_outliers=300 is not below the total weight"),
]


@pytest.mark.parametrize(("z", "kind", "message"), OUTLIERS, ids=[message for _, _, message in OUTLIERS])
@everywhere
def test_outliers_that_cannot_be_set(z, kind, message, n, engine):
    dyn = live(n, engine=engine)
    with refused(dyn, kind, message):
        dyn.set_outliers(z)


@pytest.mark.parametrize(("anchor", "message"), ANCHORS, ids=["text", "short", "nan", "Anchor", "Ball"])
@everywhere
def test_an_anchor_that_cannot_be_taken_leaves_the_old_one(anchor, message, n, engine):
    dyn = live(n, engine=engine)
    with refused(dyn, ValueError, message):
        dyn.reanchor(anchor)


# losses and samplers of a user's own


class Own(dm.Loss):
    """The distance to theta, but what ``wrong`` says of the rows with a first number above 100."""

    def __init__(self, wrong):
        self.wrong = wrong

    def values(self, theta, X, y=None):
        values = np.linalg.norm(X - theta, axis=1)
        odd = X[:, 0] > 100
        if odd.any():
            values = self.wrong(values, odd)
        return values


WRONGS = {
    "nan": (lambda values, odd: np.where(odd, np.nan, values), "gave the loss nan to id 1000"),
    "negative": (lambda values, odd: np.where(odd, -1.0, values), "gave the loss -1.0 to id 1000"),
    "shape": (lambda values, odd: values[:, None], r"returned values of shape \(\d+, 1\)"),
    "short": (lambda values, odd: values[~odd], r"returned values of shape \(\d+,\)"),
}


@pytest.mark.parametrize("wrong", WRONGS)
@every_engine
def test_losses_of_your_own_are_checked(wrong, engine):
    answer, message = WRONGS[wrong]
    dyn = dm.DynamicCoreset(Own(answer), size=40, engine=engine, anchor=np.zeros(3), random_state=0)
    X = rows()[0]
    dyn.insert(X)
    far, dyn.loss.wrong = np.array([200.0, 0, 0]), answer
    before, core = [dyn.n_points, dyn.n_suspected, dyn.threshold], dyn.coreset()
    for change, expected in (
        (lambda: dyn.insert(far, ids=1000), message),
        (lambda: dyn.insert(np.vstack([X, far]), ids=np.arange(700, 1001)), message),
        (lambda: dyn.update(5, far), message.replace("1000", "5")),
    ):
        with pytest.raises(ValueError, match=expected):
            change()
    dyn.check_invariants()
    assert [dyn.n_points, dyn.n_suspected, dyn.threshold] == before
    assert dyn.coreset() is core
    first = dm.DynamicCoreset(Own(answer), size=40, engine=engine, anchor=np.zeros(3))
    with pytest.raises(ValueError, match=message):  # also where it is in the first rows
        first.insert(np.vstack([X, far]), ids=np.arange(700, 1001))


class Scores(dm.RankedSampler):
    """What a function says."""

    def __init__(self, answer):
        self.answer = answer

    def scores(self, seen):
        return self.answer(np.where(seen.points.X[:, 0] > 100, 0.0, 1.0))


@every_engine
def test_scores_of_another_shape(engine):
    with pytest.raises(ValueError, match=r"Scores\(\) returned scores of shape \(\d+, 1\)"):
        dm.DynamicCoreset(LOGISTIC, 40, sampler=Scores(lambda s: s[:, None]), engine=engine).insert(*rows())


@pytest.mark.parametrize("score", [0.0, -1.0, np.nan, np.inf])
@every_engine
def test_scores_that_are_not_positive_are_refused_with_the_id(score, engine):
    sampler = Scores(lambda scores: np.where(scores, scores, score))
    dyn = dm.DynamicCoreset(LOGISTIC, 40, sampler=sampler, engine=engine, anchor=np.eye(4)[0], random_state=0)
    dyn.insert(*rows())
    plain = dyn.coreset()
    dyn.insert([200.0, 0, 0], 1, ids=1000)
    with pytest.raises(ValueError, match=r"Scores\(\) gave .*id 1000.*scores must be positive numbers"):
        dyn.coreset()
    dyn.delete(1000)
    dyn.check_invariants()
    np.testing.assert_array_equal(dyn.coreset().ids, plain.ids)


@everywhere
@pytest.mark.parametrize("heavy", [1e40, 1e200])
def test_heavy_rows_that_came_and_went_leave_no_trace(n, engine, heavy):
    dyn = live(n, engine=engine)
    before, total = dyn.coreset(), dyn.total_weight
    X, y = rows(3)
    ids = dyn.insert(X, y, [heavy, 1e-300, heavy])
    dyn.coreset()
    dyn.update(ids[0], sample_weight=3 * heavy)
    dyn.delete(ids)
    assert dyn.total_weight == total
    dyn.check_invariants()
    assert_same_coreset(dyn.coreset(), before)


class Odd(dm.RankedSampler):
    """Strata that are no numbers to us, where the first column is large."""

    def __init__(self, odd):
        self.odd = odd

    def scores(self, seen):
        return np.ones(len(seen))

    def strata(self, seen):
        plain = np.zeros(len(seen), dtype=np.asarray(self.odd).dtype)
        return np.where(seen.points.X[:, 0] > 9, self.odd, plain)


@pytest.mark.parametrize(("odd", "found"), [(np.uint64(2**63), f"stratum {2**63}"), ("north", "type <U5")])
def test_strata_that_are_no_int64_are_refused(odd, found):
    dyn, far, (X, y) = live(0, sampler=Odd(odd), anchor=live().anchor), [99.0, 0.0, 0.0], rows()
    acts = [lambda: dyn.insert(far, 1), lambda: dyn.insert([*X.tolist(), far], [*y, 1])]
    if not isinstance(odd, str):
        dyn.insert(X, y)
        acts += [lambda: dyn.update(3, far), lambda: dyn.update([3, 4], [ROW, far])]
    count = len(dyn)
    for act in acts:
        with pytest.raises(ValueError, match=found):
            act()
        dyn.check_invariants()
        assert len(dyn) == count


@every_engine
def test_wrong_use_is_refused_with_what_to_pass(engine):
    dyn, other, (X, y) = live(engine=engine), live(engine=engine, anchor=None), rows()
    with refused(dyn, TypeError, r"fit has no setting 'l1'; its settings are .*l2"):
        dyn.fit(l1=3)
    with pytest.raises(AttributeError):
        dyn.size = 5
    for one in (dyn, live(0)):
        with refused(one, TypeError, r"X is a WeightedPoints; pass points\.X"):
            one.insert(dm.points(X, y))
    dyn.insert(X, y, 2.5)
    assert dyn.total_weight == 3.5 * LATE
    for given in (other, live(size=50, engine=engine, n_outliers=0.1).coreset()):
        dyn.reanchor(given)
        assert same_anchor(dyn.anchor, given.anchor)
        dyn.check_invariants()
