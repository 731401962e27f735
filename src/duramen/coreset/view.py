"""What is asked for, and the view from an anchor: how it is found, and what points score from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from duramen import theory
from duramen.arrays import (
    Array,
    Rows,
    check_count,
    check_flag,
    check_range,
    generator,
    is_number,
    scratch_rows,
)
from duramen.coreset.theorems import ByTheorem
from duramen.losses.base import Anchor, Ball, Loss, MissingPropertyError, check_loss
from duramen.parallel import one_blas_thread, sum_over_chunks
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    NOWHERE,
    AnchoredPoints,
    Bound,
    LayeredSampler,
    RankedRows,
    RankedSampler,
    Sampler,
    UniformSampler,
    compute_ranks,
    freeze,
    has_frozen,
    reduce_rows,
    smallest,
)
from duramen.samplers.leverage import LeverageSampler
from duramen.samplers.sensitivity import SensitivitySampler
from duramen.solvers.starts import find_anchor
from duramen.trimming import checked_outliers, kept_sum, set_aside

_SUSPECTS = 1.5  # n_suspected over n_outliers; docs/sampling.md has the measurement
_SHARE = 0.2  # of the size, for the suspected; measured there too
ROWS_A_PARAMETER = 50
"""With fewer rows per parameter, a fit overfits the sample: docs/estimators.md."""
_FEW = 1000  # rows; up to here, limiting BLAS to one thread takes longer than the products
_ROWS_PER_COLUMN = 10  # no more calibrated columns than a tenth of the sampled points

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "layered": LayeredSampler,
    "leverage": LeverageSampler,
    "sensitivity": SensitivitySampler,
}


@final
@dataclass(frozen=True)
class BySize:
    """A total number of rows."""

    size: int
    keep_suspected: bool = False
    suspects: float = 0.0

    uniform = False

    def suspected_of(self, z: float, total: float, anchored: Any = None) -> float:
        """Choose how much of a total weight to suspect, the paper's z-tilde."""
        return min(self.suspects * z, (z + total) / 2)  # some must be left

    def sizes(self, n_outer: int, n_inner: int, candidates: Any, view: Any, z: float) -> tuple[float, float]:
        """Choose how many rows represent the suspected points and the others, if there are as many."""
        if n_outer + n_inner <= self.size:
            return n_outer, n_inner
        needed, one = n_outer if self.keep_suspected else min(n_outer, 1), min(n_inner, 1)
        if self.size < needed + one:
            raise ValueError(
                f"size={self.size} is too small for {n_outer:,} suspected outliers (all of them with beta=0) "
                f"and a row for the other points; take size={needed + one} or more, or suspects=0"
            )
        outer = max(needed, min(n_outer, round(_SHARE * self.size)), self.size - n_inner)
        outer = min(outer, self.size - one)
        return outer, self.size - outer


