"""All that a page speaks of, gathered once from a coreset or from a live one, and what is unknown and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from duramen.arrays import Array
from duramen.coreset import Coreset, Estimate
from duramen.coreset.display import at_anchor, feature_names
from duramen.dynamic import AnchorReport, DynamicCoreset
from duramen.losses.base import Loss
from duramen.report.markup import cut, short

if TYPE_CHECKING:
    from duramen.certificate import Certificate

__all__ = ["Event", "Findings", "findings_of"]


class Event(Protocol):
    """Something that happened to an anchor."""

    @property
    def time(self) -> str:
        """When, as text."""

    @property
    def what(self) -> str:
        """What happened."""

    @property
    def n_points(self) -> int:
        """How many points there were."""

    @property
    def radius(self) -> float:
        """The radius of the anchor from then on."""

    @property
    def moved(self) -> float | None:
        """How far it moved; None for a first one."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known.

    Attributes
    ----------
    loss, n_points, total_weight, seed
        Of the subject.
    core : Coreset or None
        None where there is none to make, for the reason ``no_core``.
    losses : array (m,) or None
        Of the coreset's rows at the anchor; None for the reason ``no_losses``.
    estimate : Estimate or None
        Of f_z at the anchor.
    columns : tuple of str
    label : str
        What the labels are called.
    classes : tuple of str
        What the labels 0, 1, ... stand for; empty where they are numbers.
    names : array (m,) or None
        What the rows' ids stand for, where they were given as text.
    live : DynamicCoreset or None
        The subject, where it can change; ``report`` is then what it says of its anchor.
    certificate : Certificate or None
    history : tuple of events
    notes : dict
    """

    loss: Loss
    n_points: int
    total_weight: float
    seed: int
    core: Coreset | None = None
    no_core: str = ""
    losses: Array | None = None
    no_losses: str = ""
    estimate: Estimate | None = None
    columns: tuple[str, ...] = ()
    label: str = "y"
    classes: tuple[str, ...] = ()
    names: Array | None = None
    live: DynamicCoreset | None = None
    report: AnchorReport | None = None
    certificate: Certificate | None = None
    history: tuple[Event, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def id_of(self, row: int) -> str:
        """Name a row of the coreset."""
        assert self.core is not None
        return cut(self.core.ids[row] if self.names is None else self.names[row], 60)

    def label_of(self, row: int) -> str:
        """Write a row's label; empty where there is none."""
        assert self.core is not None
        if self.core.y is None:
            return ""
        return self.label_text(float(self.core.y[row]))

    def label_text(self, value: float) -> str:
        """Write a label as the data did."""
        if value == int(value) and 0 <= value < len(self.classes):
            return cut(self.classes[int(value)], 40)
        return short(value)


def findings_of(
    subject: Coreset | DynamicCoreset,
    certificate: Certificate | None,
    history: Iterable[Event],
    notes: Mapping[str, Any] | None,
    encoding: Any,
    names: Mapping[int, str] | None = None,
) -> Findings:
    """Gather everything; what fails, of a loss of the user's own for instance, becomes a reason."""
    events = tuple(history) or tuple(getattr(subject, "history", ()))
    notes = getattr(subject, "notes", {}) if notes is None else notes
    beside = {"certificate": certificate, "history": events, "notes": dict(notes), **_encoded(encoding)}
    if isinstance(subject, Coreset):
        return _of_core(subject, encoding, None, names=_given(subject, names), **beside)
    if not isinstance(subject, DynamicCoreset):
        raise TypeError(
            f"report_html takes a Coreset or a DynamicCoreset; found {type(subject).__name__}: pass what "
            "dm.robust_coreset, dm.load_coreset or dm.DynamicCoreset gives"
        )
    with subject._lock:  # all that is said must be of one moment
        report = subject.anchor_report()
        live = {"live": subject, "report": report, **beside}
        try:
            core = subject.coreset()
        except ValueError as error:
            weight, n = subject.total_weight, subject.n_points
            return Findings(subject.loss, n, weight, subject.seed, no_core=str(error), **live)
        return _of_core(core, encoding, report.reason, names=_names(subject, core), **live)


def _of_core(core: Coreset, encoding: Any, reason: str | None, **beside: Any) -> Findings:
    losses, no_losses = _losses(core, reason)
    return Findings(
        core.loss,
        core.n_points,
        core.total_weight,
        core.seed,
        core=core,
        losses=losses,
        no_losses=no_losses,
        estimate=None if losses is None else at_anchor(core),
        columns=_columns(core, encoding),
        **beside,
    )


def _losses(core: Coreset, reason: str | None) -> tuple[Array | None, str]:
    if core.anchor is None:
        why = f": {reason}" if reason else ""
        return None, f"There is no anchor yet{why}, so no losses to look at."
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            losses = np.asarray(core.loss.values(core.anchor.theta, core.X, core.y), dtype=np.float64)
    except Exception as error:  # a loss of the user's own may fail in any way
        return None, f"The losses at the anchor could not be computed: {cut(error)}."
    if losses.shape != (len(core),):
        return None, f"The loss gave values of shape {losses.shape} for {len(core):,} rows."
    return losses, ""


def _given(core: Coreset, names: Mapping[int, str] | None) -> Array | None:
    if names is None:
        return None
    return np.array([names.get(int(one), str(one)) for one in core.ids], dtype=object)


def _names(live: DynamicCoreset, core: Coreset) -> Array | None:
    try:
        return live.names_of(core.ids)
    except KeyError:  # they have numbers, and no names
        return None


def _columns(core: Coreset, encoding: Any) -> tuple[str, ...]:
    names: Sequence[Any] = getattr(encoding, "names", None) or ()
    if core.columns is None and len(names) == core.points.n_columns:
        return tuple(str(name) for name in names)
    return tuple(feature_names(core))


def _encoded(encoding: Any) -> dict[str, Any]:
    classes = getattr(encoding, "classes", None)
    return {
        "label": str(getattr(encoding, "label", None) or "y"),
        "classes": () if classes is None else tuple(str(one) for one in classes),
    }
