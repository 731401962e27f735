"""Coreset: weighted rows, how their weights are calibrated, and estimates about all the data."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from duramen.arrays import Array, read_only
from duramen.coreset import display, plot, save
from duramen.coreset.view import calibration_features
from duramen.losses.base import Anchor, Loss
from duramen.points import WeightedPoints
from duramen.trimming import Iterate, Problem, outlier_weight

_QUICK = 2e8  # products that take about a tenth of a second
_MOST = 3.0  # the largest factor, and its inverse the smallest; docs/sampling.md has the measurement
_LEAST = 1 / _MOST
_REACH = _MOST - _LEAST
_RATE = _REACH / ((1 - _LEAST) * (_MOST - 1))
_RIDGE = 10.0  # in points: a total that ten points contribute to is met halfway
_CHANCE = 5.0  # standard errors
_STEPS, _LENGTHS = 50, [0.5**halvings for halvings in range(21)]
_STEP = 2.0**32  # totals are rounded to multiples of the spread over it
_CONSTANT = 1e-6  # a column that varies by less is met anyway, and only rounding would show in it
_TOO_LIGHT = 1e-70  # a column that varies only among points of next to no weight: its fourth power vanishes
_QUANTILE = 1.959963984540054  # of the normal distribution: 95% lie within this many standard errors
_ENOUGH = 1e-12  # gain of a step in the dual: about a squared deviation from a total, in units of spread


@final
class Calibration:
    """An adjustment of sampled weights, so that they reproduce totals that are known exactly.

    Of the features of every point at the anchor (the loss f, its gradient, and for
    centres how many points are nearest to each) the totals over all points are known.
    Among all weights near the sampled ones, calibration takes those that come close
    to the totals (Deville and Saerndal 1992, their bounded distance): the coreset's
    objective then agrees with the data's to first order around the anchor.

    Each weight is multiplied by a factor between 1/3 and 3, so none vanishes, and
    together they keep their sum. Totals that only a few sampled points contribute
    to (a rare one-hot column, in the sample twice) are met less closely, by a ridge
    in inverse proportion to the number of those points.

    ``columns`` (m, q) are the features of each sampled point, ``weights`` (m,) as sampled.
    """

    def __init__(self, columns: Array, weights: Array) -> None:
        self.total = float(weights.sum())
        self.shares = weights / self.total
        self.means = self.shares @ columns
        self.design = np.empty((len(weights), columns.shape[1] + 1))
        self.design[:, 0] = 1.0
        apart = np.subtract(columns, self.means, out=self.design[:, 1:])
        largest = np.abs(apart).max(axis=0)
        largest[largest <= _CONSTANT * np.abs(self.means)] = np.inf  # so that the column becomes zero
        apart *= 1 / largest  # now no square overflows or vanishes
        squares = np.square(apart)
        spread = np.sqrt(self.shares @ squares)
        spread[spread <= _TOO_LIGHT] = np.inf
        apart /= spread
        self.spread = largest * spread
        self.errors = np.sqrt(np.square(self.shares) @ squares) / spread  # of a mean, in units of its spread
        # fourth moments measure how few points a column depends on: one over their effective number
        fourth = np.square(self.shares) @ np.square(squares, out=squares)
        self.ridge = np.append(0.0, _RIDGE * (fourth / spread**4))

    def weights(self, totals: Array) -> Array:
        """Compute the calibrated weights, for ``totals`` (q,) over all points that the sample represents.

        The dual of the bounded distance is convex and smooth; damped Newton steps
        minimise it. A total farther off than chance allows is due to points that are
        not in the sample; it is followed only as far as chance allows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            off = (totals / self.total - self.means) / self.spread
            off = np.rint(off * _STEP) / _STEP  # so that the rounding of totals hardly matters
        reach = _CHANCE * self.errors
        goal = np.append(1.0, np.where(np.isfinite(off), np.clip(off, -reach, reach), 0.0))
        tilt = np.zeros(len(goal))
        height, factors, bends = self._dual(tilt, goal)
        stale, last, factor = True, np.inf, None
        for _ in range(_STEPS):
            slope = (self.shares * factors) @ self.design - goal + self.ridge * tilt
            if stale:  # the curvature is kept while full steps succeed: it takes most of the time
                scaled = self.design * np.sqrt(self.shares * bends)[:, None]
                curved = scaled.T @ scaled
                curved[np.diag_indices(len(goal))] += self.ridge + 1e-12
                factor = cho_factor(curved, overwrite_a=True, check_finite=False)
            step = -cho_solve(factor, slope, check_finite=False)
            gain = -(slope @ step)
            if not gain > _ENOUGH:
                break
            for length in _LENGTHS:
                there, new_factors, new_bends = self._dual(tilt + length * step, goal)
                if there <= height - 1e-4 * length * gain:
                    break
            stale = length < 1 or gain > last / 10
            last = gain
            tilt, height, factors, bends = tilt + length * step, there, new_factors, new_bends
        calibrated = self.shares * factors
        return calibrated * (self.total / calibrated.sum())

    def _dual(self, tilt: Array, goal: Array) -> tuple[Any, Array, Array]:
        """Evaluate the dual, the factors that belong to it, and their derivatives."""
        score = self.design @ tilt
        inner = _RATE * score + math.log((1 - _LEAST) / (_MOST - 1))
        part = expit(inner)
        height = self.shares @ (_LEAST * score + _REACH / _RATE * np.logaddexp(0, inner))
        height += self.ridge @ tilt**2 / 2 - goal @ tilt
        return height, _LEAST + _REACH * part, _REACH * _RATE * part * (1 - part)

    def residuals(self, values: Array) -> Array:
        """Regress values on the features, with the same ridge; return the residual of each point.

        To first order the calibrated sum has the error of the uncalibrated sum of
        these residuals. Each is measured from the regression without its own point,
        which otherwise would hide a part of it.
        """
        weighted = self.design * self.shares[:, None]
        inverse = np.linalg.inv(weighted.T @ self.design + np.diag(self.ridge + 1e-12))
        with np.errstate(over="ignore", invalid="ignore"):
            left = values - self.design @ (inverse @ (weighted.T @ values))
        own = np.einsum("ij,ij->i", weighted @ inverse, self.design)
        return left / np.maximum(1 - own, 0.1)


