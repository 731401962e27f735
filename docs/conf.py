"""How the documentation is built: ``make docs``."""

from importlib.metadata import version as _version

project = "duramen"
author = "The duramen developers"
copyright = "2026, the duramen developers"
release = version = _version("duramen")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
nitpicky = False

html_theme = "furo"
html_title = f"duramen {release}"
html_copy_source = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = False
