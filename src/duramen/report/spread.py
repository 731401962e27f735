"""How things are spread: losses with the threshold, weights, and the groups that rows were drawn from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset import Coreset
from duramen.report.charts import histogram
from duramen.report.findings import Findings
from duramen.report.markup import (
    Markup,
    Section,
    bar,
    facts,
    figure,
    large,
    note,
    paragraph,
    percent,
    plural,
    short,
    table,
)

__all__ = ["effective_size", "layers", "losses", "weights"]

_MOST = 8  # groups of a kind in the table
_NO_ROWS = "There is no coreset, hence nothing to show."


def losses(found: Findings) -> Section:
    """Draw the losses at the anchor, and say where suspicion starts."""
    return Section("losses", "Losses and the threshold", _losses(found))


def _losses(found: Findings) -> Markup:
    core = found.core
    if core is None:
        return note(_NO_ROWS)
    said = _threshold(core)
    if found.losses is None:
        return Markup(f"{note(found.no_losses)}{paragraph(said)}")
    fine = np.isfinite(found.losses) & (found.losses >= 0)
    if not fine.any():
        return note("No row has a loss that is a finite number of zero or more.")
    limit = core.threshold if math.isfinite(core.threshold) and core.threshold >= 0 else None
    drawing = histogram(
        found.losses[fine],
        core.weights[fine],
        core.suspected[fine],
        "Histogram of the losses at the anchor, by weight",
        "loss at the anchor",
        limit,
    )
    left_out = int(np.count_nonzero(~fine))
    missing = f" {plural(left_out, 'row')} with other losses left out." if left_out else ""
    caption = f"Share of the weight by loss. Suspected rows are in the warmer colour.{missing}"
    return Markup(
        f'<div class="pair">{figure(drawing, caption)}<div>{paragraph(said)}{_levels(found)}</div></div>'
    )


def _threshold(core: Coreset) -> str:
    if not core.n_outliers:
        return "No weight is to be set aside (z is 0), so nobody is suspected."
    if not math.isfinite(core.threshold):
        return (
            f"Weight {large(core.n_outliers)} may be set aside, but there is no threshold: no point is "
            "suspected beforehand."
        )
    rows = int(np.count_nonzero(core.suspected))
    stand = "stands" if rows == 1 else "stand"
    return (
        f"A point is suspected when its loss at the anchor is {short(core.threshold)} or more. "
        f"{plural(core.n_suspected, 'point')} {'is' if core.n_suspected == 1 else 'are'}, for which "
        f"{plural(rows, 'row')} {stand}; weight {large(core.n_outliers)} is set aside in the end."
    )


def _levels(found: Findings) -> Markup:
    """List at which losses certain shares of the weight lie."""
    assert found.core is not None
    assert found.losses is not None
    at = _quantiles(found.losses, found.core.weights, np.array([0.5, 0.9, 0.99, 1.0]))
    names = ("Median", "90% of the weight below", "99% below", "Largest")
    return facts([(name, short(value)) for name, value in zip(names, at.tolist(), strict=True)])


def _quantiles(values: Array, heavy: Array, shares: Array) -> Array:
    """Find the smallest values with at least a share of the weight up to them."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(heavy[order])
    places = np.searchsorted(reached, shares * reached[-1] * (1 - 1e-12)).clip(max=len(order) - 1)
    return values[order[places]]


def weights(found: Findings) -> Section:
    """Draw the weights."""
    core = found.core
    if core is None:
        return Section("weights", "Weights", note(_NO_ROWS))
    low, middle, high = np.quantile(core.weights, [0, 0.5, 1]).tolist()
    effective = effective_size(core.weights)
    listed = facts(
        [
            ("Smallest", short(low)),
            ("Median", short(middle)),
            ("Largest", short(high)),
            ("Sum", large(float(core.weights.sum()))),
            ("Effective sample size", f"{effective:,.0f} of {plural(len(core), 'row')}"),
        ]
    )
    if low == high:
        every = f"All {len(core):,} rows weigh the same." if len(core) > 1 else "There is one row."
        return Section("weights", "Weights", Markup(f"{paragraph(every)}{listed}"))
    drawing = histogram(
        core.weights, np.ones(len(core)), core.suspected, "Histogram of the weights", "weight of a row"
    )
    caption = "Share of the rows by weight. Suspected rows are in the warmer colour."
    text = (
        f"The rows say as much about an average as {effective:,.0f} of equal weight would. "
        "Unequal weights are no loss where the sampler chose them: what matters more is drawn more often."
    )
    pair = f'<div class="pair">{figure(drawing, caption)}<div>{paragraph(text)}{listed}</div></div>'
    return Section("weights", "Weights", Markup(pair))


