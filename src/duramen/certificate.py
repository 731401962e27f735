"""The certificate: how far a coreset's objective was found to be from that of the data, inside a ball.

A coreset promises f_z(theta, C) close to f_z(theta, X) for every theta in the
ball. No finite search can prove that, but one can look for counterexamples: at
random parameters, and by gradient ascent on the error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array, check_count, generator, read_only
from duramen.coreset.coreset import Coreset
from duramen.losses.base import Ball, MissingPropertyError, lengths
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints, points
from duramen.trimming import Problem

_SPHERES = (0.25, 0.5, 1.0)  # radii of the spheres that probes lie on, relative to the ball's
_FIRST_STEP, _LAST_STEP = 0.5, 2.0**-10  # of an ascent, relative to the ball's radius
_SAME_WEIGHT = 1e-6  # relative rounding error allowed in a total weight
_SAME_VALUE = 1e-9  # and in an objective: a coreset of all the data has intervals of zero width


@final
@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Relative errors of a coreset at probes, which are parameters inside a ball, by :func:`certify`.

    Attributes
    ----------
    errors : array (n,)
        ``|f_z(theta, C) / f_z(theta, X) - 1|`` at each probe.
    probes : array ``(n, *theta.shape)``
    kinds : array (n,) of str
        "anchor"; "random", uniform in the ball; "sphere", at 1/4, 1/2 or all of
        the radius; "adversarial", a step towards a larger error.
    radius : float
        Of the ball around the coreset's anchor.
    n_points, n_refused : int
        Points of positive weight; random probes that the loss refused, and that were dropped.
    covered : float
        Share of the probes, without adversarial ones, at which the 95% interval of ``core.estimate``
        contains f_z(theta, X); NaN without standard errors. Errors at different probes are correlated.
    search : str
        How adversarial probes were searched for, or why not.
    """

    errors: Array
    probes: Array
    kinds: Array
    radius: float
    n_points: int
    n_refused: int
    covered: float
    search: str

    @property
    def max_error(self) -> float:
        """The largest error found: a lower bound on the worst case in the ball."""
        return float(self.errors.max())

    @property
    def mean_error(self) -> float:
        """The mean error at random probes, in the ball and on spheres; NaN if all were refused."""
        random = np.isin(self.kinds, ("random", "sphere"))
        return float(self.errors[random].mean()) if random.any() else math.nan

    @property
    def worst(self) -> Array:
        """The parameters with the largest error."""
        return self.probes[self.errors.argmax()]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in Counter(self.kinds.tolist()).items())
        known = "unknown" if math.isnan(self.covered) else f"{self.covered:.0%}"
        return (
            f"Certificate: max_error {self.max_error:.3g}, the largest found on {self.n_points:,} points, "
            f"is a lower bound on the worst case within {self.radius:.4g} of the anchor\n"
            f"  probes: {counts}; {self.n_refused:,} refused; {self.search}\n"
            f"  mean error at random probes {self.mean_error:.3g}; coverage of 95% intervals: {known}"
        )


@one_blas_thread()  # the chunks of rows have all cores already
def certify(
    core: Coreset,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    radius: float | None = None,
    n_probes: int = 64,
    *,
    random_state: Any = 0,
    ascent_steps: int = 20,
) -> Certificate:
    """Measure how far a coreset's objective is from the data's, at parameters around its anchor.

    The error at theta is ``|f_z(theta, C) / f_z(theta, X) - 1|``, with the coreset's z on both sides;
    where f_z(theta, X) is 0, it is 0 if the coreset's is 0 too, and infinite otherwise.

    Parameters
    ----------
    core : Coreset
    X, y, sample_weight
        The data that it was built from. X is never copied.
    radius : float, optional
        How far from the anchor to search; the anchor's own radius by default.
    n_probes : int
        How many random parameters to try: half of them uniform in the ball, the others on spheres.
        Those that the loss refuses, such as centres outside a divergence's domain, are only counted.
    random_state : None, int or numpy Generator
    ascent_steps : int
        Steps of gradient ascent from the probe where the coreset's objective is too high by the most,
        and from the one where it is too low by the most.

    Notes
    -----
    Cost: one pass over X for each of ``1 + n_probes`` probes, and for each of at
    most ``2 * ascent_steps`` steps; two more where the error grew, for its gradient.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> from duramen.certificate import certify
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> core = dm.robust_coreset(X, loss=dm.KMeansLoss(2), size=1000, n_outliers=100, random_state=0)
    >>> certify(core, X, radius=0.5)
    Certificate: max_error 0.0..., the largest found on 20,000 points, is a lower bound on the worst case ...
      probes: 1 anchor, 32 random, 32 sphere, ... adversarial; 0 refused; gradient ascents: 2
      mean error at random probes 0.0...; coverage of 95% intervals: ...%
    """
    ball = _ball_of(core, radius)
    n_probes = check_count("n_probes", n_probes)
    ascent_steps = check_count("ascent_steps", ascent_steps, 0)
    rng = generator(random_state)
    search = _Search(core, _points_of(core, X, y, sample_weight), ball)
    found = [search.probe(ball.theta, "anchor")]  # raises if refused: something is wrong with the data
    n_spheres = n_probes // 2  # as a ball in many dimensions is nearly all surface
    uniform = ball.sample(n_probes - n_spheres, rng)
    spheres = ball.sample(n_spheres, rng, np.resize(_SPHERES, n_spheres))
    with np.errstate(all="ignore"):  # the loss may overflow at a probe: what is not finite is refused
        for kind, thetas in (("random", uniform), ("sphere", spheres)):
            for theta in thetas:
                with suppress(ValueError):
                    found.append(search.probe(theta, kind))
        climbed, how = search.climb(found, ascent_steps)
    thetas, kinds, errors, covered = map(np.stack, zip(*found, *climbed, strict=True))
    return Certificate(
        errors=read_only(np.abs(errors)),
        probes=read_only(thetas),
        kinds=read_only(kinds),
        radius=ball.radius,
        n_points=int(np.count_nonzero(search.data.weights)),
        n_refused=1 + n_probes - len(found),
        covered=float(covered[: len(found)].mean()),
        search=how,
    )


