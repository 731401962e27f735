"""The numbers of the page: what is known of a coreset, and which features make losses large.

A loss at the anchor is a function of something that is a sum over features: the
predictor of a linear loss, the squared distance to a centre. Each feature's
share of that sum is its part in the row's loss; parts and the rest add up to
the whole. For a linear predictor a part is the difference from a usual row: the
feature minus its mean over the rows that are not suspected.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import at_anchor, feature_names
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import FAR, dense, usual_rows
from duramen.dynamic.anchoring import AnchorReport
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.losses import BregmanLoss, DistanceLoss, HuberLoss, LinearLoss, SoftmaxLoss, SquaredLoss
from duramen.losses.bregman import CustomDivergence
from duramen.report.markup import short
from duramen.text import shorten

_SAME = 1e-12  # of the mean: a smaller standard deviation is rounding
_MAX_GROUPS = 8  # of a kind in the table of layers


class Findings:
    """All that a page shows, computed once; a failure, in a custom loss for instance, becomes a reason.

    Attributes
    ----------
    live : DynamicCoreset or None
        The subject of the page, if it can change.
    core : Coreset or None
        None if it cannot be built, for the reason ``no_core``.
    source : Coreset or DynamicCoreset
        The coreset, whose numbers are from one moment; the subject of the page if there is none.
    anchor_report : AnchorReport or None
        Of a DynamicCoreset.
    losses : array (m,) or None
        Of the coreset's rows at the anchor; None for the reason ``no_losses``.
    estimate, mean_loss : Estimate or None
        Of f_z at the anchor, in total and per unit of kept weight.
    columns, ids : sequences of str
        Of the coreset.
    label, classes : str and tuple of str
        What the labels are called, and what 0, 1, ... stand for; empty where they are numbers.
    """

    def __init__(self, subject: Any, encoding: Any, names: Mapping[int, str] | None) -> None:
        if not isinstance(subject, (Coreset, DynamicCoreset)):
            raise TypeError(
                f"report_html takes a Coreset or a DynamicCoreset; found {type(subject).__name__}: pass what "
                "dm.robust_coreset, dm.load_coreset or dm.DynamicCoreset returns"
            )
        self.live = None if isinstance(subject, Coreset) else subject
        self.core = subject if isinstance(subject, Coreset) else None
        self.anchor_report, self.no_core = None, ""
        names = names or {}
        if self.live is not None:
            with self.live._lock:  # all numbers must be from one moment
                self.anchor_report = self.live.anchor_report()
                try:
                    self.core = self.live.coreset()
                    names = dict(zip(self.core.ids.tolist(), self.live.names_of(self.core.ids), strict=True))
                except KeyError:  # the ids are numbers, without names
                    pass
                except ValueError as error:
                    self.no_core = str(error)
        self.label = shorten(getattr(encoding, "label", None) or "y", 40)
        self.classes = tuple(map(str, getattr(encoding, "classes", None) or ()))
        core = self.core
        self.source = subject if core is None else core
        self.losses, self.no_losses = (None, "") if core is None else _losses(core, self.anchor_report)
        self.estimate = None if core is None or self.losses is None else at_anchor(core)
        self.columns = () if core is None else _columns(core, encoding)
        self.ids = [] if core is None else [shorten(names.get(one, one), 60) for one in core.ids.tolist()]

    @property
    def mean_loss(self) -> Estimate | None:
        """f_z at the anchor per unit of kept weight."""
        there, kept = self.estimate, self.source.total_weight - self.source.n_outliers
        return (
            None if there is None or not kept > 0 else Estimate.of(there.value / kept, there.std_error / kept)
        )

    def label_text(self, value: float) -> str:
        """Return a label as in the data."""
        if value == int(value) and 0 <= value < len(self.classes):
            return shorten(self.classes[int(value)], 40)
        return short(value)


def _losses(core: Coreset, report: AnchorReport | None) -> tuple[Array | None, str]:
    if core.anchor is None:
        why = f": {report.reason}" if report is not None and report.reason else ""
        return None, f"There is no anchor yet{why}, so no losses are known."
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            losses = np.asarray(core.loss.values(core.anchor.theta, core.X, core.y), dtype=np.float64)
    except Exception as error:  # a custom loss may fail in any way
        return None, f"The losses at the anchor could not be computed: {shorten(error)}."
    if losses.shape != (len(core),):
        return None, f"The loss returned values of shape {losses.shape} for {len(core):,} rows."
    return losses, ""


def _columns(core: Coreset, encoding: Any) -> tuple[str, ...]:
    names = getattr(encoding, "names", None) or ()
    encoded = core.columns is None and len(names) == core.points.n_columns
    return tuple(map(str, names if encoded else feature_names(core)))


def effective_size(weights: Array) -> float:
    """Compute the effective sample size, (sum w)^2 / sum w^2.

    Examples
    --------
    >>> effective_size(np.array([1.0, 1.0, 1.0, 0.0])), effective_size(np.array([1e200, 1e200]))
    (3.0, 2.0)
    """
    scaled = weights / (float(weights.max(initial=0.0)) or 1.0)
    return float(scaled.sum() ** 2 / (np.square(scaled).sum() or 1.0))


def strata_rows(groups: Array) -> list[tuple[str, Array]]:
    """Name the strata and mark their rows: layers, then bins of suspected loss; if many, the last as one."""
    found = []
    for kind, keys in (("layer", groups), ("suspected", -groups)):
        numbers = np.unique(keys[keys >= (kind == "suspected")])
        alone = _MAX_GROUPS - 1
        for some in [*numbers[:alone, None], numbers[alone:]]:
            if len(some):
                name = f"{some[0]} to {some[-1]}" if len(some) > 1 else f"{some[0]}"
                found.append((f"{kind} {name}", np.isin(keys, some)))
    return found


@dataclass(frozen=True, eq=False)
class Reasons:
    """What makes the losses of n rows large, feature by feature.

    Attributes
    ----------
    kind : str
        What is decomposed: "margin" (how far a row is on the wrong side of its
        label), "residual" (its size), "predictor" (in the direction in which the
        loss grows), "classes" (the strongest other class's predictor, minus the
        label's), "distance" (squared, to the nearest centre), "divergence" (from
        it), or "spread" (the squared distance from the usual mean, in standard
        deviations, which is not about the loss).
    features : tuple of str
        The p columns; for a residual also the label, last.
    values, usual : arrays (n, p)
        What each row has, and what it is compared with: the usual mean or the nearest centre.
    parts : array (n, p)
        What each feature adds to the whole; above zero, it makes the loss larger.
    rest : array (n,)
        What a usual row already has.
    """

    kind: str
    features: tuple[str, ...]
    values: Array
    usual: Array
    parts: Array
    rest: Array

    @property
    def whole(self) -> Array:
        """The sum of the parts and the rest."""
        return self.parts.sum(axis=1) + self.rest

    @property
    def signed(self) -> bool:
        """Whether parts can be negative."""
        return self.kind in ("margin", "residual", "predictor", "classes")

    def top(self, row: int, n: int) -> Array:
        """Find the n features with the largest parts of a row, by size; parts of zero are left out."""
        size = np.abs(self.parts[row])
        order = np.argsort(-size, kind="stable")[:n]
        return order[size[order] > 0]


def largest_losses(losses: Array, ids: Array, n: int) -> Array:
    """Find the n rows with the largest losses, largest first, ties by id; NaN comes last.

    Examples
    --------
    >>> largest_losses(np.array([1.0, 3.0, np.nan, 3.0]), np.array([4, 9, 1, 2]), 3)
    array([3, 1, 0])
    """
    return np.lexsort((ids, np.where(np.isnan(losses), np.inf, -losses)))[:n]


def reasons_of(core: Coreset, rows: Array, columns: tuple[str, ...], label: str = "y") -> Reasons:
    """Decompose the losses of some rows at the anchor, in float64."""
    assert core.anchor is not None
    loss, theta, X = core.loss, core.anchor.theta, dense(core.X[rows])
    zeros = np.zeros(len(X))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if isinstance(loss, LinearLoss):
            return _of_predictor(core, loss, theta, rows, X, columns, label)
        if isinstance(loss, SoftmaxLoss):
            return _of_classes(core, theta, rows, X, columns)
        if isinstance(loss, DistanceLoss):
            nearest = theta.reshape(-1, X.shape[1])[loss.nearest(theta, X)]
            return Reasons("distance", columns, X, nearest, np.square(X - nearest), zeros)
        if isinstance(loss, BregmanLoss) and not isinstance(loss.divergence, CustomDivergence):
            nearest = theta[loss.nearest(theta, X)]  # all built-in divergences are sums over columns
            parts = loss.divergence.between(X.reshape(-1, 1), nearest.reshape(-1, 1)).reshape(X.shape)
            return Reasons("divergence", columns, X, nearest, parts, zeros)
        mean, deviation = _usual_moments(core)
        unit = np.where(deviation > _SAME * np.abs(mean), deviation, 1.0)
        parts = np.square((X - mean) / unit)
        return Reasons("spread", columns, X, np.broadcast_to(mean, X.shape), parts, zeros)


def _of_predictor(
    core: Coreset, loss: LinearLoss, theta: Array, rows: Array, X: Array, columns: tuple[str, ...], label: str
) -> Reasons:
    """Follow the predictor m = <w, x> + b in the direction in which the loss grows."""
    labels = np.asarray(core.y)
    y, d, mean = labels[rows], X.shape[1], _usual_moments(core)[0]
    if loss.classifies:
        kind, upward = "margin", -loss.encode_labels(y, np.float64)
    else:
        kind, upward = "predictor", np.where(np.asarray(loss.pulls(theta, X, y)) < 0, -1.0, 1.0)
    leads = upward[:, None] * theta[:d]
    if isinstance(loss, (SquaredLoss, HuberLoss)):  # the label is a part of the residual
        kind, columns = "residual", (*columns, label)
        usual, shares = _usual_shares(core)
        mean = np.append(mean, labels[usual] @ shares)
        X, leads = np.column_stack([X, y]), np.column_stack([leads, -upward])
    return _of_leads(kind, columns, X, mean, leads, upward * theta[d:].sum())


def _of_classes(core: Coreset, theta: Array, rows: Array, X: Array, columns: tuple[str, ...]) -> Reasons:
    """Compare the label's predictor with the strongest of the others."""
    labels, d = np.asarray(core.y)[rows].astype(np.intp), X.shape[1]
    slopes, intercepts = theta[:, :d], theta[:, d:].sum(axis=1)
    predictors = X @ slopes.T + intercepts
    predictors[np.arange(len(X)), labels] = -np.inf
    other = predictors.argmax(axis=1)
    offsets = intercepts[other] - intercepts[labels]
    return _of_leads("classes", columns, X, _usual_moments(core)[0], slopes[other] - slopes[labels], offsets)


