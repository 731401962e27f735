"""The picture as inline SVG: what ``Coreset.plot`` draws, without matplotlib."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from duramen.arrays import Array
from duramen.coreset import Coreset, plot
from duramen.report.charts import svg
from duramen.report.markup import Markup, cut, escape, percent

__all__ = ["scatter"]

_WIDTH, _HEIGHT, _EDGE, _SIDE = 860, 500, 22, 30
_MOST = 3000  # dots
_CLASSES = 8  # colours
_FIELD = 3.0  # area of this picture over that of a usual figure's points squared, which areas are in


def scatter(
    core: Coreset,
    columns: tuple[str, ...],
    label: str,
    said: Callable[[int], str],
    of_label: Callable[[float], str],
) -> Markup:
    """Draw rows in their principal plane: areas by weight, colours by label, suspected ones as crosses.

    Parameters
    ----------
    core : Coreset
    columns : tuple of str
    label : str
        What labels are called.
    said : function of a row's number
        What is shown when the pointer is over a suspected row.
    of_label : function of a label
        How it is written.

    Raises
    ------
    ValueError
        If sparse rows would become too large.
    """
    scene = plot.scene_of(core, _MOST, 0)
    places = _on_paper(scene, scene.places)
    radii = np.sqrt(_FIELD * scene.areas / np.pi) * 0.8
    order = np.argsort(-radii, kind="stable")  # the heavy ones below
    parts = [_frame()]
    groups = _groups(scene, label, of_label)
    for number, (rows, _) in enumerate(groups):
        parts.append(_dots(places, radii, order[rows[order]], number))
    parts.append(_crosses(scene, places, radii, order[scene.suspected[order]], said))
    parts.extend(_centres(scene))
    parts.extend(_names(scene, columns, label))
    drawing = svg(
        _WIDTH, _HEIGHT + 30, f"{len(scene.shown):,} rows of the coreset in a plane", parts, "picture"
    )
    return Markup(f"{_legend(scene, groups)}{drawing}")


def _groups(scene: plot.Scene, label: str, of_label: Callable[[float], str]) -> list[tuple[Array, str]]:
    """List the rows that are not suspected, by label where labels are few, and what each group is called."""
    usual, classes = ~scene.suspected, plot.classes_of(scene.core)
    if classes is None or scene.core.y is None:
        return [(usual, "not suspected" if scene.suspected.any() else "rows")]
    labels = scene.core.y[scene.shown]
    return [
        (usual & (labels == one), f"{cut(label, 30)} = {of_label(float(one))}") for one in classes[:_CLASSES]
    ]


def _on_paper(scene: plot.Scene, places: Array) -> Array:
    held = np.clip(places, scene.low, scene.high)
    x, y = ((held - scene.low) / (scene.high - scene.low)).T
    return np.column_stack(
        [_SIDE + _EDGE + x * (_WIDTH - _SIDE - 2 * _EDGE), _HEIGHT - _EDGE - y * (_HEIGHT - 2 * _EDGE)]
    )


def _frame() -> str:
    return (
        f'<rect class="frame" x="{_SIDE}" y="1" width="{_WIDTH - _SIDE - 1}" height="{_HEIGHT - 2}" rx="8"/>'
    )


def _dots(places: Array, radii: Array, rows: Array, number: int) -> str:
    drawn = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
        for (x, y), r in zip(places[rows].tolist(), radii[rows].tolist(), strict=True)
    )
    return f'<g class="class{number}">{drawn}</g>'


def _crosses(scene: plot.Scene, places: Array, radii: Array, rows: Array, said: Callable[[int], str]) -> str:
    """Draw suspected rows; those beyond the frame as arrows on it, pointing out."""
    arrows = ("M5,-6L-5,0L5,6Z", "M-5,-6L5,0L-5,6Z", "M-6,-5L0,5L6,-5Z", "M-6,5L0,-5L6,5Z")
    sides, drawn = scene.sides, []
    for row in rows.tolist():
        (x, y), side = places[row].tolist(), int(sides[row])
        arm = min(max(float(radii[row]), 2.6), 8.0)
        cross = f"M{-arm:.1f},{-arm:.1f}L{arm:.1f},{arm:.1f}M{-arm:.1f},{arm:.1f}L{arm:.1f},{-arm:.1f}"
        kind = ' class="beyond"' if side >= 0 else ""
        drawn.append(
            f'<path{kind} transform="translate({x:.1f},{y:.1f})" d="{arrows[side] if side >= 0 else cross}">'
            f"<title>{escape(said(int(scene.shown[row])))}</title></path>"
        )
    return f'<g class="crosses">{"".join(drawn)}</g>'


def _centres(scene: plot.Scene) -> list[str]:
    """Mark the anchor's centres that are inside the frame, where it has some."""
    return [
        f'<path class="centre" transform="translate({x:.1f},{y:.1f})" d="M0,-9L9,0L0,9L-9,0Z"/>'
        for x, y in _on_paper(scene, plot.centres_of(scene)).tolist()
    ]


def _names(scene: plot.Scene, columns: tuple[str, ...], label: str) -> list[str]:
    """Name the axes: beneath, and along the left side."""
    if scene.core.points.n_columns > 1:
        first, second = (percent(float(share)) for share in scene.plane.shares)
        across, up = f"first principal direction, {first} of the variance", f"second, {second}"
    else:
        jittered = plot.is_jittered(scene.core)
        across, up = cut(columns[0], 60), "spread out at random" if jittered else cut(label, 40)
    return [
        f'<text class="name" x="{(_SIDE + _WIDTH) / 2:.0f}" y="{_HEIGHT + 20}" text-anchor="middle">'
        f"{escape(across)}</text>",
        f'<text class="name" transform="translate(19,{_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}</text>",
    ]


def _legend(scene: plot.Scene, groups: list[tuple[Array, str]]) -> str:
    """Say what the marks stand for, in HTML: text that does not shrink with the picture."""
    entries = [
        (f'<circle class="class{number}" cx="7" cy="7" r="5"/>', name, int(np.count_nonzero(rows)))
        for number, (rows, name) in enumerate(groups)
    ]
    suspected, beyond = int(np.count_nonzero(scene.suspected)), int(np.count_nonzero(scene.sides >= 0))
    if suspected:
        entries.append(('<path class="cross" d="M3,3L11,11M3,11L11,3"/>', "suspected outliers", suspected))
    if beyond:
        entries.append(('<path class="beyond" d="M3,2L12,7L3,12Z"/>', "beyond the frame", beyond))
    centres = len(_centres(scene))
    if centres:
        name = "the anchor's centres inside" if centres > 1 else "the anchor's centre"
        entries.append(('<path class="centre" d="M7,1L13,7L7,13L1,7Z"/>', name, centres))
    items = "".join(
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{mark}</svg>{escape(name)} '
        f'<span class="muted">{count:,}</span></li>'
        for mark, name, count in entries
        if count
    )
    return f'<ul class="legend">{items}</ul>'
