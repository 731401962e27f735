"""What a contaminated fit says about the data: shares of noise with error bars, and margins of held-out rows.

Fitted margins, the predictors of the base loss, are too large where rows are few for their parameters, or
where those that contradict were set aside. So one slope for all margins, a shift and the shares of noise are
learned once more, from margins of rows that were held out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import pinvh
from scipy.optimize import minimize
from scipy.special import expit

from duramen.arrays import Array, dense_block
from duramen.coreset.coreset import Coreset, Estimate
from duramen.losses import ContaminatedLoss
from duramen.losses.base import ignore_overflow
from duramen.losses.linear import linear_predictors
from duramen.points import WeightedPoints
from duramen.samplers.base import uniforms
from duramen.solvers.solve import solve_quietly

_FOLDS = 5
_SEED = 0x1E6C63D0676A9A99
_STEP = 1e-4  # between gradients, for second derivatives


class Contamination(NamedTuple):
    """Learned shares of noise: the mean of the probabilities that the model does not explain a row's label.

    That is not the share of wrong labels. Where a linear model does not fit, its misfits count too, near the
    middle above all; far out, rows count if they do not follow the model of the others, for whatever reason.
    Each entry of ``near``, ``far`` and ``by_class`` is an :class:`Estimate`. The error bars are for the
    shares as parameters of this model; they do not cover its choice.

    Attributes
    ----------
    value, std_error, low, high : float
        The share of noise in all rows, by weight; its standard error and 95% interval.
    near : Estimate
        In the inner three quarters of the rows, by a robust distance.
    far : Estimate
        In the rows farther out.
    by_class : dict
        For each class, the share of the rows with this label that have it by noise.
    """

    value: float
    std_error: float
    low: float
    high: float
    near: Estimate
    far: Estimate
    by_class: dict[Any, Estimate]

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        parts = {"": self[:2], "near ": self.near[:2], "far ": self.far[:2]}
        parts |= {f"of {name!r} ": share[:2] for name, share in self.by_class.items()}
        return "Contamination: " + ", ".join(
            f"{name}{value:.2%} +- {error:.2%}" for name, (value, error) in parts.items()
        )


class Margins(NamedTuple):
    """Margins of rows under the base of a loss, how far out they lie, and their labels and weights.

    Parameters to learn from them are a slope, which all margins are multiplied by, a shift for each predictor
    of the base if there is an intercept, and the noise (a_j, b_j) of each class.
    """

    loss: ContaminatedLoss
    margins: Array  # (n, k)
    t: Array
    labels: Array
    weights: Array
    core: Coreset | None

    @classmethod
    def of(cls, solution: Any, points: WeightedPoints, core: Coreset | None) -> Margins:
        """Compute the margins of the rows that a solution was fitted to: all, or those of a coreset."""
        loss = solution.loss
        labels = loss.base.encode_labels(points.y, np.float64)
        margins = _margins(loss, solution.theta, points.X)
        return cls(loss, margins, loss.far(points.X), labels, points.weights, core)

    def unchanged(self, theta: Array, n_columns: int) -> Array:
        """Return the parameters that leave those of a solution as they are."""
        shifts = np.zeros(self.margins.shape[1] if self.loss.fit_intercept else 0)
        return np.concatenate([[1.0], shifts, self.loss.split(theta, n_columns)[1].ravel()])

    def changed(self, parameters: Array, theta: Array, n_columns: int) -> Array:
        """Return theta with margins and noise as these parameters say."""
        slope, shifts, noise = self._split(parameters)
        base = slope * self.loss.split(theta, n_columns)[0]
        if len(shifts):
            base[..., -1] += shifts if base.ndim > 1 else shifts[0]
        return self.loss.join(base, noise)

    def learn(self, start: Array) -> Array:
        """Learn the parameters by likelihood; the slope may only fall."""
        total = self.weights.sum()
        limits = [(0.0, 1.0)] + [(None, None)] * (len(start) - 1)

        def objective(parameters: Array) -> tuple[float, Array]:
            value, gradient = self._likelihood(parameters)
            return value / total, gradient / total

        options = {"ftol": 0.0, "gtol": 1e-12, "maxiter": 1000}
        return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=options).x

    def contamination(self, parameters: Array, sums: Array, classes: list[Any]) -> Contamination:
        """Estimate shares of noise, with standard errors from a sandwich, for given directions of margins.

        A row of weight w counts as w rows, and the random choice of a coreset counts too.
        ``sums`` are those of all rows, as :class:`TrimmedPass` has them.
        """
        far, k = (self.t > 0).astype(np.intp), self.loss.n_classes
        with ignore_overflow():
            blame, change = self._blame(parameters)
            toward = self._scores(parameters) @ self._inverse_hessian(parameters)

        def estimate(classes: Any = slice(None), distance: Any = slice(None)) -> Estimate:
            weight, noisy = sums[:, classes, distance].sum(axis=(1, 2))
            mine = np.zeros((k, 2))
            mine[classes, distance] = 1.0
            mine = mine[self._codes, far]
            if not self.weights @ mine:
                return Estimate.of(0.0, 0.0)
            share = noisy / weight
            moved = mine * (blame - share) - toward @ ((self.weights * mine) @ change)
            chosen = 0.0 if self.core is None else self.core.error_of(moved)
            error = np.hypot(np.sqrt(self.weights @ moved**2), chosen)
            return Estimate.of(float(share), float(error / (self.weights @ mine)))

        near, far_out = (estimate(distance=slice(one, one + 1)) for one in (0, 1))
        parts = {name: estimate(slice(one, one + 1)) for one, name in enumerate(classes)}
        return Contamination(*estimate(), near, far_out, parts)

    @property
    def _codes(self) -> Array:
        return (self.labels > 0).astype(np.intp) if self.loss.classifies else self.labels.astype(np.intp)

    def _split(self, parameters: Array) -> tuple[float, Array, Array]:
        k = self.loss.n_classes
        return parameters[0], parameters[1 : -2 * k], parameters[-2 * k :].reshape(k, 2)

    def _predictors(self, parameters: Array) -> Array:
        slope, shifts, noise = self._split(parameters)
        return self.loss.mix(slope * self.margins + (shifts if len(shifts) else 0.0), noise, self.t)

    def _scores(self, parameters: Array) -> Array:
        """Compute the derivative of each row's loss: (n, number of parameters)."""
        return self._along(parameters, self.loss.slope(self._predictors(parameters), self.labels)[:, :-1])

    def _along(self, parameters: Array, slopes: Array) -> Array:
        """Turn derivatives in the predictors into those in the parameters."""
        noise, k = self._split(parameters)[2], self.loss.n_classes
        base, pulls = slopes[:, :-k], slopes[:, -k:]
        shifts = base if self.loss.fit_intercept else base[:, :0]
        both = np.stack([pulls, pulls * self.t[:, None] * expit(noise[:, 1])], axis=2).reshape(len(base), -1)
        return np.column_stack([(base * self.margins).sum(axis=1), shifts, both])

    def _likelihood(self, parameters: Array) -> tuple[float, Array]:
        prior = self.loss.ridge(0.0, 1).ravel()[-1] * np.append(
            np.zeros(len(parameters) - 2 * self.loss.n_classes), self._split(parameters)[2]
        )
        with ignore_overflow():
            value = self.weights @ self.loss.pointwise(self._predictors(parameters), self.labels)
            gradient = self.weights @ self._scores(parameters)
        return float(value + prior @ parameters / 2), gradient + prior

    def _inverse_hessian(self, parameters: Array) -> Array:
        steps = _STEP * np.eye(len(parameters))
        hessian = [
            self._likelihood(parameters + step)[1] - self._likelihood(parameters - step)[1] for step in steps
        ]
        return pinvh(np.array(hessian) / (2 * _STEP))

    def _blame(self, parameters: Array) -> tuple[Array, Array]:
        """Compute the probability of noise of each row, and its derivative."""
        predictors = self._predictors(parameters)
        base = predictors[:, 0] if self.loss.classifies else predictors[:, : self.loss.n_classes]
        slopes = np.column_stack(
            [self.loss.base.slope(base, self.labels), np.eye(self.loss.n_classes)[self._codes]]
        )
        blame = self.loss.pointwise_blame(predictors, self.labels)
        return blame, (blame * (1 - blame))[:, None] * self._along(parameters, slopes)


