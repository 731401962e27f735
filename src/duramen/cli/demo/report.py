"""What the demo prints: a table, one row a fit, and what the robust coreset says of itself."""

from __future__ import annotations

from duramen.cli.demo.data import N_COLUMNS
from duramen.cli.demo.fits import Comparison, TimedFit

__all__ = ["opening", "own_word", "table"]

_ANOTHER = 0.05  # a trimmed objective so far from the ideal's is that of another minimum, not chance
_NOTES = """\
Seconds count everything: checking, anchor, coreset, solution. Speed is against the trimmed fit on
everything. Loss and accuracy are those on clean rows. Planted found: of the {z:,} rows that cost
a fit most, the share that was planted. The last fit was told what nobody knows: the mark to reach."""


def opening(n: int, z: int) -> str:
    """Say what the data are."""
    return (
        f"{n:,} rows of two classes, {N_COLUMNS} columns. An adversary who knows the true model took {z:,}\n"
        f"of them ({100 * z / n:.3g}%), moved them to where it is surest of class 1, and labelled them -1.\n"
    )


def table(found: Comparison) -> str:
    """Lay out one row a fit, below them the ideal, and what the columns mean."""
    head = (
        f"{'logistic regression':<29}{'rows':>10}{'seconds':>9}{'speed':>8}"
        f"{'clean loss':>12}{'accuracy':>10}{'planted found':>15}"
    )
    rule = "-" * len(head)
    rows = [_row(one, found.trimmed.seconds) for one in (*found.fits, found.ideal)]
    notes = _NOTES.format(z=round(found.core.n_outliers))
    return "\n".join([head, rule, *rows[:-1], rule, rows[-1], "", notes])


def _row(one: TimedFit, seconds: float) -> str:
    return (
        f"{one.name:<29}{one.n_rows:>10,}{one.seconds:>9.2f}{seconds / one.seconds:>7.1f}x"
        f"{one.clean_loss:>12.4f}{one.accuracy:>10.1%}{one.found:>15.1%}"
    )


def own_word(found: Comparison) -> str:
    """Set what the robust coreset says of the ideal fit beside what is true; say so where it was misled."""
    kept = found.core.total_weight - found.core.n_outliers
    value, _, low, high = (number / kept for number in found.estimate)
    truth, best = found.truth / kept, found.best / kept
    where = "within" if low <= best <= high else "outside"
    lines = [
        "What the robust coreset says of that last fit, without looking at the data: trimmed loss a row",
        f"{value:.4f} +- {high - value:.4f} (95%). On all rows it is {best:.4f}, {where} that. "
        f"The coreset's own fit has {truth:.4f}.",
    ]
    return "\n".join(lines + _misled(found))


def _misled(found: Comparison) -> list[str]:
    """Tell a search that ended in a poor minimum from an objective that is lowest elsewhere."""
    ratio = found.truth / found.best
    if ratio > 1 + _ANOTHER:
        return ["The search was misled here: it ended in a minimum well above the ideal fit's."]
    if ratio < 1 - _ANOTHER:
        return ["So many are planted that the trimmed objective itself prefers another fit than the ideal."]
    return []
