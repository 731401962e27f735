"""Every route to a coreset gives the one that the naive oracle computes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

import duramen as dm
from duramen.coreset import view
from tests import support
from tests.golden import oracle
from tests.golden.cases import PROBLEMS, ROUTES, D, Data, make_data
from tests.golden.oracle import Asked
from tests.golden.test_golden import skip_without_dask

SAMPLERS = (*view.SAMPLERS, "auto")
NO_DEVIATION = ("softmax", "kl")  # the oracle has no formula for what sensitivities need of them
SUITS = [
    (name, one) for name in PROBLEMS for one in SAMPLERS if one != "sensitivity" or name not in NO_DEVIATION
]
PASSES, LIVE = ("memory", "scan", "dask-array", "dask-frame"), ("ranked", "store", "merged")


def quietly(route, data, chosen):
    """Build a coreset by a route, without the advice on balls that are too large."""
    skip_without_dask(route)
    return support.quietly(ROUTES[route], data, chosen)


def settings_of(asked, anchor=None):
    """Write what is asked as the arguments of a route."""
    chosen = {name: value for name, value in vars(asked).items() if value is not None}
    return chosen | {"loss": PROBLEMS[asked.loss].loss} | ({} if anchor is None else {"anchor": anchor})


def assert_route(route, asked, data, anchor=None):
    """Build a coreset by a route, and compare it with the oracle's."""
    core = quietly(route, data, settings_of(asked, anchor))
    assert_is_expected(core, asked, data)
    return core


def assert_is_expected(core, asked, data):
    """Compare a coreset with the oracle's, as seen from its own anchor."""
    weights = np.ones(len(data.ids)) if data.weights is None else data.weights
    expected = oracle.oracle(asked, core.anchor, data.X, data.y, weights, data.ids)
    assert core.ids.tolist() == expected.ids
    assert core.groups.tolist() == expected.groups
    assert core.suspected.tolist() == [group < 0 for group in expected.groups]
    assert (core.n_suspected, core.n_points) == (expected.n_suspected, expected.n_points)
    assert core.calibrated == expected.calibrated
    np.testing.assert_allclose(core.weights, expected.weights, rtol=1e-9)
    np.testing.assert_allclose(core.inclusion, expected.inclusion, rtol=1e-9)
    np.testing.assert_allclose(core.threshold, expected.threshold, rtol=1e-9)


def random_settings(name, sampler, route, seed):
    """Draw what is asked of a route, and whether points are weighted."""
    rng = np.random.default_rng([seed, *route.encode()])
    asked = Asked(
        name,
        sampler,
        size=int(rng.choice([12, 40, 75, 190, 400])),
        n_outliers=float(rng.choice([0, 1, 16, 0.05, 0.2])),
        random_state=int(rng.integers(100)),
        suspects=float(rng.choice([0, 1.0, 1.5, 2.5])) if rng.random() < 0.3 else 1.5,
        calibrate=bool(rng.random() < 0.7),
    )
    return asked, bool(rng.random() < 0.6), bool(rng.random() < 0.3)


def given_anchor(name):
    return dm.Anchor(PROBLEMS[name].theta, PROBLEMS[name].radius)


# each kind of Dask collection runs on half of the table, and stores, which are slow, on a quarter
TABLE = [(*suit, route) for suit in SUITS for route in ("memory", "scan", "ranked")]
TABLE += [(*suit, "dask-array") for suit in SUITS[::2]] + [(*suit, "dask-frame") for suit in SUITS[1::2]]
TABLE += [(*suit, route) for suit in SUITS[::4] for route in ("store", "merged")]


@pytest.mark.parametrize("name, sampler, route", TABLE, ids=lambda value: value)
def test_routes_agree_with_the_oracle(name, sampler, route):
    seed = SUITS.index((name, sampler))
    asked, weighted, ties = random_settings(name, sampler, route, seed)
    data = make_data(PROBLEMS[name], weighted=weighted, seed=seed, ties=ties)
    anchor = given_anchor(name)
    if route in LIVE:  # with all that is frozen, so that rows are ranked from the first one on
        anchor = quietly("memory", data, settings_of(asked, anchor)).anchor
    assert_route(route, asked, data, anchor)


@pytest.mark.parametrize("route", [*PASSES, "ranked", "store"])
@pytest.mark.parametrize("name", ["logistic", "squared", "k-means"])
def test_ids_break_ties_at_the_threshold(name, route):
    asked = Asked(name, "layered", size=60, n_outliers=16, random_state=2)
    data = make_data(PROBLEMS[name])
    rows = np.random.default_rng(1).permutation(np.append(np.arange(200), np.full(100, 299)))
    data = replace(data.take(rows), ids=data.ids)
    anchor = quietly("memory", data, settings_of(asked, given_anchor(name))).anchor
    assert assert_route(route, asked, data, anchor).n_suspected == 24


