"""How the documentation is built: ``make docs``."""

from importlib.metadata import version as _version
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

project = "duramen"
author = "The duramen developers"
copyright = "2026, the duramen developers"
release = version = _version("duramen")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
nitpicky = False

html_theme = "furo"
html_title = f"duramen {release}"
html_copy_source = False
html_math_renderer = "mathml"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = False


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div style="overflow: auto hidden; padding: 0.35em 0">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Write formulas as MathML, which browsers display without scripts or network."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
