"""The page: one HTML file with everything in it, which needs no network and runs no script."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import display
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import interval, short_repr
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import scene_of, weighted_quantiles
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.report.markup import environment, large, percent, plural, short
from duramen.report.numbers import (
    Findings,
    Reasons,
    effective_size,
    largest_losses,
    reasons_of,
    strata_rows,
)
from duramen.report.svg import histogram, scatter, strips
from duramen.text import shorten

if TYPE_CHECKING:
    from duramen.certificate import Certificate

_LONGEST = 300  # characters of a note's value
_PRIVATE_NOTES = ("encoding", "columns")  # that the command line keeps for itself
_SUSPECTS, _OPEN, _FEATURES = 20, 8, 3  # rows listed, those visible at once, and features of each
_DOTS = 3000  # of the picture, at most
_EVENTS = 50  # of the anchor's history, at most

_HEADS = {
    "contents": "What is in it",
    "suspects": "Suspected rows, and why",
    "picture": "The picture",
    "losses": "Losses and the threshold",
    "error-bars": "Error bars",
    "certificate": "Certificate",
    "layers": "Layers",
    "weights": "Weights",
    "anchor": "The anchor and its history",
}
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
    subject: Coreset | DynamicCoreset,
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
    core, live, report = found.core, found.live, found.anchor_report
    events = tuple(history) or tuple(getattr(subject, "history", ()))
    kept = getattr(subject, "notes", {}) if notes is None else notes
    source = found.source
    shown: dict[str, Any] = {} if core is None else _sections(found, core)
    if certificate is not None:
        shown["probes"] = _probes(certificate)
    if report is not None and report.radius is not None:
        shown["verdict"] = repr(report).removeprefix("AnchorReport: ").splitlines()
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            infinity=math.inf,
            style=Markup(files("duramen.report").joinpath("style.css").read_text("utf-8")),
            found=found,
            core=core,
            source=source,
            report=report,
            certificate=certificate,
            all_weigh_one=math.isclose(source.total_weight, source.n_points),
            tiles=_tiles(found, certificate),
            heads=_HEADS,
            contents=_contents(found, getattr(live, "path", None)),
            notes=[
                (shorten(name, 60), _note_text(value))
                for name, value in kept.items()
                if name not in _PRIVATE_NOTES
            ],
            n_events=len(events),
            events=[_event_cells(event) for event in events[-_EVENTS:]],
            version=version("duramen"),
            **{"verdict": None, **shown},
        )
    )


def _tiles(found: Findings, certificate: Certificate | None) -> list[tuple[str, str, str]]:
    """List key figures: a name, a value, and the line below it."""
    core, n = found.core, found.source.n_points
    width = plural(len(found.columns), "column") if found.columns else "no columns yet"
    shown = [("points", f"{n:,}", width)]
    if core is not None:
        ratio = n / max(len(core), 1)
        share = f"1 for {short(ratio, 3)} points" if ratio > 1.05 else "all points are in it"
        each = found.mean_loss
        value, _, error = ("unknown", "", "") if each is None else interval(each).partition(" ± ")
        suspects = f"{percent(core.n_suspected / max(n, 1))} of the points"
        shown += [
            ("rows in the coreset", f"{len(core):,}", share),
            ("suspected outliers", f"{core.n_suspected:,}", suspects),
            ("mean loss kept", value, f"± {error}" if error else "no error bar"),
            ("effective size", f"{effective_size(core.weights):,.0f}", f"of {plural(len(core), 'row')}"),
        ]
    if certificate is not None:
        probes = plural(len(certificate.errors), "probe")
        shown.append(("largest error found", percent(certificate.max_error), f"at {probes}"))
    return shown


def _contents(found: Findings, path: Any) -> dict[str, str]:
    """List what is in the coreset."""
    core, source, live = found.core, found.source, found.live
    listed = {"points": f"{source.n_points:,}, of weight {large(source.total_weight)}"}
    if core is None:
        listed["loss"] = short_repr(source.loss)
    else:
        listed["columns"] = _columns(found, core)
        listed["labels"] = "none" if core.y is None else _labels(found, core, core.y)
        listed |= display.facts(core)
    if live is not None:
        listed |= {"size": f"{live.size:,} rows at most", "engine": live.engine}
    if path:
        listed["store"] = shorten(path, _LONGEST)
    return listed | {"seed": str(source.seed)}


def _note_text(value: Any) -> str:
    if isinstance(value, str):
        return shorten(value, _LONGEST)
    try:
        return shorten(json.dumps(value, ensure_ascii=False), _LONGEST)
    except (TypeError, ValueError):
        return short_repr(value)


def _columns(found: Findings, core: Coreset) -> str:
    form = "sparse " if sparse.issparse(core.X) else ""
    names = ", ".join(shorten(name, 24) for name in found.columns[:6])
    more = f" and {len(found.columns) - 6:,} more" if len(found.columns) > 6 else ""
    return f"{len(found.columns):,} of {form}{core.X.dtype}: {names}{more}"


def _labels(found: Findings, core: Coreset, y: Array) -> str:
    values, places = np.unique(y, return_inverse=True)
    if len(values) > 8 or not (values == np.round(values)).all():
        return f"{found.label}, numbers from {short(values[0])} to {short(values[-1])} in the coreset"
    shares = np.bincount(places.ravel(), core.weights) / (core.total_weight or 1.0)
    listed = [
        f"{found.label_text(one)} ({percent(share)})" for one, share in zip(values, shares, strict=True)
    ]
    return f"{found.label}: {', '.join(listed)} by weight"


def _sections(found: Findings, core: Coreset) -> dict[str, Any]:
    """Compute what the sections about a coreset show."""
    rows = strata_rows(core.groups)
    numbers = np.unique(core.groups)
    picture, no_picture = _picture(found, core)
    return {
        **_reasons(found, core),
        "n_open": _OPEN,
        "picture": picture,
        "no_picture": no_picture,
        "losses": None if found.losses is None else _losses(core, found.losses),
        "unknown_inclusion": np.isnan(core.inclusion).any(),
        "estimates": _estimates(found, core),
        "layers": {
            "n_layers": int((numbers >= 0).sum()),
            "n_bins": int((numbers < 0).sum()),
            "n_certain": int((core.inclusion >= 1).sum()),
            "rows": [_layer(found, core, name, mine) for name, mine in rows],
        },
        "weights": _weights(core),
        "effective": effective_size(core.weights),
    }


def _reasons(found: Findings, core: Coreset) -> dict[str, Any]:
    """List the rows with the largest losses, the features that make them large, and what bars show."""
    losses = found.losses
    if losses is None:
        return {}
    rows = largest_losses(losses, core.ids, _SUSPECTS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reasons = reasons_of(core, rows, found.columns, found.label)
    except Exception as error:  # a custom loss may fail in any way
        return {"reasons": shorten(error)}
    show, whole_name = _REASONS[reasons.kind]
    listed = []
    for place, row in enumerate(rows.tolist()):
        beneath = [] if core.y is None else [f"{shorten(found.label, 24)} {found.label_text(core.y[row])}"]
        beneath += [] if core.suspected[row] else ["not suspected"]
        listed.append(
            {
                "id": found.ids[row],
                "beneath": ", ".join(beneath),
                "loss": losses[row],
                "weight": core.weights[row],
                "whole_name": whole_name,
                "whole": reasons.whole[place],
                **_why(reasons, place),
            }
        )
    return {"reasons": listed, "bars_show": show}


def _why(reasons: Reasons, place: int) -> dict[str, Any]:
    """List the features with the largest parts, and all others together."""
    top, parts = reasons.top(place, _FEATURES), reasons.parts[place]
    largest = float(np.abs(parts[top]).max(initial=0.0))
    beside = "centre" if reasons.kind in ("distance", "divergence") else "mean"
    features = [
        {
            "name": reasons.features[k],
            "value": reasons.values[place][k],
            "beside": beside,
            "usual": reasons.usual[place][k],
            "part": _part(parts[k], largest, reasons.signed),
        }
        for k in top.tolist()
    ]
    rest = None
    if len(top) < len(parts) or reasons.signed:
        rest = _part(np.delete(parts, top).sum() + reasons.rest[place], largest, reasons.signed)
    return {"features": features, "rest": rest}


def _part(part: float, largest: float, signed: bool) -> dict[str, Any]:
    """Describe a part as a bar, from the middle to either side if parts have signs."""
    share = min(abs(part) / largest, 1.0) if largest and math.isfinite(largest) else float(bool(part))
    kind = "suspect" if part > 0 else "usual" if part < 0 else "none"
    text = short(part, 3)
    if not signed:
        return {"share": share, "kind": kind, "left": None, "text": text}
    left = 0.5 if part > 0 else 0.5 - share / 2
    return {"share": share / 2, "kind": kind, "left": left, "text": f"+{text}" if part > 0 else text}


def _picture(found: Findings, core: Coreset) -> tuple[Markup | None, str]:
    """Draw the rows, or explain why that is not possible."""

    def describe(row: int) -> str:
        loss = "" if found.losses is None else f", loss {short(found.losses[row])}"
        return f"{found.ids[row]}{loss}, weight {short(core.weights[row])}"

    columns = [shorten(name, 60) for name in found.columns]
    try:
        return scatter(scene_of(core, _DOTS, 0, columns, found.label, found.label_text), describe), ""
    except ValueError as error:  # sparse rows of too many columns
        return None, shorten(error, 300)


def _losses(core: Coreset, losses: Array) -> dict[str, Any] | None:
    """Draw the losses at the anchor; None if there are none to draw."""
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


def _estimates(found: Findings, core: Coreset) -> list[tuple[str, ...]]:
    """List f_z at the anchor with its standard error and interval, in total and per unit of kept weight."""
    kept = large(core.total_weight - core.n_outliers)
    named = {
        "Trimmed objective, f_z": found.estimate,
        f"Per unit of kept weight ({kept})": found.mean_loss,
    }
    return [(name, *_estimate_cells(one)) for name, one in named.items() if one is not None]


def _estimate_cells(estimate: Estimate) -> tuple[str, str, str, str]:
    if math.isnan(estimate.std_error):
        return large(estimate.value), "unknown", "unknown", "unknown"
    relative = percent(estimate.std_error / estimate.value) if estimate.value else "0%"
    between = f"{large(estimate.low)} to {large(estimate.high)}"
    return interval(estimate).partition(" ± ")[0], short(estimate.std_error), relative, between


def _probes(certificate: Certificate) -> dict[str, Any]:
    """List the errors found by comparing the coreset with the data, by kind of probe."""
    kinds = dict.fromkeys(certificate.kinds.tolist())
    groups = [(kind, certificate.errors[certificate.kinds == kind]) for kind in kinds]
    rows = [
        (kind, f"{len(errors):,}", *map(percent, np.quantile(errors, [0.5, 0.9, 1.0], method="inverted_cdf")))
        for kind, errors in groups
    ]
    return {"drawing": strips(groups, "Errors by kind of probe", "relative error"), "rows": rows}


def _layer(found: Findings, core: Coreset, name: str, mine: Array) -> dict[str, Any]:
    """Describe a sampled stratum."""
    count, weight = int(mine.sum()), float(core.weights[mine].sum())
    return {
        "name": name,
        "kind": "suspect" if name.startswith("suspected") else "usual",
        "count": count,
        "of_rows": count / len(core),
        "weight": weight,
        "of_weight": weight / (core.total_weight or 1.0),
        "inclusion": _range(core.inclusion[mine], percent),
        "loss": "unknown" if found.losses is None else _range(found.losses[mine], short),
    }


def _range(values: Array, write: Callable[[float], str]) -> str:
    low, high = write(values.min()), write(values.max())
    return low if low == high else f"{low} to {high}"


def _weights(core: Coreset) -> Markup | None:
    """Draw the weights; None if all are equal."""
    if core.weights.min() == core.weights.max():
        return None
    ones = np.ones(len(core))
    return histogram(core.weights, ones, core.suspected, "Histogram of the weights", "weight of a row")


def _event_cells(event: Any) -> tuple[str, ...]:
    points = "" if event.n_points is None else f"{event.n_points:,}"
    moved = "" if event.moved is None else short(event.moved)
    return _time_text(event.time), shorten(event.what), points, short(event.radius), moved


def _time_text(time: str) -> str:
    """Format an ISO 8601 time for readers.

    Examples
    --------
    >>> _time_text("2025-03-01T09:12:00+00:00"), _time_text("yesterday")
    ('2025-03-01 09:12:00 UTC', 'yesterday')
    """
    day, mark, rest = shorten(time, 40).partition("T")
    return f"{day} {rest.replace('+00:00', ' UTC')}" if mark and day[:1].isdigit() else shorten(time, 40)
