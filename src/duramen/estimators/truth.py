"""Truth discovery: find the truth where sources disagree and some lie."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np

from duramen.arrays import ABOVE_ZERO, LARGEST, Array, check_range, refuse_nonfinite, row_norms
from duramen.estimators.base import N_OUTLIERS, RobustEstimator
from duramen.estimators.fitting import AllRows, FitSettings, TrimmedPass, is_auto, weighted_median
from duramen.losses import TruthDiscoveryLoss
from duramen.points import WeightedPoints


@dataclass(eq=False, repr=False)
class TruthDiscovery(RobustEstimator):
    """Find the truth that most sources agree on; the worst are set aside, and distant ones count little.

    Each row is a source, each column a question, and each entry a claim. With t
    the distance of a row from the truth in units of ``scale``, its loss is t^2 up to
    1 and 1 + log t^2 beyond (the paper's appendix A).

    Parameters
    ----------
    {parameters}
    scale : float or "auto"
        The typical error of an honest source. "auto" is the median distance from
        the medians of the columns; ``scale_`` is the result.

    Attributes
    ----------
    truth_ : array (d,)
    scale_ : float
        The coreset and the losses are in units of it. Rows are copied, unless it is 1.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> claims = [10.0, 20.0, 30.0] + rng.normal(size=(20_000, 3))
    >>> claims[:4000] = 99  # a fifth of the sources collude
    >>> model = dm.TruthDiscovery(n_outliers=0.2, random_state=0).fit(claims)
    >>> model.truth_.round(1)
    array([10., 20., 30.])
    >>> model.reliability([[10.0, 20.0, 30.0], [99.0, 99.0, 99.0]]).round(2)
    array([1., 0.])
    """

    n_outliers: float = N_OUTLIERS
    _: KW_ONLY
    scale: float | str = "auto"

    def _settings(self) -> FitSettings:
        if not is_auto(self.scale):
            check_range("scale", self.scale, ABOVE_ZERO, LARGEST, "a positive number, or 'auto'")
        return self._settings_of(TruthDiscoveryLoss())

    def _adapt(self, data: AllRows) -> AllRows:
        if data.points is not None:
            refuse_nonfinite(data.points.X)
        self.scale_ = float(self._measure_scale(data.sample()) if is_auto(self.scale) else self.scale)
        self._as_trained = partial(_in_units, scale=self.scale_)
        return data.converted(self._as_trained)

    def reliability(self, X: Any) -> Array:
        """Compute the influence of each source: (n,), 1 within ``scale_`` of the truth, then 1 / t^2."""
        return np.exp(np.minimum(0, 1 - self.losses(X)))  # beyond 1 the loss is 1 + log t^2

    def _set_parameters(self, found: TrimmedPass, data: AllRows) -> None:
        self.truth_ = self.solution_.theta * self.scale_

    def _measure_scale(self, sample: WeightedPoints) -> float:
        """Compute the median distance from the medians of the columns."""
        rows, weights = np.asarray(sample.X, dtype=np.float64), sample.weights
        with np.errstate(over="ignore"):
            distances = row_norms(rows - [weighted_median(column, weights) for column in rows.T])
        if not np.isfinite(distances).all():
            raise ValueError("the claims are too far apart for float64; scale them down")
        return weighted_median(distances, weights) or distances.max() or 1.0


def _in_units(X: Array, y: Any, *, scale: float) -> tuple[Array, None]:
    if scale == 1:
        return X, None
    with np.errstate(all="ignore"):
        units = X / X.dtype.type(scale)
    if not np.isfinite(units).all():
        raise ValueError(f"scale={scale:g} is too small: claims divided by it overflow {X.dtype}")
    return units, None
