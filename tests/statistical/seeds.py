"""Coresets of the same points over many seeds."""

import duramen as dm


def coresets(seeds, X, y=None, *, anchor, **settings):
    """Build one coreset per seed; each passes on what its sampler froze with the anchor."""
    for seed in seeds:
        core = dm.robust_coreset(X, y, anchor=anchor, random_state=seed, **settings)
        anchor = core.anchor
        yield core