def _of_leads(
    kind: str, columns: tuple[str, ...], X: Array, mean: Array, leads: Array, offsets: Array
) -> Reasons:
    """Decompose <lead, x> + offset, as the difference from the usual mean."""
    usual = np.broadcast_to(mean, X.shape)
    return Reasons(kind, columns, X, usual, leads * (X - mean), leads @ mean + offsets)


def _usual_shares(core: Coreset) -> tuple[Array, Array]:
    """Mark the usual rows, and return their shares of the weight: equal ones where all weights are zero."""
    usual = usual_rows(core.suspected, core.weights)
    weights = core.weights[usual] if core.weights.any() else np.ones(len(core))
    return usual, weights / weights.sum()


def _usual_moments(core: Coreset) -> tuple[Array, Array]:
    """Compute the weighted mean and standard deviation of each column over the usual rows."""
    usual, shares = _usual_shares(core)
    X = core.X[usual]
    if not sparse.issparse(X):
        X = dense(X)
        mean = shares @ X
        return mean, np.sqrt(shares @ np.square(X - mean))
    X = X.astype(np.float64)
    X.data = X.data.clip(-FAR, FAR)
    mean = shares @ X
    return mean, np.sqrt(np.maximum(shares @ X.multiply(X).tocsr() - mean**2, 0.0))
