"""The coreset: few weighted rows that stand for many, and what is known about how well."""

from duramen.coreset.coreset import Coreset
from duramen.coreset.estimate import Estimate
from duramen.coreset.save import load_coreset

__all__ = ["Coreset", "Estimate", "load_coreset"]
