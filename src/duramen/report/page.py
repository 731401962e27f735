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

from duramen.arrays import Array
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import feature_names
from duramen.coreset.estimate import Estimate
from duramen.coreset.plot import few_labels, scene_of, weighted_quantiles
from duramen.report.charts import environment, histogram, scatter, short
from duramen.report.reasons import Reasons, largest_losses, reasons_of
from duramen.text import shorten

if TYPE_CHECKING:
    from duramen.certificate import Certificate

_LONGEST = 300  # characters of a note's value
_PRIVATE_NOTES = ("encoding", "columns")  # that the command line keeps for itself
_SUSPECTS = 20  # rows listed
_DOTS = 3000  # of the picture, at most
_MAX_GROUPS = 8  # of a kind in the table of layers


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
    notes = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in getattr(live, "notes", {}).items()
        if name not in _PRIVATE_NOTES
    }
    template = environment().get_template("page.html")
    return template.render(
        title=title,
        infinity=math.inf,
        style=Markup(files("duramen.report").joinpath("style.css").read_text("utf-8")),
        found=Findings(core, live, encoding, names or {}),
        core=core,
        live=live,
        report=None if live is None else live.anchor_report(),
        certificate=certificate,
        probes=None if certificate is None else _probes(certificate),
        notes=[(shorten(name, 60), shorten(text, _LONGEST)) for name, text in notes.items()],
        events=getattr(live, "history", ()),
        version=version("duramen"),
    )


class Findings:
    """What a page shows of a coreset; a failure of a custom loss becomes a reason.

    Attributes
    ----------
    losses : array (m,) or None
        Of the coreset's rows at the anchor; None for the reason ``no_losses``.
    estimate, mean_loss : Estimate or None
        Of f_z at the anchor, in total and per unit of kept weight.
    effective : float
        The effective sample size, (sum w)^2 / sum w^2.
    columns, ids : sequences of str
        Of the coreset.
    label : str
        What the labels are called.
    labels : list of float, or None
        Their values, where these are few.
    """

    def __init__(self, core: Coreset, live: Any, encoding: Any, names: Mapping[int, str]) -> None:
        self.core = core
        self.label = shorten((encoding and encoding.label) or "y", 40)
        self.labels = few_labels(core)
        self._classes = (encoding and encoding.classes) or ()
        self.columns = [str(name) for name in feature_names(core)]
        self.ids = [shorten(names.get(one, one), 60) for one in core.ids.tolist()]
        self.losses: Any = None
        self.no_losses = "There is no anchor, so no losses are known."
        if core.anchor is not None:
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    losses = core.loss.values(core.anchor.theta, core.X, core.y)
                    self.losses = np.asarray(losses, dtype=np.float64)
            except Exception as error:  # a custom loss may fail in any way
                self.no_losses = f"The losses at the anchor could not be computed: {shorten(error)}."
        self.estimate = self.mean_loss = None if self.losses is None else core._at_anchor
        if self.estimate is not None:
            kept = core.total_weight - core.n_outliers
            self.mean_loss = Estimate.of(self.estimate.value / kept, self.estimate.std_error / kept)
        scaled = core.weights / core.weights.max()
        self.effective = float(scaled.sum() ** 2 / np.square(scaled).sum())

    def label_text(self, value: float) -> str:
        """Return a label as in the data."""
        if value == int(value) and 0 <= value < len(self._classes):
            return shorten(self._classes[int(value)], 40)
        return short(value)

    def suspects(self) -> tuple[list[int], Reasons]:
        """Find the rows with the largest losses, and the features that make them large."""
        rows = largest_losses(self.losses, self.core.ids, _SUSPECTS)
        return rows.tolist(), reasons_of(self.core, rows, self.columns, self.label)

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

    def loss_chart(self) -> tuple[Markup, int, list[float]] | None:
        """Draw the losses at the anchor, count those left out, and find quantiles; None if all are left out."""
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
        quantiles = weighted_quantiles(losses, core.weights, np.array([0.5, 0.9, 0.99, 1.0]))
        return drawing, int(np.count_nonzero(~valid)), quantiles.tolist()

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


def _probes(certificate: Certificate) -> tuple[Markup, list[tuple[str, int, list[float]]]]:
    """Draw the errors found by comparing the coreset with the data, and list them by kind of probe."""
    errors, kinds = certificate.errors, certificate.kinds
    rows = []
    for kind in dict.fromkeys(kinds.tolist()):
        some = errors[kinds == kind]
        quantiles = weighted_quantiles(some, np.ones(len(some)), np.array([0.5, 0.9, 1.0]))
        rows.append((kind, len(some), quantiles.tolist()))
    known = np.isfinite(errors)
    marked = kinds[known] == "adversarial"
    ones = np.ones(len(marked))
    return histogram(errors[known], ones, marked, "Histogram of the errors", "relative error"), rows
