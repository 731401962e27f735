"""What a model says of rows: a class, a value, or a cluster, each with how sure or how far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.losses import (
    BregmanLoss,
    LogisticLoss,
    PoissonLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
)
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss

if TYPE_CHECKING:
    from duramen.arrays import Array, Rows
    from duramen.cli.model import Model

__all__ = ["predictions"]


def predictions(model: Model, X: Rows) -> dict[str, Array]:
    """Predict: columns by their names.

    Of classes ``class``, and ``probability=NAME`` for each of them (of the hinge
    loss, which knows no probabilities, ``score``: above 0 for the second
    class); of regressions ``value``; of centres ``cluster`` and ``distance``
    (of bregman, the divergence).
    """
    loss = model.loss
    if isinstance(loss, (LogisticLoss, SmoothHingeLoss, SoftmaxLoss)):
        return _classes(model, X)
    if isinstance(loss, LinearLoss):
        m = _linear(model.theta, X, loss.fit_intercept)
        return {"value": np.exp(m) if isinstance(loss, PoissonLoss) else m}
    return _clusters(model, X)


def _classes(model: Model, X: Rows) -> dict[str, Array]:
    loss: Any = model.loss
    names = np.array(model.classes, dtype=object)
    m = _linear(model.theta, X, loss.fit_intercept)
    if isinstance(loss, SoftmaxLoss):
        shares = np.exp(m - m.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        number = m.argmax(axis=1)
    else:
        number = (m > 0).astype(np.intp)
        if isinstance(loss, SmoothHingeLoss):
            return {"class": names[number], "score": m}
        from scipy.special import expit

        shares = np.stack([expit(-m), expit(m)], axis=1)
    from duramen.io.encoding import spelled

    found = {f"probability={spelled(name)}": shares[:, place] for place, name in enumerate(names)}
    return {"class": names[number], **found}


def _clusters(model: Model, X: Rows) -> dict[str, Array]:
    loss, X = model.loss, np.asarray(X, dtype=np.float64)
    if isinstance(loss, BregmanLoss):
        values, number = loss.values_and_cache(model.theta, X)
        return {"cluster": number, "distance": values}
    assert isinstance(loss, DistanceLoss)
    squared, number = loss.assign(model.theta, X)
    return {"cluster": number, "distance": np.sqrt(squared)}


def _linear(theta: Array, X: Rows, intercept: bool) -> Array:
    """Compute the predictors in float64: (n,), or (n, classes)."""
    rows = np.asarray(X, dtype=np.float64)
    return rows @ theta[..., :-1].T + theta[..., -1] if intercept else rows @ theta.T
