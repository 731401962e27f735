"""An HTML page about a coreset: what is in it, which rows are suspected, and why."""

from duramen.report.page import report_html

__all__ = ["report_html"]
