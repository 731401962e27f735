"""Show a coreset: two lines for a prompt, an HTML table for a notebook, a pandas data frame."""

from __future__ import annotations

import math
import warnings
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset.estimate import Estimate
from duramen.extras import needed
from duramen.samplers.calibration import calibration_features

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = ["OURS", "at_anchor", "feature_names", "frame_of", "interval", "number", "summary", "table"]

_QUICK = 2e8  # products that take about a tenth of a second

_TABLE = "margin:0;border-collapse:collapse;border:0;color:inherit;background:none;font-size:inherit"
_CAPTION = "caption-side:top;text-align:left;color:inherit;padding:0 0 .3em 0"
_ROW = "background:none;border:0;border-top:1px solid rgba(128,128,128,.35)"
_HEAD = "text-align:left;vertical-align:top;font-weight:normal;opacity:.7;padding:.2em 1.5em .2em 0;border:0"
_CELL = "text-align:left;vertical-align:top;padding:.2em 0;border:0"


def summary(core: Coreset) -> str:
    """Say in two lines what a coreset is."""
    suspected = int(np.count_nonzero(core.suspected))
    outer = f", {suspected:,} of the rows for {core.n_suspected:,} suspected outliers" if suspected else ""
    there = core._at_anchor
    value = "" if there is None else f"; at the anchor f_z = {interval(there, ' +- ')}"
    return (
        f"Coreset: {_size(core)} for {core.n_points:,} points{outer}\n"
        f"  {short_repr(core.loss)}, n_outliers {number(core.n_outliers)}, {_sampler(core)}{value}"
    )


def table(core: Coreset) -> str:
    """Say the same, and more, in a small HTML table that takes its colours from the page."""
    rows = "".join(
        f'<tr style="{_ROW}"><th scope="row" style="{_HEAD}">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in _facts(core)
    )
    title = f"<b>Coreset</b>: {escape(_size(core))} for {core.n_points:,} points"
    return (
        f'<table style="{_TABLE}"><caption style="{_CAPTION}">{title}</caption><tbody>{rows}</tbody></table>'
    )


def _facts(core: Coreset) -> list[tuple[str, str]]:
    return [
        ("loss", short_repr(core.loss)),
        ("outliers to set aside, z", number(core.n_outliers)),
        ("suspected outliers", _suspected(core)),
        ("threshold", _threshold(core)),
        ("sampler", _sampler(core)),
        ("weights", _weights(core.weights)),
        ("anchor", "none" if core.anchor is None else repr(core.anchor).removeprefix("Anchor: ")),
        ("f_z at the anchor", _value(core._at_anchor)),
    ]


def at_anchor(core: Coreset) -> Estimate | None:
    """Estimate f_z at the anchor; None where there is none, where it would take long, or where it fails.

    Where only the error bar would take long, that is NaN.
    """
    if core.anchor is None or not len(core) or len(core) * core.anchor.theta.size > _QUICK:
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if len(core) * _known_columns(core) ** 2 > _QUICK:
                return Estimate.of(core.objective(core.anchor.theta), math.nan)
            return core.estimate(core.anchor.theta)
    except Exception:  # a loss of the user's own may fail in any way, and a repr must not
        return None


def _known_columns(core: Coreset) -> int:
    """Count the columns that the error bar regresses on."""
    if not core.calibrated or core.anchor is None:
        return 1
    inner = int(np.count_nonzero(core.groups >= 0))
    return calibration_features(core.loss, core.anchor, inner, core.points).n_columns


def number(value: float) -> str:
    """Write a number as people do: six digits or so, and thousands apart.

    Examples
    --------
    >>> number(265123.4), number(12.5), number(1e-7), number(float("inf"))
    ('265,123', '12.5', '1e-07', 'inf')
    """
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:,.6g}"


def interval(estimate: Estimate, sign: str = " ± ") -> str:
    """Write a value with its standard error, both to the error's second digit.

    Examples
    --------
    >>> interval(Estimate.of(265123.4, 412.3)), interval(Estimate.of(1.23456, 0.0321))
    ('265,123 ± 412', '1.235 ± 0.032')
    """
    value, error = estimate.value, estimate.std_error
    if not (math.isfinite(value) and math.isfinite(error)):
        return number(value)
    digits = 1 - math.floor(math.log10(error)) if error > 0 else 7
    if digits > 6 or abs(value) >= 1e15:
        return f"{number(value)}{sign}{error:.2g}"
    digits = max(digits, 0)
    return f"{value:,.{digits}f}{sign}{error:,.{digits}f}"


def _size(core: Coreset) -> str:
    columns = core.points.n_columns
    return f"{len(core):,} weighted row{'s' * (len(core) != 1)} x {columns:,} column{'s' * (columns != 1)}"


def _suspected(core: Coreset) -> str:
    rows = int(np.count_nonzero(core.suspected))
    return f"{rows:,} rows for {core.n_suspected:,} points" if rows else "none"


def _sampler(core: Coreset) -> str:
    return f"{cut(core.sampler)}, {'calibrated' if core.calibrated else 'not calibrated'}"


def _threshold(core: Coreset) -> str:
    if not math.isfinite(core.threshold):
        return "none"
    return f"{number(core.threshold)}: the loss at the anchor from which points are suspected"


def _weights(weights: Array) -> str:
    if not len(weights):
        return "none"
    low, middle, high = (number(float(at)) for at in np.quantile(weights, [0, 0.5, 1]))
    return f"{low} / {middle} / {high} (min / median / max), in sum {number(float(weights.sum()))}"


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not computed"
    if not math.isfinite(estimate.std_error):
        return f"{number(estimate.value)}, error bar not known"
    low, high = number(estimate.low), number(estimate.high)
    return f"{interval(estimate)} (standard error; 95% between {low} and {high})"


def short_repr(thing: Any) -> str:
    """Return a repr of one line; the name of the class where the repr of a custom class fails."""
    try:
        return cut(repr(thing))
    except Exception:
        return f"{type(thing).__name__}()"


def cut(text: Any, longest: int = 100) -> str:
    """Put text on one line of at most so many characters.

    Examples
    --------
    >>> cut("a    long name", 8)
    'a lon...'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


OURS = "duramen:"
"""What our own columns begin with, where a name could be a feature's."""


def feature_names(core: Coreset) -> list[str]:
    """Name the columns as the data did, or x0, x1, ..."""
    return list(core.columns) if core.columns else [f"x{place}" for place in range(core.points.n_columns)]


def frame_of(core: Coreset) -> Any:
    """Make the data frame; it shares no memory with the coreset."""
    pd = needed("pandas", "Coreset.to_pandas", "frames")
    names = feature_names(core)
    index = pd.Index(np.array(core.ids), name="id")
    if sparse.issparse(core.X):
        frame = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(core.X), index=index, columns=names)
    else:
        frame = pd.DataFrame(np.array(core.X), index=index, columns=names)
    ours = {"y": core.y, "weight": core.weights, "suspected": core.suspected}
    beside = {_free(name, names): np.array(column) for name, column in ours.items() if column is not None}
    return pd.concat([frame, pd.DataFrame(beside, index=index)], axis=1)


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name = OURS + name
    return name
