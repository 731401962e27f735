"""Show a coreset: two lines for a prompt, an HTML table for a notebook, a pandas data frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.extras import needed
from duramen.text import plural, shorten

if TYPE_CHECKING:
    from duramen.coreset.coreset import Estimate


def summary(core: Any) -> str:
    """Describe a coreset in two lines."""
    suspected, there, known = int(np.count_nonzero(core.suspected)), core._at_anchor, facts(core)
    outer = f", {suspected:,} of the rows for {core.n_suspected:,} suspected outliers" if suspected else ""
    value = "" if there is None else f"; at the anchor f_z = {interval(there, ' +- ')}"
    return (
        f"Coreset: {_size(core)}{outer}\n"
        f"  {known['loss']}, n_outliers {number(core.n_outliers)}, {known['sampler']}{value}"
    )


def table(core: Any) -> str:
    """Describe a coreset in a small HTML table."""
    from jinja2 import Environment, PackageLoader  # imported here, as that takes a while

    templates = Environment(loader=PackageLoader("duramen", "coreset"), autoescape=True)
    return templates.get_template("table.html").render(size=_size(core), facts=facts(core))


def _size(core: Any) -> str:
    columns = plural(core.points.n_columns, "column")
    if len(core) == core.n_points:
        return f"all {plural(len(core), 'point')} x {columns}, none left out"
    return f"{plural(len(core), 'weighted row')} x {columns} for {core.n_points:,} points"


def facts(core: Any) -> dict[str, str]:
    """Describe a coreset fact by fact: names and values."""
    suspected, there = int(np.count_nonzero(core.suspected)), core._at_anchor
    spread = " / ".join(map(number, np.quantile(core.weights, [0, 0.5, 1])))
    meaning, value = "the loss at the anchor from which points are suspected", "not computed"
    if there is not None:
        bar = f" (standard error; 95% between {number(there.low)} and {number(there.high)})"
        value = interval(there) + (bar if math.isfinite(there.std_error) else ", error bar not known")
    return {
        "loss": short_repr(core.loss),
        "outliers to set aside, z": number(core.n_outliers),
        "suspected outliers": f"{suspected:,} rows for {core.n_suspected:,} points" if suspected else "none",
        "threshold": "none" if math.isinf(core.threshold) else f"{number(core.threshold)}: {meaning}",
        "sampler": f"{shorten(core.sampler)}, {'' if core.calibrated else 'not '}calibrated",
        "weights": f"{spread} (min / median / max), total {number(core.weights.sum())}",
        "anchor": "none" if core.anchor is None else repr(core.anchor).removeprefix("Anchor: "),
        "f_z at the anchor": value,
    }


def number(value: float, digits: int = 6) -> str:
    """Format a number: about so many digits, with thousands separators.

    Examples
    --------
    >>> number(265123.4), number(12.5), number(1e-7), number(float("inf"))
    ('265,123', '12.5', '1e-07', 'inf')
    """
    whole = 10 ** (digits - 1) <= abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:,.{digits}g}"


def interval(estimate: Estimate, sign: str = " ± ") -> str:
    """Format a value with its standard error, both to the error's second digit.

    Examples
    --------
    >>> from duramen import Estimate
    >>> interval(Estimate.of(265123.4, 412.3)), interval(Estimate.of(1.23456, 0.0321))
    ('265,123 ± 412', '1.235 ± 0.032')
    """
    value, error = estimate.value, estimate.std_error
    if not (math.isfinite(value) and math.isfinite(error)):
        return number(value)
    digits = max(1 - math.floor(math.log10(error)), 0) if error > 0 else 7
    if digits > 6 or abs(value) >= 1e15:
        return f"{number(value)}{sign}{error:.2g}"
    return f"{value:,.{digits}f}{sign}{error:,.{digits}f}"


def short_repr(thing: Any) -> str:
    """Return a one-line repr; the name of the class where the repr of a custom class fails."""
    try:
        return shorten(repr(thing))
    except Exception:
        return f"{type(thing).__name__}()"


OURS = "duramen:"
"""Prefix of a column of ours whose name is that of a feature."""


def feature_names(core: Any) -> list[str]:
    """Return the names of the columns, or x0, x1, ..."""
    return list(core.columns) if core.columns else [f"x{place}" for place in range(core.points.n_columns)]


def frame_of(core: Any) -> Any:
    """Build a pandas data frame that shares no memory with the coreset."""
    pd = needed("pandas", "Coreset.to_pandas", "frames")
    names = feature_names(core)
    index = pd.Index(np.array(core.ids), name="id")
    make, copied = pd.DataFrame, np.array
    if sparse.issparse(core.X):
        make, copied = pd.DataFrame.sparse.from_spmatrix, sparse.csr_matrix
    frame = make(copied(core.X), index=index, columns=names)
    for name, column in (("y", core.y), ("weight", core.weights), ("suspected", core.suspected)):
        if column is not None:
            while name in names:
                name = OURS + name
            frame[name] = np.array(column)
    return frame
