"""The page's alphabet: text that cannot break out of HTML, numbers as people write them, tables, notes."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from duramen.coreset.display import number

__all__ = [
    "Markup",
    "Section",
    "bar",
    "cut",
    "escape",
    "facts",
    "figure",
    "large",
    "note",
    "paragraph",
    "percent",
    "plural",
    "said",
    "short",
    "signed",
    "table",
]

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LONGEST = 120  # characters of a name


class Markup(str):
    """Text that is HTML already; everything else is escaped."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of the page: what links point to, its heading, and what is in it."""

    key: str
    title: str
    body: Markup


def escape(text: Any) -> Markup:
    """Make text safe in HTML, between tags and in attributes; what no page may hold is replaced.

    Examples
    --------
    >>> escape('<script>"a" & b</script>')
    '&lt;script&gt;&quot;a&quot; &amp; b&lt;/script&gt;'
    >>> escape(Markup("<b>bold</b>"))
    '<b>bold</b>'
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))))


def cut(text: Any, longest: int = _LONGEST) -> str:
    """Put text on one line, and leave out the end of what is too long.

    Examples
    --------
    >>> cut("a    long name", 8)
    'a long …'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def said(thing: Any) -> str:
    """Give a short repr; the name of its class where it has none that works."""
    try:
        return cut(repr(thing))
    except Exception:  # somebody's own loss may fail in any way, and a page must not
        return f"{type(thing).__name__}()"


def short(value: float, digits: int = 4) -> str:
    """Write a number for a table: four digits or so, thousands apart, a true minus sign.

    Examples
    --------
    >>> short(12345.6), short(0.0123456), short(-2.5), short(float("nan"))
    ('12,346', '0.01235', '−2.5', 'unknown')
    """
    if math.isnan(value):
        return "unknown"
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:,.{digits}g}"
    return ("−" + text[1:]) if text.startswith("-") else text


def signed(value: float, digits: int = 4) -> str:
    """Write a number with its sign, positive or not.

    Examples
    --------
    >>> signed(1.5), signed(-1.5), signed(0.0)
    ('+1.5', '−1.5', '0')
    """
    return f"+{short(value, digits)}" if value > 0 else short(value, digits)


def percent(share: float) -> str:
    """Write a share to two digits, or to whole percents.

    Examples
    --------
    >>> percent(0.5), percent(0.0213), percent(0.00004), percent(0.0), percent(1.0)
    ('50%', '2.1%', '< 0.01%', '0%', '100%')
    """
    if math.isnan(share):
        return "unknown"
    if math.isinf(share):
        return "infinite"
    if 0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:,.0f}%" if share >= 0.0995 else f"{100 * share:.2g}%"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Count things.

    Examples
    --------
    >>> plural(1, "row"), plural(2500, "row"), plural(2, "has", "have")
    ('1 row', '2,500 rows', '2 have')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def paragraph(text: Any) -> Markup:
    """Make a paragraph."""
    return Markup(f"<p>{escape(text)}</p>")


def note(text: Any) -> Markup:
    """Say plainly that something is not known, and why."""
    return Markup(f'<p class="note">{escape(text)}</p>')


def facts(pairs: Iterable[tuple[Any, Any]]) -> Markup:
    """Lay out names and what they stand for."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(what)}</dd></div>" for name, what in pairs)
    return Markup(f'<dl class="facts">{rows}</dl>')


def table(heads: Sequence[Any], rows: Iterable[Sequence[Any]], *, text: Sequence[int] = (0,)) -> Markup:
    """Make a table that scrolls where it is too wide; columns are numbers, but those in ``text``."""

    def cells(row: Sequence[Any], tag: str) -> str:
        marks = ["" if place in text else ' class="n"' for place in range(len(row))]
        more = ' scope="col"' if tag == "th" else ""
        return "".join(
            f"<{tag}{more}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(row, marks, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{cells(heads, 'th')}</tr></thead>"
    return Markup(f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>')


def bar(share: float, kind: str = "usual") -> Markup:
    """Draw a share as a small horizontal bar."""
    width = 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return Markup(f'<span class="bar"><i class="{kind}" style="width:{width:.1f}%"></i></span>')


def figure(drawing: Markup, caption: Any) -> Markup:
    """Put a caption under a drawing."""
    return Markup(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")


def large(value: float) -> str:
    """Write a number for a headline."""
    return "unknown" if math.isnan(value) else number(value).replace("-", "−", 1)
