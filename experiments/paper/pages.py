"""Markdown tables, pictures, and what the paper reports: what the pages are made of."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import ArrayLike

from duramen import __version__
from duramen.extras import needed

TITLE = """\
Wang, Guo and Ding, *Robust and Fully-Dynamic Coreset for Continuous-and-Bounded Learning (With Outliers)
Problems* (NeurIPS 2021)"""

SAMPLERS = {"GSP": "layered", "Uniform": "uniform", "QR": "leverage"}
"""The paper's samplers, and what they are called here."""


class Reported(NamedTuple):
    """A row of a table: the loss over that of the fit on everything, and how much faster it is."""

    ratio: float
    speed_up: float


TABLE1 = {
    ("GSP", 4000): Reported(1.046, 26.9),
    ("GSP", 8000): Reported(1.031, 19.19),
    ("Uniform", 4000): Reported(1.134, 45.8),
    ("Uniform", 8000): Reported(1.050, 29.1),
    ("QR", 4000): Reported(1.025, 23.4),
    ("QR", 8000): Reported(1.012, 17.9),
}
"""Logistic regression on Covertype, by method and size; all with the hybrid framework (+)."""

TABLE2 = {
    ("GSP", 5000): Reported(1.016, 41.1),
    ("GSP", 10_000): Reported(1.008, 15.4),
    ("Uniform", 5000): Reported(1.029, 78.9),
    ("Uniform", 10_000): Reported(1.011, 46.9),
}
"""k-means with k = 10 on 3Dspatial, by method and size; all with the hybrid framework (+)."""


def counted(number: int, what: str) -> str:
    """Write a number of things.

    Examples
    --------
    >>> counted(1, "trial"), counted(5000, "trial")
    ('1 trial', '5,000 trials')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def mean_and_worst(
    figures: Iterable[float], digits: int = 4, *, worst: Callable[[list[float]], float] = max
) -> str:
    """Write the mean, and the worst in parentheses.

    Examples
    --------
    >>> mean_and_worst([1.0, 1.5], 2)
    '1.25 (1.50)'
    """
    listed = list(figures)
    return f"{np.mean(listed):.{digits}f} ({worst(listed):.{digits}f})"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table; a column whose head ends in a colon is right-aligned.

    Examples
    --------
    >>> print(table(["method", "rows:"], [["GSP+", "4,000"]]), end="")
    | method |  rows |
    | ------ | ----: |
    | GSP+   | 4,000 |
    """
    names, listed = list(head), [list(row) for row in rows]
    right = [name.endswith(":") for name in names]
    titles = [name.rstrip(":") for name in names]
    widths = [max(3, *(len(row[column]) for row in (titles, *listed))) for column in range(len(names))]
    rules = ["-" * (width - 1) + (":" if r else "-") for width, r in zip(widths, right, strict=True)]
    lines = []
    for row in (titles, rules, *listed):
        cells = [
            cell.rjust(width) if r else cell.ljust(width)
            for cell, width, r in zip(row, widths, right, strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Report when, with what and on what this runs, and how busy the machine is with other things."""
    versions = (
        f"Python {platform.python_version()}, NumPy {np.__version__}, scikit-learn {sklearn.__version__}, "
        f"duramen {__version__}"
    )
    load = f", load average {os.getloadavg()[0]:.1f} before the run" if hasattr(os, "getloadavg") else ""
    return f"{datetime.date.today().isoformat()}, {os.cpu_count()} cores{load}; {versions}"


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours (2008), distinguishable for the colour-blind; the pale ones last."""

STYLES = ("o-", "s--", "^-.", "D:", "v-", "P--", "X-.")
"""As many markers and dashes, so that lines can be distinguished without colour."""


def band(
    axes: Any, x: ArrayLike, rows_of_trials: ArrayLike, label: str, colour: str, style: str = "o-"
) -> None:
    """Draw the mean over the trials as a line, and a band from the least to the most.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    x : array-like of shape (n,)
    rows_of_trials : array-like of shape (trials, n)
        What is drawn, one row per trial.
    label : str
        The line's name in the legend.
    colour, style : str
        Of the line: for instance those of one place in ``COLOURS`` and ``STYLES``.
    """
    places, figures = np.asarray(x), np.atleast_2d(np.asarray(rows_of_trials, dtype=float))
    if len(figures) > 1:
        least, most = figures.min(axis=0), figures.max(axis=0)
        axes.fill_between(places, least, most, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, figures.mean(axis=0), style, color=colour, label=label, markersize=4.5, linewidth=1.5)


def loss_axis(axes: Any, linear: float = 0.01, label: str = "loss above the full fit's") -> None:
    """Let the vertical axis show losses above another's, as shares: 0.02 is written 2%.

    Linear up to ``linear`` and logarithmic beyond, so that 0 has a place and so has 1,000%. Call
    it when all lines are drawn: what they reach, on this panel and on those that share its axis,
    decides the ticks.
    """
    ticker = needed("matplotlib.ticker", "a picture", "plot")
    panels = axes.get_shared_y_axes().get_siblings(axes)
    reached = np.array([one.dataLim.intervaly for one in panels])
    least, most = float(reached.min()), float(reached.max())
    axes.set_yscale("symlog", linthresh=linear, linscale=1.0)
    ticks = [*(-one for one in _decades(linear, -least)), 0.0, *_decades(linear, most)]
    axes.yaxis.set_major_locator(ticker.FixedLocator(ticks))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(_percent))
    room = 1.3
    axes.set_ylim(min(room * least, -linear / 5), room * max(most, linear))
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)


def share_axis(axis: Any) -> None:
    """Write an axis of shares, ``axes.xaxis`` or ``axes.yaxis``, in percent."""
    ticker = needed("matplotlib.ticker", "a picture", "plot")
    axis.set_major_formatter(ticker.FuncFormatter(_percent))


def size_axis(axes: Any, sizes: Iterable[int], label: str = "rows of the coreset") -> None:
    """Let the horizontal axis be logarithmic, with the sizes themselves as ticks, written out."""
    ticker = needed("matplotlib.ticker", "a picture", "plot")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda size, _place=None: f"{size:,.0f}"))
    axes.set_xlabel(label)


def legend_below(figure: Any, panels: Sequence[Any], columns: int = 3) -> None:
    """Put one legend for all panels below them, where it hides no line."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _decades(first: float, last: float) -> list[float]:
    """Return ``first``, ten times that and so on, up to ``last``; at least one if there is anything to reach.

    Examples
    --------
    >>> _decades(0.01, 0.5)
    [0.01, 0.1]
    """
    if last < first / 2:
        return []
    powers = range(1 + max(0, int(np.floor(np.log10(last / first) + 1e-9))))
    return [float(f"{first * 10**power:g}") for power in powers]


def _percent(share: float, _place: int | None = None) -> str:
    """Write a share in percent, as plainly as it can be.

    Examples
    --------
    >>> _percent(0.02), _percent(0.001), _percent(10.0)
    ('2%', '0.1%', '1,000%')
    """
    return f"{float(f'{100 * share:.4g}'):,.10g}%"
