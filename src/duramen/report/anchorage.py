"""The anchor: what it is, how well it still fits, and what has become of it."""

from __future__ import annotations

from duramen.report.findings import Event, Findings
from duramen.report.markup import Markup, Section, cut, facts, note, paragraph, percent, plural, short, table

__all__ = ["anchor"]

_MOST = 50  # events


def anchor(found: Findings) -> Section:
    """Describe the anchor, what a live coreset says of it, and its history."""
    parts = [_anchor(found), _report(found), "<h3>History</h3>", _history(found)]
    return Section("anchor", "The anchor and its history", Markup("".join(parts)))


def _anchor(found: Findings) -> Markup:
    core = found.core
    if core is None or core.anchor is None:
        reason = found.report.reason if found.report is not None else None
        why = f": {reason}" if reason else ""
        return note(f"There is no anchor{' yet' if found.live is not None else ''}{why}.")
    given = core.anchor
    shape = " x ".join(f"{length:,}" for length in given.theta.shape)
    listed = [
        ("Parameters", f"{shape} {'number' if given.theta.size == 1 else 'numbers'}"),
        ("Radius", short(given.radius) if given.radius else "none: the anchor was handed in without one"),
        (
            "Fitted on",
            plural(len(given.ids), "point") if len(given.ids) else "unknown points: it was handed in",
        ),
    ]
    if given.frozen:
        listed.append(("Frozen with it", cut(", ".join(given.frozen))))
    return facts(listed)


def _report(found: Findings) -> Markup:
    report = found.report
    if report is None or report.radius is None:
        return Markup()
    advice = (
        "A new anchor is advised: reanchor()."
        if report.advised
        else "It still fits."
        if report.holds
        else "The latest solution is a little outside the radius, as chance may have it."
    )
    if report.distance is None:
        where = "no solution yet to compare with"
    else:
        within = f", radius {short(report.radius)}" if report.radius else ", and it has no radius"
        where = f"{short(report.distance)}{within}"
    late = f"{plural(report.n_late, 'point')} of {report.n_points:,}, {percent(report.late_share)}"
    listed = [("From the anchor to the latest solution", where), ("Came or changed since", late)]
    if report.n_sample:
        gone = f"{report.n_sample_gone:,} of the {report.n_sample:,} points it was made from"
        listed.append(("Deleted or changed since", gone))
    kind = "advice" if report.advised else "verdict"
    return Markup(f'<p class="{kind}">{advice}</p>{facts(listed)}')


def _history(found: Findings) -> Markup:
    events = found.history
    if not events:
        return note("No history of the anchor was kept.")
    shown = events[-_MOST:]
    rows = [(_when(event.time), cut(event.what), f"{event.n_points:,}", *_measured(event)) for event in shown]
    made = table(["When", "What", "Points", "Radius", "Moved by"], rows, text=(0, 1))
    if len(shown) < len(events):
        said = f"The latest {len(shown):,} of {len(events):,} events."
        return Markup(f"{paragraph(said)}{made}")
    return made


def _when(time: str) -> str:
    """Write a time of ISO 8601 as people do.

    Examples
    --------
    >>> _when("2025-03-01T09:12:00+00:00"), _when("yesterday")
    ('2025-03-01 09:12:00 UTC', 'yesterday')
    """
    day, mark, rest = cut(time, 40).partition("T")
    return f"{day} {rest.replace('+00:00', ' UTC')}" if mark and day[:1].isdigit() else cut(time, 40)


def _measured(event: Event) -> tuple[str, str]:
    return short(float(event.radius)), "" if event.moved is None else short(float(event.moved))
