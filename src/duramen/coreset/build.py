"""Build a robust coreset: in memory, or in two passes over data that does not fit in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import Array, column_names, is_frame, refuse_nonfinite
from duramen.coreset.choose import choose
from duramen.coreset.coreset import Coreset
from duramen.coreset.passes import ScanSource, plan, run_passes
from duramen.coreset.view import (
    Settings,
    View,
    anchor_sample,
    blind_view,
    find_view,
    is_complete,
    largest_losses,
)
from duramen.io.scan import Scan
from duramen.losses.base import Loss
from duramen.parallel import one_blas_thread
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints, Sampler
from duramen.trimming import check_points, outlier_weight


@one_blas_thread()  # BLAS's own threads would keep a core busy after every small product
def robust_coreset(
    X: Any,
    y: Any = None,
    *,
    loss: Loss,
    size: int | None = None,
    epsilon: float | None = None,
    beta: float | None = None,
    n_outliers: float = 0,
    sampler: Sampler | str = "auto",
    suspects: float | str = "auto",
    anchor: Any = None,
    sample_weight: Any = None,
    ids: Any = None,
    calibrate: bool = True,
    random_state: Any = None,
    eta: float = 0.1,
) -> Coreset:
    """Choose weighted rows that represent all the data, even if it contains adversarial outliers.

    The points of the largest losses at an anchor are suspected outliers; they are
    kept or sampled uniformly. A sampler reduces the others. The weights of each
    side add up to exactly the weight of that side.

    Parameters
    ----------
    X, y : as for :func:`duramen.points`
        X is never copied. For data larger than memory, pass the result of
        :func:`duramen.scan` as X; the coreset is the same.
    loss : Loss
        The learning problem.
    size : int, optional
        The number of rows to choose, shared between the two sides.
    epsilon : float, optional
        Instead of a size: the relative error that Theorem 2 allows with
        probability 1 - ``eta`` for every theta in the anchor's ball. Its sizes
        are large; where they exceed the data, a warning is issued and all points
        are kept.
    beta : float, optional
        With ``epsilon``: the relative error in the number of outliers; 0, the
        default, keeps all that are suspected. With ``size``, beta=0 does so too.
        Alone: a uniform sample by Theorem 1, for a loss without any continuity.
    n_outliers : float
        The weight to set aside: a count (1 or more), or a fraction (below 1).
    sampler : Sampler or str
        "uniform", "layered", "leverage", "sensitivity", or a Sampler;
        "auto" is leverage for losses that classify, unless ``size`` is below 50
        rows per parameter; then, and for the other losses of a linear predictor,
        sensitivity; and layered for all others.
    suspects : float
        The weight to suspect, as a multiple of ``n_outliers``; "auto" is 1.5. With 0
        no point is suspected: an ordinary coreset.
    anchor : Anchor or array, optional
        A rough solution; found by :func:`duramen.find_anchor` if not given.
        With the anchor of a coreset (``core.anchor``), the same seed and the same
        points in any order give the same coreset.
    sample_weight, ids : optional
        One weight, and one integer id, for each row.
    calibrate : bool
        Whether to adjust the weights so that the coreset has the data's loss and
        gradient at the anchor. (Not with ``epsilon``: theorems are about weights
        as sampled.)
    random_state : None, int or numpy Generator
    eta : float
        The probability with which a theorem's guarantee may fail.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        If an argument or a row is wrong; the message says what to do.

    Notes
    -----
    Cost: as much as three to eight products ``X @ theta``, after the anchor
    (fifty for the sensitivity sampler): docs/speed.md has the figures. Extra
    memory is at most 64 bytes per row, if outliers are a few percent.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=20_000) > 0, 1, -1)
    >>> X[:400] += 50
    >>> core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=1000, n_outliers=400, random_state=0)
    >>> len(core), round(core.total_weight)
    (1000, 20000)
    >>> dm.solve(core).theta.round(1)
    array([1.9, 0. , 0. , 0. ])
    """
    options: dict[str, Any] = {
        "loss": loss,
        "size": size,
        "beta": beta,
        "n_outliers": n_outliers,
        "sampler": sampler,
        "suspects": suspects,
        "anchor": anchor,
        "calibrate": calibrate,
        "random_state": random_state,
    }
    if isinstance(X, Scan):
        refuse_beside_scan(y=y, sample_weight=sample_weight, ids=ids, epsilon=epsilon)
        core = run_passes(ScanSource(X), plan(**options))
        return core if X.names is None else replace(core, columns=X.names)
    settings = Settings.of(epsilon=epsilon, eta=eta, **options)
    rule = settings.plan
    # the pass at the anchor finds NaN itself, but cannot name a frame's column
    checked = anchor is None and (is_frame(X) or rule.uniform)
    points = _make_points(X, y, sample_weight, ids, loss, checked=checked)
    z = outlier_weight(n_outliers, points.total_weight, points.weights)
    view = _find_view(settings, points, z)

    def suspect(points: WeightedPoints, losses: Array) -> Array:
        anchored = AnchoredPoints(points, view.loss, view.anchor, losses)
        weight = rule.suspected_of(z, points.total_weight, anchored)
        return largest_losses(losses, points.ids, points.weights, weight)

    columns = tuple(column_names(X)) if is_frame(X) else None
    return choose(view.score(points, suspect), view, n_outliers=z, columns=columns)


def refuse_beside_scan(**given: Any) -> None:
    """Raise TypeError for arguments that cannot be passed with a scan."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(
                f"{name} cannot be passed with scanned data, whose labels, weights and ids are columns named "
                "by dm.scan(..., label=, weight=, id=), and whose coreset needs size="
            )


def _make_points(X: Any, y: Any, weights: Any, ids: Any, loss: Any, *, checked: bool) -> WeightedPoints:
    """Make points of data in memory; a built-in loss finds NaN and infinity itself, in the pass it makes."""
    if isinstance(X, WeightedPoints):
        raise TypeError("robust_coreset takes X and y, not points; pass points.X, points.y and sample_weight")
    if hasattr(X, "__dask_graph__"):
        raise TypeError(
            "X is a Dask collection; call duramen.distributed.dask.robust_coreset, which leaves its rows "
            "where they are, or pass X.compute() if they fit in memory"
        )
    if isinstance(X, (str, Path)) or callable(X) or type(X).__name__.endswith("Dataset"):
        raise TypeError(
            f"X is a {type(X).__name__}, {X!r}; pass dm.scan(X, label=...) as X, which says how to read it"
        )
    make = WeightedPoints if checked or not loss.finds_nonfinite else WeightedPoints._unvalidated
    points = make(X, y, weights, ids)
    check_points(points, loss)
    if not points.total_weight > 0:
        raise ValueError("all weights are zero; pass some positive weights")
    return points


def _find_view(settings: Settings, points: WeightedPoints, z: float) -> View:
    """Find the view on a sample; the anchor given, if it is complete, and none at all for Theorem 1."""
    if settings.given is None and settings.plan.uniform:
        return blind_view(replace(settings, loss=settings.loss.measure(points)))
    try:
        complete = is_complete(settings, points.n_columns)
        sample = points if complete else anchor_sample(points, settings.seed)
        return find_view(settings, sample, z, points.total_weight, int(np.count_nonzero(points.weights)))
    except ValueError:
        refuse_nonfinite(points.X)  # with the number of the row here, not in the sample
        raise
