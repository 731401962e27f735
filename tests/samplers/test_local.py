"""What is known of points near an anchor: linear losses give at once what any loss gives method by method."""

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.losses.linear import LinearLoss
from duramen.samplers.sensitivity import Local
from tests.conformance.cases import CASES

LINEAR = [case for case in CASES if isinstance(case.loss, LinearLoss)]


@pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array], ids=["C", "F", "sparse"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_linear_losses_know_what_their_methods_say(case, form, dtype):
    X, y = case.data(n=500)
    loss, rng = case.loss, np.random.default_rng(3)
    points = dm.points(form(X.astype(dtype)), y)
    anchor = dm.Anchor(case.theta(rng), radius=0.3)
    theta, X = anchor.theta, points.X
    part = Local.of(dm.AnchoredPoints(points, loss, anchor, loss.values(theta, X, y)))
    gradients = loss.gradients(theta, X, y)
    gradients = gradients.toarray() if sparse.issparse(gradients) else gradients
    weights, whole = rng.random(500), rng.normal(size=gradients.shape[1])
    tolerance = {
        "rtol": 1e-9 if dtype == np.float64 else 1e-3,
        "atol": 1e-12 if dtype == np.float64 else 1e-4,
    }
    third = loss.hessian_lipschitz(X, y)
    expected = {
        "values": loss.values(theta, X, y),
        "norms": np.linalg.norm(gradients, axis=1),
        "lipschitz": loss.lipschitz(X, y),
        "smooth": loss.smoothness(X, y),
        "hessian": None if third is None else loss.hessian_norms(theta, X, y) + third * 0.1,
        "deviation": loss.deviation(anchor.ball, X, y),
    }
    for name, values in expected.items():
        found = getattr(part, name)
        assert (found is None) == (values is None), name
        if values is not None:
            np.testing.assert_allclose(found, values, err_msg=name, **tolerance)
    np.testing.assert_allclose(part.products(whole), gradients @ whole, **tolerance)
    np.testing.assert_allclose(part.gradient_sum(weights), gradients.T @ weights, **tolerance)
