"""A learning problem: a non-negative loss f(theta, x), and how fast it can change.

Parameters theta stay in a ball around an anchor, and each loss has a constant alpha for
at least one of three kinds of continuity (paper, Definition 1 and Remark 1). Each kind
bounds how far f(theta, x) can be from f(anchor, x) inside a ball of radius l:

=================  ============================================  ======================================
kind               what alpha bounds                             xi(l)
=================  ============================================  ======================================
Lipschitz          the loss:     ``lipschitz``                   alpha l
smooth             the gradient: ``smoothness``                  |g| l + alpha l^2 / 2
Lipschitz Hessian  the Hessian:  ``hessian_lipschitz``           |g| l + |H| l^2 / 2 + alpha l^3 / 6
=================  ============================================  ======================================

with g and H the gradient and the Hessian at the anchor. Constants are those of each point:
their maximum, as in the paper, can be one outlier's. The distance of two parameter vectors is
Euclidean; that of two (k, d) arrays of centres is the largest between centres of the same index.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import (
    Array,
    Rows,
    as_column,
    as_rows,
    check_nonnegative,
    read_only,
    refuse_nonfinite,
    to_dense,
)
from duramen.parallel import join_chunks, rows_per_chunk, sum_over_chunks


def lengths(vectors: Array) -> Array:
    """Compute Euclidean lengths along the last axis, also where the squares would overflow."""
    return np.hypot.reduce(vectors, axis=-1)


def distance(theta: Any, other: Any) -> float:
    """Compute the distance between two parameters: Euclidean, and the maximum over centres."""
    return float(lengths(_step(theta, other)).max())


def _step(theta: Any, other: Any) -> Array:
    """Subtract parameters of the same shape."""
    one, two = np.shape(theta), np.shape(other)
    if one != two:
        raise ValueError(f"parameters of shapes {one} and {two} cannot be compared; the shapes must agree")
    return np.subtract(theta, other, dtype=np.float64)


def dual_norms(gradients: Array) -> Array:
    """Compute the norms of gradients (n, *theta.shape) dual to :func:`distance`: a sum over centres."""
    with ignore_overflow():  # the square of a gradient may be infinite
        norms = np.linalg.norm(gradients, axis=-1)
    return norms if norms.ndim == 1 else norms.sum(axis=-1)


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
        theta = frozen_array("theta", self.theta)
        if theta.ndim not in (1, 2) or theta.size == 0:
            raise ValueError(
                f"theta must be a vector or a (k, d) array of centres; found shape {theta.shape}"
            )
        check_nonnegative("radius", self.radius)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "radius", float(self.radius))

    def __reduce__(self) -> tuple[Any, ...]:
        return Ball, (self.theta, self.radius)  # so that a copy is read-only too

    def __contains__(self, theta: Any) -> bool:
        return distance(self.theta, theta) <= self.radius + 4 * float(np.finfo(float).eps) * self._size

    @property
    def _size(self) -> float:
        """The largest length that a parameter can have: rounding moves it by units of that."""
        return lengths(self.theta).max() + self.radius

    def project(self, theta: Any) -> Array:
        """Return the point of the ball nearest to ``theta``; centre by centre."""
        step = _step(theta, self.theta)
        length = lengths(step)[..., None]
        shrink = np.divide(self.radius, length, out=np.ones_like(length), where=length > self.radius)
        return self.theta + step * shrink

    def sample(self, n: int, rng: np.random.Generator, shares: Array | None = None) -> Array:
        """Draw ``n`` parameters uniformly from the ball, or at ``shares`` of its radius."""
        direction = rng.normal(size=(n, *self.theta.shape))
        direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
        if shares is None:
            reach = rng.uniform(size=(*direction.shape[:-1], 1)) ** (1.0 / self.theta.shape[-1])
        else:
            reach = shares.reshape(n, *(1,) * self.theta.ndim)
        return self.theta + self.radius * reach * direction


@dataclass(frozen=True, eq=False)
class Anchor(Ball):
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

    ids: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    frozen: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        ids = np.array(self.ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"ids must be a vector of integers; found {self.ids!r}")
        frozen = {name: frozen_array(f"frozen[{name!r}]", state) for name, state in self.frozen.items()}
        object.__setattr__(self, "ids", read_only(ids.astype(np.int64)))
        object.__setattr__(self, "frozen", MappingProxyType(frozen))

    def __reduce__(self) -> tuple[Any, ...]:
        return Anchor, (self.theta, self.radius, self.ids, dict(self.frozen))

    def __repr__(self) -> str:
        source = f", from {len(self.ids):,} points" if len(self.ids) else ""
        frozen = f", with frozen {', '.join(self.frozen)}" if self.frozen else ""
        return f"Anchor: theta {self.theta.shape}, radius {self.radius:.4g}{source}{frozen}"

    def freeze(self, **states: Any) -> Anchor:
        """Return this anchor with more frozen arrays."""
        return replace(self, frozen={**self.frozen, **states})

    @property
    def ball(self) -> Ball:
        """The ball around it in which solutions are expected: the paper's B(theta-tilde, l)."""
        return Ball(self.theta, self.radius)


