"""HTML that cannot be broken out of, numbers as people write them, tables and notes."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from duramen.coreset.display import number

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already; everything else is escaped."""

    __slots__ = ()


def escape(text: Any) -> Markup:
    """Make text safe in HTML, between tags and in attributes; characters that HTML forbids are replaced.

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


def join(*parts: Any) -> Markup:
    """Put parts one after the other, escaped where they are not Markup."""
    return Markup("".join(map(escape, parts)))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Build an element, "p.note" of a class. All is escaped; floats have one decimal, None is left out.

    Examples
    --------
    >>> tag("td.n", "a < b", data_name="loss")
    '<td class="n" data-name="loss">a &lt; b</td>'
    >>> tag("circle", cx=1.25, r=3)
    '<circle cx="1.2" r="3"></circle>'
    """
    name, _, kind = name.partition(".")
    written = f' class="{kind}"' if kind else ""
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else escape(value)
        written += f' {key.replace("_", "-")}="{text}"'
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Lay out names and values."""
    return tag("dl.facts", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, text: Sequence[int] = (0,)) -> Markup:
    """Make a table that scrolls where it is too wide; columns are numbers, except those in ``text``."""
    kinds = ["" if place in text else ".n" for place in range(len(heads))]
    head = (tag(f"th{kind}", name, scope="col") for name, kind in zip(heads, kinds, strict=True))
    body = (
        tag("tr", *(tag(f"td{kind}", cell) for cell, kind in zip(row, kinds, strict=True))) for row in rows
    )
    return tag("div.scroll", tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body)))


def bar(share: float, kind: str, left: float | None = None) -> Markup:
    """Draw a share as a small horizontal bar: from the left, or from the place that is given."""
    width = 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    start = "" if left is None else f"left:{100 * left:.1f}%;"
    inner = tag(f"i.{kind}", style=f"{start}width:{width:.1f}%")
    return tag("span.bar" if left is None else "span.bar both", inner)


def figure(drawing: Markup, caption: str) -> Markup:
    """Put a caption under a drawing."""
    return tag("figure", drawing, tag("figcaption", caption))


def pair(left: Markup, *right: Markup) -> Markup:
    """Put a figure beside text."""
    return tag("div.pair", left, tag("div", *right))


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


def large(value: float) -> str:
    """Write a number for a headline: six digits or so."""
    return "unknown" if math.isnan(value) else number(value).replace("-", "−", 1)


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