SizeRule: TypeAlias = BySize | ByTheorem
"""How much weight to suspect, and how many rows to choose on each side."""


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a coreset: the problem, how many rows, and how to choose them.

    ``given`` is an anchor, a ball or a theta; None to find one. The last three are for a dynamic coreset.
    """

    loss: Loss
    plan: SizeRule
    sampler: Sampler | str
    n_outliers: float
    calibrate: bool
    seed: int
    given: Any

    tree: bool = False
    bucket_size: int | None = None
    height: int | None = None

    @classmethod
    def of(
        cls,
        *,
        size: Any,
        suspects: Any,
        random_state: Any,
        anchor: Any,
        calibrate: Any,
        epsilon: Any = None,
        beta: Any = None,
        eta: Any = 0.1,
        **asked: Any,
    ) -> Settings:
        """Check the settings, before there are points; raise TypeError or ValueError if one is wrong."""
        is_auto = isinstance(suspects, str) and suspects == "auto"
        given = {name: value for name, value in (("beta", beta), ("epsilon", epsilon)) if value is not None}
        together = given and is_auto if size is None else epsilon is None and not beta
        if not together:
            raise TypeError(
                f"size={size}, epsilon={epsilon}, beta={beta} and suspects={suspects!r} do not go together; "
                "pass size=4000, say, perhaps with suspects or beta=0, or epsilon, perhaps with beta, or "
                "beta alone"
            )
        known = {
            name: check_range(name, value, *theory.RANGES[name])
            for name, value in {"eta": eta, **given}.items()
        }
        suspects = _SUSPECTS if is_auto else suspects
        if not (is_number(suspects) and 0 <= suspects < math.inf):
            raise ValueError(
                f"suspects={suspects!r} must be 'auto', or how many to suspect per outlier, such as 1.5; "
                "0 suspects none"
            )
        plan: SizeRule = ByTheorem(**known)
        if size is not None:
            plan = BySize(check_count("size", size), beta is not None, float(suspects))
        seed, calibrate = int(generator(random_state).integers(2**63)), check_flag("calibrate", calibrate)
        settings = cls(plan=plan, seed=seed, given=anchor, calibrate=calibrate, **asked)
        check_loss(settings.loss)
        checked_outliers(settings.n_outliers)
        if anchor is not None:
            as_anchor(anchor)
        settings.check_sampler()
        return settings

    @property
    def by_size(self) -> BySize:
        """The plan, where it is a number of rows."""
        if not isinstance(self.plan, BySize):
            raise TypeError("data that is read in passes needs size=, the number of rows to choose")
        return self.plan

    @property
    def chooser(self) -> Sampler | None:
        """The requested sampler; None for "auto", which depends on the anchor."""
        names, chosen = ["auto", *SAMPLERS], self.sampler
        if isinstance(chosen, str) and chosen in names:
            found = None if chosen == "auto" else SAMPLERS[chosen]()
        elif isinstance(chosen, Sampler):
            found = chosen.sampler if isinstance(chosen, Bound) else chosen
        else:
            wrong = ValueError if isinstance(chosen, str) else TypeError
            raise wrong(
                f"sampler={chosen!r} is not known; use one of {names}, or pass a Sampler, "
                "such as dm.UniformSampler()"
            )
        if not self.plan.uniform:
            return found
        if not isinstance(found, UniformSampler | None):
            raise TypeError(
                f"beta alone means a uniform sample (Theorem 1); sampler={chosen!r} needs size or epsilon"
            )
        return UniformSampler()

    def sampler_at(self, anchor: Anchor, n_columns: int) -> Sampler:
        """Choose the sampler for an anchor, by what a coreset keeps: its anchor leads to the same sampler."""
        if self.chooser is not None:
            return self.chooser
        n_parameters = int(np.prod(self.loss.parameter_shape(n_columns) or (1,)))
        few = isinstance(self.plan, BySize) and self.plan.size < ROWS_A_PARAMETER * n_parameters
        name = self.loss.default_sampler(anchor.radius > 0, few)
        return SensitivitySampler(quiet=True) if name == "sensitivity" else SAMPLERS[name]()

    def check_sampler(self) -> None:
        """Raise an error, with advice, if the sampler is unknown, or needs a radius that the anchor lacks."""
        chooser, is_bare = self.chooser, self.given is not None and not isinstance(self.given, Ball)
        by_theorem = isinstance(self.plan, ByTheorem) and not self.plan.uniform
        if is_bare and (by_theorem or isinstance(chooser, SensitivitySampler)):
            raise ValueError(
                f"{'epsilon' if by_theorem else repr(chooser)} needs to know how far from the anchor a "
                "solution may be; pass anchor=dm.Anchor(theta, radius) instead of a theta alone"
            )


def as_anchor(given: Any) -> Anchor:
    """Convert an Anchor, a Ball, a Solution or a theta to an anchor; raise ValueError for anything else."""
    if isinstance(given, Anchor):
        return given
    return Anchor(getattr(given, "theta", given), given.radius if isinstance(given, Ball) else 0.0)


@dataclass(frozen=True)
class CalibrationFeatures:
    """The features of a point that weights are calibrated to: its loss, centre and gradient at the anchor."""

    loss: Loss
    theta: Array
    gradient: bool
    centres: int

    @property
    def n_columns(self) -> int:
        """The number of features."""
        return 1 + self.centres + self.gradient * self.theta.size

    def totals(self, points: WeightedPoints, losses: Array, cache: Any) -> Array:
        """Sum weight times feature over all points: (q,)."""
        weights = points.weights
        parts: list[Any] = [[kept_sum(losses, weights)]]
        if self.centres:
            parts.append(np.bincount(cache, weights, minlength=self.centres))
        if self.gradient:
            gradient = self.loss.gradient_sum(self.theta, points.X, points.y, weights, cache=cache)
            parts.append(gradient.ravel())
        return np.concatenate(parts)

    def columns(self, points: WeightedPoints) -> Array:
        """Compute the features of a few points: (m, q)."""
        losses, cache = self.loss.values_and_cache(self.theta, points.X, points.y)
        return self.columns_of(points.X, points.y, losses, cache)

    def columns_of(self, X: Rows, y: Array | None, losses: Array, cache: Any) -> Array:
        """Compute the features of rows whose losses and cache at the anchor are known: (m, q).

        Those of a row have the same bits whichever other rows are present.
        """
        columns = np.zeros((X.shape[0], self.n_columns))
        columns[:, 0] = losses
        if self.centres:
            columns[np.arange(len(columns)), 1 + cache] = 1.0
        if self.gradient:
            self.loss.put_gradients(columns[:, self.centres + 1 :], self.theta, X, y, cache)
        return columns


def calibration_features(
    loss: Loss, anchor: Anchor, size: int, points: WeightedPoints
) -> CalibrationFeatures:
    """Choose as many features as a sample of ``size`` points can be calibrated to, whichever they are.

    The loss always; the gradient and the counts of centres, the counts alone, or neither.
    """
    one, k = points.take(slice(0, 1)), loss.n_centres if loss.has_centres else 1
    found = CalibrationFeatures(loss, anchor.theta, gradient=False, centres=0)
    more = [replace(found, centres=k if k > 1 else 0)]
    with suppress(MissingPropertyError):  # a custom divergence may lack what a gradient needs
        loss.gradients(anchor.theta, one.X, one.y)
        more.append(replace(more[0], gradient=True))
    for features in more:
        if features.n_columns * _ROWS_PER_COLUMN <= size:
            found = features
    return found


@dataclass(frozen=True, eq=False)
class Suspects:
    """The suspected outliers: the row of each where it is kept, and what the draw depends on.

    ``draws`` are those made from them: a changing table keeps suspects until one changes.
    """

    rows: Array
    ids: Array
    losses: Array
    weights: Array
    labels: Array | None = None
    draws: dict[Any, Any] = field(default_factory=dict)


class Scored(RankedRows):
    """Points as seen from an anchor, which are candidates: some are suspected, the others have ranks.

    ``outer`` are the positions of the suspected; ``inner`` has all points, of which these have weight zero.
    """

    def __init__(
        self,
        points: WeightedPoints,
        outer: Array,
        inner: AnchoredPoints,
        ranks: Any = None,
        numbers: Array | None = None,
        totals: Array | None = None,
    ) -> None:
        super().__init__(inner.points, ranks, numbers)
        self._all, self.inner, self._totals = points, inner, totals
        labels = None if points.y is None else points.y[outer]
        self._suspects = Suspects(
            outer, points.ids[outer], inner.losses[outer], points.weights[outer], labels
        )

    def suspects(self) -> Suspects:
        return self._suspects

    def totals(self) -> Array | None:
        return self._totals

    def reduce(self, sampler: Sampler, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        live = np.flatnonzero(self.points.weights > 0)
        rows, weights = reduce_rows(sampler, self.points.take(live), size, rng)
        return live[rows], weights

    def copy(self, outer: Array, inner: Array) -> WeightedPoints:
        rows = np.concatenate([outer, inner])
        return self._all.take_unchecked(rows, self._all.weights[rows])


@dataclass(frozen=True, eq=False)
class View:
    """All that scores depend on: the settings, the anchor, the sampler with what it froze.

    Attributes
    ----------
    settings : Settings
    anchor : Anchor
        With all that the sampler freezes.
    sampler : Sampler
    features : CalibrationFeatures or None
        What the weights are calibrated to.
    blind : bool
        Whether there is no anchor: points are ranked without losses.
    """

    settings: Settings
    anchor: Anchor
    sampler: Sampler
    features: CalibrationFeatures | None
    blind: bool = False

    @property
    def loss(self) -> Loss:
        """The learning problem."""
        return self.settings.loss

    @property
    def seed(self) -> int:
        """The seed of all random choices."""
        return self.settings.seed

    @property
    def by_class(self) -> bool:
        """Whether strata are classes."""
        ranked = isinstance(self.sampler, RankedSampler) and self.sampler.has_class_strata
        return ranked and self.loss.has_classes and not self.blind

    def anchored(self, points: WeightedPoints) -> tuple[AnchoredPoints, Any]:
        """Compute the losses of points at the anchor, and the loss's cache if totals are needed."""
        loss, theta, cache = self.loss, self.anchor.theta, None
        if self.blind:
            losses = np.zeros(len(points))
        elif self.features is not None:
            losses, cache = loss.values_and_cache(theta, points.X, points.y)
        else:
            losses = loss.values(theta, points.X, points.y)
        losses = _checked_losses(losses, loss, points)
        return AnchoredPoints(points, None if self.blind else loss, self.anchor, losses), cache

    def score(self, points: WeightedPoints, suspect: Callable[..., Array] | None = None) -> Scored:
        """Compute the loss of every point, and rank, stratum and totals of those that are not suspected.

        ``suspect`` returns the positions of the points to suspect, from the points and their losses.
        """
        inner, cache = self.anchored(points)
        outer = np.empty(0, np.intp) if suspect is None else suspect(points, inner.losses)
        if len(outer):
            weights = np.array(points.weights)
            weights[outer] = 0.0
            inner = replace(inner, points=points.with_parts(weights=weights))
        check_finite(inner)
        if not isinstance(self.sampler, RankedSampler):
            return Scored(points, outer, inner)
        ranked = rank_points(self.sampler, inner, self.seed, cache, self.features)
        return Scored(points, outer, inner, *ranked)