def frozen_array(name: str, given: Any) -> Array:
    """Copy numbers to a read-only array; ValueError if they are not numbers, or not finite."""
    try:
        array = np.array(given)
    except ValueError:  # from NumPy, for a ragged list
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}={given!r} must be an array of numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; it has NaN or infinity")
    return read_only(array.astype(np.float64, copy=False))


class MissingPropertyError(TypeError):
    """A loss does not define what is needed here; the message says what to define."""


def check_loss(loss: Any) -> None:
    """Raise TypeError, with advice, unless this is a loss."""
    if not isinstance(loss, Loss):
        found = f"the class {loss.__name__}; call it" if isinstance(loss, type) else repr(loss)
        raise TypeError(f"loss must be a Loss, such as dm.LogisticLoss(); found {found}")


METHODS = {"lipschitz": "lipschitz", "smooth": "smoothness", "hessian": "hessian_lipschitz"}
"""The kinds of continuity, and what a loss calls their constants."""


class Neighbourhood(NamedTuple):
    """What bounds the change of each f in a ball, in float64, without what the loss does not define.

    ``constants`` are (n,) by kind of continuity, for "hessian" ``|H| + alpha l / 3``, and "deviation" is a
    bound itself. ``norms`` are the gradients', whose products with a vector ``products`` computes, if known.
    """

    radius: Any
    constants: dict[str, Array]
    norms: Any
    products: Any

    def rise(self, kind: str, constant: Any, slope: Any) -> Any:
        """Bound the change in the ball by one kind of continuity: xi(l)."""
        if kind in ("smooth", "hessian"):
            return slope * self.radius + constant * (self.radius**2 / 2)
        return constant * self.radius if kind == "lipschitz" else constant

    def rises(self) -> dict[str, Array]:
        """Bound the change of each f by each kind of continuity."""
        return {kind: self.rise(kind, alpha, self.norms) for kind, alpha in self.constants.items()}


class Explanation(NamedTuple):
    """What makes the losses of n rows large, column by column: the parts and the rest add up to a whole.

    ``parts`` (n, d) is what each value adds, ``usual`` (n, d) what it is compared with, and ``rest`` (n,)
    what a usual row already has. The kind is "margin", "residual" (then the label is a last column),
    "predictor", "classes", "distance" or "divergence".
    """

    kind: str
    usual: Array
    parts: Array
    rest: Array


