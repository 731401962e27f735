"""Checks of what a dynamic coreset is made with: each names the value, and the way out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.reading import Reading
from duramen.dynamic.tree import check_shape
from duramen.sampling import RankedSampler, Sampler
from duramen.solvers.problem import is_number
from duramen.trimming import outlier_weight

__all__ = ["check_alike", "checked_outliers", "is_tree"]


def is_tree(engine: Any, sampler: Sampler | None, bucket_size: Any, height: Any) -> bool:
    """Tell which engine is meant; raise where it cannot be."""
    if engine not in ("auto", "ranked", "tree"):
        raise ValueError(f"engine={engine!r} is not known; take 'auto', 'ranked' or 'tree'")
    ranked = sampler is None or isinstance(sampler, RankedSampler)
    if engine == "ranked" and not ranked:
        raise TypeError(
            f"{sampler!r} does not score points by themselves, so it has no ranks; "
            "take engine='tree', or make it a RankedSampler"
        )
    tree = engine == "tree" or (engine == "auto" and not ranked)
    if not tree and not (bucket_size is None and height is None):
        raise TypeError(
            f"bucket_size={bucket_size!r} and height={height!r} are of a tree; pass engine='tree' with them"
        )
    if tree:
        check_shape(bucket_size, height)
    return tree


def checked_outliers(n_outliers: Any, total: float) -> float:
    """Check a number of outliers, and take a fraction in single precision for what it was meant to be."""
    if not math.isfinite(total):  # nobody is here yet, who could be too few
        total = 2 * float(n_outliers) if is_number(n_outliers) and n_outliers >= 1 else 1.0
    outlier_weight(n_outliers, total)
    if isinstance(n_outliers, np.floating) and n_outliers.itemsize < 8:
        return float(str(n_outliers))
    return float(n_outliers)


def check_alike(one: Reading, other: Reading) -> None:
    """Raise unless two can be merged."""
    if one is other:
        raise ValueError("a dynamic coreset cannot be merged with itself")
    if one.loss != other.loss:
        raise ValueError(f"this is for {one.loss!r}, the other for {other.loss!r}; they cannot be merged")
    if one.seed != other.seed:
        raise ValueError(
            f"the seeds {one.seed} and {other.seed} differ, so that chance chose differently; make both with "
            "the same random_state, an integer"
        )
    mine, theirs = one.columns, other.columns
    if mine is not None and theirs is not None and mine != theirs:
        raise ValueError(
            f"the other has the columns {', '.join(theirs)}; the rows here have {', '.join(mine)}"
        )
    if one.anchor is not None and other.anchor is not None and not same_anchor(one.anchor, other.anchor):
        raise ValueError("the anchors differ; other.reanchor(this.anchor) gives both the same")
