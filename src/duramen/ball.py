"""The bounded region in which theta stays: the paper's B(theta-tilde, l).

Parameters are a flat vector, or a (k, d) array of k centres. The distance between two
vectors is Euclidean; between two sets of centres, it is the largest distance between
centres of the same index (paper, appendix A), so a ball around centres is a
product of k Euclidean balls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array: TypeAlias = NDArray[Any]


def lengths(vectors: Array) -> Array:
    """Compute Euclidean lengths along the last axis, also where the squares would overflow.

    Examples
    --------
    >>> lengths(np.array([[3e200, 4e200], [0.0, 0.0]]))
    array([5.e+200, 0.e+000])
    """
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    return np.linalg.norm(vectors / scale, axis=-1) * scale[..., 0]


def distance(theta: Any, other: Any) -> float:
    """Compute the distance between two parameters: Euclidean, and the maximum over centres.

    Examples
    --------
    >>> distance([0.0, 0.0], [3.0, 4.0])
    5.0
    >>> distance([[0.0], [10.0]], [[1.0], [12.0]])
    2.0
    """
    one, two = np.asarray(theta, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if one.shape != two.shape:
        raise ValueError(
            f"parameters of shapes {one.shape} and {two.shape} cannot be compared; the shapes must agree"
        )
    return float(lengths(one - two).max())


def dual_norms(gradients: Array) -> Array:
    """Compute the dual norms of gradients (n, *theta.shape) to :func:`distance`: (n,).

    Inside a ball of radius l a loss with gradient g changes by at most l times
    this, to first order: the Euclidean norm, and its sum over centres.
    """
    if sparse.issparse(gradients):
        return np.asarray(sparse.linalg.norm(gradients, axis=1))
    with np.errstate(over="ignore"):  # the square of a gradient may be infinite
        norms = np.linalg.norm(gradients, axis=-1)
    return np.asarray(norms if norms.ndim == 1 else norms.sum(axis=-1))


@dataclass(frozen=True, eq=False)
class Ball:
    """All parameters within ``radius`` of ``theta``.

    Parameters
    ----------
    theta : array (p,) or (k, d)
        The middle: a flat vector, or centres. Copied.
    radius : float
        The paper's l; zero or more.

    Examples
    --------
    >>> import duramen as dm
    >>> ball = dm.Ball([0.0, 0.0], radius=5.0)
    >>> [3.0, 4.0] in ball, [3.0, 4.1] in ball  # up to rounding
    (True, False)
    """

    theta: Array
    radius: float

    def __post_init__(self) -> None:
        try:
            theta = np.array(self.theta, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"theta={self.theta!r} must be an array of numbers") from None
        if theta.ndim not in (1, 2) or theta.size == 0:
            raise ValueError(
                f"theta must be a vector or a (k, d) array of centres; found shape {theta.shape}"
            )
        if not np.isfinite(theta).all():
            raise ValueError("theta must be finite; it has NaN or infinity")
        number = isinstance(self.radius, (int, float, np.integer, np.floating))
        if not (number and 0 <= self.radius < np.inf):
            raise ValueError(f"radius={self.radius!r} must be zero or a positive finite number")
        theta.flags.writeable = False
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "radius", float(self.radius))

    def __reduce__(self) -> tuple[Any, ...]:
        return Ball, (self.theta, self.radius)  # so that a copy is read-only too

    def __contains__(self, theta: Any) -> bool:
        size = float(lengths(self.theta).max())  # rounding moves a parameter by units of it
        slack = 4 * float(np.finfo(float).eps) * (size + self.radius)
        return distance(self.theta, theta) <= self.radius + slack

    def project(self, theta: Any) -> Array:
        """Return the point of the ball nearest to ``theta``; centre by centre."""
        given = np.asarray(theta, dtype=np.float64)
        if given.shape != self.theta.shape:
            raise ValueError(
                f"theta has shape {given.shape}; a ball of shape {self.theta.shape} needs the same"
            )
        step = given - self.theta
        length = lengths(step)[..., None]
        shrink = np.divide(self.radius, length, out=np.ones_like(length), where=length > self.radius)
        return self.theta + step * shrink

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw ``n`` parameters uniformly from the ball: ``(n, *theta.shape)``.

        Examples
        --------
        >>> ball = Ball([[1.0, 2.0], [3.0, 4.0]], radius=0.5)
        >>> all(theta in ball for theta in ball.sample(100, np.random.default_rng(0)))
        True
        """
        direction = rng.normal(size=(n, *self.theta.shape))
        direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
        reach = rng.uniform(size=(*direction.shape[:-1], 1)) ** (1.0 / self.theta.shape[-1])
        return np.asarray(self.theta + self.radius * reach * direction)


@dataclass(frozen=True, eq=False)
class Anchor:
    """A rough solution, the reference for losses and bounds: the paper's theta-tilde.

    Parameters
    ----------
    theta : array (p,) or (k, d)
        The solution. Copied.
    radius : float
        How far from it a solution on all the data may be expected: the
        distance between anchors from independent samples.
    ids : array of int64, optional
        The points that it was fitted on.
    frozen : mapping from names to arrays, optional
        What samplers derived from data and must not change later: the leverage
        frame, the layers' unit. An anchor with all of it reproduces every choice.

    Examples
    --------
    >>> import duramen as dm
    >>> anchor = dm.Anchor([1.0, 2.0], radius=0.5)
    >>> anchor
    Anchor: theta (2,), radius 0.5
    >>> [1.2, 2.2] in anchor.ball
    True
    """

    theta: Array
    radius: float
    ids: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    frozen: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ball = Ball(self.theta, self.radius)
        ids = np.array(self.ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"ids must be a vector of integers; found type {ids.dtype}, shape {ids.shape}")
        ids = ids.astype(np.int64)
        ids.flags.writeable = False
        frozen = MappingProxyType({name: _finite_array(name, state) for name, state in self.frozen.items()})
        values = {"theta": ball.theta, "radius": ball.radius, "ids": ids, "frozen": frozen}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Anchor, (self.theta, self.radius, self.ids, dict(self.frozen))

    def __repr__(self) -> str:
        source = f", from {len(self.ids):,} points" if len(self.ids) else ""
        frozen = f", with frozen {', '.join(self.frozen)}" if self.frozen else ""
        return f"Anchor: theta {self.theta.shape}, radius {self.radius:.4g}{source}{frozen}"

    def freeze(self, **states: Any) -> Anchor:
        """Return this anchor with more frozen arrays.

        Examples
        --------
        >>> Anchor([1.0], radius=0.5).freeze(layers=[0.0, 2.0])
        Anchor: theta (1,), radius 0.5, with frozen layers
        """
        return Anchor(self.theta, self.radius, self.ids, {**self.frozen, **states})

    @property
    def ball(self) -> Ball:
        """The ball around it in which solutions are expected: the paper's B(theta-tilde, l)."""
        return Ball(self.theta, self.radius)


def _finite_array(name: str, state: Any) -> Array:
    frozen = np.array(state, dtype=np.float64)
    if not np.isfinite(frozen).all():
        raise ValueError(f"frozen[{name!r}] must be finite; it has NaN or infinity")
    frozen.flags.writeable = False
    return frozen
