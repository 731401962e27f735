"""Custom losses: values are enough, and an error names what else is needed."""

import numpy as np
import pytest
from scipy import sparse

import duramen as dm
from duramen.losses import Divergence


class Quartic(dm.Loss):
    def values(self, theta, X, y=None):
        return ((X - theta) ** 4).sum(axis=1)


class Bounded(Quartic):
    """A third-order kind of its own: f = sin-like, with known constants."""

    def values(self, theta, X, y=None):
        return 1 + np.sin(X @ theta)

    def gradients(self, theta, X, y=None):
        return np.cos(X @ theta)[:, None] * X

    def hessian_lipschitz(self, X, y=None):
        return np.linalg.norm(X, axis=1) ** 3


def test_values_alone_give_an_objective():
    points = dm.points(np.arange(6.0).reshape(3, 2))
    assert dm.trimmed_objective(points, np.zeros(2), loss=Quartic(), n_outliers=1) == 1 + 16 + 81


BALL, ONES = dm.Ball(np.zeros(2), 1.0), np.ones((3, 2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Quartic().gradients(np.zeros(2), ONES), r"Quartic has no gradients; define Quartic.gradients\("),
        (lambda: Quartic().gradient_sum(np.zeros(2), ONES), r"Quartic has no gradients; define Quartic.gradients\("),
        (lambda: Quartic().deviation(BALL, ONES), r"no lipschitz, smoothness or hessian_lipschitz; define"),
        (lambda: Bounded().deviation(BALL, ONES), "Bounded has no hessian_norms"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(call, message):
    with pytest.raises(dm.MissingPropertyError, match=message):
        call()


def largest_change(loss, ball, X, n):
    """Find the largest change of each loss over parameters drawn from a ball."""
    here = loss.values(ball.theta, X)
    return np.max(
        [np.abs(loss.values(t, X) - here) for t in ball.sample(n, np.random.default_rng(6))], axis=0
    )


def test_deviation_takes_the_best_kind_of_each_point():
    """Of three kinds the third is best in a small ball, the first in a large one."""

    class Three(Bounded):
        def lipschitz(self, X, y=None):
            return np.linalg.norm(X, axis=1)

        def smoothness(self, X, y=None):
            return np.linalg.norm(X, axis=1) ** 2

        def hessian_norms(self, theta, X, y=None):
            return np.abs(np.sin(X @ theta)) * np.linalg.norm(X, axis=1) ** 2

    X = np.random.default_rng(0).normal(size=(30, 3)) * np.geomspace(0.01, 10, 30)[:, None]
    theta = np.ones(3)
    norms, m = np.linalg.norm(X, axis=1), X @ theta
    for radius in (0.01, 0.3, 5.0):
        ball, reach, steep = dm.Ball(theta, radius), norms * radius, np.abs(np.cos(m))
        second = steep * reach + reach**2 / 2
        third = steep * reach + np.abs(np.sin(m)) * reach**2 / 2 + reach**3 / 6
        bound = Three().deviation(ball, X)
        np.testing.assert_allclose(bound, np.min([reach, second, third], axis=0))
        assert (largest_change(Three(), ball, X, 300) <= bound).all()


def test_a_custom_loss_on_sparse_rows():
    class Linear(dm.Loss):
        def values(self, theta, X, y=None):
            return np.abs(X @ theta)

        def gradients(self, theta, X, y=None):
            return X * np.sign(X @ theta)[:, None]

        def smoothness(self, X, y=None):
            return np.ones(X.shape[0])

    rows = sparse.random(200, 5, density=0.4, format="csr", random_state=0)
    theta, ball = np.arange(5.0), dm.Ball(np.arange(5.0), 0.5)
    for X in (rows, sparse.csr_array(rows)):
        np.testing.assert_allclose(
            Linear().gradient_sum(theta, sparse.csr_array(X)), Linear().gradient_sum(theta, rows.toarray())
        )
        np.testing.assert_allclose(Linear().deviation(ball, X), Linear().deviation(ball, rows.toarray()))


def test_custom_centres_are_measured_by_the_largest_move():
    class Sum(dm.Loss):
        """The sum of distances to two centres: its gradient has a part in each."""

        def values(self, theta, X, y=None):
            return sum(np.linalg.norm(X - centre, axis=1) for centre in theta)

        def lipschitz(self, X, y=None):
            return np.full(len(X), 2.0)

    X, ball = np.random.default_rng(5).normal(size=(20, 2)), dm.Ball(np.zeros((2, 2)), 0.3)
    found = largest_change(Sum(), ball, X, 2000)
    assert (found <= Sum().deviation(ball, X)).all()
    assert found.max() > 0.9 * 0.6


def test_a_potential_of_the_wrong_shape_is_named():
    message = r"potential must turn rows of shape \(\d+, 1\) into shape \(\d+,\); it returned \(\)"
    with pytest.raises(ValueError, match=message):
        dm.BregmanLoss(1, (lambda X: np.cosh(X).sum(), np.sinh)).values([[0.0]], [[0.0], [1.0]])
    with pytest.raises(ValueError, match=r"potential_gradient must turn"):
        dm.BregmanLoss(1, (lambda X: np.cosh(X).sum(axis=1), lambda X: 1.0)).values([[0.0]], [[0.0], [1.0]])


def test_rows_outside_the_domain_of_a_potential_are_named():
    loss = dm.BregmanLoss(1, [phi, gradient])
    with pytest.raises(ValueError, match=r"CustomDivergence .* row 1 has -1.0"):
        loss.values([[1.0]], [[2.0], [-1.0]])


def test_a_scalar_hessian_will_do():
    half = dm.CustomDivergence(lambda X: (X**2).sum(axis=1) / 2, lambda X: X, lambda c: 1.0)
    X, theta = np.random.default_rng(4).normal(size=(9, 2)), np.zeros((1, 2))
    np.testing.assert_allclose(dm.BregmanLoss(1, half).gradients(theta, X)[:, 0], -X)


def phi(X):
    return (X * np.log(X)).sum(axis=1)


def gradient(X):
    return np.log(X) + 1


def test_kl_written_by_a_user_is_kl():
    rng = np.random.default_rng(2)
    X, centres = np.exp(rng.normal(size=(100, 3))), np.exp(rng.normal(size=(4, 3)))
    ours = dm.BregmanLoss(4, "kl")
    pair = dm.BregmanLoss(4, divergence=(phi, gradient))
    np.testing.assert_allclose(pair.values(centres, X), ours.values(centres, X), rtol=1e-9)
    with pytest.raises(dm.MissingPropertyError, match="no hessian"):
        pair.gradients(centres, X)
    with pytest.raises(dm.MissingPropertyError, match="no curvature"):
        pair.deviation(dm.Ball(centres, 0.01), X)
    full = dm.CustomDivergence(phi, gradient, lambda c: np.diag(1 / c), lambda c, radius: 1 / (c - radius))
    more = dm.BregmanLoss(4, full)
    np.testing.assert_allclose(more.gradients(centres, X), ours.gradients(centres, X), rtol=1e-9, atol=1e-12)
    ball = dm.Ball(centres, 0.5 * centres.min())
    np.testing.assert_allclose(more.deviation(ball, X), ours.deviation(ball, X), rtol=1e-6)


def test_a_divergence_by_subclass():
    class Doubled(Divergence):
        name = "doubled"

        def phi(self, X):
            return 2 * (X**2).sum(axis=1)

        def gradient(self, X):
            return 4 * X

    X, centres = np.random.default_rng(3).normal(size=(50, 2)), np.zeros((1, 2))
    np.testing.assert_allclose(dm.BregmanLoss(1, Doubled()).values(centres, X), 2 * (X**2).sum(axis=1))


@pytest.mark.parametrize("bad", ["euclid", 3, (len,), None])
def test_an_unknown_divergence_is_refused(bad):
    message = r"divergence=.* is not known; choose one of \['squared', 'kl', 'itakura-saito'\]"
    with pytest.raises(ValueError, match=message):
        dm.BregmanLoss(2, divergence=bad)