class _Probe(NamedTuple):
    """Parameters, the error there with its sign, and whether the coreset's interval contains the truth."""

    theta: Array
    kind: str
    error: float
    covered: float  # 0 or 1; NaN without a standard error


@dataclass(frozen=True)
class _Search:
    """A search for parameters in a ball at which a coreset and all the data differ."""

    core: Coreset
    data: WeightedPoints
    ball: Ball

    def probe(self, theta: Array, kind: str) -> _Probe:
        """Measure the error at theta; ValueError where the loss refuses it."""
        estimate = self.core.estimate(theta)
        truth = self._problem(self.data).at(theta).objective
        if not math.isfinite(truth):
            raise ValueError(f"f_z(theta, X) is {truth}: a relative error is not defined")
        slack = _SAME_VALUE * truth
        covered = float(estimate.low - slack <= truth <= estimate.high + slack)
        error = estimate.value / truth - 1 if truth else math.inf if estimate.value else 0.0
        return _Probe(theta, kind, error, math.nan if math.isnan(estimate.std_error) else covered)

    def climb(self, found: list[_Probe], steps: int) -> tuple[list[_Probe], str]:
        """Climb from the worst probe of each sign; also describe what was done."""
        if not (steps and self.ball.radius):
            return [], f"none adversarial: {'the radius' if steps else 'ascent_steps'} is 0"
        highest, lowest = (pick(found, key=lambda probe: probe.error) for pick in (max, min))
        starts = [highest] * (0 < highest.error < math.inf) + [lowest] * (lowest.error < 0)
        try:
            climbed = [probe for start in starts for probe in self._ascent(start, steps)]
        except MissingPropertyError:
            return [], f"none adversarial: {type(self.core.loss).__name__} has no gradients"
        return climbed, f"gradient ascents: {len(starts)}"

    def _ascent(self, here: _Probe, steps: int) -> Iterator[_Probe]:
        """Follow the error's gradient inside the ball, and yield every step that made the error larger."""
        share, uphill = _FIRST_STEP, self._uphill(here)
        for _ in range(steps):
            if share < _LAST_STEP or not uphill.any():
                return
            theta = self.ball.project(here.theta + share * self.ball.radius * uphill)
            there = here
            with suppress(ValueError):  # outside the loss's domain: counts as no growth
                there = self.probe(theta, "adversarial")
            if there.error / here.error > 1:
                yield there
                here, uphill = there, self._uphill(there)
            else:
                share /= 2

    def _uphill(self, here: _Probe) -> Array:
        """Compute the steepest ascent of the error's size, in the ball's distance: of length 1 per centre.

        It is 0 where the error is infinite.
        """
        # the quotient rule, less the factor 1 / f_z(theta, X)
        core, data = (self._slope(side, here.theta) for side in (self.core.points, self.data))
        slope = math.copysign(1.0, here.error) * (core - (1 + here.error) * data)
        length = lengths(slope)[..., None]
        return np.divide(slope, length, out=np.zeros_like(slope), where=(length > 0) & np.isfinite(length))

    def _slope(self, side: WeightedPoints, theta: Array) -> Array:
        return self.core.loss.gradient_sum(theta, side.X, side.y, self._problem(side).at(theta).kept)

    def _problem(self, side: WeightedPoints) -> Problem:
        return Problem(side, self.core.loss, self.core.n_outliers)


def _ball_of(core: Any, radius: Any) -> Ball:
    if not isinstance(core, Coreset):
        raise TypeError(f"core must be a Coreset, as dm.robust_coreset returns; found {type(core).__name__}")
    anchor = core.anchor
    if anchor is None:
        raise ValueError("core.anchor is None; pass a core with an anchor: robust_coreset(..., anchor=theta)")
    if radius is None and anchor.radius == 0:
        raise ValueError("core.anchor.radius is 0; pass radius, how far from the anchor to search")
    return Ball(anchor.theta, anchor.radius if radius is None else radius)


def _points_of(core: Coreset, X: Any, y: Any, sample_weight: Any) -> WeightedPoints:
    """Convert the data to points, and refuse what cannot be the data of this coreset."""
    if (y is None) != (core.y is None):
        has = "labels, and y is None; pass y, one label per row" if y is None else "no labels; leave y out"
        raise ValueError(f"the coreset has {has}")
    data = points(X, y, weights=sample_weight)
    here, there = (
        f"{part.n_columns} columns, total weight {part.total_weight:,.10g}" for part in (data, core.points)
    )
    same_weight = math.isclose(data.total_weight, core.total_weight, rel_tol=_SAME_WEIGHT)
    if data.n_columns != core.points.n_columns or not same_weight:
        raise ValueError(
            f"X has {here}; the coreset has {there}: it was built from other data; pass the X and "
            "sample_weight that it was built from"
        )
    return data