class Estimate(NamedTuple):
    """An objective, and its 95% interval.

    Attributes
    ----------
    value : float
        f_z(theta, C).
    std_error : float
        Of ``value`` as an estimate of f_z(theta, X). NaN where the inclusion
        probabilities of the sampler are not known.
    low, high : float
        The interval that contains f_z(theta, X) for about 95% of all seeds.
    """

    value: float
    std_error: float
    low: float
    high: float

    @staticmethod
    def of(value: float, std_error: float) -> Estimate:
        """Compute the interval from a value and its standard error; losses are not negative."""
        reach = _QUANTILE * std_error
        low = 0.0 if math.isinf(reach) else max(value - reach, 0.0)  # NaN stays NaN
        return Estimate(value, std_error, low, value + reach)

    def __repr__(self) -> str:
        return "Estimate: {:,.6g} +- {:,.3g}, 95% between {:,.6g} and {:,.6g}".format(*self)


def _standard_error(values: Array, weights: Array, inclusion: Array, groups: Array) -> float:
    """Estimate the standard error of a weighted sum of values over a sample; NaN where it is not known.

    With c the loss above which weight is set aside, f_z is the sum of weight times
    min(f, c), less c z; and to first order in the sample it does not matter that c
    depends on the sample too. So the error of f_z(theta, C) is that of a plain sum
    over a sample with known inclusion probabilities: a textbook variance. ``values``
    are residuals where weights were calibrated; ``weights`` are as sampled, with the
    exact sum in each group.
    """
    mine = ~(inclusion >= 1)
    values, weights, inclusion = values[mine], weights[mine], inclusion[mine]
    if not len(values):
        return 0.0
    if not np.isfinite(values).all():
        return math.nan if np.isnan(inclusion).any() else math.inf
    size, heaviest = float(np.abs(values).max()) or 1.0, float(weights.max())
    values, weights = values / size, weights / heaviest
    _, group, counts = np.unique(groups[mine], return_inverse=True, return_counts=True)
    means = np.bincount(group, weights * values) / np.bincount(group, weights)
    means[counts == 1] = 0.0  # a single point has no spread to estimate its error from: its value is used
    factors = counts / np.maximum(counts - 1, 1)
    squares = (1 - inclusion) * np.square(weights * (values - means[group])) * factors[group]
    return math.sqrt(squares.sum()) * heaviest * size


