"""HTML templates that escape all values, and numbers formatted for readers."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import markupsafe
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from duramen.coreset.display import number, short_repr
from duramen.text import shorten

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


def short(value: float, digits: int = 4) -> str:
    """Format a number for a table: about four digits, thousands separators, a true minus sign.

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
    """Format a number for a headline: about six digits."""
    return "unknown" if math.isnan(value) else number(value).replace("-", "−", 1)


def percent(share: float) -> str:
    """Format a share as a percentage, to two digits or whole percents.

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
    """Return a count with its noun or verb.

    Examples
    --------
    >>> plural(1, "row"), plural(2500, "row"), plural(2, "has", "have")
    ('1 row', '2,500 rows', '2 have')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def place(value: float) -> str:
    """Format a coordinate of a drawing, to a tenth of a pixel."""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@cache
def environment() -> Environment:
    """Return the environment of all templates, which escapes everything."""
    found = Environment(
        loader=PackageLoader("duramen", "report"), autoescape=True, undefined=StrictUndefined, finalize=escape
    )
    filters = (shorten, short, large, percent, plural, short_repr, place)
    found.filters |= {function.__name__: function for function in filters}
    return found


def template(name: str, **shared: Any) -> Any:
    """Return the macros of a template."""
    return environment().get_template(name).make_module(shared)
