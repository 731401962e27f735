"""A page about a coreset that needs nothing but a browser: what is in it, who is suspected, and why."""

from duramen.report.page import report_html

__all__ = ["report_html"]
