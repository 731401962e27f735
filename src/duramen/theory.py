"""The paper's formulas: how many points its theorems require, with all constants.

======================  =======  ===================================================================
argument                symbol   what it is
======================  =======  ===================================================================
``epsilon``             epsilon  the relative error allowed in the objective; above 0, below 1
``beta``                beta     the relative error allowed in the number of outliers; 0 to below 1
``eta``                 eta      the probability of failure allowed; above 0, below 1
``n_points``            n        the total weight
``n_outliers``          z        the weight of the outliers; not a fraction
``lowest_objective``    inf f    the smallest objective over the ball; a lower bound is safe
``deviation``           xi(l)    how far any one loss may be from that at the anchor, over the ball
``vc_dimension``        vcdim    of the ranges {x : f(theta, x) <= r} (Definition 4)
``doubling_dimension``  ddim     of the parameters
======================  =======  ===================================================================

Logarithms are natural. Where the paper writes O(.) or Theta(.), the constant is that of its proof; where it
cites a theorem without one, the docstring gives the constant and the reason. Sizes are whole numbers, or
infinity where no size suffices. They are large: where one exceeds the number of points, keep all points.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from duramen.arrays import ABOVE_ZERO, LARGEST, check_range
from duramen.losses.base import Loss, check_loss

__all__ = [
    "delta",
    "delta_sample_size",
    "doubling_dimension",
    "epsilon0",
    "importance_size",
    "layered_size",
    "n_suspected",
    "solution_quality",
    "uniform_size",
    "vc_dimension",
]

_LOG2_HALF_BALLS = math.log2(5)  # a ball in R^p is covered by 5^p of half the radius

_BELOW_ONE = math.nextafter(1, 0)
_UNIT = (0, _BELOW_ONE, "0 or more and below 1, such as 0.1")
_WHOLE = (1, LARGEST, "a whole number, 1 or more")
RANGES: dict[str, tuple[float, float, str]] = {  # the smallest value, the largest, and both in words
    "beta": _UNIT,
    "delta": _UNIT,
    "deviation": (0, math.inf, "0 or more; Loss.deviation bounds it"),
    "doubling_dimension": (0, math.inf, "0 or more; theory.doubling_dimension gives it"),
    "epsilon": (ABOVE_ZERO, _BELOW_ONE, "above 0 and below 1, such as 0.1"),
    "epsilon0": (0, _BELOW_ONE, "0 or more and below 1; theory.epsilon0 gives it"),
    "eta": (ABOVE_ZERO, _BELOW_ONE, "a probability above 0 and below 1, such as 0.1"),
    "lowest_objective": (0, LARGEST, "0 or more and finite; a lower bound will do"),
    "n_columns": _WHOLE,
    "n_outliers": (0, LARGEST, "a weight, 0 or more and finite"),
    "n_parameters": _WHOLE,
    "n_points": (ABOVE_ZERO, LARGEST, "a total weight, above 0 and finite"),
    "sparsity": _WHOLE,
    "total_sensitivity": (1 - 1e-6, math.inf, "1 or more: the sum of all points' sensitivities"),
    "vc_dimension": (1, math.inf, "1 or more; where it is not known, use a doubling dimension"),
}


def _check(name: str, value: Any) -> float:
    """Convert an argument to a float; refuse it if it is not in the range of its name."""
    number = check_range(name, value, *RANGES[name])
    if RANGES[name] is _WHOLE and number % 1:
        raise ValueError(f"{name}={value!r} must be {_WHOLE[2]}")
    return number


_Formula = TypeVar("_Formula", bound=Callable[..., Any])


def _checked(formula: _Formula) -> _Formula:
    """Check the arguments of a formula by their names; None is allowed where it is the default."""
    signature = inspect.signature(formula)

    @functools.wraps(formula)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if name in RANGES and (value is not None or signature.parameters[name].default is not None):
                given[name] = _check(name, value)
        return formula(**given)

    return cast(_Formula, call)


def _check_outliers(n_points: float, n_outliers: float) -> None:
    if n_outliers >= n_points:
        raise ValueError(f"n_outliers={n_outliers:g} must be below n_points={n_points:g}; both are weights")


@_checked
def epsilon0(
    epsilon: float, *, lowest_objective: float, n_points: float, n_outliers: float, deviation: float
) -> float:
    """Compute epsilon_0 = min(epsilon / 16, epsilon inf f_z / (16 (n - z) xi)) of Theorem 2.

    ``lowest_objective`` is that of the trimmed objective f_z; with beta > 0 the lower half of the proof,
    which the paper omits, needs it with (1 + beta) z outliers instead.

    Examples
    --------
    >>> epsilon0(0.16, lowest_objective=400.0, n_points=1000, n_outliers=200, deviation=1.0)
    0.005
    """
    _check_outliers(n_points, n_outliers)
    weight = n_points - n_outliers
    return _inner_epsilon(epsilon, 16, 16 * weight, lowest_objective=lowest_objective, deviation=deviation)


@_checked
def n_suspected(n_outliers: float, epsilon0: float) -> float:
    """Compute the weight of the suspected outliers, z-tilde = (1 + 1 / epsilon_0) z (Theorem 2).

    It is 0 without outliers; where it exceeds n, all points are suspected.

    Examples
    --------
    >>> n_suspected(20, epsilon0=0.01), n_suspected(20, epsilon0=0.0)
    (2020.0, inf)
    """
    if n_outliers == 0:
        return 0.0
    return n_outliers + n_outliers / epsilon0 if epsilon0 else math.inf


@_checked
def delta(beta: float, epsilon0: float) -> float:
    """Compute delta = beta epsilon_0 / (1 + epsilon_0) of Theorem 2, for sampling the suspected outliers.

    It is 0, which means keeping all of them, if beta is 0.

    Examples
    --------
    >>> delta(0.5, epsilon0=0.25)
    0.1
    """
    return beta * (epsilon0 / (1 + epsilon0))


@_checked
def delta_sample_size(delta: float, vc_dimension: float, eta: float = 0.1) -> float:
    """Compute how many uniform draws make a delta-sample: (vcdim + log(1 / eta)) / delta^2.

    The paper writes O(.), after Li, Long and Srinivasan (2001). The constant 1/2 is Hoeffding's for one
    range, Massart's for half-lines, and that of the experiments of Loeffler and Phillips (2009); but with it
    intervals fail twice as often as eta allows (Kuiper's law). No constant below 1 is enough: with m draws
    the worst union of k intervals is off by sqrt(vcdim / m), as k grows. That 1 is enough is measured in the
    tests, not proven.

    Examples
    --------
    >>> delta_sample_size(0.05, vc_dimension=3), delta_sample_size(0.0, vc_dimension=3)
    (2122, inf)
    """
    return _size(vc_dimension + math.log(1 / eta), delta)


@_checked
def uniform_size(
    beta: float, *, n_points: float, n_outliers: float, vc_dimension: float, eta: float = 0.1
) -> float:
    """Compute how many uniform draws make a (beta, 0)-robust coreset: Theorem 1, delta = beta z / n.

    Infinite if beta or z is 0: no sample trims exactly the points that all the data would.

    Examples
    --------
    >>> uniform_size(0.5, n_points=1000, n_outliers=100, vc_dimension=3)
    2122
    """
    _check_outliers(n_points, n_outliers)
    return delta_sample_size(beta * (n_outliers / n_points), vc_dimension, eta)


@_checked
def importance_size(
    total_sensitivity: float,
    epsilon: float,
    *,
    vc_dimension: float | None = None,
    doubling_dimension: float | None = None,
    eta: float = 0.1,
    lowest_objective: float | None = None,
    n_points: float | None = None,
    deviation: float | None = None,
) -> float:
    """Compute how many draws by sensitivity make an epsilon-coreset, by one of two dimensions.

    S is ``total_sensitivity``, the sum of the bounds s_i. The last three arguments are for the doubling
    dimension only, all or none of them.

    **vc_dimension** (Theorem 4): 2 S / epsilon^2 (vcdim max(1, log S) + log(1 / eta)). The paper writes
    Theta. At one theta the variance can reach S - 1, and Bernstein's inequality then gives the 2; tests show
    that 1 is too little. The maximum keeps vcdim where S falls to 1. Strictly the ranges are those of
    f(theta, x) / s(x), whose dimension may be larger than that of f: by 1, for one centre.

    **doubling_dimension** (Theorem 5): S^2 / (2 e^2) (ddim log(1 / e) + log(2 / eta)) with
    e = min(epsilon / 2, epsilon inf f / (6 n xi)), or epsilon / 2 where nothing deviates. By Hoeffding's
    inequality the error is at most e f(theta') on a net of (1 / e)^ddim parameters, one of them, theta',
    within e l of any theta. That is e (f(theta) + e n xi); going from theta to theta' costs e n xi, going
    back (1 + e) e n xi: e f + 3 e n xi in all, as e <= 1/2. This needs two conditions that the paper omits:

    * C weighs at most (1 + e) n. It does, with the same probability, if each s_i is at least w_i / n.
    * A step of e l anywhere in the ball changes no loss by more than e xi, so ``deviation`` must be l
      times a Lipschitz constant. The change over the ball may be less; if the loss is convex in theta,
      add the change over the ball of twice the radius.

    Examples
    --------
    >>> importance_size(10, 0.1, vc_dimension=4)
    23026
    >>> importance_size(10, 0.5, doubling_dimension=2)
    4615
    """
    total = max(1.0, total_sensitivity)  # it is, up to rounding: at any theta the shares add up to 1
    if vc_dimension is not None and doubling_dimension is None:
        spread = vc_dimension * max(1.0, math.log(total)) + math.log(1 / eta)
        return _size(2 * total * spread, epsilon)
    if doubling_dimension is not None and vc_dimension is None:
        inner = _inner_epsilon(
            epsilon, 2, 6, lowest_objective=lowest_objective, n_points=n_points, deviation=deviation
        )
        return _size(total * total * _log_net(doubling_dimension, inner, eta) / 2, inner)
    raise ValueError(
        f"vc_dimension={vc_dimension} and doubling_dimension={doubling_dimension}; pass exactly one"
    )


@_checked
def layered_size(
    n_points: float,
    epsilon: float,
    *,
    doubling_dimension: float,
    eta: float = 0.1,
    lowest_objective: float | None = None,
    deviation: float | None = None,
) -> float:
    """Compute how many draws from layers of similar loss make an epsilon-coreset (Theorem 6).

    From each of at most K = floor(log2(n + 1)) + 1 layers (ddim log(1 / e) + log(2 K / eta)) / (2 e^2),
    with e = min(epsilon / 4, epsilon inf f / (14 n xi)), or epsilon / 4 where nothing deviates.
    ``n_points`` and ``lowest_objective`` are in units of the smallest weight; ``deviation`` is as in
    :func:`importance_size`.

    Layer i > 0 holds the points whose losses at the anchor are 2^(i-1) T to 2^i T above the least, with T the
    mean loss. One point per layer makes a total of (2^(K-1) - 1) T or more, and the total is n T: hence K. In
    the ball the losses of a layer spread by 2 xi more, so by Hoeffding's inequality the error at one theta is
    at most 2 e (f + 2 n xi) (Lemma 11). The net of Theorem 5, with C as heavy as X, makes it
    2 e (f + e n xi) + 4 e n xi + 2 e n xi <= 2 e f + 7 e n xi.

    Examples
    --------
    >>> layered_size(1000, 0.5, doubling_dimension=2)
    3030
    """
    inner = _inner_epsilon(epsilon, 4, 14 * n_points, lowest_objective=lowest_objective, deviation=deviation)
    layers = math.floor(math.log2(n_points + 1)) + 1
    return layers * _size(_log_net(doubling_dimension, inner, eta / layers) / 2, inner)


@_checked
def doubling_dimension(n_parameters: int, sparsity: int | None = None) -> float:
    """Bound the doubling dimension of p parameters, of which at most ``sparsity`` are not zero.

    p log2(5), since at most 5^p points of a ball in R^p lie half its radius apart; for k centres in R^d, p is
    k d. With k of D entries not zero log2(binom(D, k)) + k log2(5), the paper's O(k log D), if that is less.
    Likewise at most (1 + 2 / e)^p <= (1 / e)^ddim points of a ball lie e l apart if e <= 1/2: the nets of
    Theorems 5 and 6 lie inside the ball.

    Examples
    --------
    >>> round(doubling_dimension(1000)), round(doubling_dimension(1000, sparsity=5))
    (2322, 55)
    """
    full = n_parameters * _LOG2_HALF_BALLS
    if sparsity is None:
        return full
    if sparsity > n_parameters:
        raise ValueError(f"sparsity={sparsity:g} must not exceed n_parameters={n_parameters:g}; leave it out")
    among, chosen = (math.lgamma(n + 1) for n in (n_parameters, sparsity))
    supports = (among - chosen - math.lgamma(n_parameters - sparsity + 1)) / math.log(2)
    return min(full, supports + sparsity * _LOG2_HALF_BALLS)


@_checked
def vc_dimension(loss: Loss, n_columns: int) -> float | None:
    """Bound the VC dimension of the sets {x : f(theta, x) <= r}; None where no bound is known here.

    Sets {x : h(x) + g(x) <= 0}, with h fixed and g from a vector space of dimension D, have at most D;
    unions or intersections of k > 1 such sets 2 D k log2(3 k) (Blumer et al. 1989, Lemma 3.2.3).

    ======================================  ============================================  =========  ===
    loss                                    a set                                         D          k
    ======================================  ============================================  =========  ===
    LogisticLoss, SmoothHingeLoss           a half-space of y (x, 1)                      p + 1      1
    another LinearLoss that ``classifies``  an interval of m for each label (convexity)   d + 2      2
    a LinearLoss that is ``of_residual``    an interval of m - y: above and below         d + 1      2
    DistanceLoss, BregmanLoss               k balls: h is the square of x, or phi         d + 1      k
    ======================================  ============================================  =========  ===

    with p parameters and d columns. PoissonLoss has no bound: the ends of the interval of m for each count
    do not depend linearly on the count. A custom loss may define a number ``vc_dimension``, or a method
    ``vc_dimension(n_columns)``.

    Examples
    --------
    >>> import duramen as dm
    >>> vc_dimension(dm.LogisticLoss(), 54), vc_dimension(dm.KMeansLoss(1), 3)
    (56.0, 4.0)
    """
    check_loss(loss)
    own: Any = loss.vc_dimension
    found = own(int(n_columns)) if callable(own) else own
    return None if found is None else _check("vc_dimension", found)


@_checked
def solution_quality(epsilon: float) -> float:
    """Compute 1 + 3 epsilon: how much worse the best solution on a coreset may be on all points.

    By the lemma of appendix B, for epsilon below 1/3. With beta > 0 it holds for the best solution with
    (1 + 2 beta) z outliers, evaluated with (1 + 4 beta) z.

    Examples
    --------
    >>> solution_quality(0.125)
    1.375
    """
    if epsilon >= 1 / 3:
        raise ValueError(f"epsilon={epsilon!r} must be below 1/3, as the lemma requires")
    return 1 + 3 * epsilon


def _inner_epsilon(epsilon: float, a: int, b: float, **known: Any) -> float:
    """Compute min(epsilon / a, epsilon inf f / (b n xi)), that a proof works with; the first if xi is 0.

    All of inf f, n and xi are given, or none of them, as where nothing deviates; n may also be in ``b``.
    """
    missing = [name for name, value in known.items() if value is None]
    if 0 < len(missing) < len(known):
        raise ValueError(f"{missing[0]}=None; pass all of {', '.join(known)}, or none of them")
    spread = 0 if missing else b * known.get("n_points", 1) * known["deviation"]
    return min(epsilon / a, epsilon * known["lowest_objective"] / spread) if spread else epsilon / a


def _log_net(dimension: float, inner: float, eta: float) -> float:
    """Compute log(2 |net| / eta), with |net| = (1 / inner)^ddim."""
    return dimension * -math.log(inner) + math.log(2 / eta) if inner else math.inf


def _size(spread: float, error: float) -> float:
    size = spread / error / error if error else math.inf
    return math.ceil(size) if size < math.inf else math.inf
