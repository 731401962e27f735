"""What is in a coreset: key figures as tiles, and a list of facts."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from scipy import sparse

from duramen.coreset import Coreset, Estimate
from duramen.coreset.display import interval
from duramen.report.findings import Findings
from duramen.report.markup import (
    Markup,
    Section,
    cut,
    escape,
    facts,
    large,
    note,
    percent,
    plural,
    said,
    short,
)
from duramen.report.spread import effective_size

__all__ = ["contents", "summary", "tiles"]

_LONGEST = 300  # characters of a note's value

_OWN = ("encoding", "columns")  # notes of the command line, for its own use


def summary(found: Findings) -> str:
    """Say in a sentence what the page is about."""
    core = found.core
    if core is None:
        return f"{plural(found.n_points, 'point')}, and no coreset: {found.no_core}."
    weight = (
        "" if math.isclose(found.total_weight, found.n_points) else f" of weight {large(found.total_weight)}"
    )
    rows = f"{plural(len(core), 'weighted row')} that {'stands' if len(core) == 1 else 'stand'}"
    return f"{rows} for {plural(found.n_points, 'point')}{weight}, under {said(found.loss)}."


def tiles(found: Findings) -> Markup:
    """Put the key figures in a row."""
    core = found.core
    shown = [("points", f"{found.n_points:,}", _columns(found))]
    if core is not None:
        ratio = found.n_points / max(len(core), 1)
        small = f"1 for {short(ratio, 3)} points" if ratio > 1.05 else "all points are in it"
        shown.append(("rows in the coreset", f"{len(core):,}", small))
        share = core.n_suspected / max(found.n_points, 1)
        below = f"{percent(share)} of the points" if core.n_suspected else "no point is suspected"
        shown.append(("suspected outliers", f"{core.n_suspected:,}", below))
        shown.append(_objective(found.estimate, _kept(found)))
        shown.append(
            ("effective size", f"{effective_size(core.weights):,.0f}", f"of {plural(len(core), 'row')}")
        )
    if found.certificate is not None:
        largest = percent(found.certificate.max_error)
        shown.append(("largest error found", largest, f"at {plural(len(found.certificate.errors), 'probe')}"))
    items = "".join(
        f'<div class="tile"><span class="label">{escape(name)}</span>'
        f'<span class="figure">{escape(value)}</span><span class="sub">{escape(below)}</span></div>'
        for name, value, below in shown
    )
    return Markup(f'<div class="tiles">{items}</div>')


def _columns(found: Findings) -> str:
    return plural(len(found.columns), "column") if found.columns else "no columns yet"


def _kept(found: Findings) -> float:
    return found.total_weight - (0.0 if found.core is None else found.core.n_outliers)


def _objective(estimate: Estimate | None, kept: float) -> tuple[str, str, str]:
    name = "mean loss kept"
    if estimate is None or not kept > 0:
        return name, "unknown", "see the error bars"
    each = Estimate.of(estimate.value / kept, estimate.std_error / kept)
    value, _, error = interval(each).partition(" ± ")
    return name, value, f"± {error}" if error else "no error bar"


def contents(found: Findings) -> Section:
    """List what is in it, and the notes that were kept beside it."""
    body = facts(_facts(found))
    kept = [(cut(name, 60), _noted(value)) for name, value in found.notes.items() if name not in _OWN]
    if kept:
        body = Markup(f"{body}<h3>Notes</h3>{facts(kept)}")
    if found.core is None:
        body = Markup(f"{note(f'There is no coreset to show: {found.no_core}.')}{body}")
    return Section("contents", "What is in it", body)


def _noted(value: Any) -> str:
    if isinstance(value, str):
        return cut(value, _LONGEST)
    try:
        return cut(json.dumps(value, ensure_ascii=False), _LONGEST)
    except (TypeError, ValueError):
        return said(value)


def _facts(found: Findings) -> list[tuple[str, str]]:
    core, live = found.core, found.live
    listed = [("Loss", said(found.loss))]
    path = getattr(live, "path", None)
    if path is not None:
        listed.append(("Store", cut(path, _LONGEST)))
    listed.append(("Points", f"{found.n_points:,}, of weight {large(found.total_weight)}"))
    if core is not None:
        listed += [
            ("Columns", _kinds(found)),
            ("Labels", _labels(found)),
            (
                "Set aside, z",
                f"{large(core.n_outliers)}{_share(core.n_outliers, found.total_weight)}",
            ),
            ("Size", f"{plural(len(core), 'row')}{'' if live is None else f', of {live.size:,} at most'}"),
            ("Sampler", _sampler(core)),
        ]
    if live is not None:
        listed.append(("Engine", live.engine))
    listed.append(("Seed", str(found.seed)))
    return listed


def _sampler(core: Coreset) -> str:
    if len(core) == core.n_points and (core.inclusion >= 1).all():
        return "none needed: all points are in it"
    return f"{cut(core.sampler)}, {'calibrated' if core.calibrated else 'not calibrated'}"


def _share(z: float, total: float) -> str:
    return f", {percent(z / total)} of the weight" if z and total else ""


def _kinds(found: Findings) -> str:
    assert found.core is not None
    X = found.core.X
    form = "sparse " if sparse.issparse(X) else ""
    names = ", ".join(cut(name, 24) for name in found.columns[:6])
    more = f" and {len(found.columns) - 6:,} more" if len(found.columns) > 6 else ""
    return f"{len(found.columns):,} of {form}{X.dtype}: {names}{more}"


def _labels(found: Findings) -> str:
    assert found.core is not None
    y = found.core.y
    if y is None:
        return "none"
    values, places = np.unique(y, return_inverse=True)
    name = cut(found.label, 40)
    if len(values) > 8 or not (values == np.round(values)).all():
        return f"{name}, numbers from {short(float(values[0]))} to {short(float(values[-1]))} in the coreset"
    shares = np.bincount(places.ravel(), found.core.weights) / (found.core.total_weight or 1.0)
    listed = (
        f"{found.label_text(float(one))} ({percent(float(share))})"
        for one, share in zip(values, shares, strict=True)
    )
    return f"{name}: {', '.join(listed)} by weight"
