"""How far the coreset can be trusted: error bars from the coreset alone, and the certificate."""

from __future__ import annotations

import math

import numpy as np

from duramen.coreset import Coreset, Estimate
from duramen.coreset.display import interval
from duramen.report.charts import strips
from duramen.report.findings import Findings
from duramen.report.markup import (
    Markup,
    Section,
    figure,
    large,
    note,
    paragraph,
    percent,
    plural,
    short,
    table,
)

__all__ = ["certificate", "error_bars"]

_KINDS = ("anchor", "random", "sphere", "adversarial")


def error_bars(found: Findings) -> Section:
    """Give f_z at the anchor with its standard error and interval, in total and for a unit of kept weight."""
    return Section("error-bars", "Error bars", _error_bars(found))


def _error_bars(found: Findings) -> Markup:
    core, there = found.core, found.estimate
    if core is None:
        return note("There is no coreset, hence nothing to estimate.")
    if found.losses is None:
        return note(f"{found.no_losses} Without an anchor there is no parameter to estimate at.")
    if there is None:
        return note("The objective at the anchor was not computed: it would take long, or the loss failed.")
    kept = core.total_weight - core.n_outliers
    rows = [("Trimmed objective, f_z", *_cells(there))]
    if kept > 0:
        each = Estimate.of(there.value / kept, there.std_error / kept)
        rows.append((f"For a unit of kept weight ({large(kept)})", *_cells(each)))
    heads = ["At the anchor", "Estimate", "Standard error", "Relative", "95% interval"]
    return Markup(f"{_said(core, there)}{table(heads, rows)}")


def _cells(estimate: Estimate) -> tuple[str, str, str, str]:
    if math.isnan(estimate.std_error):
        return large(estimate.value), "unknown", "unknown", "unknown"
    value = interval(estimate).partition(" ± ")[0]
    relative = percent(estimate.std_error / estimate.value) if estimate.value else "0%"
    between = f"{large(estimate.low)} to {large(estimate.high)}"
    return value, short(estimate.std_error), relative, between


def _said(core: Coreset, there: Estimate) -> Markup:
    if np.isnan(core.inclusion).any() or math.isnan(there.std_error):
        return note(
            "There are no error bars: what drew these rows, a tree or a sampler of one's own, does not know "
            "with which probability each came in."
            if np.isnan(core.inclusion).any()
            else "There is no error bar: it would take long to compute."
        )
    if there.std_error == 0:
        return paragraph("All that counts here is in the coreset itself: the value is exact.")
    return paragraph(
        "What the coreset says of all the data, without looking at them again: the interval holds the value "
        "on all the data for about 95% of all seeds."
    )


def certificate(found: Findings) -> Section:
    """Show the errors that were found when the coreset was compared with the data."""
    return Section("certificate", "Certificate", _certificate(found))


def _certificate(found: Findings) -> Markup:
    given = found.certificate
    if given is None:
        return note("None was given: the coreset has not been compared with all the data for this page.")
    kinds = [*_KINDS, *sorted(set(given.kinds.tolist()) - set(_KINDS))]
    groups = [(kind, given.errors[given.kinds == kind]) for kind in kinds]
    groups = [(kind, errors) for kind, errors in groups if len(errors)]
    rows = [
        (
            kind,
            f"{len(errors):,}",
            *(percent(float(at)) for at in np.quantile(errors, [0.5, 0.9, 1.0], method="inverted_cdf")),
        )
        for kind, errors in groups
    ]
    heads = ["Probes", "How many", "Median error", "90% below", "Largest"]
    covered = (
        "Whether the 95% intervals hold is unknown: there are no standard errors."
        if math.isnan(given.covered)
        else f"{percent(given.covered)} of the 95% intervals hold the value on all the data."
    )
    said = (
        f"The largest relative error found on {plural(given.n_points, 'point')} within "
        f"{short(given.radius)} of the anchor is {percent(given.max_error)}: a lower bound on the worst "
        f"case. {covered} Refused probes: {given.n_refused:,}; {given.search}."
    )
    drawing = strips(
        [(kind, np.asarray(errors)) for kind, errors in groups], "Errors by kind of probe", "relative error"
    )
    caption = "One dot a probe. Adversarial ones are steps of a search for a larger error."
    right = f"<div>{paragraph(said)}{table(heads, rows)}</div>"
    return Markup(f'<div class="pair">{figure(drawing, caption)}{right}</div>')
