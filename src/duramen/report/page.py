"""The page: one HTML file with everything in it, which needs no network and runs no script."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import display
from duramen.coreset.coreset import Coreset
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import scene_of, weighted_quantiles
from duramen.report.charts import environment, histogram, percent, scatter, short
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
    core: Coreset,
    *,
    title: str,
    live: Any = None,
    certificate: Certificate | None = None,
    encoding: Any = None,
    names: Mapping[int, str] | None = None,
) -> str:
    """Make a page about a coreset: what is in it, which rows are suspected and why, how far to trust it.

    The same input gives the same page. It needs no network and no script.

    Parameters
    ----------
    core : Coreset
    title : str
        The heading.
    live : DynamicCoreset, optional
        What the coreset is of: how well its anchor fits is shown, and what a store
        keeps besides: the history of the anchor, and notes.
    certificate : Certificate, optional
        Of :func:`duramen.certify`, for this coreset.
    encoding : Encoding, optional
        How columns became numbers: its ``label`` and ``classes`` are used.
    names : mapping of int to str, optional
        What the ids stand for.

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
    notes = getattr(live, "notes", {}).items()
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            infinity=math.inf,
            style=Markup(files("duramen.report").joinpath("style.css").read_text("utf-8")),
            found=Findings(core, live, encoding, names or {}),
            core=core,
            certificate=certificate,
            probes=None if certificate is None else _probes(certificate),
            notes=[(shorten(name, 60), _note(value)) for name, value in notes if name not in _PRIVATE_NOTES],
            events=getattr(live, "history", ()),
            version=version("duramen"),
        )
    )


class Findings:
    """What a page shows; a failure of a custom loss becomes a reason.

    Attributes
    ----------
    live : DynamicCoreset or None
        What the coreset is of.
    report : AnchorReport or None
        Of that.
    losses : array (m,) or None
        Of the coreset's rows at the anchor; None for the reason ``no_losses``.
    estimate, mean_loss : Estimate or None
        Of f_z at the anchor, in total and per unit of kept weight.
    effective : float
        The effective sample size, (sum w)^2 / sum w^2.
    columns, ids : sequences of str
        Of the coreset.
    label, classes : str and sequence
        What the labels are called, and what 0, 1, ... stand for; empty where they are numbers.
    """

    def __init__(self, core: Coreset, live: Any, encoding: Any, names: Mapping[int, str]) -> None:
        self.core, self.live = core, live
        self.report = None if live is None else live.anchor_report()
        self.label = shorten((encoding and encoding.label) or "y", 40)
        self.classes = (encoding and encoding.classes) or ()
        self.columns = [str(name) for name in display.feature_names(core)]
        self.ids = [shorten(names.get(one, one), 60) for one in core.ids.tolist()]
        losses, self.no_losses = _losses(core, self.report)
        self.losses: Any = losses
        self.estimate = self.mean_loss = None if losses is None else core._at_anchor
        if self.estimate is not None:
            kept = core.total_weight - core.n_outliers
            self.mean_loss = Estimate.of(self.estimate.value / kept, self.estimate.std_error / kept)
        scaled = core.weights / core.weights.max()
        self.effective = float(scaled.sum() ** 2 / np.square(scaled).sum())

    def label_text(self, value: float) -> str:
        """Return a label as in the data."""
        if value == int(value) and 0 <= value < len(self.classes):
            return shorten(self.classes[int(value)], 40)
        return short(value)

    def contents(self) -> dict[str, str]:
        """List what is in the coreset."""
        core, live, n = self.core, self.live, len(self.columns)
        form = "sparse " if sparse.issparse(core.X) else ""
        names = ", ".join(shorten(name, 24) for name in self.columns[:6])
        listed = {
            "points": f"{core.n_points:,}, of weight {short(core.total_weight, 6)}",
            "columns": f"{n:,} of {form}{core.X.dtype}: {names}{f' and {n - 6:,} more' if n > 6 else ''}",
            "labels": self._labels(),
            **display.facts(core),
        }
        if live is not None:
            path = shorten(getattr(live, "path", "in memory"), _LONGEST)
            listed |= {"size": f"{live.size:,} rows at most", "engine": live.engine, "store": path}
        return listed | {"seed": str(core.seed)}

    def _labels(self) -> str:
        core = self.core
        if core.y is None:
            return "none"
        values, groups = np.unique(core.y, return_inverse=True)
        if len(values) > 8 or not (values == np.round(values)).all():
            return f"{self.label}, numbers from {short(values[0])} to {short(values[-1])} in the coreset"
        shares = np.bincount(groups.ravel(), core.weights) / core.weights.sum()
        texts = map(self.label_text, values)
        listed = [f"{text} ({percent(share)})" for text, share in zip(texts, shares, strict=True)]
        return f"{self.label}: {', '.join(listed)} by weight"

    def suspects(self) -> dict[str, Any]:
        """List the rows with the largest losses, the features that make them large, and what bars show."""
        core, losses = self.core, self.losses
        rows = largest_losses(losses, core.ids, _SUSPECTS)
        reasons = reasons_of(core, rows, self.columns, self.label)
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
        beside = "centre" if reasons.kind in ("distance", "divergence") else "mean"
        return {"rows": listed, "show": show, "whole_name": whole_name, "beside": beside}

    def picture(self) -> tuple[Markup | None, str]:
        """Draw the rows, or explain why that is not possible."""

        def describe(row: int) -> str:
            loss = "" if self.losses is None else f", loss {short(self.losses[row])}"
            return f"{self.ids[row]}{loss}, weight {short(self.core.weights[row])}"

        columns = [shorten(name, 60) for name in self.columns]
        try:
            scene = scene_of(self.core, _DOTS, 0, columns, self.label, self.label_text)
        except ValueError as error:  # sparse rows of too many columns
            return None, shorten(error, 300)
        return scatter(scene, describe), ""

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

    def layers(self) -> tuple[list[int], list[tuple[str, Array]]]:
        """Count the layers and the bins of suspected loss; name and mark each, if many the last together."""
        counts, found = [], []
        for kind, keys in (("layer", self.core.groups), ("suspected", -self.core.groups)):
            numbers = np.unique(keys[keys >= (kind == "suspected")])
            counts.append(len(numbers))
            for part in np.split(numbers, range(1, min(len(numbers), _MAX_GROUPS))):
                if len(part):
                    name = f"{part[0]} to {part[-1]}" if len(part) > 1 else f"{part[0]}"
                    found.append((f"{kind} {name}", np.isin(keys, part)))
        return counts, found


