"""Errors for wrong arguments of losses."""

import numpy as np
import pytest

import duramen as dm

X = np.arange(6.0).reshape(3, 2)
THETA = np.zeros(3)


@pytest.mark.parametrize("loss", [dm.LogisticLoss(), dm.SmoothHingeLoss()], ids=repr)
@pytest.mark.parametrize(
    "y, error, message",
    [
        ([1, 2, 0], ValueError, r"takes labels -1 and \+1, or 0 and 1; row 1 has 2"),
        ([1, 0, -1], ValueError, r"but not both; row 1 has 0 and row 2 has -1"),
        ([0.5, 0, 1], ValueError, r"row 0 has 0.5"),
        (["yes", "no", "no"], TypeError, r"y holds 'yes' .* in row 0; encode it as numbers first"),
    ],
)
def test_labels_of_the_wrong_kind(loss, y, error, message):
    with pytest.raises(error, match=message):
        loss.values(THETA, X, y)


@pytest.mark.parametrize(
    "loss", [dm.LogisticLoss(), dm.SquaredLoss(), dm.HuberLoss(1.0), dm.PoissonLoss()], ids=repr
)
@pytest.mark.parametrize(
    "y, message",
    [
        (None, "needs labels; pass y, one label per row"),
        ([0, 1], "y has 2 values for 3 rows"),
        ([0, np.nan, 1], "y has NaN in row 1"),
    ],
)
def test_labels_are_needed(loss, y, message):
    with pytest.raises(ValueError, match=message):
        loss.values(THETA, X, y)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "3", None])
@pytest.mark.parametrize("family", [dm.KMeansLoss, dm.KMedianLoss, dm.BregmanLoss])
def test_a_wrong_number_of_centres_is_refused(family, k):
    with pytest.raises(ValueError, match="must be a whole number, 1 or more"):
        family(k)


@pytest.mark.parametrize("delta", [0, -1.0, np.inf, np.nan, "1"])
def test_a_wrong_delta_is_refused(delta):
    with pytest.raises(ValueError, match="must be a positive finite number"):
        dm.HuberLoss(delta)


@pytest.mark.parametrize("quantile", [0, 1.0, -0.5, np.nan, "0.9", True])
def test_a_wrong_quantile_is_refused(quantile):
    with pytest.raises(ValueError, match="must be a number above 0 and below 1"):
        dm.QuantileLoss(quantile)


@pytest.mark.parametrize(
    "loss, theta, y, message",
    [
        (dm.PoissonLoss(), THETA, [0, 1, -3], "labels of 0 or more, such as counts; row 2 has -3"),
        (dm.KMeansLoss(4), np.zeros((3, 2)), None, r"shape \(3, 2\); KMeansLoss\(k=4\) on 2 columns needs shape \(4, 2\)"),
        (dm.LogisticLoss(), np.zeros(2), [0, 1, 1], r"LogisticLoss\(fit_intercept=True\) on 2 columns needs shape \(3,\)"),
        (dm.KMeansLoss(2), [[1, 2], [3]], None, r"theta=\[\[1, 2\], \[3\]\] must be an array of numbers"),
    ],
)  # fmt: skip
def test_wrong_labels_and_shapes_are_named(loss, theta, y, message):
    with pytest.raises(ValueError, match=message):
        loss.values(theta, X, y)


def test_a_class_in_place_of_a_loss():
    with pytest.raises(TypeError, match=r"loss must be a Loss.*found the class KMeansLoss; call it"):
        dm.trimmed_objective(dm.points(X), np.zeros((1, 2)), loss=dm.KMeansLoss)
    with pytest.raises(TypeError, match=r"loss must be a Loss.*found 'logistic'"):
        dm.trimmed_objective(dm.points(X), np.zeros(3), loss="logistic")


def test_losses_are_values():
    assert dm.HuberLoss(2.0) == dm.HuberLoss(2.0, fit_intercept=True) != dm.HuberLoss(1.0)
    assert repr(dm.KMeansLoss(3)) == "KMeansLoss(k=3)"
    assert repr(dm.HuberLoss(0.5)) == "HuberLoss(fit_intercept=True, delta=0.5)"
    with pytest.raises(AttributeError):
        dm.KMeansLoss(3).k = 4


def test_fit_intercept_is_yes_or_no():
    with pytest.raises(TypeError, match="fit_intercept=2 must be True or False"):
        dm.LogisticLoss(fit_intercept=2)
    with pytest.raises(TypeError, match="fit_intercept"):
        dm.HuberLoss(1.0, fit_intercept=None)