class Loss(ABC):
    """A learning problem: the cost f(theta, x) >= 0 of one point x under parameters theta.

    A custom loss is a subclass with ``values``. Everything else is optional:
    whatever needs a method that is missing names it in its error.

    In all methods ``X`` is (n, d) rows, ``y`` is (n,) labels or None, and
    ``theta`` has the shape that the loss takes. They return one entry per row,
    with the type of ``X``: float32 in, float32 out.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> class CityBlock(dm.Loss):
    ...     def values(self, theta, X, y=None):
    ...         return np.abs(X - theta).sum(axis=1)
    ...     def lipschitz(self, X, y=None):
    ...         return np.full(len(X), X.shape[1] ** 0.5)
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> CityBlock().values(np.zeros(2), X)
    array([0., 7.])
    >>> CityBlock().deviation(dm.Ball(np.zeros(2), radius=2.0), X)
    array([2.82842712, 2.82842712])
    >>> CityBlock().gradients(np.zeros(2), X)
    Traceback (most recent call last):
    ...
    duramen.losses.base.MissingPropertyError: CityBlock has no gradients; define ...
    """

    needs_labels: ClassVar[bool] = False
    has_predictors: ClassVar[bool] = False
    """Whether theta holds linear predictors of a row: one, or one per class."""
    has_centres: ClassVar[bool] = False
    """Whether theta holds ``n_centres`` centres, the nearest of which decides."""
    has_classes: ClassVar[bool] = False
    """Whether labels are classes, ``n_classes`` of them."""
    classifies: ClassVar[bool] = False
    """Whether labels are two classes, above zero and not."""
    is_likelihood: ClassVar[bool] = False
    """Whether exp(-f) is the probability of the label, of a class."""
    finds_nonfinite: ClassVar[bool] = False
    """Whether values are valid unless a row holds NaN or infinity, and are not finite then."""
    fitter: ClassVar[str] = "gradient"
    """The name of the fit in :mod:`duramen.solvers.alternate` that refits theta."""
    tolerance: ClassVar[float] = 1e-4
    """Solving stops when an iteration gains less than this share of the objective, by default."""
    freezes: tuple[str, ...] = ()
    """The names of all that ``freeze`` returns."""
    base: Any = None
    """The loss that this one extends, from whose solutions solving starts."""

    n_centres: int
    n_classes: int  # these two only of losses that have them: a custom loss may use the names as it likes

    @property
    def convex(self) -> bool:
        """Whether f(theta, x) is known to be convex in theta."""
        return False

    @property
    def never_refuses(self) -> bool:
        """Whether it takes all rows of finite numbers of moderate size, with labels that it accepts."""
        return type(self).__module__.startswith("duramen.")

    @abstractmethod
    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute f(theta, x_i): (n,), non-negative."""

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Any]:
        """Compute the values, and the ``cache`` for ``gradient_sum``: slopes, the nearest centre, or None."""
        return self.values(theta, X, y), None

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute the gradients of f(theta, x_i), ``(n, *theta.shape)``; at a kink, one-sided ones."""
        raise self._missing("gradients", "gradients(theta, X, y)")

    def lipschitz(self, X: Any, y: Any = None) -> Array | None:
        """Bound the slope: (n,) with ``|f(a, x_i) - f(b, x_i)| <= alpha_i dist(a, b)``; or None."""
        return self._row_constants(X).get("lipschitz")

    def smoothness(self, X: Any, y: Any = None) -> Array | None:
        """Bound the gradient's change: (n,) with ``|grad(a) - grad(b)| <= alpha_i dist(a, b)``; or None."""
        return self._row_constants(X).get("smooth")

    def hessian_lipschitz(self, X: Any, y: Any = None) -> Array | None:
        """Bound the change of the Hessian: (n,) with ``|H(a) - H(b)| <= alpha_i dist(a, b)``; or None."""
        return self._row_constants(X).get("hessian")

    def _row_constants(self, X: Any) -> dict[str, Array]:
        """Compute the constants that follow from the rows alone, by kind of continuity."""
        return {}

    def hessian_norms(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute the norm of the Hessian of f(theta, x_i) in theta: (n,)."""
        raise self._missing("hessian_norms", "hessian_norms(theta, X, y)")

    def freeze(self, points: Any) -> dict[str, Array]:
        """Derive from points what all values depend on; an anchor keeps it under these names."""
        return {}

    def bind(self, frozen: Mapping[str, Array]) -> Loss:
        """Return this loss with what was frozen; most losses need nothing."""
        return self

    def measure(self, points: Any) -> Loss:
        """Return this loss with what it needs to know about the data, measured on points."""
        return self.bind(self.freeze(points))

    def unmeasured(self) -> Loss:
        """Return this loss without what ``freeze`` derived."""
        return self

    def prepared(self, X: Any) -> Loss:
        """Return this loss with what can be computed ahead for these rows, which must not change."""
        return self

    @property
    def measured(self) -> bool:
        """Whether it has all that ``freeze`` would derive."""
        return not self.freezes

    def ridge(self, l2: float, n_columns: int) -> Array:
        """Return the penalty on the square of each entry of theta: l2, and none on the intercept."""
        ridge = np.full(self.parameter_shape(n_columns) or (), float(l2))
        if getattr(self, "fit_intercept", False):
            ridge[..., -1] = 0.0
        return ridge

    def parameter_shape(self, n_columns: int) -> tuple[int, ...] | None:
        """Return the shape of theta for rows of ``n_columns`` columns; None if any shape will do."""
        return None

    def vc_dimension(self, n_columns: int) -> float | None:
        """Bound the VC dimension of the sets {x : f(theta, x) <= r}; None where no bound is known."""
        return None

    def default_sampler(self, has_radius: bool, few: bool) -> str:
        """Name the sampler that measured best, with a radius or not and in few columns (docs/sampling.md)."""
        return "layered"

    def anchor_rows(self, n_columns: int) -> int:
        """Return the least number of rows of a sample on which an anchor is fitted."""
        return 600

    def check_labels(self, y: Array) -> None:  # noqa: B027
        """Raise ValueError naming the first label that this loss does not accept; by default all are."""

    def classes_of(self, y: Any) -> Array:
        """Return the number of each label's class, from 0, for a loss that has classes."""
        if self.classifies:  # -1 and 0 are the first of two
            return (np.asarray(y) > 0).view(np.int8)
        return np.asarray(y).astype(np.int32)

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        """Predict rows in float64; a custom loss predicts nothing.

        For classes ``class``, their numbers, with ``probability`` (n, n_classes), or without
        probabilities ``score``; for regressions ``value``; for centres ``cluster`` and ``distance``.
        """
        return {}

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation | None:
        """Find what makes the losses of dense rows large, compared with usual values; None if not known.

        ``mean`` (d,) are the usual means of the columns, with that of the labels last where there are labels.
        """
        return None

    def check_solvable(self, X: Rows, y: Any, weights: Array, z: float) -> None:  # noqa: B027
        """Raise ValueError if no theta can be fitted to these points once weight z is set aside."""

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        """Bound ``|f(theta, x_i) - f(ball.theta, x_i)|`` over the ball: (n,), the paper's xi(l).

        The least bound by any kind of continuity that the loss has, in float64; MissingPropertyError if there
        is none. Built-in losses have (nearly) the supremum, enlarged so that it bounds computed values.
        """
        rows = as_rows(X)
        labels = None if y is None else as_column(y, rows.shape[0], "y")

        def work(chunk: slice) -> tuple[Array]:
            part = None if labels is None else labels[chunk]
            constants = self.neighbourhood(ball, rows[chunk], part).constants
            if not constants:
                raise self._missing("lipschitz, smoothness or hessian_lipschitz", "lipschitz(X, y)")
            return (constants["deviation"],)

        return join_chunks(work, rows.shape[0], rows_per_chunk(8 * ball.theta.size))[0]

    def put_gradients(self, out: Array, theta: Any, X: Rows, y: Any, cache: Any) -> None:
        """Write gradients into ``out`` (n, theta.size): the same bits whichever other rows are present."""
        out[:] = to_dense(self.gradients(theta, X, y)).reshape(out.shape)

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, cache: Array | None = None
    ) -> Array:
        """Sum weight times gradient over all points; ``cache`` is that of ``values_and_cache``, if known."""
        rows, theta = as_rows(X), np.asarray(theta)
        n = rows.shape[0]
        labels = None if y is None else as_column(y, n, "y")
        factors = np.ones(n) if weights is None else as_column(weights, n, "weights")

        def work(chunk: slice) -> tuple[Array]:
            part = None if cache is None else cache[chunk]
            return (self._sum_gradients(theta, rows[chunk], factors[chunk], part),)

        with ignore_overflow():
            cache = self._gradient_factors(theta, rows, labels) if cache is None else cache
            if self.has_predictors and sparse.issparse(rows):  # one product: slices would be copies
                total = self._sum_gradients(theta, rows, factors, cache)
            else:
                numbers = rows.shape[1] if self.has_centres else theta.size  # one centre's gradient, or all
                (total,) = sum_over_chunks(work, n, rows_per_chunk(8 * numbers))
        return total.reshape(theta.shape)

    def _gradient_factors(self, theta: Any, X: Any, y: Any = None) -> Any:
        """Compute what a sum of gradients needs of each row: the cache alone, or else the labels."""
        return y

    def _sum_gradients(self, theta: Array, rows: Rows, weights: Array, cache: Any) -> Array:
        """Sum weight times gradient over a chunk of rows."""
        gradients = self.gradients(theta, rows, cache)
        return weights @ gradients.reshape(len(weights), theta.size)

    def neighbourhood(self, ball: Ball, X: Any, y: Any = None) -> Neighbourhood:
        """Compute all that bounds each f in a ball, the best bound on its change included."""
        radius, norms, products = np.float64(ball.radius), np.zeros(1), None
        found = {
            kind: np.asarray(alpha, dtype=np.float64)
            for kind, method in METHODS.items()
            if (alpha := getattr(self, method)(X, y)) is not None
        }
        if "hessian" in found:
            found["hessian"] = self.hessian_norms(ball.theta, X, y) + found["hessian"] * (radius / 3)
        known_convex = self.convex and type(self).gradients is not Loss.gradients
        if known_convex or {"smooth", "hessian"} & found.keys():
            gradients = to_dense(self.gradients(ball.theta, X, y)).astype(np.float64, copy=False)
            norms, products = dual_norms(gradients), gradients.reshape(-1, ball.theta.size).__matmul__
        around = Neighbourhood(radius, found, norms, products)
        if type(self).deviation is not Loss.deviation:
            found["deviation"] = np.asarray(self.deviation(ball, X, y), dtype=np.float64)
        elif found:
            found["deviation"] = np.min([*around.rises().values()], axis=0)
        return around

    def _missing(self, what: str, method: str) -> MissingPropertyError:
        name = type(self).__name__
        return MissingPropertyError(f"{name} has no {what}; define {name}.{method} to use it here")

    def _rows(self, X: Any) -> Rows:
        rows = as_rows(X)
        if sparse.issparse(rows) and not self.has_predictors:
            raise TypeError(
                f"{type(self).__name__} needs dense rows; X is sparse. Pass X.toarray() if it fits in memory"
            )
        return rows

    def check_parameters(self, theta: Any, n_columns: int, name: str = "theta") -> Array:
        """Check a theta for rows of ``n_columns`` columns, and return it as an array."""
        shape, given = self.parameter_shape(n_columns), frozen_array(name, theta)
        if shape is not None and given.shape != tuple(shape):
            raise ValueError(
                f"{name} has shape {given.shape}; {self!r} on {n_columns} columns needs shape {shape}"
            )
        return given

    def _parameters(self, theta: Any, rows: Rows) -> Array:
        """Check theta against the rows, and convert it to their type."""
        given = self.check_parameters(theta, rows.shape[1])
        with ignore_overflow():
            typed = given.astype(rows.dtype, copy=False)
        if not np.isfinite(typed).all():
            raise ValueError(f"theta is too large for the type of X, {rows.dtype}; pass X as float64")
        return typed


