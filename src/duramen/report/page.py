"""The page: one HTML file with everything in it, which needs no network and runs no script."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset import display
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import cut, interval, short_repr
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import scene_of, weighted_quantiles
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.report.markup import (
    Markup,
    bar,
    escape,
    facts,
    figure,
    join,
    large,
    pair,
    percent,
    plural,
    short,
    table,
    tag,
)
from duramen.report.numbers import (
    Findings,
    Reasons,
    effective_size,
    largest_losses,
    reasons_of,
    strata_rows,
)
from duramen.report.svg import histogram, scatter, strips

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
        "standard deviations. What makes up this loss is not known here.",
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
        What happened to the anchor: each with time, what, n_points, radius and
        moved. By default the subject's own, where it keeps one.
    notes : mapping, optional
        Names and values to list. By default the subject's own, where it keeps some.
    encoding : Encoding, optional
        How columns became numbers: its ``names``, ``label`` and ``classes`` are
        used where the coreset has none.
    names : mapping of int to str, optional
        What the ids of a Coreset stand for; a DynamicCoreset knows its own.

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
    events = tuple(history) or tuple(getattr(subject, "history", ()))
    kept = getattr(subject, "notes", {}) if notes is None else notes
    bodies = {
        "contents": _contents(found, kept),
        "certificate": _certificate(certificate),
        "anchor": join(_anchor(found), tag("h3", "History"), _history(events)),
    }
    if found.core is not None:
        sections = {
            "suspects": _suspects,
            "picture": _picture,
            "losses": _losses,
            "error-bars": _error_bars,
            "layers": _layers,
            "weights": _weights,
        }
        bodies |= {key: section(found, found.core) for key, section in sections.items()}
    nothing = tag("p.note", "There is no coreset, hence nothing to show.")
    folder = files("duramen.report")
    return Template(folder.joinpath("page.html").read_text("utf-8")).substitute(
        title=escape(cut(title, 120)),
        style=folder.joinpath("style.css").read_text("utf-8"),
        kind="Coreset" if found.live is None else "Live coreset",
        heading=escape(cut(title, 200)),
        summary=escape(_summary(found)),
        tiles=join(*(_tile(*shown) for shown in _key_figures(found, certificate))),
        links=join(*(tag("a", key.replace("-", " ").capitalize(), href=f"#{key}") for key in _HEADS)),
        sections=join(
            *(
                tag("section", tag("h2", head), bodies.get(key, nothing), id=key)
                for key, head in _HEADS.items()
            )
        ),
        version=escape(version("duramen")),
    )


def _summary(found: Findings) -> str:
    core, source = found.core, found.source
    if core is None:
        return f"{plural(source.n_points, 'point')}, and no coreset: {found.no_core}."
    equal = math.isclose(source.total_weight, source.n_points)
    weight = "" if equal else f" of weight {large(source.total_weight)}"
    rows = plural(len(core), "weighted row that stands", "weighted rows that stand")
    return f"{rows} for {plural(source.n_points, 'point')}{weight}, under {short_repr(source.loss)}."


def _tile(name: str, value: str, below: str) -> Markup:
    return tag("div.tile", tag("span.label", name), tag("span.figure", value), tag("span.sub", below))


def _key_figures(found: Findings, certificate: Certificate | None) -> list[tuple[str, str, str]]:
    """List key figures: a name, a value, and what stands below it."""
    core, n = found.core, found.source.n_points
    width = plural(len(found.columns), "column") if found.columns else "no columns yet"
    shown = [("points", f"{n:,}", width)]
    if core is not None:
        ratio = n / max(len(core), 1)
        each = found.mean_loss
        value, _, error = ("unknown", "", "") if each is None else interval(each).partition(" ± ")
        shown += [
            (
                "rows in the coreset",
                f"{len(core):,}",
                f"1 for {short(ratio, 3)} points" if ratio > 1.05 else "all points are in it",
            ),
            (
                "suspected outliers",
                f"{core.n_suspected:,}",
                f"{percent(core.n_suspected / max(n, 1))} of the points",
            ),
            ("mean loss kept", value, f"± {error}" if error else "no error bar"),
            ("effective size", f"{effective_size(core.weights):,.0f}", f"of {plural(len(core), 'row')}"),
        ]
    if certificate is not None:
        probes = plural(len(certificate.errors), "probe")
        shown.append(("largest error found", percent(certificate.max_error), f"at {probes}"))
    return shown


def _contents(found: Findings, notes: Mapping[str, Any]) -> Markup:
    """List what is in the coreset, and the notes that were kept beside it."""
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
    if path := getattr(live, "path", None):
        listed["store"] = cut(path, _LONGEST)
    listed["seed"] = str(source.seed)
    parts = [facts(listed.items())]
    kept = [(cut(name, 60), _note_text(value)) for name, value in notes.items() if name not in _PRIVATE_NOTES]
    if kept:
        parts += [tag("h3", "Notes"), facts(kept)]
    if core is None:
        parts.insert(0, tag("p.note", f"There is no coreset to show: {found.no_core}."))
    return join(*parts)


def _note_text(value: Any) -> str:
    if isinstance(value, str):
        return cut(value, _LONGEST)
    try:
        return cut(json.dumps(value, ensure_ascii=False), _LONGEST)
    except (TypeError, ValueError):
        return short_repr(value)


def _columns(found: Findings, core: Coreset) -> str:
    form = "sparse " if sparse.issparse(core.X) else ""
    names = ", ".join(cut(name, 24) for name in found.columns[:6])
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


def _suspects(found: Findings, core: Coreset) -> Markup:
    """List the rows of the largest losses with the features that make them large."""
    if found.losses is None:
        return tag("p.note", f"{found.no_losses} No row can be suspected before there is an anchor.")
    rows = largest_losses(found.losses, core.ids, _SUSPECTS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reasons = reasons_of(core, rows, found.columns, found.label)
    except Exception as error:  # a custom loss may fail in any way
        return tag("p.note", f"What makes losses large could not be computed: {cut(error)}.")
    cells = [
        (
            _identity(found, core, row),
            tag("span", short(found.losses[row]), data_name="loss"),
            tag("span", short(core.weights[row]), data_name="weight"),
            _why(reasons, place),
        )
        for place, row in enumerate(rows.tolist())
    ]
    suspected, heads = int(core.suspected.sum()), ["Row", "Loss", "Weight", "Why"]
    stand = plural(suspected, "row of the coreset stands", "rows of the coreset stand")
    points = plural(core.n_suspected, "suspected point")
    text = f"{stand} for {points}." if suspected else "No row is suspected."
    listed = plural(len(rows), "row has", "rows have")
    text += f" These {listed} the largest losses at the anchor. Bars show {_REASONS[reasons.kind][0]}"
    parts = [tag("p", text), table(heads, cells[:_OPEN], text=(0, 3))]
    if more := cells[_OPEN:]:
        summary = tag("summary", plural(len(more), "more row"))
        parts.append(tag("details", summary, table(heads, more, text=(0, 3))))
    return join(*parts)


def _identity(found: Findings, core: Coreset, row: int) -> Markup:
    beneath = [] if core.y is None else [f"{cut(found.label, 24)} {found.label_text(core.y[row])}"]
    beneath += [] if core.suspected[row] else ["not suspected"]
    return join(tag("b", found.ids[row]), tag("span.sub", ", ".join(beneath)))


def _why(reasons: Reasons, place: int) -> Markup:
    """Draw the features with the largest parts as bars, then all others together."""
    top, signed = reasons.top(place, _FEATURES), reasons.signed
    names, values, usual, parts = (
        reasons.features,
        reasons.values[place],
        reasons.usual[place],
        reasons.parts[place],
    )
    largest = float(np.abs(parts[top]).max(initial=0.0))
    beside = "centre" if reasons.kind in ("distance", "divergence") else "mean"
    lines = []
    for k in top.tolist():
        name = tag("span.name", cut(names[k], 60), title=names[k])
        compared = tag("span.muted", f"{beside} {short(usual[k], 3)}")
        value = tag("span.value", f"{short(values[k], 3)} ", compared)
        lines.append(tag("div.feature", name, value, *_part(parts[k], largest, signed)))
    rest = np.delete(parts, top).sum() + reasons.rest[place]
    whole = tag("span.sub", f"{_REASONS[reasons.kind][1]} {short(reasons.whole[place])}")
    others = tag("div.feature", tag("span.sub", "all else"), whole, *_part(rest, largest, signed))
    return tag("div.why", *lines, others)


def _part(part: float, largest: float, signed: bool) -> tuple[Markup, Markup]:
    """Draw a part as a bar, from the middle to either side where parts have signs; and write it."""
    share = min(abs(part) / largest, 1.0) if largest and math.isfinite(largest) else float(bool(part))
    kind = "suspect" if part > 0 else "usual" if part < 0 else "none"
    text = short(part, 3)
    if not signed:
        return bar(share, kind), tag("span.part", text)
    left = 0.5 if part > 0 else 0.5 - share / 2
    return bar(share / 2, kind, left), tag("span.part", f"+{text}" if part > 0 else text)


def _picture(found: Findings, core: Coreset) -> Markup:
    def describe(row: int) -> str:
        loss = "" if found.losses is None else f", loss {short(found.losses[row])}"
        return f"{found.ids[row]}{loss}, weight {short(core.weights[row])}"

    columns = [cut(name, 60) for name in found.columns]
    try:
        scene = scene_of(core, _DOTS, 0, columns, found.label, found.label_text)
    except ValueError as error:  # sparse rows of too many columns
        return tag("p.note", f"It could not be drawn: {cut(error, 300)}.")
    caption = "Rows of the coreset, areas in proportion to weight. Rows far beyond the frame are drawn on it."
    return figure(scatter(scene, describe), caption)


def _losses(found: Findings, core: Coreset) -> Markup:
    """Draw the losses at the anchor, and describe the threshold."""
    threshold = tag("p", _threshold(core))
    if found.losses is None:
        return join(tag("p.note", found.no_losses), threshold)
    valid = np.isfinite(found.losses) & (found.losses >= 0)
    if not valid.any():
        return tag("p.note", "No row has a loss that is a finite number of zero or more.")
    drawing = histogram(
        found.losses[valid],
        core.weights[valid],
        core.suspected[valid],
        "Histogram of the losses at the anchor, by weight",
        "loss at the anchor",
        core.threshold if 0 <= core.threshold < math.inf else None,
    )
    left_out = int(np.count_nonzero(~valid))
    missing = f" {plural(left_out, 'row')} with other losses left out." if left_out else ""
    caption = f"Share of the weight by loss. Suspected rows are in the warmer colour.{missing}"
    names = ("Median", "90% of the weight below", "99% below", "Largest")
    at = weighted_quantiles(found.losses, core.weights, np.array([0.5, 0.9, 0.99, 1.0]))
    return pair(figure(drawing, caption), threshold, facts(zip(names, map(short, at), strict=True)))


def _threshold(core: Coreset) -> str:
    if not core.n_outliers:
        return "No weight is to be set aside (z is 0), so no row is suspected."
    if not math.isfinite(core.threshold):
        return (
            f"Weight {large(core.n_outliers)} may be set aside, but there is no threshold: no point is "
            "suspected beforehand."
        )
    suspected = plural(core.n_suspected, "point is", "points are")
    return (
        f"A point is suspected when its loss at the anchor is {short(core.threshold)} or more. {suspected} "
        f"suspected; weight {large(core.n_outliers)} is set aside in the end."
    )


def _error_bars(found: Findings, core: Coreset) -> Markup:
    """Show f_z at the anchor with its standard error and interval, in total and per unit of kept weight."""
    there, each = found.estimate, found.mean_loss
    if found.losses is None:
        return tag("p.note", f"{found.no_losses} Without an anchor there is no parameter to estimate at.")
    if there is None:
        return tag(
            "p.note", "The objective at the anchor was not computed: it would take long, or the loss failed."
        )
    rows = [("Trimmed objective, f_z", *_estimate_cells(there))]
    if each is not None:
        kept = large(core.total_weight - core.n_outliers)
        rows.append((f"Per unit of kept weight ({kept})", *_estimate_cells(each)))
    heads = ["At the anchor", "Estimate", "Standard error", "Relative", "95% interval"]
    return join(_error_bar_kind(core, there), table(heads, rows))


def _estimate_cells(estimate: Estimate) -> tuple[str, str, str, str]:
    if math.isnan(estimate.std_error):
        return large(estimate.value), "unknown", "unknown", "unknown"
    relative = percent(estimate.std_error / estimate.value) if estimate.value else "0%"
    between = f"{large(estimate.low)} to {large(estimate.high)}"
    return interval(estimate).partition(" ± ")[0], short(estimate.std_error), relative, between


def _error_bar_kind(core: Coreset, there: Estimate) -> Markup:
    if np.isnan(core.inclusion).any():
        return tag(
            "p.note",
            "There are no error bars: a tree or a custom sampler drew these rows, and it does not know the "
            "probability with which each was included.",
        )
    if math.isnan(there.std_error):
        return tag("p.note", "There is no error bar: it would take long to compute.")
    if there.std_error == 0:
        return tag("p", "All rows that count here are in the coreset itself: the value is exact.")
    return tag(
        "p",
        "What the coreset estimates for all the data, without reading them again: the interval holds the "
        "value on all the data for about 95% of all seeds.",
    )


def _certificate(given: Certificate | None) -> Markup:
    """Show the errors that were found when the coreset was compared with the data."""
    if given is None:
        return tag(
            "p.note", "None was given: the coreset has not been compared with all the data for this page."
        )
    groups = [(kind, given.errors[given.kinds == kind]) for kind in dict.fromkeys(given.kinds.tolist())]
    rows = [
        (kind, f"{len(errors):,}", *map(percent, np.quantile(errors, [0.5, 0.9, 1.0], method="inverted_cdf")))
        for kind, errors in groups
    ]
    heads = ["Probes", "How many", "Median error", "90% below", "Largest"]
    covered = (
        "Whether the 95% intervals hold is unknown: there are no standard errors."
        if math.isnan(given.covered)
        else f"{percent(given.covered)} of the 95% intervals hold the value on all the data."
    )
    text = (
        f"The largest relative error found on {plural(given.n_points, 'point')} within "
        f"{short(given.radius)} of the anchor is {percent(given.max_error)}: a lower bound on the worst "
        f"case. {covered} Refused probes: {given.n_refused:,}; {given.search}."
    )
    drawing = strips(groups, "Errors by kind of probe", "relative error")
    caption = "One dot per probe. Adversarial ones are steps of a search for a larger error."
    return pair(figure(drawing, caption), tag("p", text), table(heads, rows))


def _layers(found: Findings, core: Coreset) -> Markup:
    """Show how rows and weight are spread over the strata that were drawn from."""
    rows = []
    for name, mine in strata_rows(core.groups):
        count, weight = int(mine.sum()), float(core.weights[mine].sum())
        kind = "suspect" if name.startswith("suspected") else "usual"
        rows.append(
            (
                name,
                f"{count:,}",
                bar(count / len(core), kind),
                short(weight),
                bar(weight / (core.total_weight or 1.0), kind),
                _range(core.inclusion[mine], percent),
                "unknown" if found.losses is None else _range(found.losses[mine], short),
            )
        )
    numbers = np.unique(core.groups)
    layers = plural(int((numbers >= 0).sum()), "layer")
    bins = f" and {plural(int((numbers < 0).sum()), 'loss bin')} of suspected ones, from the threshold up"
    certain = plural(int((core.inclusion >= 1).sum()), "row was", "rows were")
    text = (
        f"Rows were drawn from {layers} of points that are not suspected{bins if numbers[0] < 0 else ''}. "
        f"{certain} included for certain. In the data the rows have weight {short(core.own_weights.sum())}."
    )
    heads = ["Group", "Rows", "of the rows", "Weight", "of the weight", "Inclusion", "Loss at the anchor"]
    return join(tag("p", text), table(heads, rows, text=(0, 2, 4)))


def _range(values: Array, write: Callable[[float], str]) -> str:
    low, high = write(values.min()), write(values.max())
    return low if low == high else f"{low} to {high}"


def _weights(found: Findings, core: Coreset) -> Markup:
    if core.weights.min() == core.weights.max():
        return tag("p", f"All weights are {short(core.weights[0])}.")
    drawing = histogram(
        core.weights, np.ones(len(core)), core.suspected, "Histogram of the weights", "weight of a row"
    )
    caption = "Share of the rows by weight. Suspected rows are in the warmer colour."
    text = (
        f"The rows estimate an average as well as {effective_size(core.weights):,.0f} rows of equal weight "
        "would. Unequal weights are not a loss where the sampler chose them: important rows are drawn more "
        "often."
    )
    return pair(figure(drawing, caption), tag("p", text))


def _anchor(found: Findings) -> Markup:
    """Describe the anchor, and how well it still fits a live coreset."""
    core, report = found.core, found.anchor_report
    if core is None or core.anchor is None:
        why = f": {report.reason}" if report is not None and report.reason else ""
        return tag("p.note", f"There is no anchor{' yet' if found.live is not None else ''}{why}.")
    parts = [tag("p", f"{core.anchor!r}.")]
    if report is not None and report.radius is not None:
        verdict, *lines = repr(report).removeprefix("AnchorReport: ").splitlines()
        parts.append(tag("p.advice" if report.advised else "p.verdict", verdict))
        parts.append(tag("ul", *(tag("li", line) for line in lines)))
    return join(*parts)


def _history(events: Sequence[Any]) -> Markup:
    if not events:
        return tag("p.note", "No history of the anchor was kept.")
    rows = [
        (
            _time_text(event.time),
            cut(event.what),
            f"{event.n_points:,}",
            short(event.radius),
            "" if event.moved is None else short(event.moved),
        )
        for event in events[-_EVENTS:]
    ]
    listed = table(["When", "What", "Points", "Radius", "Moved by"], rows, text=(0, 1))
    if len(events) <= _EVENTS:
        return listed
    return join(tag("p", f"The latest {_EVENTS} of {len(events):,} events."), listed)


def _time_text(time: str) -> str:
    """Write an ISO 8601 time for people.

    Examples
    --------
    >>> _time_text("2025-03-01T09:12:00+00:00"), _time_text("yesterday")
    ('2025-03-01 09:12:00 UTC', 'yesterday')
    """
    day, mark, rest = cut(time, 40).partition("T")
    return f"{day} {rest.replace('+00:00', ' UTC')}" if mark and day[:1].isdigit() else cut(time, 40)
