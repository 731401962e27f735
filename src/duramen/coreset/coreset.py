"""Coreset: weighted rows, where they come from, and what they say about all the data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from duramen.arrays import Array, Rows
from duramen.ball import Anchor
from duramen.coreset import display, plot
from duramen.coreset.display import frame_of
from duramen.coreset.estimate import Estimate, capped, standard_error
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.samplers.calibration import Calibration, calibration_features
from duramen.trimming import kept_sum, kept_weights, outlier_weight

__all__ = ["Coreset"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Coreset:
    """Weighted rows that stand for a large dataset with outliers; made by :func:`duramen.robust_coreset`.

    Attributes
    ----------
    points : WeightedPoints
        The rows with their weights, in the order of their ids; also as ``X``,
        ``y``, ``weights`` and ``ids``.
    suspected : array (m,), bool
        Which rows stand for suspected outliers.
    own_weights : array (m,)
        What each row weighs in the data.
    inclusion : array (m,)
        The probability with which each row came in; NaN if the sampler does
        not know.
    groups : array (m,), int
        Which rows were drawn together: below 0 the suspected, 0 and up the layers.
    loss : Loss
    anchor : Anchor or None
        With all that was frozen; handed back, it reproduces every choice. None
        for a uniform sample by Theorem 1, if none was given.
    threshold : float
        The loss at the anchor where suspicion starts; infinite where there is none.
    n_points : int
        How many points of positive weight the coreset stands for.
    n_suspected : int
        How many of them are suspected.
    n_outliers : float
        The weight to set aside, z.
    sampler : str
        What drew the rows that are not suspected.
    calibrated : bool
    seed : int
        What the random choices were made from.
    columns : tuple of str, or None
        The names of the columns, where the data had them.
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # arrays come out of a pickle writeable

    def __post_init__(self) -> None:
        for name in ("suspected", "own_weights", "inclusion", "groups"):
            view = np.asarray(getattr(self, name)).view()
            if len(view) != len(self.points):
                raise ValueError(f"{name} has {len(view)} entries for {len(self.points)} rows")
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @property
    def X(self) -> Rows:  # noqa: N802
        """The rows."""
        return self.points.X

    @property
    def y(self) -> Array | None:
        """Their labels."""
        return self.points.y

    @property
    def weights(self) -> Array:
        """Their weights."""
        return self.points.weights

    @property
    def ids(self) -> Array:
        """Which points of the data they are."""
        return self.points.ids

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
        """Evaluate f_z(theta, C): what f_z(theta, X) on all the data is about.

        Parameters
        ----------
        theta : array
        n_outliers : float, optional
            Another number of outliers: a count, or a fraction.
        """
        losses, kept = self._trimmed(theta, n_outliers)
        return kept_sum(losses, kept)

    def estimate(self, theta: Any, n_outliers: float | None = None) -> Estimate:
        """Estimate f_z(theta, X) with error bars, without looking at the data.

        The standard error is that of the random choice of rows: for a fixed
        theta, about 95% of all seeds give an interval that holds f_z(theta, X).
        A theta fitted on this coreset was chosen to look good on it; its
        objective is a little better here than on the data.

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
        losses, kept = self._trimmed(theta, n_outliers)
        values = np.asarray(capped(losses, kept), dtype=np.float64)
        error = standard_error(values, self._sampled, self.inclusion, self.groups, self._calibration)
        return Estimate.of(kept_sum(losses, kept), error)

    def to_pandas(self) -> Any:
        """Make a pandas data frame of the rows: needs the extra ``duramen[frames]``.

        One column a feature, by its name in the data or x0, x1, ...; then y where
        there are labels, weight and suspected ("duramen:weight" and so on where a
        feature is called so). The index is the id. Sparse rows become sparse columns.

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
        return frame_of(self)

    def plot(self, ax: Any = None, *, max_points: int = 5000, random_state: Any = 0) -> Any:
        """Draw the rows in their principal plane: needs the extra ``duramen[plot]``.

        Areas go by weight and colours by label, where labels are few; suspected
        rows are crosses. The plane and the frame are those of the rows that are
        not suspected; what lies far beyond is drawn on the frame, with an arrow.
        One column is spread out at random, or against y.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; into a new figure by default.
        max_points : int
            How many rows to look at; of more, so many at random.
        random_state : None, int or numpy Generator
            For what is random in the picture.

        Returns
        -------
        matplotlib Axes
        """
        return plot.draw(self, ax, max_points, random_state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save it as a Parquet file, for :func:`duramen.load_coreset`: needs the extra ``duramen[frames]``.

        Any Parquet reader shows the rows: one column a feature, and ours, whose
        names begin with "duramen:". The rest is JSON in the file's metadata. A
        loss or a divergence of your own cannot be in a file: its repr is, and
        loading then asks for it. An existing file is replaced when all is
        written; after an error it is as it was.
        """
        from duramen.coreset.save import write

        write(self, path)

    def _trimmed(self, theta: Any, n_outliers: float | None) -> tuple[Array, Array]:
        z = self.n_outliers if n_outliers is None else outlier_weight(n_outliers, self.total_weight)
        losses = self.loss.values(theta, self.X, self.y)
        return losses, kept_weights(losses, self.weights, z, self.ids)

    @cached_property
    def _at_anchor(self) -> Estimate | None:
        """What a repr says of f_z; found once."""
        return display.at_anchor(self)

    @cached_property
    def _sampled(self) -> Array:
        """The weights before calibration, up to what moved between groups: close enough for an error bar."""
        if not self.calibrated:
            return self.weights
        drawn = np.where(self.inclusion < 1, self.groups, self.groups.min() - 1)  # the certain stand apart
        groups = np.unique(drawn, return_inverse=True)[1]
        raw = self.own_weights / self.inclusion
        scale = np.bincount(groups, self.weights) / np.bincount(groups, raw)
        return np.where(self.groups >= 0, raw * scale[groups], self.weights)

    @cached_property
    def _calibration(self) -> Calibration | None:
        inner = np.flatnonzero(self.groups >= 0)
        if not self.calibrated or self.anchor is None or not len(inner):
            return None
        known = calibration_features(self.loss, self.anchor, len(inner), self.points)
        return Calibration(known.columns(self.points.take(inner)), self._sampled[inner])
