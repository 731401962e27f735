"""HTML that cannot be broken out of, and numbers as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

import markupsafe
from markupsafe import Markup

from duramen.coreset.display import number

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def escape(text: Any) -> Markup:
    """Make text safe in HTML, between tags and in attributes; characters that HTML forbids are replaced.

    Examples
    --------
    >>> print(escape('<script>"a" & b</script>'))
    &lt;script&gt;&#34;a&#34; &amp; b&lt;/script&gt;
    >>> print(escape(Markup("<b>bold</b>")))
    <b>bold</b>
    """
    if isinstance(text, Markup):
        return text
    return markupsafe.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


def join(*parts: Any) -> Markup:
    """Put parts one after the other, escaped where they are not Markup."""
    return Markup("".join(map(escape, parts)))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Build an element, "p.note" of a class. All is escaped; floats have one decimal, None is left out.

    Examples
    --------
    >>> print(tag("td.n", "a < b", data_name="loss"))
    <td class="n" data-name="loss">a &lt; b</td>
    >>> print(tag("circle", cx=1.25, r=3))
    <circle cx="1.2" r="3"></circle>
    """
    name, _, kind = name.partition(".")
    written = f' class="{kind}"' if kind else ""
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else escape(value)
        written += f' {key.replace("_", "-")}="{text}"'
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


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