def effective_size(heavy: Array) -> float:
    """Compute the effective sample size, (sum w)^2 / sum w^2.

    Examples
    --------
    >>> effective_size(np.array([1.0, 1.0, 1.0, 0.0])), effective_size(np.array([1e200, 1e200]))
    (3.0, 2.0)
    """
    largest = float(heavy.max(initial=0.0))
    if not largest:
        return 0.0
    held = heavy / largest
    return float(held.sum() ** 2 / np.square(held).sum())


def layers(found: Findings) -> Section:
    """Show how rows and weight are spread over the groups that were drawn from."""
    return Section("layers", "Layers", _layers(found))


def _layers(found: Findings) -> Markup:
    core = found.core
    if core is None:
        return note(_NO_ROWS)
    numbers = np.unique(core.groups)
    heads = ["Group", "Rows", "of the rows", "Weight", "of the weight", "Inclusion", "Loss at the anchor"]
    rows = [_group(found, core, name, mine) for name, mine in _pooled(core, numbers)]
    return Markup(f"{paragraph(_drawn(core, numbers))}{table(heads, rows, text=(0, 2, 4))}")


def _pooled(core: Coreset, numbers: Array) -> list[tuple[str, Array]]:
    """Name the groups and mark their rows: layers, then the suspected; of many, the last ones together."""
    found = []
    for kind, these in (("layer", numbers[numbers >= 0]), ("suspected", -numbers[numbers < 0][::-1])):
        sign = 1 if kind == "layer" else -1
        whole = len(these) if len(these) <= _MOST else _MOST - 1
        found += [(f"{kind} {one}", core.groups == sign * one) for one in these[:whole].tolist()]
        if whole < len(these):
            last = these[whole:]
            found.append((f"{kind} {last[0]} to {last[-1]}", np.isin(core.groups, sign * last)))
    return found


def _group(found: Findings, core: Coreset, name: str, mine: Array) -> tuple[Any, ...]:
    count, heavy = int(np.count_nonzero(mine)), float(core.weights[mine].sum())
    kind = "suspect" if core.groups[mine][0] < 0 else "usual"
    return (
        name,
        f"{count:,}",
        bar(count / len(core), kind),
        short(heavy),
        bar(heavy / (core.total_weight or 1.0), kind),
        _chances(core.inclusion[mine]),
        _range(None if found.losses is None else found.losses[mine]),
    )


def _drawn(core: Coreset, numbers: Array) -> str:
    usual, rungs = int(np.count_nonzero(numbers >= 0)), int(np.count_nonzero(numbers < 0))
    kinds = [
        (usual, f"{plural(usual, 'layer')} of points that are not suspected"),
        (rungs, f"{plural(rungs, 'rung')} of suspected ones, from the threshold up"),
    ]
    drawn = " and ".join(text for count, text in kinds if count)
    certain = int(np.count_nonzero(core.inclusion >= 1))
    if np.isnan(core.inclusion).any():
        chance = "the sampler does not know with which probability each row came in."
    elif certain == len(core):
        chance = "every row came in for certain, with its own weight."
    else:
        own = float(core.own_weights.sum())
        share = own / (core.total_weight or 1.0)
        chance = (
            f"{plural(certain, 'row')} came in for certain; all rows by themselves weigh "
            f"{short(own)} in the data, {percent(share)} of the total."
        )
    return f"Rows were drawn from {drawn}; {chance}"


def _chances(inclusion: Array) -> str:
    if np.isnan(inclusion).any():
        return "unknown"
    low, high = percent(float(inclusion.min())), percent(float(inclusion.max()))
    return low if low == high else f"{low} to {high}"


def _range(values: Array | None) -> str:
    if values is None:
        return "unknown"
    low, high = short(float(values.min())), short(float(values.max()))
    return low if low == high else f"{low} to {high}"
