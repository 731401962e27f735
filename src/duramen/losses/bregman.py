"""Clustering with a Bregman divergence in place of the squared distance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import xlogy

from duramen.arrays import Array, Rows, row_products
from duramen.losses.base import (
    Ball,
    Explanation,
    MissingPropertyError,
    ignore_overflow,
    require_finite,
)
from duramen.losses.centres import KCentresLoss, least_among, over_blocks
from duramen.losses.linear import entropy_of_log


class Divergence(ABC):
    """A Bregman divergence: phi, its gradient, and what follows from them.

    Methods take arrays of rows and work row by row.
    """

    name: ClassVar[str]
    domain: ClassVar[str] = "any number"
    """The numbers that data and centres may hold, for error messages."""
    smooth: ClassVar[float | None] = None
    """The smoothness of d(x, c) in c, if it is bounded for all c."""

    @abstractmethod
    def phi(self, X: Array) -> Array:
        """Compute phi(x_i): (n,)."""

    @abstractmethod
    def gradient(self, X: Array) -> Array:
        """Compute the gradient of phi at x_i: (n, d)."""

    def between(self, X: Array, C: Array) -> Array:
        """Compute d(x_i, c_i): (n,). Override it if the definition loses digits."""
        return np.maximum(self.phi(X) - self.phi(C) - row_products(X - C, self.gradient(C)), 0)

    def rounding(self, X: Array, C: Array, costs: Array) -> Array:
        """Bound the rounding error of the computed d(x_i, c_i), ``costs``: (n,)."""
        terms = row_products(np.abs(X - C), np.abs(self.gradient(C)))
        return (X.shape[1] + 8) * np.finfo(X.dtype).eps * (np.abs(self.phi(X)) + np.abs(self.phi(C)) + terms)

    def slope(self, X: Array, centre: Array) -> Array:
        """Compute the gradient of d(x_i, c) in one centre c, (n, d): phi's Hessian at c times c - x_i."""
        raise MissingPropertyError(f"{self.name} has no hessian; pass hessian= to use gradients")

    def curvature(self, centres: Array, radius: Array) -> Array:
        """Bound the second derivatives of phi within ``radius`` (k, d) of each centre: (k, d).

        Infinite where the ball leaves the domain; the largest eigenvalue, if phi is no sum over columns.
        """
        raise MissingPropertyError(f"{self.name} has no curvature; pass curvature_bound= to use deviation")

    def outside(self, X: Array) -> Array:
        """Return a mask (n, d) of the data entries outside the domain, where costs are not finite."""
        return np.zeros(X.shape, dtype=bool)

    def outside_centres(self, C: Array) -> Array:
        """Return a mask (k, d) of the centre entries outside the domain."""
        return self.outside(C)

    def inside(self, C: Array) -> Array:
        """Move centres on the edge of the domain just inside; a mean of data is never farther out."""
        return C


@dataclass(frozen=True)
class ColumnDivergence(Divergence):
    """A sum over columns of non-negative terms, each accurate to a few units."""

    @abstractmethod
    def terms(self, X: Array, C: Array) -> Array:
        """Compute what each column adds to d(x_i, c_i): (n, d)."""

    @abstractmethod
    def second(self, C: Array) -> Array:
        """Compute the second derivatives of phi, which must not grow away from zero: (k, d)."""

    def between(self, X: Array, C: Array) -> Array:
        return self.terms(X, C).sum(axis=1)

    def rounding(self, X: Array, C: Array, costs: Array) -> Array:
        return (X.shape[1] + 64) * np.finfo(X.dtype).eps * costs

    def slope(self, X: Array, centre: Array) -> Array:
        return (centre - X) * self.second(centre)

    def curvature(self, centres: Array, radius: Array) -> Array:
        return self.second(np.maximum(centres - radius, 0))


