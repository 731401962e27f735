"""The survey: one pass over the suspected inliers, for their ranks and the totals to calibrate to.

Every chunk of rows is looked at once while it is in the cache, by the sampler
and by the calibration together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duramen.chunks import one_blas_thread, sum_over_chunks
from duramen.rows import Array, scratch_rows
from duramen.sampling.base import RankedSampler, Seen, ranked
from duramen.sampling.calibration import Known

__all__ = ["Survey", "survey", "surveyed_totals"]


class Survey(NamedTuple):
    """Ranks and strata of all points, and totals over them."""

    ranks: Array
    strata: Array | None
    totals: Array | None


def survey(sampler: RankedSampler, seen: Seen, seed: int, marks: Array | None, known: Known | None) -> Survey:
    """Look at all points once; those of weight zero count for nothing."""
    points = seen.points
    ranks = np.empty(len(points))
    probe = sampler.strata(seen.take(slice(0, 1)))
    strata = None if probe is None else np.empty(len(points), dtype=np.asarray(probe).dtype)

    def look(chunk: slice) -> tuple[Array | float]:
        part = seen.take(chunk)
        ranks[chunk] = ranked(sampler, part, seed)
        if strata is not None:
            strata[chunk] = np.asarray(sampler.strata(part))
        if known is None:
            return (0.0,)
        here = None if marks is None else marks[chunk]
        return (known.totals(part.points, part.losses, here, part.points.weights),)

    rows = scratch_rows(points.X)  # long chunks: threads hand the interpreter's lock over less often
    with one_blas_thread():
        (totals,) = sum_over_chunks(look, len(points), rows)
    return Survey(ranks, strata, None if known is None else totals)


def surveyed_totals(seen: Seen, marks: Array | None, known: Known | None) -> Array | None:
    """Take the totals alone, in the same chunks and so with the same rounding."""
    if known is None:
        return None
    points = seen.points

    def look(chunk: slice) -> tuple[Array]:
        part = seen.take(chunk)
        here = None if marks is None else marks[chunk]
        return (known.totals(part.points, part.losses, here, part.points.weights),)

    with one_blas_thread():
        (totals,) = sum_over_chunks(look, len(points), scratch_rows(points.X))
    return totals
