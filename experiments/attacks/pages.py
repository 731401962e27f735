"""Verdicts, the page and the picture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from duramen.extras import needed
from experiments.attacks.contenders import CONTENDERS, Cell
from experiments.attacks.situations import CORE, DEVELOPMENT, HELD_OUT, MADE, SWEEP, Attack
from experiments.paper.pages import table

Grid = dict[tuple[str, str, float], dict[str, Cell]]
"""Cells by table, attack and share, and then by contender."""


def gridded(cells: Iterable[Cell]) -> Grid:
    """Arrange cells by table and attack."""
    grid: Grid = {}
    for cell in cells:
        grid.setdefault(cell[:3], {})[cell.contender] = cell
    return grid


def chosen(grid: Grid, tables: Iterable[str], attacks: Iterable[Attack]) -> Grid:
    """Choose the cells of some tables and attacks."""
    wanted = {(name, attack.name, attack.share) for name in tables for attack in attacks}
    return {key: grid[key] for key in grid if key in wanted}


def better(cell: dict[str, Cell]) -> float:
    """Return the smaller clean loss of the two that anyone would try."""
    return min(cell["plain"].loss, cell["forest + plain"].loss)


class Verdict(NamedTuple):
    """How many cells a contender wins and loses; a fit that failed wins none, and loses."""

    cells: int
    within: int
    worse: int
    on_clean: int
    clean_within: int
    ratio: float
    seconds: float


def verdict(grid: Grid, contender: str) -> Verdict:
    """Compare a contender with the better of the two that anyone would try, and with the plain fit."""
    mine, plains = ([cell[name] for cell in grid.values()] for name in (contender, "plain"))
    losses_, plain_losses = (np.array([one.loss for one in ones]) for ones in (mine, plains))
    over = losses_ / [better(cell) for cell in grid.values()]
    clean = np.array([one.share == 0 for one in mine])
    return Verdict(
        cells=len(mine),
        within=int((over <= 1.02).sum()),
        worse=int((~(losses_ <= 1.05 * plain_losses)).sum()),
        on_clean=int(clean.sum()),
        clean_within=int((losses_ <= 1.005 * plain_losses)[clean].sum()),
        ratio=_mean_ratio(over),
        seconds=_mean_ratio(np.array([a.seconds / b.seconds for a, b in zip(mine, plains, strict=True)])),
    )


def _ran(grid: Grid) -> list[str]:
    """Name the contenders that ran in all cells."""
    return [name for name in CONTENDERS if all(name in cell for cell in grid.values())]


def _mean_ratio(ratios: np.ndarray) -> float:
    known = ratios[np.isfinite(ratios)]
    return float(np.exp(np.log(known).mean())) if len(known) else np.nan


def page(grid: Grid) -> str:
    """Write the counts, and every cell."""
    tables = list(dict.fromkeys(name for name, _, _ in grid))
    groups = {"development": DEVELOPMENT, "held out": HELD_OUT}
    parts = []
    for heading, attacks in (("The eleven situations", CORE), ("With the sweep", [*CORE, *SWEEP])):
        for group, names in groups.items():
            some = chosen(grid, names, attacks)
            if some and (attacks is CORE or len(some) > len(chosen(grid, names, CORE))):
                parts.append(f"### {heading}, {group} tables\n\n{_counts(some)}")
    parts.append(f"### By attack, all tables\n\n{_by_attack(grid)}")
    parts.append(
        f"### Other figures, all tables, the eleven situations\n\n{_others(chosen(grid, tables, CORE))}"
    )
    parts.append("## Every cell\n\n" + _CELLS)
    parts += [f"### {name}\n\n{_every_cell(chosen(grid, [name], [*CORE, *SWEEP]))}" for name in tables]
    return "\n".join(parts)


_CELLS = """\
The log loss of the plain fit on clean test rows, and that of each contender over the better of plain and
forest + plain. **Bold**: more than 5% worse than plain. A dash: the fit was
refused; empty: not run beyond the eleven situations.
"""


def _counts(grid: Grid) -> str:
    head = ["contender", "within 2% of the better:", "over 5% worse than plain:", "clean, within 0.5%:"]
    rows = []
    for name in _ran(grid):
        one = verdict(grid, name)
        counts = [f"{one.within} of {one.cells} ({one.within / one.cells:.0%})", f"{one.worse}"]
        counts.append(f"{one.clean_within} of {one.on_clean}")
        rows.append([name, *counts, f"{one.ratio:.3f}", f"{one.seconds:.1f}"])
    return table([*head, "loss over the better's:", "time over plain's:"], rows)


def _by_attack(grid: Grid) -> str:
    """Count the cells within 2% of the better, attack by attack."""
    rows = []
    for attack in dict.fromkeys(attack for _, attack, _ in sorted(grid, key=_order)):
        some = {key: cell for key, cell in grid.items() if key[1] == attack}
        counts = [str(verdict(some, name).within) for name in _ran(grid)]
        rows.append([attack, str(len(some)), *counts])
    return table(["attack", "cells:", *(f"{name}:" for name in _ran(grid))], rows)


def _order(key: tuple[str, str, float]) -> tuple[bool, int]:
    """Sort attacks as they are defined, and clusters by distance."""
    far = key[1].startswith("cluster")
    return far, int(key[1].split()[-1]) if far else ["clean", *MADE].index(key[1])


def _others(grid: Grid) -> str:
    """Write means; losses on attacked test rows, and calibration errors, also against those of plain."""
    head = ["contender", "accuracy:", "AUC:", "calibration error:", "no larger than plain's:"]
    rows = []
    for name in CONTENDERS:
        mine, plains = ([cell[one] for cell in grid.values()] for one in (name, "plain"))
        accuracy, auc, calibration, found, attacked = (
            np.array([getattr(one, figure) for one in mine])
            for figure in ("accuracy", "auc", "calibration", "found", "attacked_loss")
        )
        calm = sum(calibration <= [one.calibration for one in plains])
        rows.append([name, *(f"{np.nanmean(one):.4f}" for one in (accuracy, auc, calibration))])
        rows[-1] += [f"{calm} of {len(mine)}", f"{np.nanmean(found):.0%}"]
        rows[-1] += [f"{_mean_ratio(attacked / [one.attacked_loss for one in plains]):.3f}"]
        rows[-1] += [f"{np.nanmean([one.seconds for one in mine]):.2f}"]
    return table([*head, "bad rows found:", "loss on attacked rows, over plain's:", "seconds:"], rows)


def _every_cell(grid: Grid) -> str:
    rows = []
    for (_, attack, share), cell in sorted(grid.items(), key=lambda one: (_order(one[0]), one[0][2])):
        base = better(cell)
        ratios = [_ratio(cell[name].loss, base, cell["plain"].loss) for name in cell]
        ratios += [""] * (len(CONTENDERS) - len(cell))
        rows.append([attack + f", {share:.0%}" * (share > 0), f"{cell['plain'].loss:.4f}", *ratios])
    return table(["situation", "plain's loss:", *(f"{name}:" for name in CONTENDERS)], rows)


def _ratio(loss: float, base: float, plain: float) -> str:
    if not np.isfinite(loss):
        return "-"
    return f"**{loss / base:.3f}**" if loss > 1.05 * plain else f"{loss / base:.3f}"


_SHADES = {  # up to which ratio: the colour, and its name in the legend
    0.9: ("#2166ac", "below 0.9"),
    0.98: ("#92c5de", "0.9 to 0.98"),
    1.02: ("#ececec", "0.98 to 1.02: as good"),
    1.1: ("#fddbc7", "1.02 to 1.1"),
    1.5: ("#ef8a62", "1.1 to 1.5"),
    np.inf: ("#b2182b", "above 1.5"),
}
_REFUSED = ("#4d4d4d", "the fit was refused")
_SHORT = dict(
    zip(MADE, ("noise", "surest flipped", "random flips", "leverage flips", "cluster"), strict=True)
)


def draw(grid: Grid, figure: Any) -> None:
    """Draw one panel per contender, tables down and situations across, coloured by the ratio of losses."""
    known = {name for name, _, _ in grid}
    tables = [name for name in (*DEVELOPMENT, *HELD_OUT) if name in known]
    columns = [f"{_SHORT[one.name]} {one.share:.0%}" if one.share else "clean" for one in CORE]
    figure.set_size_inches(10.5, 6.6)
    panels = list(figure.subplots(2, 4, sharex=True, sharey=True).flat)
    _draw_legend(panels.pop(3))
    for axes, name in zip(panels, CONTENDERS, strict=True):
        _draw_panel(axes, chosen(grid, tables, CORE), tables, name)
        axes.axhline(sum(one in known for one in DEVELOPMENT) - 0.5, color="black", linewidth=1.5)
        axes.set_xticks(range(len(CORE)), columns, rotation=90)
        axes.set_yticks(range(len(tables)), tables)
        axes.tick_params(length=0)
    panels[0].invert_yaxis()


def _draw_panel(axes: Any, grid: Grid, tables: list[str], contender: str) -> None:
    colors = needed("matplotlib.colors", "a picture", "plot")
    cells = [[grid[name, one.name, one.share] for one in CORE] for name in tables]
    ratios = np.array([[cell[contender].loss / better(cell) for cell in row] for row in cells])
    over = np.array([[cell[contender].loss / cell["plain"].loss for cell in row] for row in cells])
    shades = colors.ListedColormap([shade for shade, _ in (*_SHADES.values(), _REFUSED)])
    at = np.searchsorted(list(_SHADES), ratios)  # what is not a number comes last
    places = [np.arange(n + 1) - 0.5 for n in (len(CORE), len(tables))]
    axes.pcolormesh(
        *places, at, cmap=shades, vmin=-0.5, vmax=len(_SHADES) + 0.5, edgecolors="white", linewidth=1
    )
    row, column = np.nonzero(~(over <= 1.05))
    axes.plot(column, row, "x", color="black", markersize=3.5)
    found = verdict(grid, contender)
    axes.set_title(f"{contender}\nwithin 2%: {found.within} of {found.cells}", fontsize=10)


def _draw_legend(axes: Any) -> None:
    patches = needed("matplotlib.patches", "a picture", "plot")
    lines = needed("matplotlib.lines", "a picture", "plot")
    handles = [patches.Patch(color=shade, label=label) for shade, label in (*_SHADES.values(), _REFUSED)]
    handles += [
        lines.Line2D([], [], color="black", marker="x", linestyle="", label="over 5% worse than plain"),
        lines.Line2D([], [], color="black", label="above: development tables,\nbelow: held-out tables"),
    ]
    title = "Log loss on clean test rows,\nover the better of plain\nand forest + plain"
    axes.legend(handles=handles, title=title, loc="center left", frameon=False, alignment="left", fontsize=9)
    axes.axis("off")
