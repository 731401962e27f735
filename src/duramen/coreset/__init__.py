"""The coreset: a few weighted rows that represent many, with error bars."""

from duramen.coreset.coreset import Coreset, load_coreset
from duramen.coreset.estimate import Estimate

__all__ = ["Coreset", "Estimate", "load_coreset"]