@final
@dataclass(frozen=True, eq=False, repr=False)
class Coreset:
    """Weighted rows that represent a large dataset with outliers; made by :func:`duramen.robust_coreset`.

    Attributes
    ----------
    points : WeightedPoints
        The rows with their weights, sorted by id; also as ``X``,
        ``y``, ``weights`` and ``ids``.
    suspected : array (m,), bool
        Which rows represent suspected outliers.
    own_weights : array (m,)
        The weight of each row in the data.
    inclusion : array (m,)
        The inclusion probability of each row; NaN if the sampler does not
        know it.
    groups : array (m,), int
        Which rows were drawn together: below 0 the suspected, 0 and up the layers.
    loss : Loss
    anchor : Anchor or None
        With all that was frozen; passed back, it reproduces every choice. None
        for a uniform sample by Theorem 1, if none was given.
    threshold : float
        The smallest loss at the anchor of a suspected point; infinite where none is suspected.
    n_points : int
        The number of points of positive weight that the coreset represents.
    n_suspected : int
        The number of suspected points among them.
    n_outliers : float
        The weight to set aside, z.
    sampler : str
        The sampler of the rows that are not suspected.
    calibrated : bool
    seed : int
        The seed of all random choices.
    columns : tuple of str, or None
        The names of the columns, where the data had them.
    metadata : dict, or None
        What was saved beside it, and :func:`duramen.load_coreset` read: JSON types.
    """

    points: WeightedPoints
    suspected: Array
    own_weights: Array
    inclusion: Array
    groups: Array
    loss: Loss
    anchor: Anchor | None
    threshold: float
    n_points: int
    n_suspected: int
    n_outliers: float
    sampler: str
    calibrated: bool
    seed: int
    columns: tuple[str, ...] | None = None
    metadata: dict[str, Any] | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # arrays come out of a pickle writeable

    def __post_init__(self) -> None:
        for name in ("suspected", "own_weights", "inclusion", "groups"):
            view = read_only(np.asarray(getattr(self, name)))
            if len(view) != len(self.points):
                raise ValueError(f"{name} has {len(view)} entries for {len(self.points)} rows")
            vars(self)[name] = view

    X = property(attrgetter("points.X"), doc="The rows.")
    y = property(attrgetter("points.y"), doc="Their labels.")
    weights = property(attrgetter("points.weights"), doc="Their weights.")
    ids = property(attrgetter("points.ids"), doc="Which points of the data they are.")

    @property
    def total_weight(self) -> float:
        """The weight of all the data."""
        return self.points.total_weight

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return display.summary(self)

    def _repr_html_(self) -> str:
        """Show a small table in a notebook."""
        return display.table(self)

    def objective(self, theta: Any, n_outliers: float | None = None) -> float:
        """Evaluate f_z(theta, C), which approximates f_z(theta, X) on all the data.

        Parameters
        ----------
        theta : array
        n_outliers : float, optional
            A different number of outliers: a count, or a fraction.
        """
        return self._at(theta, n_outliers).objective

    def estimate(self, theta: Any, n_outliers: float | None = None) -> Estimate:
        """Estimate f_z(theta, X) with error bars, without looking at the data.

        The standard error is that of the random choice of rows: for a fixed
        theta, about 95% of all seeds give an interval that contains f_z(theta, X).
        A theta fitted on this coreset is optimised for it; its objective is a
        little better here than on the data.

        Examples
        --------
        >>> import numpy as np
        >>> import duramen as dm
        >>> X = np.random.default_rng(0).normal(size=(100_000, 2))
        >>> core = dm.robust_coreset(X, loss=dm.KMeansLoss(1), size=500, n_outliers=100, random_state=0)
        >>> estimate = core.estimate([[0.5, 0.0]])
        >>> truth = dm.trimmed_objective(dm.points(X), [[0.5, 0.0]], loss=dm.KMeansLoss(1), n_outliers=100)
        >>> estimate.low < truth < estimate.high, estimate.std_error < 0.02 * truth
        (True, True)
        """
        _, losses, kept, objective = self._at(theta, n_outliers)
        level = losses[kept > 0].max(initial=0.0)  # above which weight is set aside
        return Estimate.of(objective, self.error_of(np.minimum(losses, level, dtype=np.float64)))

    def error_of(self, values: Array) -> float:
        """Estimate the standard error of the weighted sum of values of the rows, by the random choice of rows."""
        values, inner = values.copy(), self.groups >= 0
        if self._calibration is not None:
            values[inner] = self._calibration.residuals(values[inner])
        return _standard_error(values, self._sampled, self.inclusion, self.groups)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame: needs the extra ``duramen[frames]``.

        One column per feature, with its name in the data or x0, x1, ...; then y if
        there are labels, weight and suspected ("duramen:weight" and so on if a
        feature has that name). The index is the id. Sparse rows become sparse columns.

        Examples
        --------
        >>> import duramen as dm
        >>> core = dm.robust_coreset([[0.0], [1.0]], [0, 1], loss=dm.LogisticLoss(), size=2, random_state=0)
        >>> core.to_pandas()
             x0  y  weight  suspected
        id
        0   0.0  0     1.0      False
        1   1.0  1     1.0      False
        """
        return display.frame_of(self)

    def plot(self, ax: Any = None, *, max_points: int = 5000, random_state: Any = 0) -> Any:
        """Draw the rows in their principal plane: needs the extra ``duramen[plot]``.

        Areas show weights, and colours show labels if these are few; suspected
        rows are crosses. The plane and the frame are those of the rows that are
        not suspected; rows far outside are squares on the frame.
        A single column is spread out at random, or plotted against y.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        max_points : int
            The number of rows to draw; if there are more, a random subset.
        random_state : None, int or numpy Generator
            For the random parts of the picture.

        Returns
        -------
        matplotlib Axes
        """
        return plot.draw(self, ax, max_points, random_state)

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Save the coreset as a Parquet file, for :func:`duramen.load_coreset`; needs ``duramen[frames]``.

        Any Parquet reader shows the rows: one column per feature, and our own, whose
        names begin with "duramen:". The rest is JSON in the file's metadata. A
        custom loss or divergence cannot be saved: the file has its repr, and
        loading needs it as an argument. An existing file is replaced only when all
        is written; after an error it is unchanged.

        Parameters
        ----------
        path : str or path
        metadata : dict, optional
            Names and values of JSON types to save in the same file: a loaded coreset
            has them as ``metadata``. By default this coreset's own.
        """
        save.write(self, path, self.metadata if metadata is None else metadata)

    def _at(self, theta: Any, n_outliers: float | None) -> Iterate:
        z = self.n_outliers if n_outliers is None else outlier_weight(n_outliers, self.total_weight)
        return Problem(self.points, self.loss, z).at(theta)

    @cached_property
    def _at_anchor(self) -> Estimate | None:
        """The estimate at the anchor, for the repr: None where it would take long, or the loss fails.

        The standard error is NaN where only that would take long.
        """
        if self.anchor is None or len(self) * self.anchor.theta.size > _QUICK:
            return None
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                calibration = self._calibration
                if calibration is not None and len(self) * calibration.design.shape[1] ** 2 > _QUICK:
                    return Estimate.of(self.objective(self.anchor.theta), math.nan)
                return self.estimate(self.anchor.theta)
        except Exception:  # a custom loss may fail in any way, and a repr must not
            return None

    @cached_property
    def _sampled(self) -> Array:
        """The weights before calibration, up to shifts between groups: close enough for an error bar."""
        if not self.calibrated:
            return self.weights
        apart = np.where(self.inclusion < 1, self.groups, self.groups.min() - 1)  # certain rows apart
        groups = np.unique(apart, return_inverse=True)[1]
        raw = self.own_weights / self.inclusion
        scale = np.bincount(groups, self.weights) / np.bincount(groups, raw)
        return np.where(self.groups >= 0, raw * scale[groups], self.weights)

    @cached_property
    def _calibration(self) -> Calibration | None:
        inner = np.flatnonzero(self.groups >= 0)
        if not self.calibrated or self.anchor is None:
            return None
        features = calibration_features(self.loss, self.anchor, len(inner), self.points)
        return Calibration(features.columns(self.points.take(inner)), self._sampled[inner])


def load_coreset(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Coreset:
    """Load a coreset that :meth:`Coreset.save` wrote: the same, bit for bit.

    Needs the extra ``duramen[frames]``. The loaded anchor has all that was
    frozen: with it and the same seed, :func:`duramen.robust_coreset` builds the
    same coreset from the same data.

    Parameters
    ----------
    path : str or path
    loss : Loss, optional
        Needed if the coreset was made with a custom loss or divergence, which
        cannot be saved.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not a saved coreset, is damaged, or was written by a newer version;
        if ``loss`` is needed, or differs from that of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import duramen as dm
    >>> core = dm.robust_coreset([[0.0], [1.0], [5.0]], loss=dm.KMeansLoss(1), size=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     core.save(pathlib.Path(folder) / "core.parquet")
    ...     again = dm.load_coreset(pathlib.Path(folder) / "core.parquet")
    >>> again.loss, again.weights.tolist() == core.weights.tolist()
    (KMeansLoss(k=1), True)
    """
    return Coreset(**save.read(path, loss))
