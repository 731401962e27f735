"""The rows of a fitted estimator, kept so that some can go and others come: forgetting and absorbing.

The rows stand in a dynamic coreset with the anchor and the seed of the fit. What
it gives after a change is what building a coreset of the rows that are left
would give, so a change is undone by the opposite one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from duramen.dynamic import DynamicCoreset
from duramen.estimators.data import Data
from duramen.estimators.fitting import Fitted
from duramen.estimators.recipe import Recipe
from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.sampling import RankedSampler, Sampler
from duramen.sampling.base import Bound

__all__ = ["check_updatable", "data_of", "joined", "kept", "remember", "undone_on_failure"]


def check_updatable(updatable: Any, recipe: Recipe) -> None:
    """Raise, with the way out, if rows that are to change cannot be kept so.

    A sampler that does not score points by themselves makes a coreset that depends on how its points
    came: forgetting some of them would leave a trace in it.
    """
    if not isinstance(updatable, (bool, np.bool_)):
        raise TypeError(f"updatable={updatable!r} must be True or False")
    sampler = recipe.sampler.sampler if isinstance(recipe.sampler, Bound) else recipe.sampler
    if updatable and isinstance(sampler, Sampler) and not isinstance(sampler, RankedSampler):
        raise TypeError(
            f"updatable=True needs a sampler that scores points by themselves, and {sampler!r} does not; "
            "take one of ours, make it a RankedSampler, or pass updatable=False"
        )


def kept(recipe: Recipe, data: Data, fitted: Fitted) -> DynamicCoreset:
    """Put the rows of a fit into a dynamic coreset that gives the coreset it was made on."""
    core = fitted.coreset
    live = DynamicCoreset(
        recipe.loss,
        size=sys.maxsize if fitted.size is None else fitted.size,  # without an anchor it is all points
        n_outliers=recipe.n_outliers,
        sampler=recipe.sampler,
        random_state=recipe.random_state,
        anchor=None if core is None else core.anchor,
    )
    ids = np.arange(data.X.shape[0]) if data.ids is None else data.ids
    live.insert(data.X, data.y, data.weights, ids)
    if core is not None:
        live.reanchor(core.anchor)  # so that its report does not count these rows as newer than the anchor
    remember(live, fitted)
    return live


def remember(live: DynamicCoreset, fitted: Fitted) -> None:
    """Let a solution be the one that a dynamic coreset starts from, and compares its anchor with."""
    live._solution = fitted.solution  # quietly: where all rows are kept, or n_rounds is 1, it may lie far off


@contextmanager
def undone_on_failure(live: DynamicCoreset, undo: Callable[[], Any]) -> Iterator[None]:
    """Undo a change of the rows if what follows it fails.

    The coreset is as before then; only the anchor's report counts rows that were put back as new.
    """
    before = live.solution
    try:
        yield
    except BaseException:
        undo()
        live._solution = before
        raise


def data_of(points: WeightedPoints) -> Data:
    """Take points for data to fit on."""
    return Data(points.X, points.y, points.weights, points.ids)


def joined(points: WeightedPoints, new: Data) -> Data:
    """Put new rows after those that are there."""
    weights = np.ones(new.X.shape[0]) if new.weights is None else new.weights
    old = data_of(points)
    columns: list[tuple[Any, Any]] = [
        (old.X, new.X),
        (old.y, new.y),
        (old.weights, weights),
        (old.ids, new.ids),
    ]
    return Data(*(_end_to_end(*pair) for pair in columns))


def _end_to_end(one: Array | None, two: Array | None) -> Any:
    return None if one is None or two is None else np.concatenate([one, two])
