"""Bregman divergences d(x, c) = phi(x) - phi(c) - <grad phi(c), x - c>, phi strictly convex.

The data stand first and the centre second, as in Banerjee et al. (2005): then
the best centre of any set is its mean, whatever phi. The paper's constant 2L
(appendix A) is about the other argument; for the centre we bound the change
through the curvature of phi, which is sharper as well. With the three-point
identity

    d(x, c) = d(x, c0) + d(c0, c) + <x - c0, grad phi(c0) - grad phi(c)>

and h the largest second derivatives of phi within l of c0,

    |d(x, c) - d(x, c0)| <= l |h (x - c0)| + max(h) l^2 / 2    for |c - c0| <= l.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from duramen.losses.base import MissingPropertyError
from duramen.losses.special import itakura_saito, relative_entropy
from duramen.rows import Array, row_products

__all__ = ["CustomDivergence", "Divergence", "divergence_of"]


class Divergence(ABC):
    """A Bregman divergence: phi, its gradient, and what follows from them.

    Methods take arrays of rows and work row by row.
    """

    name: ClassVar[str]
    domain: ClassVar[str] = "any number"
    """Which numbers data and centres may hold, for messages."""
    smooth: ClassVar[float | None] = None
    """How smooth d(x, c) is in c, where that is bounded for all c."""

    @abstractmethod
    def phi(self, X: Array) -> Array:
        """Compute phi(x_i): (n,)."""

    @abstractmethod
    def gradient(self, X: Array) -> Array:
        """Compute the gradient of phi at x_i: (n, d)."""

    def between(self, X: Array, C: Array) -> Array:
        """Compute d(x_i, c_i): (n,). Override it where the definition loses digits."""
        return np.maximum(
            self.phi(X) - self.phi(C) - row_products(X - C, np.broadcast_to(self.gradient(C), X.shape)), 0
        )

    def rounding(self, X: Array, C: Array, costs: Array) -> Array:
        """Bound how far the computed d(x_i, c_i), given as ``costs``, is from the exact one: (n,).

        By the definition, from the size of the terms that it subtracts.
        """
        unit = (X.shape[1] + 8) * np.finfo(X.dtype).eps
        terms = np.abs(self.phi(X)) + np.abs(self.phi(C))
        return unit * (
            terms + row_products(np.abs(X - C), np.broadcast_to(np.abs(self.gradient(C)), X.shape))
        )

    def slope(self, X: Array, centre: Array) -> Array:
        """Compute the gradient of d(x_i, c) in one centre c, (n, d): phi's Hessian at c times c - x_i."""
        raise MissingPropertyError(f"{self.name} has no hessian; give one to use gradients")

    def curvature(self, centres: Array, radius: Array) -> Array:
        """Bound the second derivatives of phi within ``radius`` (k, d) of each centre: (k, d).

        Along each axis where phi is a sum over columns; otherwise the largest
        eigenvalue of its Hessian, repeated. Infinity where the ball leaves the
        domain.
        """
        raise MissingPropertyError(f"{self.name} has no curvature; give one to use deviation")

    def outside(self, X: Array) -> Array:
        """Tell which data entries lie outside the domain: a boolean (n, d)."""
        return np.zeros(X.shape, dtype=bool)

    def outside_centres(self, C: Array) -> Array:
        """Tell which centre entries lie outside the domain: a boolean (k, d)."""
        return self.outside(C)

    def inside(self, C: Array) -> Array:
        """Move centres on the edge of the domain just inside; a mean of data is never farther out."""
        return C


class _SumOfTerms(Divergence):
    """A divergence that is computed as a sum of non-negative terms, each right to a few units."""

    def rounding(self, X: Array, C: Array, costs: Array) -> Array:
        return (X.shape[1] + 64) * np.finfo(X.dtype).eps * costs


@dataclass(frozen=True)
class SquaredDivergence(_SumOfTerms):
    """phi = |x|^2: the squared Euclidean distance, as in k-means."""

    name: ClassVar[str] = "squared"
    smooth: ClassVar[float | None] = 2.0

    def phi(self, X: Array) -> Array:
        return row_products(X, X)

    def gradient(self, X: Array) -> Array:
        return 2 * X

    def between(self, X: Array, C: Array) -> Array:
        gap = X - C
        return row_products(gap, gap)

    def slope(self, X: Array, centre: Array) -> Array:
        return 2 * (centre - X)

    def curvature(self, centres: Array, radius: Array) -> Array:
        return np.full_like(centres, 2)