class BuiltInLoss(Loss):
    """A loss of the library: its values are valid, and its constants are those of a function of one number.

    That number is a predictor or a distance. theta moves it by at most ``reach`` per unit.
    """

    finds_nonfinite = True
    max_slope: ClassVar[float | None] = None
    """The largest slope of the function, where it is bounded."""
    max_curvature: ClassVar[float | None] = None
    """The largest second derivative, where it is bounded."""
    max_third: ClassVar[float | None] = None
    """The largest third derivative, where it is bounded."""

    @abstractmethod
    def reach(self, X: Any) -> Array:
        """Compute how far a unit of theta moves the number, row by row."""

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        theta = self._parameters(theta, rows)
        gradients = np.zeros((rows.shape[0], theta.size), dtype=rows.dtype)
        self.put_gradients(gradients, theta, rows, y, None)
        return gradients.reshape(-1, *theta.shape)

    def _row_constants(self, X: Any) -> dict[str, Array]:
        return self._constants_by(self.reach(X))

    def _constants_by(self, reach: Array) -> dict[str, Array]:
        """Compute the constants of each kind of continuity that is bounded."""
        largest = (self.max_slope, self.max_curvature, self.max_third)
        with ignore_overflow():
            return {
                kind: most * reach**power if most else np.zeros_like(reach)
                for power, (kind, most) in enumerate(zip(METHODS, largest, strict=True), 1)
                if most is not None
            }


def vc_of_unions(dimension: int, k: int) -> float:
    """Bound the VC dimension of unions or intersections of k sets (see theory.vc_dimension)."""
    return float(dimension) if k == 1 else 2 * dimension * k * math.log2(3 * k)


def ignore_overflow() -> np.errstate:
    """Let NumPy compute infinity, zero and NaN without a warning: the results are checked instead."""
    return np.errstate(all="ignore")


def require_finite(values: Array, rows: Rows) -> Array:
    """Return values; raise ValueError if they are not finite because a row holds NaN or infinity."""
    if not np.isfinite(values).all():
        refuse_nonfinite(rows)
    return values
