"""The coreset: few weighted rows that stand for many, and what is known about how well."""

from duramen.coreset.coreset import Coreset
from duramen.coreset.estimate import Estimate

__all__ = ["Coreset", "Estimate"]
