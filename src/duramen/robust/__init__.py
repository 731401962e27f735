"""The robust coreset of a fixed dataset: the paper's hybrid framework (section 3.2)."""

from duramen.robust.robust_coreset import robust_coreset

__all__ = ["robust_coreset"]
