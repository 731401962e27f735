"""Who is suspected, and why: the rows of the largest losses, and what makes them large."""

from __future__ import annotations

import math
import warnings

import numpy as np

from duramen.report.findings import Findings
from duramen.report.markup import Markup, Section, cut, escape, note, paragraph, plural, short, signed
from duramen.report.suspects import Reasons, largest_losses, reasons_of

__all__ = ["suspects"]

_ROWS, _OPEN, _FEATURES = 20, 8, 3  # rows, those seen at once, and features of each

_COMPARED = "compared with the mean of the rows that are not suspected"
_GROWS = f"{_COMPARED}: to the right the loss grows, to the left it shrinks."
_MEANING = {
    "margin": f"Bars show how far each feature moves the linear predictor, {_COMPARED}: to the right, "
    "towards the wrong side of the label; to the left, towards its own.",
    "residual": f"Bars show what each feature, and the label itself, adds to the residual, {_GROWS}",
    "predictor": f"Bars show how far each feature moves the linear predictor, {_GROWS}",
    "classes": f"Bars show how far each feature moves the strongest other class ahead of its own, {_GROWS}",
    "distance": "Bars show which features make up the squared distance to the nearest centre of the anchor.",
    "divergence": "Bars show which features make up the divergence from the nearest centre of the anchor.",
    "spread": "What makes up this loss is not known here. Bars show instead which features make up the "
    "squared distance from the mean of the rows that are not suspected, in standard deviations.",
}
_WHOLE = {
    "margin": "wrong side by",
    "residual": "residual",
    "predictor": "predictor",
    "classes": "behind by",
    "distance": "distance²",
    "divergence": "divergence",
    "spread": "distance²",
}
_BESIDE = {"distance": "centre", "divergence": "centre"}


def suspects(found: Findings) -> Section:
    """List the rows of the largest losses with the features that make them so."""
    return Section("suspects", "Who is suspected, and why", _suspects(found))


def _suspects(found: Findings) -> Markup:
    core = found.core
    if core is None:
        return note("There is no coreset, hence nobody to suspect.")
    if found.losses is None:
        return note(f"{found.no_losses} Nobody can be suspected before there is one.")
    rows = largest_losses(found.losses, core.ids, _ROWS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reasons = reasons_of(core, rows, found.columns, found.label)
    except Exception as error:  # a loss of the user's own may fail in any way
        return note(f"What makes losses large could not be worked out: {cut(error)}.")
    head = paragraph(f"{_who(found, len(rows))} {_MEANING[reasons.kind]}")
    listed = [_row(found, reasons, place, int(row)) for place, row in enumerate(rows)]
    more = listed[_OPEN:]
    rest = (
        f"<details><summary>{plural(len(more), 'more row')}</summary>{_table(more)}</details>" if more else ""
    )
    return Markup(f"{head}{_table(listed[:_OPEN])}{rest}")


def _table(rows: list[str]) -> str:
    names = (("Row", ""), ("Loss", ' class="n"'), ("Weight", ' class="n"'), ("Why", ""))
    heads = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in names)
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="suspects">{body}</table></div>'


def _who(found: Findings, shown: int) -> str:
    core = found.core
    assert core is not None
    suspected = int(np.count_nonzero(core.suspected))
    if not suspected:
        have = plural(shown, "row has", "rows have")
        return f"Nobody is suspected. These {have} the largest losses at the anchor."
    some = f"The {shown:,} largest of them" if suspected > shown else "All of them"
    rest = " are listed" if suspected >= shown else " come first in the list"
    sampled = f" for {plural(core.n_suspected, 'point')}" if suspected < core.n_suspected else ""
    return (
        f"{plural(suspected, 'row')} of the coreset {'stands' if suspected == 1 else 'stand'}{sampled} "
        f"above the threshold. {some}{rest}, by loss at the anchor."
    )


def _row(found: Findings, reasons: Reasons, place: int, row: int) -> str:
    core, losses = found.core, found.losses
    assert core is not None
    assert losses is not None
    label = found.label_of(row)
    beneath = [f"{cut(found.label, 24)} {label}"] if label else []
    beneath += [] if core.suspected[row] else ["not suspected"]
    sub = f'<span class="sub">{escape(", ".join(beneath))}</span>' if beneath else ""
    return (
        f'<tr><td class="id"><b>{escape(found.id_of(row))}</b>{sub}</td>'
        f'<td class="n" data-name="loss">{short(float(losses[row]))}</td>'
        f'<td class="n" data-name="weight">{short(float(core.weights[row]))}</td>'
        f"<td>{_why(reasons, place)}</td></tr>"
    )


def _why(reasons: Reasons, place: int) -> str:
    chosen = reasons.top(place, _FEATURES)
    whole = float(reasons.whole[place])
    largest = float(np.abs(reasons.parts[place, chosen]).max(initial=0.0))
    items = "".join(_feature(reasons, place, int(feature), largest) for feature in chosen)
    rest = whole - float(reasons.parts[place, chosen].sum())
    name = f"{_WHOLE[reasons.kind]} {short(whole)}"
    if len(chosen) == len(reasons.features) and not reasons.signed:  # nothing else is there
        return f'<div class="why">{items}<div class="feature"><span class="sub">{name}</span></div></div>'
    rest = rest if reasons.signed else max(rest, 0.0)
    last = f'<span class="sub">all else</span><span class="sub">{name}</span>'
    return f'<div class="why">{items}{_line(last, reasons, rest, largest)}</div>'


def _feature(reasons: Reasons, place: int, feature: int, largest: float) -> str:
    value, usual = float(reasons.values[place, feature]), float(reasons.usual[place, feature])
    name = reasons.features[feature]
    beside = _BESIDE.get(reasons.kind, "mean")
    shown = (
        f'<span class="name" title="{escape(name)}">{escape(cut(name, 60))}</span>'
        f'<span class="value">{short(value, 3)} <span class="muted">{beside} {short(usual, 3)}</span></span>'
    )
    return _line(shown, reasons, float(reasons.parts[place, feature]), largest)


def _line(shown: str, reasons: Reasons, part: float, largest: float) -> str:
    written = signed(part, 3) if reasons.signed else short(part, 3)
    bar = _push(part, largest, reasons.signed)
    return f'<div class="feature">{shown}{bar}<span class="part">{written}</span></div>'


def _push(part: float, largest: float, both_ways: bool) -> str:
    """Draw a part as a bar: from the middle to either side, or from the left where none is negative."""
    share = min(abs(part) / largest, 1.0) if largest and math.isfinite(largest) else float(bool(part))
    kind = "suspect" if part > 0 else "usual" if part < 0 else "none"
    if not both_ways:
        return f'<span class="bar"><i class="{kind}" style="width:{100 * share:.1f}%"></i></span>'
    left = 50.0 if part > 0 else 50.0 - 50 * share
    inner = f'<i class="{kind}" style="left:{left:.1f}%;width:{50 * share:.1f}%"></i>'
    return f'<span class="bar both">{inner}</span>'