class SquaredDivergence(ColumnDivergence):
    """phi = |x|^2: the squared Euclidean distance, as in k-means."""

    name = "squared"
    smooth = 2.0

    def phi(self, X: Array) -> Array:
        return row_products(X, X)

    def gradient(self, X: Array) -> Array:
        return 2 * X

    def second(self, C: Array) -> Array:
        return np.full_like(C, 2)

    def terms(self, X: Array, C: Array) -> Array:
        return np.square(X - C)

    def between(self, X: Array, C: Array) -> Array:
        gap = X - C
        return row_products(gap, gap)


class KLDivergence(ColumnDivergence):
    """phi = sum x log x: the generalised Kullback-Leibler divergence sum x log(x/c) - x + c.

    For counts and other non-negative data; a zero counts as 0 log 0 = 0.
    """

    name = "kl"
    domain = "0 or more in the data, more than 0 in the centres"

    def phi(self, X: Array) -> Array:
        return xlogy(X, X).sum(axis=1)

    def gradient(self, X: Array) -> Array:
        return np.log(X) + 1

    def second(self, C: Array) -> Array:
        return 1 / C

    def terms(self, X: Array, C: Array) -> Array:
        return entropy_of_log(X, C, -_log_ratio(np.where(X == 0, np.finfo(X.dtype).tiny, X), C))

    def outside(self, X: Array) -> Array:
        return X < 0

    def outside_centres(self, C: Array) -> Array:
        return C <= 0

    def inside(self, C: Array) -> Array:
        # so small that a zero in the data costs next to nothing
        return np.where(C > 0, C, np.finfo(np.float32).tiny ** 0.5)  # in the range of either float type


class ItakuraSaitoDivergence(ColumnDivergence):
    """phi = -sum log x: the Itakura-Saito divergence sum x/c - log(x/c) - 1, for spectra."""

    name = "itakura-saito"
    domain = "more than 0"

    def phi(self, X: Array) -> Array:
        return -np.log(X).sum(axis=1)

    def gradient(self, X: Array) -> Array:
        return -1 / X

    def second(self, C: Array) -> Array:
        return 1 / np.square(C)

    def slope(self, X: Array, centre: Array) -> Array:
        return (centre - X) / centre / centre  # where the square would vanish, too

    def terms(self, X: Array, C: Array) -> Array:
        v = _log_ratio(X, C)
        with ignore_overflow():
            return entropy_of_log(np.ones_like(v), X / C, v)  # exp v - 1 - v

    def outside(self, X: Array) -> Array:
        return X <= 0


@dataclass(frozen=True)
class CustomDivergence(Divergence):
    """The divergence of a custom phi.

    Parameters
    ----------
    potential : callable
        phi: from rows (n, d) to (n,); strictly convex.
    potential_gradient : callable
        The gradient of phi: from rows (n, d) to (n, d).
    hessian : callable, optional
        From one centre (d,) to the Hessian of phi, (d, d), or to its diagonal,
        (d,). Needed for gradients.
    curvature_bound : callable, optional
        From one centre (d,) and a radius to a bound on the second derivatives
        of phi within that radius: one number for its largest eigenvalue, or
        (d,) where phi is a sum over columns. Needed for the deviation in a ball.

    Examples
    --------
    >>> import duramen as dm
    >>> cosh = dm.CustomDivergence(lambda X: np.cosh(X).sum(axis=1), np.sinh, hessian=np.cosh)
    >>> dm.BregmanLoss(1, divergence=cosh).values([[0.0]], [[0.0], [1.0]])
    array([0.        , 0.54308063])
    """

    name = "CustomDivergence"
    domain = "numbers where its potential is defined"

    potential: Callable[[Array], Array]
    potential_gradient: Callable[[Array], Array]
    hessian: Callable[[Array], Array] | None = None
    curvature_bound: Callable[[Array, float], Any] | None = None

    def phi(self, X: Array) -> Array:
        return _check_shape(self.potential(X), X, X.shape[:1], "potential")

    def gradient(self, X: Array) -> Array:
        return _check_shape(self.potential_gradient(X), X, X.shape, "potential_gradient")

    def slope(self, X: Array, centre: Array) -> Array:
        if self.hessian is None:
            return super().slope(X, centre)
        hessian = np.asarray(self.hessian(centre), dtype=X.dtype)
        gap = centre - X
        return gap @ hessian if hessian.ndim == 2 else gap * hessian

    def curvature(self, centres: Array, radius: Array) -> Array:
        if self.curvature_bound is None:
            return super().curvature(centres, radius)
        bounds = [
            np.broadcast_to(self.curvature_bound(centre, float(reach.max())), centre.shape)
            for centre, reach in zip(centres, radius, strict=True)
        ]
        return np.stack(bounds).astype(centres.dtype)

    def outside(self, X: Array) -> Array:
        with ignore_overflow():
            undefined = np.isnan(self.phi(X)) & np.isfinite(X).all(axis=1)
        return np.broadcast_to(undefined[:, None], X.shape)


