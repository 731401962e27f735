"""Coresets of data that change: the paper's fully dynamic setting (section 3.3, appendix C)."""

from duramen.dynamic.anchoring import AnchorReport
from duramen.dynamic.dynamic_coreset import DynamicCoreset

__all__ = ["AnchorReport", "DynamicCoreset"]