def rank_points(
    sampler: RankedSampler,
    anchored: AnchoredPoints,
    seed: int,
    cache: Array | None,
    features: CalibrationFeatures | None,
    *,
    refuse: bool = True,
) -> tuple[Array, Array | None, Any]:
    """Compute ranks, strata and totals of features, in one pass; points of weight zero are absent."""
    points = anchored.points
    ranks = np.empty(len(points))
    strata = sampler.strata(anchored.take(slice(0, 1)))
    if strata is not None:
        strata = np.empty(len(points), dtype=np.asarray(strata).dtype)

    def rank(chunk: slice) -> tuple[Any]:
        part = anchored.take(chunk)
        ranks[chunk] = compute_ranks(sampler, part, seed, refuse=refuse)
        if strata is not None:
            strata[chunk] = sampler.strata(part)
        if features is None:
            return (0.0,)
        return (features.totals(part.points, part.losses, None if cache is None else cache[chunk]),)

    rows = scratch_rows(points.X)  # long chunks: threads hand the interpreter's lock over less often
    with one_blas_thread() if len(points) > _FEW else nullcontext():
        (totals,) = sum_over_chunks(rank, len(points), rows)
    return ranks, strata, totals


def largest_losses(losses: Array, ids: Array, weights: Array, weight: float) -> Array:
    """Find the points of the largest losses: the fewest that weigh at least ``weight`` together.

    Of equal losses the larger id comes first: the order of table L. A point is
    never cut in two. Where all weigh less, they are all found.

    Examples
    --------
    >>> largest_losses(np.array([3.0, 9.0, 1.0, 9.0]), np.arange(4), np.ones(4), 1)
    array([3])
    """
    if not weight > 0:
        return np.empty(0, np.intp)
    if not weights.sum() > weight:
        return np.flatnonzero(weights > 0)
    rows, left = set_aside(losses, weights, weight, ids)
    return rows[left < weights[rows]]