def _losses(core: Coreset, report: Any) -> tuple[Array | None, str]:
    """Compute the losses at the anchor, or explain why that is not possible."""
    if core.anchor is None:
        why = f": {report.reason}" if report is not None and report.reason else ""
        return None, f"There is no anchor yet{why}, so no losses are known."
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            losses = core.loss.values(core.anchor.theta, core.X, core.y)
            return np.asarray(losses, dtype=np.float64), ""
    except Exception as error:  # a custom loss may fail in any way
        return None, f"The losses at the anchor could not be computed: {shorten(error)}."


def _note(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONGEST)


def _why(reasons: Reasons, place: int) -> dict[str, Any]:
    """List the features with the largest parts of a row, and all others together."""
    top, parts = reasons.top(place, _FEATURES), reasons.parts[place]
    largest = float(np.abs(parts[top]).max(initial=0.0))
    columns = (reasons.features, reasons.values[place], reasons.usual[place])
    features = [
        (*(column[k] for column in columns), _part(parts[k], largest, reasons.signed)) for k in top.tolist()
    ]
    rest = None
    if len(top) < len(parts) or reasons.signed:
        rest = _part(np.delete(parts, top).sum() + reasons.rest[place], largest, reasons.signed)
    return {"features": features, "rest": rest}


def _part(part: float, largest: float, signed: bool) -> dict[str, Any]:
    """Describe a part as a bar, from the middle to either side if parts have signs."""
    share = min(abs(part) / largest, 1.0) if 0 < largest < math.inf else float(bool(part))
    kind = "suspect" if part > 0 else "usual" if part < 0 else "none"
    if not signed:
        return {"share": share, "kind": kind, "left": None, "text": short(part, 3)}
    left, sign = (0.5, "+") if part > 0 else (0.5 - share / 2, "")
    return {"share": share / 2, "kind": kind, "left": left, "text": sign + short(part, 3)}


def _probes(certificate: Certificate) -> dict[str, Any]:
    """List the errors found by comparing the coreset with the data, by kind of probe, and draw them."""
    errors, kinds = certificate.errors, certificate.kinds
    rows = [
        (kind, f"{len(some):,}", *map(percent, np.quantile(some, [0.5, 0.9, 1.0], method="inverted_cdf")))
        for kind in dict.fromkeys(kinds.tolist())
        for some in [errors[kinds == kind]]
    ]
    known = np.isfinite(errors)
    marked = kinds[known] == "adversarial"
    drawing = histogram(
        errors[known], np.ones(len(marked)), marked, "Histogram of the errors", "relative error"
    )
    return {"drawing": drawing, "rows": rows}
