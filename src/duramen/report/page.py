"""The page: one HTML file with everything in it, which needs no network and runs no script."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import display
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import short_repr
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import scene_of, weighted_quantiles
from duramen.report.charts import environment, histogram, large, percent, scatter, short
from duramen.report.reasons import Reasons, largest_losses, reasons_of
from duramen.text import shorten

if TYPE_CHECKING:
    from duramen.certificate import Certificate

_LONGEST = 300  # characters of a note's value
_PRIVATE_NOTES = ("encoding", "columns")  # that the command line keeps for itself
_SUSPECTS, _FEATURES = 20, 3  # rows listed, and features of each
_DOTS = 3000  # of the picture, at most
_MAX_GROUPS = 8  # of a kind in the table of layers

_COMPARED = "compared with the mean of the rows that are not suspected"
_GROWS = f"{_COMPARED}: to the right the loss grows, to the left it shrinks."
_REASONS = {  # what the bars show, what the whole is called
    "margin": (
        f"how far each feature moves the linear predictor, {_COMPARED}: to the right, towards the wrong side "
        "of the label; to the left, towards its own.",
        "wrong side by",
    ),
    "residual": (f"what each feature, and the label itself, adds to the residual, {_GROWS}", "residual"),
    "predictor": (f"how far each feature moves the linear predictor, {_GROWS}", "predictor"),
    "classes": (
        f"how far each feature moves the strongest other class ahead of its own, {_GROWS}",
        "behind by",
    ),
    "distance": (
        "which features make up the squared distance to the nearest centre of the anchor.",
        "distance²",
    ),
    "divergence": (
        "which features make up the divergence from the nearest centre of the anchor.",
        "divergence",
    ),
    "spread": (
        "which features make up the squared distance from the mean of the rows that are not suspected, in "
        "standard deviations. What makes up this loss is unknown.",
        "distance²",
    ),
}


def report_html(
    subject: Any,
    *,
    title: str,
    certificate: Certificate | None = None,
    history: Iterable[Any] = (),
    notes: Mapping[str, Any] | None = None,
    encoding: Any = None,
    names: Mapping[int, str] | None = None,
) -> str:
    """Make a page about a coreset: what is in it, which rows are suspected and why, how far to trust it.

    The same input gives the same page. It needs no network and no script.

    Parameters
    ----------
    subject : Coreset or DynamicCoreset
        Or a store.
    title : str
        The heading.
    certificate : Certificate, optional
        Of :func:`duramen.certify`, for this coreset.
    history : iterable of events, optional
        The history of the anchor: each event with time, what, n_points, radius and
        moved. By default the subject's own, where it keeps one.
    notes : mapping, optional
        Names and values to list. By default the subject's own, where it keeps some.
    encoding : Encoding, optional
        How columns became numbers: its ``names``, ``label`` and ``classes`` are
        used where the coreset has none.
    names : mapping of int to str, optional
        What the ids of a Coreset stand for; a DynamicCoreset has its own.

    Returns
    -------
    str
        HTML, to be written as UTF-8.

    Examples
    --------
    >>> import duramen as dm
    >>> core = dm.robust_coreset([[0.0], [1.0], [9.0]], loss=dm.KMeansLoss(1), size=3, random_state=0)
    >>> page = report_html(core, title="Three points")
    >>> page[:15], "<h1>Three points</h1>" in page
    ('<!DOCTYPE html>', True)
    """
    found = Findings(subject, encoding, names)
    kept = getattr(subject, "notes", {}) if notes is None else notes
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            infinity=math.inf,
            style=Markup(files("duramen.report").joinpath("style.css").read_text("utf-8")),
            found=found,
            core=found.core,
            source=found.source,
            report=found.report,
            certificate=certificate,
            probes=None if certificate is None else _probes(certificate),
            notes=[
                (shorten(name, 60), _note(value))
                for name, value in kept.items()
                if name not in _PRIVATE_NOTES
            ],
            events=tuple(history) or tuple(getattr(subject, "history", ())),
            version=version("duramen"),
        )
    )


class Findings:
    """What a page shows; a failure, in a custom loss for instance, becomes a reason.

    Attributes
    ----------
    live : DynamicCoreset or None
        The subject of the page, if it can change.
    core : Coreset or None
        None if it cannot be built, for the reason ``no_core``.
    source : Coreset or DynamicCoreset
        The coreset, whose numbers are from one moment; the subject of the page if there is none.
    report : AnchorReport or None
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
        if not isinstance(subject, Coreset) and not hasattr(subject, "anchor_report"):
            raise TypeError(
                f"report_html takes a Coreset or a DynamicCoreset; found {type(subject).__name__}: pass what "
                "dm.robust_coreset, dm.load_coreset or dm.DynamicCoreset returns"
            )
        self.live = None if isinstance(subject, Coreset) else subject
        self.core: Any = subject if isinstance(subject, Coreset) else None
        self.losses: Any
        self.report, self.no_core = None, ""
        names = names or {}
        if self.live is not None:
            with self.live._lock:  # all numbers must be from one moment
                self.report = self.live.anchor_report()
                try:
                    self.core = self.live.coreset()
                    names = dict(zip(self.core.ids.tolist(), self.live.names_of(self.core.ids), strict=True))
                except KeyError:  # the ids are numbers, without names
                    pass
                except ValueError as error:
                    self.no_core = str(error)
        core = self.core
        self.source = subject if core is None else core
        self.label = shorten(getattr(encoding, "label", None) or "y", 40)
        self.classes = tuple(map(str, getattr(encoding, "classes", None) or ()))
        self.losses, self.no_losses = (None, "") if core is None else _losses(core, self.report)
        self.estimate = None if core is None or self.losses is None else display.at_anchor(core)
        self.columns = () if core is None else _columns(core, encoding)
        self.ids = [] if core is None else [shorten(names.get(one, one), 60) for one in core.ids.tolist()]

    @property
    def mean_loss(self) -> Estimate | None:
        """f_z at the anchor per unit of kept weight."""
        there, kept = self.estimate, self.source.total_weight - self.source.n_outliers
        if there is None or not kept > 0:
            return None
        return Estimate.of(there.value / kept, there.std_error / kept)

    @property
    def effective(self) -> float:
        """The effective sample size, (sum w)^2 / sum w^2."""
        scaled = self.core.weights / (float(self.core.weights.max(initial=0.0)) or 1.0)
        return float(scaled.sum() ** 2 / (np.square(scaled).sum() or 1.0))

    def label_text(self, value: float) -> str:
        """Return a label as in the data."""
        if value == int(value) and 0 <= value < len(self.classes):
            return shorten(self.classes[int(value)], 40)
        return short(value)

    def contents(self) -> dict[str, str]:
        """List what is in the coreset."""
        core, source, live = self.core, self.source, self.live
        listed = {"points": f"{source.n_points:,}, of weight {large(source.total_weight)}"}
        if core is None:
            listed["loss"] = short_repr(source.loss)
        else:
            form = "sparse " if sparse.issparse(core.X) else ""
            names = ", ".join(shorten(name, 24) for name in self.columns[:6])
            more = f" and {len(self.columns) - 6:,} more" if len(self.columns) > 6 else ""
            listed["columns"] = f"{len(self.columns):,} of {form}{core.X.dtype}: {names}{more}"
            listed["labels"] = self._labels()
            listed |= display.facts(core)
        if live is not None:
            listed |= {"size": f"{live.size:,} rows at most", "engine": live.engine}
            if path := getattr(live, "path", None):
                listed["store"] = shorten(path, _LONGEST)
        return listed | {"seed": str(source.seed)}

    def _labels(self) -> str:
        if self.core.y is None:
            return "none"
        values, places = np.unique(self.core.y, return_inverse=True)
        if len(values) > 8 or not (values == np.round(values)).all():
            return f"{self.label}, numbers from {short(values[0])} to {short(values[-1])} in the coreset"
        shares = np.bincount(places.ravel(), self.core.weights) / (self.core.total_weight or 1.0)
        listed = [
            f"{self.label_text(one)} ({percent(share)})" for one, share in zip(values, shares, strict=True)
        ]
        return f"{self.label}: {', '.join(listed)} by weight"

    def suspects(self) -> dict[str, Any]:
        """List the rows with the largest losses, the features that make them large, and what bars show."""
        core, losses = self.core, self.losses
        rows = largest_losses(losses, core.ids, _SUSPECTS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reasons = reasons_of(core, rows, self.columns, self.label)
        except Exception as error:  # a custom loss may fail in any way
            return {"failure": shorten(error)}
        show, whole_name = _REASONS[reasons.kind]
        listed = [
            {
                "id": self.ids[row],
                "label": None if core.y is None else self.label_text(core.y[row]),
                "suspected": core.suspected[row],
                "loss": losses[row],
                "weight": core.weights[row],
                "whole": reasons.whole[place],
                **_why(reasons, place),
            }
            for place, row in enumerate(rows.tolist())
        ]
        return {"rows": listed, "show": show, "whole_name": whole_name}

    def picture(self) -> tuple[Markup | None, str]:
        """Draw the rows, or explain why that is not possible."""
        core, losses = self.core, self.losses

        def describe(row: int) -> str:
            loss = "" if losses is None else f", loss {short(losses[row])}"
            return f"{self.ids[row]}{loss}, weight {short(core.weights[row])}"

        columns = [shorten(name, 60) for name in self.columns]
        try:
            return scatter(scene_of(core, _DOTS, 0, columns, self.label, self.label_text), describe), ""
        except ValueError as error:  # sparse rows of too many columns
            return None, shorten(error, 300)

    def loss_chart(self) -> dict[str, Any] | None:
        """Draw the losses at the anchor; None if there are none to draw."""
        core, losses = self.core, self.losses
        valid = np.isfinite(losses) & (losses >= 0)
        if not valid.any():
            return None
        drawing = histogram(
            losses[valid],
            core.weights[valid],
            core.suspected[valid],
            "Histogram of the losses at the anchor, by weight",
            "loss at the anchor",
            core.threshold if 0 <= core.threshold < math.inf else None,
        )
        names = ("Median", "90% of the weight below", "99% below", "Largest")
        at = weighted_quantiles(losses, core.weights, np.array([0.5, 0.9, 0.99, 1.0]))
        quantiles = list(zip(names, map(short, at), strict=True))
        return {"drawing": drawing, "left_out": int(np.count_nonzero(~valid)), "quantiles": quantiles}

    def weight_chart(self) -> Markup | None:
        """Draw the weights; None if all are equal."""
        core = self.core
        if core.weights.min() == core.weights.max():
            return None
        ones = np.ones(len(core))
        return histogram(core.weights, ones, core.suspected, "Histogram of the weights", "weight of a row")

    @property
    def n_groups(self) -> tuple[int, int]:
        """The numbers of layers, and of bins of suspected loss."""
        layers = np.unique(self.core.groups) >= 0
        return int(layers.sum()), int((~layers).sum())

    def layers(self) -> list[tuple[str, Array]]:
        """Name and mark the layers, then the bins of suspected loss; if there are many, the last together."""
        found = []
        for kind, keys in (("layer", self.core.groups), ("suspected", -self.core.groups)):
            numbers = np.unique(keys[keys >= (kind == "suspected")])
            alone = _MAX_GROUPS - 1
            for some in [*numbers[:alone, None], numbers[alone:]]:
                if len(some):
                    name = f"{some[0]} to {some[-1]}" if len(some) > 1 else f"{some[0]}"
                    found.append((f"{kind} {name}", np.isin(keys, some)))
        return found


def _losses(core: Coreset, report: Any) -> tuple[Array | None, str]:
    """Compute the losses at the anchor, or explain why that is not possible."""
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
    return tuple(map(str, names if encoded else display.feature_names(core)))


def _note(value: Any) -> str:
    try:
        return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONGEST)
    except (TypeError, ValueError):
        return short_repr(value)