@dataclass(frozen=True)
class KLDivergence(_SumOfTerms):
    """phi = sum x log x: the generalised Kullback-Leibler divergence sum x log(x/c) - x + c.

    For counts and other non-negative data; a zero counts as 0 log 0 = 0.
    """

    name: ClassVar[str] = "kl"
    domain: ClassVar[str] = "0 or more in the data, more than 0 in the centres"

    def phi(self, X: Array) -> Array:
        return (X * np.log(np.where(X > 0, X, 1))).sum(axis=1)

    def gradient(self, X: Array) -> Array:
        return np.log(X) + 1

    def between(self, X: Array, C: Array) -> Array:
        return np.asarray(relative_entropy(X, C).sum(axis=1))

    def slope(self, X: Array, centre: Array) -> Array:
        return (centre - X) / centre

    def curvature(self, centres: Array, radius: Array) -> Array:
        with np.errstate(divide="ignore"):
            return 1 / np.maximum(centres - radius, 0)

    def outside(self, X: Array) -> Array:
        return X < 0

    def outside_centres(self, C: Array) -> Array:
        return C <= 0

    def inside(self, C: Array) -> Array:
        # next to nothing, for which a zero in the data costs next to nothing
        return np.where(C > 0, C, np.finfo(np.float32).tiny ** 0.5)  # a number of either type


@dataclass(frozen=True)
class ItakuraSaitoDivergence(_SumOfTerms):
    """phi = -sum log x: the Itakura-Saito divergence sum x/c - log(x/c) - 1, for spectra."""

    name: ClassVar[str] = "itakura-saito"
    domain: ClassVar[str] = "more than 0"

    def phi(self, X: Array) -> Array:
        return -np.log(X).sum(axis=1)

    def gradient(self, X: Array) -> Array:
        return -1 / X

    def between(self, X: Array, C: Array) -> Array:
        return np.asarray(itakura_saito(X, C).sum(axis=1))

    def slope(self, X: Array, centre: Array) -> Array:
        return (centre - X) / centre / centre

    def curvature(self, centres: Array, radius: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return 1 / np.maximum(centres - radius, 0) ** 2

    def outside(self, X: Array) -> Array:
        return X <= 0


@dataclass(frozen=True)
class CustomDivergence(Divergence):
    """The divergence of a phi of your own.

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

    name: ClassVar[str] = "CustomDivergence"
    domain: ClassVar[str] = "numbers where its potential is one"

    potential: Callable[[Array], Array]
    potential_gradient: Callable[[Array], Array]
    hessian: Callable[[Array], Array] | None = None
    curvature_bound: Callable[[Array, float], Any] | None = None

    def phi(self, X: Array) -> Array:
        return _shaped(self.potential(X), X, X.shape[:1], "potential")

    def gradient(self, X: Array) -> Array:
        return _shaped(self.potential_gradient(X), X, X.shape, "potential_gradient")

    def slope(self, X: Array, centre: Array) -> Array:
        if self.hessian is None:
            return super().slope(X, centre)
        bent = np.asarray(self.hessian(centre), dtype=X.dtype)
        gap = centre - X
        return gap @ bent if bent.ndim == 2 else gap * bent

    def curvature(self, centres: Array, radius: Array) -> Array:
        if self.curvature_bound is None:
            return super().curvature(centres, radius)
        bounds = [
            np.broadcast_to(self.curvature_bound(centre, float(reach.max())), centre.shape)
            for centre, reach in zip(centres, radius, strict=True)
        ]
        return np.stack(bounds).astype(centres.dtype)

    def outside(self, X: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            undefined = np.isnan(self.phi(X)) & np.isfinite(X).all(axis=1)
        return np.broadcast_to(undefined[:, None], X.shape)


def _shaped(result: Any, X: Array, shape: tuple[int, ...], name: str) -> Array:
    array = np.asarray(result, dtype=X.dtype)
    if array.shape != shape:
        raise ValueError(
            f"{name} must turn rows of shape {X.shape} into shape {shape}; it gave {array.shape}"
        )
    return array


_NAMED: dict[str, Divergence] = {
    known.name: known for known in (SquaredDivergence(), KLDivergence(), ItakuraSaitoDivergence())
}


def divergence_of(given: Any) -> Divergence:
    """Turn a name, a Divergence, or a pair (phi, gradient) into a Divergence.

    Examples
    --------
    >>> divergence_of("kl").name
    'kl'
    """
    if isinstance(given, Divergence):
        return given
    if isinstance(given, str) and given in _NAMED:
        return _NAMED[given]
    if isinstance(given, (tuple, list)) and len(given) == 2 and all(callable(part) for part in given):
        return CustomDivergence(*given)
    names = ", ".join(repr(name) for name in _NAMED)
    raise ValueError(
        f"divergence={given!r} is not known; take one of {names}, a pair (phi, gradient), or a Divergence"
    )
