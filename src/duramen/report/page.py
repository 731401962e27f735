"""The page: one HTML file with everything in it, which needs no network and runs no script."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.coreset.coreset import Coreset, Estimate
from duramen.coreset.display import feature_names
from duramen.coreset.plot import FAR, Scene, dense, few_labels, scene_of, usual_rows
from duramen.losses.base import Explanation
from duramen.report.charts import environment, short
from duramen.text import shorten

if TYPE_CHECKING:
    from duramen.certificate import Certificate

_SUSPECTS = 20  # rows listed
_DOTS = 3000  # of the picture, at most


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
    live : DynamicCoreset, optional
        What the coreset is of: how well its anchor fits is shown, and what a store keeps besides.
    certificate : Certificate, optional
        Of :func:`duramen.certify`, for this coreset.
    encoding : Encoding, optional
        How columns became numbers: its ``label`` and ``classes`` are used.
    names : mapping of int to str, optional
        What the ids stand for.

    Examples
    --------
    >>> import duramen as dm
    >>> core = dm.robust_coreset([[0.0], [1.0], [9.0]], loss=dm.KMeansLoss(1), size=3, random_state=0)
    >>> page = report_html(core, title="Three points")
    >>> page[:15], "<h1>Three points</h1>" in page
    ('<!DOCTYPE html>', True)
    """
    found, template = Findings(core, encoding, names or {}), environment().get_template("page.html")
    return template.render(core=core, found=found, title=title, live=live, certificate=certificate)


class Findings:
    """What a page shows of a coreset; a failure of a custom loss becomes a reason.

    ``losses`` are those of the coreset's rows at the anchor, or None for the reason
    ``no_losses``; ``estimate`` and ``mean_loss`` are of f_z at the anchor, in total and
    per unit of kept weight; ``labels`` are listed where they are few.
    """

    def __init__(self, core: Coreset, encoding: Any, names: Mapping[int, str]) -> None:
        self.core = core
        self.label = shorten((encoding and encoding.label) or "y", 40)
        self.labels = few_labels(core)
        self._classes = dict(enumerate((encoding and encoding.classes) or ()))
        self.columns = feature_names(core)
        self.ids = [shorten(names.get(one, one), 60) for one in core.ids.tolist()]
        self.losses: Any = None
        self.no_losses = "There is no anchor, so no losses are known."
        if core.anchor is not None:
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    self.losses = core.loss.values(core.anchor.theta, core.X, core.y).astype(np.float64)
            except Exception as error:  # a custom loss may fail in any way
                self.no_losses = f"The losses at the anchor could not be computed: {shorten(error)}."
        self.estimate = self.mean_loss = core._at_anchor
        if self.estimate is not None:
            kept = core.total_weight - core.n_outliers
            self.mean_loss = Estimate(*np.divide(self.estimate, kept).tolist())

    def label_text(self, value: Any) -> str:
        """Return a label as in the data."""
        return shorten(self._classes[value], 40) if value in self._classes else short(value)

    def suspects(self) -> tuple[list[int], Reasons]:
        """Find the rows with the largest losses, and the features that make them large."""
        rows = largest_losses(self.losses, self.core.ids, _SUSPECTS)
        return rows.tolist(), reasons_of(self.core, rows, self.columns, self.label)

    def describe(self, row: int) -> str:
        """Describe a row in a line."""
        loss = "" if self.losses is None else f", loss {short(self.losses[row])}"
        return f"{self.ids[row]}{loss}, weight {short(self.core.weights[row])}"

    def scene(self) -> tuple[Scene | None, str]:
        """Choose what a picture shows, or explain why that is not possible."""
        column = shorten(self.columns[0], 60)
        try:
            return scene_of(self.core, _DOTS, 0, column, self.label, self.label_text), ""
        except ValueError as error:  # sparse rows of too many columns
            return None, shorten(error, 300)


class Reasons(NamedTuple):
    """What makes the losses of n rows large: an explanation, the p features, and the values (n, p).

    Kind "spread" is the squared distance from the usual mean, in standard deviations, which is not about the
    loss. For a residual the label is the last feature.
    """

    kind: str
    usual: Array
    parts: Array
    rest: Array
    features: Sequence[str]
    values: Array

    @property
    def whole(self) -> Array:
        """The sum of the parts and the rest."""
        return self.parts.sum(axis=1) + self.rest

    @property
    def signed(self) -> bool:
        """Whether parts can be negative."""
        return self.kind in ("margin", "residual", "predictor", "classes")

    def why(self, row: int, n: int) -> tuple[list[Any], float | None]:
        """List the n features with the largest parts of a row, and sum up the rest; None if that is nothing.

        Each is a name, a value, what that is compared with, and the part. Parts of zero are left out.
        """
        parts = self.parts[row]
        top = np.argsort(-np.abs(parts), kind="stable")[:n]
        top = top[parts[top] != 0]
        columns = (self.features, self.values[row], self.usual[row], parts)
        features = [tuple(column[k] for column in columns) for k in top.tolist()]
        return features, float(np.delete(parts, top).sum() + self.rest[row]) or None


def largest_losses(losses: Array, ids: Array, n: int) -> Array:
    """Find the n rows with the largest losses, largest first, ties by id; NaN comes last.

    Examples
    --------
    >>> largest_losses(np.array([1.0, 3.0, np.nan, 3.0]), np.array([4, 9, 1, 2]), 3)
    array([3, 1, 0])
    """
    return np.lexsort((ids, -losses))[:n]


def reasons_of(core: Coreset, rows: Array, columns: Sequence[str], label: str = "y") -> Reasons:
    """Decompose the losses of some rows at the anchor, in float64."""
    from sklearn.preprocessing import StandardScaler  # imported here, as that takes a second

    assert core.anchor is not None
    X, usual = dense(core.X[rows]), usual_rows(core.suspected)
    weights, ordinary = core.weights[usual], core.X[usual].astype(np.float64)
    numbers = ordinary.data if sparse.issparse(ordinary) else ordinary
    np.clip(numbers, -FAR, FAR, out=numbers)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaler = StandardScaler(with_mean=False).fit(ordinary, sample_weight=weights)
        y, means = None, scaler.mean_
        if core.y is not None:
            y, means = core.y[rows], np.append(means, np.average(core.y[usual], weights=weights))
        found = core.loss.explain(core.anchor.theta, X, y, means)
        if found is None:
            parts = np.square((X - scaler.mean_) / scaler.scale_)
            found = Explanation("spread", np.broadcast_to(scaler.mean_, X.shape), parts, np.zeros(len(X)))
    if found.kind == "residual" and y is not None:
        columns, X = (*columns, label), np.column_stack([X, y])
    return Reasons(*found, columns, X)