def _why(reasons: Reasons, place: int) -> dict[str, Any]:
    """List the features with the largest parts, and all others together."""
    top, parts = reasons.top(place, _FEATURES), reasons.parts[place]
    largest = float(np.abs(parts[top]).max(initial=0.0))
    features = [
        {
            "name": reasons.features[k],
            "value": reasons.values[place][k],
            "usual": reasons.usual[place][k],
            "part": _part(parts[k], largest, reasons.signed),
        }
        for k in top.tolist()
    ]
    rest = None
    if len(top) < len(parts) or reasons.signed:
        rest = _part(np.delete(parts, top).sum() + reasons.rest[place], largest, reasons.signed)
    beside = "centre" if reasons.kind in ("distance", "divergence") else "mean"
    return {"features": features, "rest": rest, "beside": beside}


def _part(part: float, largest: float, signed: bool) -> dict[str, Any]:
    """Describe a part as a bar, from the middle to either side if parts have signs."""
    share = min(abs(part) / largest, 1.0) if largest and math.isfinite(largest) else float(bool(part))
    kind = "suspect" if part > 0 else "usual" if part < 0 else "none"
    text = short(part, 3)
    if not signed:
        return {"share": share, "kind": kind, "left": None, "text": text}
    left = 0.5 if part > 0 else 0.5 - share / 2
    return {"share": share / 2, "kind": kind, "left": left, "text": f"+{text}" if part > 0 else text}


def _probes(certificate: Certificate) -> dict[str, Any]:
    """List the errors found by comparing the coreset with the data, by kind of probe, and draw them."""
    errors, kinds = certificate.errors, certificate.kinds
    rows = [
        (kind, f"{len(some):,}", *map(percent, np.quantile(some, [0.5, 0.9, 1.0], method="inverted_cdf")))
        for kind in dict.fromkeys(kinds.tolist())
        for some in [errors[kinds == kind]]
    ]
    finite = np.isfinite(errors)
    drawing = histogram(
        errors[finite],
        np.ones(finite.sum()),
        kinds[finite] == "adversarial",
        "Histogram of the errors",
        "relative error",
    )
    return {"drawing": drawing, "rows": rows}