def _check_shape(result: Any, X: Array, shape: tuple[int, ...], name: str) -> Array:
    array = np.asarray(result, dtype=X.dtype)
    if array.shape != shape:
        raise ValueError(
            f"{name} must turn rows of shape {X.shape} into shape {shape}; it returned {array.shape}"
        )
    return array


_NAMED: dict[str, Divergence] = {
    known.name: known for known in (SquaredDivergence(), KLDivergence(), ItakuraSaitoDivergence())
}


def divergence_of(given: Any) -> Divergence:
    """Return the Divergence for a name, a Divergence, or a pair (phi, gradient)."""
    match given:
        case Divergence():
            return given
        case str() if given in _NAMED:
            return _NAMED[given]
        case [potential, gradient] if callable(potential) and callable(gradient):
            return CustomDivergence(potential, gradient)
    raise ValueError(
        f"divergence={given!r} is not known; choose one of {[*_NAMED]}, a pair (phi, gradient), or a "
        "Divergence"
    )


@dataclass(frozen=True)
class BregmanLoss(KCentresLoss):
    """Bregman clustering: the smallest divergence d(x, c_j) to k centres.

    theta is (k, d). The best centre of a cluster is its mean, for every
    divergence. There are no global constants (except for one centre and the
    squared divergence: smooth, 2); inside a ball the deviation is bounded
    through the curvature of phi, and infinite where the ball leaves its domain
    around every centre.

    Parameters
    ----------
    k : int
        The number of centres.
    divergence : {"kl", "itakura-saito", "squared"}, pair (phi, gradient), or Divergence
        "kl" is the generalised Kullback-Leibler divergence, for data of 0 or
        more; "itakura-saito" takes data above 0. A custom one is given by phi and
        its gradient, both from rows (n, d); see :class:`duramen.CustomDivergence`.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.BregmanLoss(1, divergence="kl").values([[1.0, 1.0]], [[1.0, 1.0], [0.0, 2.0]])
    array([0.        , 1.38629436])
    """

    divergence: Any = "kl"
    convex = never_refuses = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "divergence", divergence_of(self.divergence))

    def check_solvable(self, X: Rows, y: Any, weights: Array, z: float) -> None:
        super().check_solvable(X, y, weights, z)
        self._refuse_outside(self.divergence.outside(X), X, "row")

    def inside(self, centres: Array) -> Array:
        return self.divergence.inside(centres)

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation | None:
        if not isinstance(self.divergence, ColumnDivergence):
            return None
        nearest = theta[self.nearest(theta, X)]
        return Explanation("divergence", nearest, self.divergence.terms(X, nearest), np.zeros(len(X)))

    def costs(self, block: Array, centres: Array) -> Array:
        return np.stack([self.divergence.between(block, centre[None]) for centre in centres])

    def pulls(self, block: Array, centres: Array, numbers: Array) -> Array:
        pulls = np.empty(block.shape)
        for number, centre in enumerate(centres):
            members = np.flatnonzero(numbers == number)
            pulls[members] = self.divergence.slope(block[members], centre)
        return pulls

    @property
    def max_curvature(self) -> float | None:  # type: ignore[override]
        """That of the divergence, for one centre."""
        return self.divergence.smooth if self.k == 1 else None

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        centres = self._centres(ball.theta, rows)
        # a centre moves by the radius, and by rounding: each coordinate by a few units of its size
        with ignore_overflow():
            radius = np.float64(ball.radius)
            rounding = 8 * np.finfo(rows.dtype).eps * (np.abs(centres) + radius).astype(rows.dtype)
            curvature = self.divergence.curvature(centres, (rounding + radius).astype(rows.dtype))

        def kernel(block: Array) -> list[Array]:
            costs = self.costs(block, centres)
            parts = zip(costs, centres, curvature, rounding, strict=True)
            moves = np.stack([self._move(block, *part, radius) for part in parts])
            here, highest = costs.min(axis=0), (costs + moves).min(axis=0)
            lowest = np.maximum(costs - moves, 0).min(axis=0)
            return [np.fmin(np.maximum(highest - here, here - lowest), np.inf)]

        (change,) = over_blocks(rows, kernel, scratch=6 * rows.shape[1] + 4 * len(centres))
        return self._checked(change, rows)

    def _move(self, block: Array, cost: Array, centre: Array, h: Array, u: Array, radius: Any) -> Array:
        """Bound the change of each row's divergence, now ``cost``, from a centre.

        The centre moves by a step of length ``radius`` and by one of ``u`` along each axis; ``h`` bounds the
        second derivatives of phi on the way. There is no bound where the ball leaves the domain.
        """
        pull = h * np.abs(block - centre)
        first = radius * np.sqrt(row_products(pull, pull)) + row_products(pull, u)
        second = (np.sqrt(h.max()) * radius + np.sqrt(h @ (u * u))) ** 2 / 2
        slack = (block.shape[1] + 16) * np.finfo(block.dtype).eps
        move = (first + second).astype(block.dtype) * block.dtype.type(1 + slack)
        move += 4 * self.divergence.rounding(block, centre[None], cost + move)
        return np.fmin(move, np.inf)

    def _centres(self, theta: Any, rows: Array) -> Array:
        centres = self._parameters(theta, rows)
        self._refuse_outside(self.divergence.outside_centres(centres), centres, "centre")
        return centres

    def _checked(self, values: Array, rows: Array) -> Array:
        """Return values; raise ValueError if they are not finite because of what a row holds."""
        if not np.isfinite(require_finite(values, rows)).all():
            self._refuse_outside(self.divergence.outside(rows), rows, "row")
        return values

    def _refuse_outside(self, outside: Array, values: Array, name: str) -> None:
        if outside.any():
            number, column = np.argwhere(outside)[0]
            raise ValueError(
                f"the {self.divergence.name} divergence takes {self.divergence.domain}; "
                f"{name} {number} has {values[number, column]} in column {column}"
            )

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        # one matrix product screens; then the divergence itself is computed for what is left
        rows = self._rows(X)
        centres = self._centres(theta, rows)
        slopes = -self.divergence.gradient(centres)
        offsets = -row_products(slopes, centres) - self.divergence.phi(centres)

        def kernel(block: Array) -> list[Array]:
            scores = slopes @ block.T
            scores += offsets[:, None]
            # separately for each pair: one far centre must not blur the others
            sizes = np.abs(slopes) @ np.abs(block).T
            sizes += np.abs(offsets)[:, None] + np.abs(self.divergence.phi(block))
            return least_among(block, centres, scores, sizes, 0.0, self.divergence.between)

        least, numbers = over_blocks(rows, kernel, scratch=8 * rows.shape[1] + 8 * self.k)
        return self._checked(least, rows), numbers


def _log_ratio(x: Array, c: Array) -> Array:
    """Compute log(x / c), also where the quotient would overflow or vanish, and where it is near 0."""
    with ignore_overflow():
        ratio, change = x / c, (x - c) / c
        logs, near = np.log(ratio), np.abs(change) < 0.5
        logs[near] = np.log1p(change[near])
        lost = ~((ratio > np.finfo(ratio.dtype).tiny) & np.isfinite(ratio))
        if lost.any():
            logs = np.where(lost, np.log(x) - np.log(c), logs)
    return logs
