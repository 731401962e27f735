"""The page: one HTML file with everything in it, which asks nothing of the network and runs no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from duramen.coreset import Coreset
from duramen.dynamic import DynamicCoreset
from duramen.report.anchorage import anchor
from duramen.report.facts import contents, summary, tiles
from duramen.report.findings import Event, Findings, findings_of
from duramen.report.markup import Markup, Section, cut, escape, figure, note, short
from duramen.report.scatter import scatter
from duramen.report.spread import layers, losses, weights
from duramen.report.style import STYLE
from duramen.report.trust import certificate as certificate_section
from duramen.report.trust import error_bars
from duramen.report.who import suspects

if TYPE_CHECKING:
    from duramen.certificate import Certificate

__all__ = ["report_html"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_html(
    subject: Coreset | DynamicCoreset,
    *,
    title: str,
    certificate: Certificate | None = None,
    history: Iterable[Event] = (),
    notes: Mapping[str, Any] | None = None,
    encoding: Any = None,
    names: Mapping[int, str] | None = None,
) -> str:
    """Make a page about a coreset: what is in it, who is suspected and why, and how far to trust it.

    The same input gives the same page. It needs no network and no script.

    Parameters
    ----------
    subject : Coreset or DynamicCoreset
        A store, too.
    title : str
        The heading.
    certificate : Certificate, optional
        Of :func:`duramen.certify`, for this coreset.
    history : iterable of events, optional
        What happened to the anchor: each with time, what, n_points, radius and
        moved. By default the subject's own, where it keeps one.
    notes : mapping, optional
        Names and values to list. By default the subject's own, where it keeps some.
    encoding : Encoding, optional
        How columns became numbers: its ``names``, ``label`` and ``classes`` are
        used where the coreset has none.
    names : mapping of int to str, optional
        What the ids of a Coreset stand for; what can change knows its own.

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
    found = findings_of(subject, certificate, history, notes, encoding, names)
    sections = [
        contents(found),
        suspects(found),
        _picture(found),
        losses(found),
        error_bars(found),
        certificate_section(found),
        layers(found),
        weights(found),
        anchor(found),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(cut(title))}</title><style>{STYLE}</style>"
    )
    body = _body(title, found, sections)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _body(title: str, found: Findings, sections: list[Section]) -> str:
    links = "".join(
        f'<a href="#{part.key}">{part.key.replace("-", " ").capitalize()}</a>' for part in sections
    )
    parts = "".join(
        f'<section id="{part.key}"><h2>{escape(part.title)}</h2>{part.body}</section>' for part in sections
    )
    kind = "Coreset" if found.live is None else "Live coreset"
    return (
        f'<header><p class="kind">{kind}</p><h1>{escape(cut(title, 200))}</h1>'
        f'<p class="lead">{escape(summary(found))}</p></header>{tiles(found)}<nav>{links}</nav>'
        f"<main>{parts}</main><footer>duramen {escape(version('duramen'))}</footer>"
    )


def _picture(found: Findings) -> Section:
    core = found.core
    if core is None:
        return Section("picture", "The picture", note("There is no coreset, hence nothing to draw."))

    def said(row: int) -> str:
        loss = "" if found.losses is None else f", loss {short(float(found.losses[row]))}"
        return f"{found.id_of(row)}{loss}, weight {short(float(core.weights[row]))}"

    try:
        drawing = scatter(core, found.columns, found.label, said, found.label_text)
    except ValueError as error:
        return Section("picture", "The picture", note(f"It could not be drawn: {cut(error, 300)}."))
    caption = (
        "Rows of the coreset in the plane in which those not suspected vary most"
        if core.points.n_columns > 1
        else "Rows of the coreset along their one column"
    )
    caption += "; areas go by weight. What lies far beyond the frame is drawn on it."
    return Section("picture", "The picture", Markup(figure(drawing, caption)))
