"""The certificate: its inputs, what it refuses, and how it shows."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

import duramen as dm
from duramen.certificate import Certificate, certify
from tests.test_certificate import (
    X0,
    Y0,
    N,
    build,
)


@pytest.fixture(scope="module")
def core():
    return build(X0, Y0, loss=dm.LogisticLoss())


def test_inputs_are_not_changed(core):
    X, y, weights = X0.copy(), Y0.copy(), np.ones(N)
    kept = core.weights.copy(), core.X.copy(), core.anchor.theta.copy()
    for array in (X, y, weights):
        array.flags.writeable = False
    certify(core, X, y, weights, n_probes=4)
    for before, after in zip(kept, (core.weights, core.X, core.anchor.theta), strict=True):
        np.testing.assert_array_equal(before, after)


def test_results_are_frozen(core):
    cert = certify(core, X0, Y0, n_probes=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cert.radius = 2.0
    with pytest.raises(ValueError, match="read-only"):
        cert.errors[0] = 0
    assert isinstance(cert, Certificate)
    assert cert != certify(core, X0, Y0, n_probes=1)


@pytest.mark.usefixtures("two_threads")
def test_data_is_not_copied():
    """X is 48 MB; a pass takes a few MB for each thread."""
    X = np.random.default_rng(8).normal(size=(20_000, 300))
    core = build(X, loss=dm.KMeansLoss(1), size=50, anchor=np.zeros((1, 300)), calibrate=False)
    tracemalloc.start()
    try:
        certify(core, X, radius=1.0, n_probes=2, ascent_steps=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_the_repr_says_what_it_is(core):
    lines = repr(certify(core, X0, Y0, radius=0.25, n_probes=4)).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("Certificate: max_error 0.")
    assert lines[0].endswith(
        "the largest found on 3,000 points, is a lower bound on the worst case within 0.25 of the anchor"
    )
    assert lines[1].startswith("  probes: 1 anchor, 2 random, 2 sphere, ")


BAD = {
    "radius -1": (
        {"radius": -1.0},
        ValueError,
        r"radius=-1.0 must be zero or a positive finite number",
    ),
    "radius nan": ({"radius": np.nan}, ValueError, r"radius=nan must be zero or a positive finite"),
    "radius inf": ({"radius": np.inf}, ValueError, r"radius=inf must be zero or a positive finite"),
    "radius text": ({"radius": "far"}, ValueError, r"radius='far' must be zero or a positive finite"),
    "n_probes 0": ({"n_probes": 0}, ValueError, r"n_probes=0 must be a whole number, 1 or more"),
    "n_probes 1.5": ({"n_probes": 1.5}, ValueError, r"n_probes=1.5 must be a whole number, 1 or more"),
    "n_probes True": ({"n_probes": True}, ValueError, r"n_probes=True must be a whole number"),
    "ascent_steps": ({"ascent_steps": -1}, ValueError, r"ascent_steps=-1 must be a whole number, 0 or more"),
    "seed": ({"random_state": "x"}, ValueError, r"random_state='x' must be None, a seed"),
    "columns": ({"X": X0[:, :3]}, ValueError, r"X has 3 columns; the coreset has 4: pass the data it was built from"),
    "rows": (
        {"X": X0[1:], "y": Y0[1:]},
        ValueError,
        r"X weighs 2,999 and the coreset 3,000: these are not the data of this coreset; pass the X and",
    ),
    "weights": ({"sample_weight": np.full(N, 0.5)}, ValueError, r"X weighs 1,500 and the coreset 3,000"),
    "no labels": ({"y": None}, ValueError, r"the coreset has labels, and y is None; pass y, one label per row"),
    "short labels": ({"y": Y0[1:]}, ValueError, r"y has 2999"),
    "labels": ({"y": np.full(N, 7)}, ValueError, r"row 0 has 7|found.* 7"),
    "missing": (
        {"X": np.where(np.isclose(X0, X0[7, 1], atol=0), np.nan, X0)},
        ValueError,
        r"X has NaN in row 7, column 1",
    ),
    "core": ({"core": X0}, TypeError, r"core must be a Coreset, as dm.robust_coreset returns; found ndarray"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(core, name):
    changed, error, message = BAD[name]
    with pytest.raises(error, match=message):
        certify(**{"core": core, "X": X0, "y": Y0, **changed})


def test_labels_for_a_coreset_without(core):
    with pytest.raises(ValueError, match="the coreset has no labels; leave y out"):
        certify(build(X0, loss=dm.KMeansLoss(2)), X0, Y0)


def test_no_anchor(core):
    with pytest.raises(ValueError, match=r"core.anchor is None; pass a core with an anchor"):
        certify(dataclasses.replace(core, anchor=None), X0, Y0, radius=1.0)


def test_an_anchor_of_no_radius_needs_one():
    core = build(X0, loss=dm.KMeansLoss(1), anchor=np.zeros((1, 4)))
    with pytest.raises(ValueError, match=r"core.anchor.radius is 0; pass radius"):
        certify(core, X0)
    assert certify(core, X0, radius=1.0, n_probes=1).radius == 1.0


def test_rounding_of_weights_is_forgiven(core):
    assert certify(core, X0, Y0, np.full(N, 1 + 1e-8), n_probes=1).max_error < 0.5
