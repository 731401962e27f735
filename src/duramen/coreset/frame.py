"""A coreset as a pandas data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.extras import needed

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = ["OURS", "feature_names", "frame_of"]

OURS = "duramen:"
"""What our own columns begin with, where a name could be a feature's."""


def feature_names(core: Coreset) -> list[str]:
    """Name the columns as the data did, or x0, x1, ..."""
    return list(core.columns) if core.columns else [f"x{place}" for place in range(core.points.n_columns)]


def frame_of(core: Coreset) -> Any:
    """Make the data frame; it shares no memory with the coreset."""
    pd = needed("pandas", "Coreset.to_pandas", "frames")
    names = feature_names(core)
    index = pd.Index(np.array(core.ids), name="id")
    if sparse.issparse(core.X):
        frame = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(core.X), index=index, columns=names)
    else:
        frame = pd.DataFrame(np.array(core.X), index=index, columns=names)
    ours = {"y": core.y, "weight": core.weights, "suspected": core.suspected}
    beside = {_free(name, names): np.array(column) for name, column in ours.items() if column is not None}
    return pd.concat([frame, pd.DataFrame(beside, index=index)], axis=1)


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name = OURS + name
    return name
