"""The numbers of the page: what is known of a coreset, and which features make losses large.

A loss at the anchor is a function of something that is a sum over features: the
predictor of a linear loss, the squared distance to a centre. Each feature's
share of that sum is its part in the row's loss; parts and the rest add up to
the whole. For a linear predictor a part is the difference from what a usual row
has: the feature less its mean over the rows that are not suspected.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import Coreset, Estimate
from duramen.coreset.display import at_anchor, cut, feature_names
from duramen.coreset.plot import FAR, dense
from duramen.dynamic import AnchorReport, DynamicCoreset
from duramen.losses import BregmanLoss, DistanceLoss, HuberLoss, LinearLoss, SoftmaxLoss, SquaredLoss
from duramen.losses.bregman import CustomDivergence
from duramen.report.markup import short

if TYPE_CHECKING:
    from duramen.certificate import Certificate

_SAME = 1e-12  # of the mean: a smaller standard deviation is rounding
_MAX_GROUPS = 8  # of a kind in the table of layers


@dataclass(frozen=True, eq=False)
class Findings:
    """All that a page shows, computed once, and what is unknown and why.

    Attributes
    ----------
    subject : Coreset or DynamicCoreset
    core : Coreset or None
        None where there is none to build, for the reason ``no_core``.
    losses : array (m,) or None
        Of the coreset's rows at the anchor; None for the reason ``no_losses``.
    estimate : Estimate or None
        Of f_z at the anchor.
    columns : tuple of str
    label : str
        What the labels are called.
    classes : tuple of str
        What the labels 0, 1, ... stand for; empty where they are numbers.
    ids : list of str
        Of the coreset's rows, as text.
    anchor_report : AnchorReport or None
        Of a DynamicCoreset.
    certificate : Certificate or None
    history : tuple of events
    notes : dict
    """

    subject: Coreset | DynamicCoreset
    core: Coreset | None
    no_core: str
    losses: Array | None
    no_losses: str
    estimate: Estimate | None
    columns: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    ids: list[str]
    anchor_report: AnchorReport | None
    certificate: Certificate | None
    history: tuple[Any, ...]
    notes: dict[str, Any]

    @property
    def live(self) -> DynamicCoreset | None:
        """The subject, where it can change."""
        return None if isinstance(self.subject, Coreset) else self.subject

    @property
    def source(self) -> Coreset | DynamicCoreset:
        """The coreset, whose numbers are of one moment; the subject where there is none."""
        return self.subject if self.core is None else self.core

    def label_text(self, value: float) -> str:
        """Write a label as the data did."""
        if value == int(value) and 0 <= value < len(self.classes):
            return cut(self.classes[int(value)], 40)
        return short(value)


def find(
    subject: Coreset | DynamicCoreset,
    certificate: Certificate | None,
    history: Iterable[Any],
    notes: Mapping[str, Any] | None,
    encoding: Any,
    names: Mapping[int, str] | None,
) -> Findings:
    """Compute everything; what fails, in a custom loss for instance, becomes a reason."""
    if not isinstance(subject, (Coreset, DynamicCoreset)):
        raise TypeError(
            f"report_html takes a Coreset or a DynamicCoreset; found {type(subject).__name__}: pass what "
            "dm.robust_coreset, dm.load_coreset or dm.DynamicCoreset returns"
        )
    core, no_core, ids, report = _contents(subject, names or {})
    losses, no_losses = (None, "") if core is None else _losses(core, report)
    classes = getattr(encoding, "classes", None)
    return Findings(
        subject,
        core,
        no_core,
        losses,
        no_losses,
        estimate=None if core is None or losses is None else at_anchor(core),
        columns=() if core is None else _columns(core, encoding),
        label=cut(getattr(encoding, "label", None) or "y", 40),
        classes=() if classes is None else tuple(map(str, classes)),
        ids=[cut(one, 60) for one in ids],
        anchor_report=report,
        certificate=certificate,
        history=tuple(history) or tuple(getattr(subject, "history", ())),
        notes=dict(getattr(subject, "notes", {}) if notes is None else notes),
    )


def _contents(
    subject: Coreset | DynamicCoreset, names: Mapping[int, str]
) -> tuple[Coreset | None, str, list[Any], AnchorReport | None]:
    """Return the coreset or why there is none, the ids of its rows, and how its anchor fits."""
    if isinstance(subject, Coreset):
        return subject, "", [names.get(one, one) for one in subject.ids.tolist()], None
    with subject._lock:  # all numbers must be of one moment
        report = subject.anchor_report()
        try:
            core = subject.coreset()
        except ValueError as error:
            return None, str(error), [], report
        try:
            return core, "", list(subject.names_of(core.ids)), report
        except KeyError:  # the ids are numbers, without names
            return core, "", core.ids.tolist(), report


def _losses(core: Coreset, report: AnchorReport | None) -> tuple[Array | None, str]:
    if core.anchor is None:
        why = f": {report.reason}" if report is not None and report.reason else ""
        return None, f"There is no anchor yet{why}, so no losses are known."
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            losses = np.asarray(core.loss.values(core.anchor.theta, core.X, core.y), dtype=np.float64)
    except Exception as error:  # a custom loss may fail in any way
        return None, f"The losses at the anchor could not be computed: {cut(error)}."
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


def weighted_quantiles(values: Array, weights: Array, shares: Array) -> Array:
    """Find the smallest values with at least a share of the weight up to them."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, shares * reached[-1] * (1 - 1e-12)).clip(max=len(order) - 1)
    return values[order[places]]