@pytest.mark.parametrize("route", ["memory", "scan", "ranked", "dask-array"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_routes_agree_from_an_anchor_that_was_found(name, route):
    asked = Asked(name, "auto", size=70, n_outliers=0.05, random_state=5)
    data = make_data(PROBLEMS[name], weighted=True, seed=3)
    assert_route(route, asked, data)


@pytest.mark.parametrize("route", [*PASSES, *LIVE])
@pytest.mark.parametrize("n_rare", [1, 2, 5, 9])
@pytest.mark.parametrize("far", [False, True], ids=["inliers", "suspects"])
@pytest.mark.parametrize("name, sampler", [("logistic", "uniform"), ("softmax", "leverage")])
def test_no_class_is_missed(name, sampler, far, n_rare, route):
    rng = np.random.default_rng(n_rare)
    asked = Asked(name, sampler, size=40, n_outliers=32, random_state=int(rng.integers(100)))
    data = make_data(PROBLEMS[name], seed=n_rare)
    rare, common = (1, -1) if name == "logistic" else (2, 1)
    rows = rng.permutation(np.flatnonzero(data.y == rare))
    data.y[rows[n_rare:]] = common
    data.X[rows[:n_rare]] = (
        [-8.0, 4.0, 0.0] if far else [0.25, -0.125, 0.25]
    )  # wrong, or right by both models
    anchor = quietly("memory", data, settings_of(asked, given_anchor(name))).anchor
    core = assert_route(route, asked, data, anchor)
    assert core.suspected[core.y == rare].all() == far
    assert np.isin(data.y, core.y).all()


@pytest.mark.parametrize("route", PASSES)
@pytest.mark.parametrize("name", ["logistic", "k-means"])
def test_all_suspected_are_kept_with_beta_0(name, route):
    asked = Asked(name, "layered", size=60, n_outliers=20, random_state=5, beta=0.0)
    data = make_data(PROBLEMS[name], weighted=True, ties=True)
    core = assert_route(route, asked, data, given_anchor(name))
    assert core.suspected.sum() == core.n_suspected > 12


@pytest.mark.parametrize("route", ["memory", "scan"])
@pytest.mark.parametrize(
    "name, sampler", [suit for suit in SUITS if suit[0] in ("logistic", "squared", "softmax")]
)
def test_sparse_rows(name, sampler, route):
    asked = Asked(name, sampler, size=80, n_outliers=16, random_state=3)
    data = make_data(PROBLEMS[name], weighted=True, seed=6)
    data = replace(data, X=np.where(np.abs(data.X) > 1, data.X, 0.0))
    rows = replace(data, X=sparse.csr_array(data.X))
    core = quietly(route, rows, settings_of(asked, given_anchor(name)))
    assert sparse.issparse(core.X)
    assert_is_expected(core, asked, data)


@pytest.mark.parametrize("sampler", view.SAMPLERS)
@pytest.mark.parametrize("name", ["logistic", "squared", "one-mean", "truth"])
def test_a_sampler_alone(name, sampler):
    asked = Asked(name, sampler, size=35, n_outliers=0, random_state=9, calibrate=False)
    data = make_data(PROBLEMS[name], weighted=True, seed=4)
    anchor = quietly("memory", data, settings_of(asked, given_anchor(name))).anchor
    bound = view.SAMPLERS[sampler]().bind(PROBLEMS[name].loss, anchor)
    points = dm.points(data.X, data.y, data.weights, data.ids)
    found = bound.reduce(points, asked.size, np.random.default_rng(asked.random_state))
    expected = oracle.oracle(asked, anchor, data.X, data.y, data.weights, data.ids)
    assert found.ids.tolist() == expected.ids
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)


@pytest.mark.parametrize("route", ["memory", "scan", "dask-array", "ranked"])
@pytest.mark.parametrize("name, sampler", [suit for suit in SUITS if suit[1] not in ("uniform", "auto")])
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_what_the_sampler_freezes(name, sampler, route):
    asked = Asked(name, sampler, size=40, n_outliers=16, random_state=9)
    data = make_data(PROBLEMS[name], weighted=True, seed=4)
    if route == "ranked":
        dyn = dm.DynamicCoreset(**settings_of(asked))
        dyn.insert(data.X, data.y, data.weights, data.ids)
        dyn.reanchor(given_anchor(name))
        anchor = dyn.anchor
    else:
        anchor = quietly(route, data, settings_of(asked, given_anchor(name))).anchor
    expected = oracle.frozen(asked, anchor, data.X, data.y, data.weights, data.ids)
    assert set(anchor.frozen) == set(expected)
    for part, value in expected.items():
        found = anchor.frozen[part]
        found = found @ found.T if part == "leverage" else found.ravel()
        np.testing.assert_allclose(found, value.reshape(found.shape), rtol=1e-9, atol=1e-12)


@st.composite
def small_problems(draw):
    """Draw few points, whose losses often tie, with weights of any kind, and anything to ask of them."""
    name, sampler = draw(st.sampled_from(SUITS))
    problem, n = PROBLEMS[name], draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    data = make_data(problem, n=300, seed=int(rng.integers(1000)), ties=draw(st.booleans()))
    few = draw(st.sampled_from([300, 300, 4]))  # so few that most are copies of each other
    data = replace(data.take(rng.choice(rng.permutation(300)[:few], size=n)), ids=data.ids[:n])
    kinds = {
        "unit": np.ones(n),
        "whole": rng.integers(0, 4, size=n).astype(float),
        "real": rng.exponential(size=n),
        "wild": 10.0 ** rng.uniform(-6, 6, size=n) * (rng.random(n) > 0.2),
    }
    data = replace(data, weights=kinds[draw(st.sampled_from(sorted(kinds)))])
    asked = Asked(
        name,
        sampler,
        size=draw(st.integers(2, 70)),
        n_outliers=draw(st.sampled_from([0, 1, 2.5, 7, 0.05, 0.3, 0.9])),
        random_state=draw(st.integers(0, 1000)),
        suspects=draw(st.sampled_from([0.0, 0.5, 1.0, 1.5, 3.0, 100.0])),
        calibrate=draw(st.booleans()),
    )
    total = data.weights.sum()
    assume(total > 0 and (asked.n_outliers < 1 or asked.n_outliers < total))
    return asked, data, rng


def split_scan(data, rng, chosen):
    """Scan the points in a random order, cut into random batches."""
    data = data.take(rng.permutation(len(data.ids)))
    cuts = np.sort(rng.integers(0, len(data.ids) + 1, size=rng.integers(12)))
    parts = [data.take(rows) for rows in np.split(np.arange(len(data.ids)), cuts) if len(rows)]
    return dm.robust_coreset(
        dm.scan([dm.points(part.X, part.y, part.weights, part.ids) for part in parts]), **chosen
    )


def random_history(data, rng, chosen):
    """Insert, correct and delete, in a random order, until exactly these points are there."""
    dyn, n = dm.DynamicCoreset(**chosen, engine="ranked"), len(data.ids)
    other = rng.integers(n, size=n)
    other = np.where(rng.random(n) < 0.3, other, np.arange(n))
    first = replace(data.take(other), ids=data.ids)
    extra = replace(data.take(rng.integers(n, size=9)), ids=5000 + np.arange(9))
    columns = zip(vars(first).values(), vars(extra).values(), strict=True)
    come = Data(*(None if one is None else np.concatenate([one, two]) for one, two in columns))
    for rows in np.array_split(rng.permutation(n + 9), rng.integers(1, 8)):
        part = come.take(rows)
        dyn.insert(part.X, part.y, part.weights, part.ids)
    wrong = data.take(rng.permutation(np.flatnonzero(other != np.arange(n))))
    half = len(wrong.ids) // 2
    for part in (wrong.take(slice(0, half)), wrong.take(slice(half, None))):
        dyn.update(part.ids, part.X, part.y, part.weights)
    for name in rng.permutation(extra.ids)[:4].tolist():
        dyn.delete(name)
    dyn.delete([name for name in extra.ids.tolist() if name in dyn])
    dyn.check_invariants()
    return dyn.coreset()


@settings(max_examples=100)
@given(small_problems())
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_small_problems(drawn):
    asked, data, rng = drawn
    chosen = settings_of(asked, given_anchor(asked.loss))
    core = ROUTES["memory"](data, chosen)
    assert_is_expected(core, asked, data)
    chosen["anchor"] = core.anchor
    assert_is_expected(split_scan(data, rng, chosen), asked, data)
    assert_is_expected(random_history(data, rng, chosen), asked, data)


def test_the_oracle_calibrates_to_the_minimum():
    """Where its Newton steps end, another solver finds the minimum."""
    rng = np.random.default_rng(0)
    columns, weights = rng.normal(size=(60, D)), rng.exponential(size=60) + 0.5
    shares = weights / weights.sum()
    apart = columns - shares @ columns
    spread = np.sqrt(shares @ apart**2)
    apart, off = apart / spread, np.array([0.05, -0.1, 0.02])
    found = oracle.calibrate(columns, weights, weights.sum() * (shares @ columns + off * spread))
    design, ridge = np.column_stack([np.ones(60), apart]), 10 * (shares**2 @ apart**4)

    def dual(tilt):
        score = design @ tilt
        rise = score / 3 + 4 / 3 * np.logaddexp(0, 2 * score - np.log(3))
        return shares @ rise + ridge @ tilt[1:] ** 2 / 2 - tilt[0] - off @ tilt[1:]

    best = minimize(dual, np.zeros(D + 1), method="Nelder-Mead", tol=1e-14, options={"maxiter": 5000}).x
    factors = 1 / 3 + 8 / 3 / (1 + 3 * np.exp(-2 * (design @ best)))
    np.testing.assert_allclose(found, weights * factors, rtol=1e-5)
    np.testing.assert_allclose(found.sum(), weights.sum(), rtol=1e-12)
