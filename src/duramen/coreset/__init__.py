"""The coreset: a few weighted rows that represent many, with error bars."""

from duramen.coreset.coreset import Coreset, Estimate, load_coreset

__all__ = ["Coreset", "Estimate", "load_coreset"]