SAMPLE = 20_000
"""The number of points from which an anchor is made, and all that is frozen with it, if there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample uses other random numbers than the coreset


def first_view(settings: Settings) -> View:
    """Return the view of the first pass, in which the smallest ranks are the sample for an anchor."""
    return blind_view(replace(settings, plan=BySize(SAMPLE), seed=settings.seed ^ _SALT, given=None))


def blind_view(settings: Settings) -> View:
    """Return a view without an anchor: of a uniform sample."""
    return View(settings, NOWHERE, UniformSampler(), None, blind=True)


def anchor_sample(points: WeightedPoints, seed: int) -> WeightedPoints:
    """Sample at most 20,000 points of positive weight, sorted by id: heavy points are not missed."""
    anchored = AnchoredPoints(points, None, NOWHERE, points.weights)
    return sample_of(points, rank_points(UniformSampler(), anchored, seed ^ _SALT, None, None)[0])


def sample_of(points: WeightedPoints, ranks: Array) -> WeightedPoints:
    """Take the 20,000 points of the smallest ranks, sorted by id, with weights that represent all points.

    A light point was included by chance, and is given the weight of the points that it represents.
    """
    rows, following = smallest(ranks, points.ids, SAMPLE)
    rows = rows[np.argsort(points.ids[rows])]
    weights = points.weights[rows]
    if not (weights == weights[:1]).all():
        weights = np.maximum(weights, 1 / following)
    return points.take_unchecked(rows, weights)


def given_anchor(given: Any, loss: Loss, n_columns: int) -> Anchor | None:
    """Return the anchor given; None where one has to be found. Raise ValueError if neither can be used."""
    if given is None:
        if loss.parameter_shape(n_columns) is None:
            raise ValueError(
                f"{loss!r} does not define the shape of theta, so no anchor can be found; "
                "pass a rough solution as anchor="
            )
        return None
    anchor = as_anchor(given)
    loss.check_parameters(anchor.theta, n_columns, "the anchor's theta")
    return anchor


def _checked_losses(losses: Any, loss: Loss, points: WeightedPoints) -> Array:
    """Raise ValueError unless a custom loss returned one number per point, zero or more."""
    if loss.finds_nonfinite:
        return losses
    values = np.asarray(losses)
    if values.shape != (len(points),) or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{loss!r} returned values of shape {values.shape} and type {values.dtype}; "
            f"one number for each of {len(points)} points is needed"
        )
    wrong = ~(values >= 0)
    if wrong.any():
        raise ValueError(
            f"{loss!r} gave the loss {values[wrong][0]} to id {points.ids[wrong][0]}; "
            "losses must not be negative"
        )
    return values


def check_finite(inner: AnchoredPoints) -> None:
    """Raise ValueError if the loss of a point that is not suspected is infinite or NaN."""
    rows = np.flatnonzero(~np.isfinite(inner.losses))
    rows = rows[inner.points.weights[rows] > 0]
    if len(rows):
        raise ValueError(
            f"id {inner.points.ids[rows[0]]} has the loss {inner.losses[rows[0]]} at the anchor; scale the "
            "columns, pass float64, or raise n_outliers"
        )


def view_from(settings: Settings, anchor: Anchor, points: WeightedPoints) -> View:
    """Make the view from an anchor that has all that the sampler freezes; ``points`` are any."""
    settings = replace(settings, loss=settings.loss.bind(anchor.frozen))
    sampler, features = settings.sampler_at(anchor, points.n_columns), None
    by_size = isinstance(settings.plan, BySize)  # theorems are about weights as sampled
    if settings.calibrate and by_size and isinstance(sampler, RankedSampler):
        features = calibration_features(settings.loss, anchor, settings.by_size.size, points)
    return View(settings, anchor, sampler, features)


def is_complete(settings: Settings, n_columns: int) -> bool:
    """Return whether the anchor given is all of the view: nothing has to be found or frozen on a sample."""
    anchor = given_anchor(settings.given, settings.loss, n_columns)
    if anchor is None or not set(settings.loss.freezes) <= set(anchor.frozen):
        return False
    return has_frozen(settings.sampler_at(anchor, n_columns), anchor)


def find_view(settings: Settings, sample: WeightedPoints, z: float, total: float, n_points: int) -> View:
    """Find the view: the anchor given, or one found on a sample, with what the sampler freezes there.

    ``z``, ``total`` and ``n_points`` are the weight to set aside, and the weight and number of all points.
    """
    loss = settings.loss
    fraction = float(f"{z / total:.12g}")  # so that the anchor does not depend on how the total was rounded
    anchor = given_anchor(settings.given, loss, sample.n_columns)
    known = {} if anchor is None else anchor.frozen
    frozen = {} if set(loss.freezes) <= set(known) else loss.freeze(sample)
    loss = loss.bind({**frozen, **known})
    settings = replace(settings, loss=loss)
    if settings.chooser is not None:
        settings.chooser.check(loss, sample)
    settings.check_sampler()
    if anchor is None:
        try:
            anchor = find_anchor(sample, loss, fraction, settings.seed, n_rows=n_points)
        except MissingPropertyError as error:
            raise MissingPropertyError(f"{error}; or pass a rough solution as anchor=") from None
    anchor = anchor.freeze(**frozen) if frozen else anchor
    sampler = settings.sampler_at(anchor, sample.n_columns)
    if isinstance(sampler, RankedSampler) and not has_frozen(sampler, anchor):
        anchored, _ = View(settings, anchor, sampler, None).anchored(sample)
        whole = sample.total_weight
        weight = settings.plan.suspected_of(fraction * whole, whole, anchored)
        inner = np.where(np.isfinite(anchored.losses), sample.weights, 0.0)  # others may be suspected
        inner[largest_losses(anchored.losses, sample.ids, sample.weights, weight)] = 0.0
        if inner.any():
            anchored = replace(anchored, points=sample.with_parts(weights=inner))
        anchor = freeze(sampler, anchored).anchor
    return view_from(settings, anchor, sample)