def _margins(loss: Any, theta: Array, X: Any) -> Array:
    base = loss.base or loss
    theta = theta[..., : X.shape[1] + loss.fit_intercept]
    return base._predictors(theta, X).reshape(X.shape[0], -1)


def held_out_margins(solution: Any, points: WeightedPoints, l2: float) -> Array:
    """Compute the margins of rows under fits without them, about a fifth at a time."""
    folds = _folds(points, solution.loss.classes_of(points.y))
    margins, z = _margins(solution.loss, solution.theta, points.X), solution.n_outliers
    for fold in np.unique(folds[folds < _FOLDS]):
        rest, part = points.take(folds != fold), folds == fold
        aside = z * rest.total_weight / points.total_weight
        found = solve_quietly(rest, solution.loss, aside, l2=l2, init=solution.theta)
        margins[part] = _margins(solution.loss, found.theta, points.take(part).X)
    return margins


def _folds(points: WeightedPoints, classes: Array) -> Array:
    """Spread rows over folds by what they hold, so that copies of a row are held out together."""
    block = dense_block(points.X, slice(0, len(points)))
    along = np.random.default_rng(_SEED).normal(size=points.n_columns).astype(block.dtype)
    keys = linear_predictors(block, along).astype(np.float64).view(np.int64) + classes
    folds = (_FOLDS * uniforms(_SEED, keys)).astype(np.intp)
    for one in np.unique(classes):
        mine = classes == one
        if np.ptp(folds[mine]) == 0:  # no fit may lack a class
            folds[mine] = _FOLDS
    return folds