def strata_rows(groups: Array) -> list[tuple[str, Array]]:
    """Name the strata and mark their rows: layers, then bins of suspected loss; of many, the last as one."""
    found = []
    numbers = np.unique(groups)
    for kind, these, sign in (
        ("layer", numbers[numbers >= 0], 1),
        ("suspected", -numbers[numbers < 0][::-1], -1),
    ):
        alone = len(these) if len(these) <= _MAX_GROUPS else _MAX_GROUPS - 1
        found += [(f"{kind} {one}", groups == sign * one) for one in these[:alone].tolist()]
        if len(last := these[alone:]):
            found.append((f"{kind} {last[0]} to {last[-1]}", np.isin(groups, sign * last)))
    return found


@dataclass(frozen=True, eq=False)
class Reasons:
    """What makes the losses of n rows large, feature by feature.

    Attributes
    ----------
    kind : str
        What is taken apart: "margin" (how far a row is on the wrong side of its
        label), "residual" (its size), "predictor" (in the direction in which the
        loss grows), "classes" (the strongest other class's predictor, less the
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
        What a usual row has already.
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
        """Find the n features with the largest parts of a row, by size; those of no part are left out."""
        size = np.abs(self.parts[row])
        order = np.argsort(-size, kind="stable")[:n]
        return order[size[order] > 0]


def largest_losses(losses: Array, ids: Array, n: int) -> Array:
    """Find the n rows of the largest losses, largest first, equal ones by id; NaN comes last.

    Examples
    --------
    >>> largest_losses(np.array([1.0, 3.0, np.nan, 3.0]), np.array([4, 9, 1, 2]), 3)
    array([3, 1, 0])
    """
    return np.lexsort((ids, np.where(np.isnan(losses), np.inf, -losses)))[:n]


def usual_rows(core: Coreset) -> Array:
    """Mark the rows that others are compared with: those not suspected, or all where there are none."""
    usual = ~core.suspected & (core.weights > 0)
    return usual if usual.any() else np.ones(len(core), dtype=bool)


def reasons_of(core: Coreset, rows: Array, columns: tuple[str, ...], label: str = "y") -> Reasons:
    """Take the losses at the anchor of some rows apart, in float64."""
    assert core.anchor is not None
    loss, theta = core.loss, core.anchor.theta
    X = dense(core.X[rows])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if isinstance(loss, LinearLoss):
            return _of_predictor(core, loss, theta, rows, X, columns, label)
        if isinstance(loss, SoftmaxLoss):
            return _of_classes(core, theta, rows, X, columns)
        if isinstance(loss, DistanceLoss):
            nearest = theta.reshape(-1, X.shape[1])[loss.nearest(theta, X)]
            return Reasons("distance", columns, X, nearest, np.square(X - nearest), np.zeros(len(X)))
        if isinstance(loss, BregmanLoss) and not isinstance(loss.divergence, CustomDivergence):
            nearest = theta[loss.nearest(theta, X)]  # all built-in divergences are sums over columns
            parts = loss.divergence.between(X.reshape(-1, 1), nearest.reshape(-1, 1)).reshape(X.shape)
            return Reasons("divergence", columns, X, nearest, parts, np.zeros(len(X)))
        mean, deviation = _usual_moments(core)
        unit = np.where(deviation > _SAME * np.abs(mean), deviation, 1.0)
        parts = np.square((X - mean) / unit)
        return Reasons("spread", columns, X, np.broadcast_to(mean, X.shape), parts, np.zeros(len(X)))


def _of_predictor(
    core: Coreset, loss: LinearLoss, theta: Array, rows: Array, X: Array, columns: tuple[str, ...], label: str
) -> Reasons:
    """Follow the predictor m = <w, x> + b in the direction in which the loss grows."""
    y = np.asarray(core.y)[rows]
    slopes, intercept = theta[: X.shape[1]], float(theta[-1]) if loss.fit_intercept else 0.0
    mean = _usual_moments(core)[0]
    if loss.classifies:
        kind, upward = "margin", -loss.encode_labels(y, np.float64)
    else:
        kind, upward = "predictor", np.where(np.asarray(loss.slopes(theta, X, y)) < 0, -1.0, 1.0)
    parts = upward[:, None] * (slopes * (X - mean))
    rest = upward * (mean @ slopes + intercept)
    if isinstance(loss, (SquaredLoss, HuberLoss)):  # the label is a part of the residual
        usual = usual_rows(core)
        target = float(np.asarray(core.y)[usual] @ _shares(core, usual))
        kind, columns, mean = "residual", (*columns, label), np.append(mean, target)
        X, parts = np.column_stack([X, y]), np.column_stack([parts, -upward * (y - target)])
        rest = rest - upward * target
    return Reasons(kind, columns, X, np.broadcast_to(mean, X.shape), parts, rest)


def _of_classes(core: Coreset, theta: Array, rows: Array, X: Array, columns: tuple[str, ...]) -> Reasons:
    """Compare the label's predictor with the strongest of the others."""
    labels = np.asarray(core.y)[rows].astype(np.intp)
    d = X.shape[1]
    slopes, intercepts = theta[:, :d], theta[:, d:].sum(axis=1)  # of one column, or of none
    predictors = X @ slopes.T + intercepts
    predictors[np.arange(len(X)), labels] = -np.inf
    other = predictors.argmax(axis=1)
    lead, mean = slopes[other] - slopes[labels], _usual_moments(core)[0]
    rest = lead @ mean + intercepts[other] - intercepts[labels]
    return Reasons("classes", columns, X, np.broadcast_to(mean, X.shape), lead * (X - mean), rest)


def _shares(core: Coreset, rows: Array) -> Array:
    """Return the shares of the weight of some rows; equal ones where all weights are zero."""
    weights = core.weights[rows] if core.weights.any() else np.ones(np.count_nonzero(rows))
    return weights / weights.sum()


def _usual_moments(core: Coreset) -> tuple[Array, Array]:
    """Compute the weighted mean and standard deviation of each column over the usual rows."""
    usual = usual_rows(core)
    shares, X = _shares(core, usual), core.X[usual]
    if not sparse.issparse(X):
        X = dense(X)
        mean = shares @ X
        return mean, np.sqrt(shares @ np.square(X - mean))
    X = X.astype(np.float64)
    X.data = X.data.clip(-FAR, FAR)
    mean = shares @ X
    return mean, np.sqrt(np.maximum(shares @ X.multiply(X).tocsr() - mean**2, 0.0))
