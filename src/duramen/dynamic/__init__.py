"""Coresets of data that change: the paper's fully dynamic setting (section 3.3, appendix C)."""

from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.report import AnchorReport

__all__ = ["AnchorReport", "DynamicCoreset"]
