"""Coresets from files."""

from __future__ import annotations

import os

from duramen.coreset.coreset import Coreset
from duramen.coreset.parquet import read
from duramen.losses.base import Loss

__all__ = ["load_coreset"]


def load_coreset(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Coreset:
    """Load a coreset that :meth:`Coreset.save` wrote: the same, bit for bit.

    Needs the extra ``duramen[frames]``. The loaded anchor holds all that was
    frozen: with it and the same seed, :func:`duramen.robust_coreset` makes the
    same coreset of the same data.

    Parameters
    ----------
    path : str or path
    loss : Loss, optional
        Needed where the coreset was made with a loss or a divergence of your
        own, which no file can hold.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is none of ours, is damaged, or was written by a newer version; if
        ``loss`` is needed, or is another than that of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import duramen as dm
    >>> core = dm.robust_coreset([[0.0], [1.0], [5.0]], loss=dm.KMeansLoss(1), size=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     core.save(pathlib.Path(folder) / "core.parquet")
    ...     again = dm.load_coreset(pathlib.Path(folder) / "core.parquet")
    >>> again.loss, again.weights.tolist() == core.weights.tolist()
    (KMeansLoss(k=1), True)
    """
    return Coreset(**read(path, loss))
