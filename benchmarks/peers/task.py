"""What every contender is given: training rows, some of them wrong, rows that come later, and test rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

__all__ = ["ARRIVALS", "Task"]

ARRIVALS = 100  # rows that wait to be absorbed, one by one

_FEW = 2000  # rows to warm up on


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to fit.

    Attributes
    ----------
    X, y : array (n + arrivals, d) and (n + arrivals,)
        The training rows, and behind them those that come later; ``y`` is None where there are no labels.
    planted : array (n,) of bool
        Which training rows are wrong.
    z : int
        The number of outliers given to every contender that takes it.
    X_test, y_test : array
        Clean rows held out; empty where nothing is predicted.
    seed : int
    """

    X: np.ndarray
    y: np.ndarray | None
    planted: np.ndarray
    z: int
    X_test: np.ndarray
    y_test: np.ndarray
    seed: int

    @property
    def n(self) -> int:
        return len(self.planted)

    @property
    def nbytes(self) -> int:
        """Count the bytes of the training rows with their labels."""
        return sum(column[: self.n].nbytes for column in (self.X, self.y) if column is not None)

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the first ``count`` rows, without a copy."""
        return self.X[:count], None if self.y is None else self.y[:count]

    def clean(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the clean training rows."""
        X, y = self.first(self.n)
        return X[~self.planted], None if y is None else y[~self.planted]

    def few(self) -> Task:
        """Take some of the rows, to warm up on."""
        m = min(self.n // 3, _FEW)
        keep = np.r_[:m, self.n : len(self.X)]
        return replace(
            self,
            X=self.X[keep],
            y=None if self.y is None else self.y[keep],
            planted=self.planted[:m],
            z=max(1, self.z * m // self.n),
        )

    def save(self, folder: Path) -> None:
        """Write it for another process to read."""
        for name in _ARRAYS:
            column = getattr(self, name)
            if column is not None:
                np.save(folder / f"{name}.npy", column)
        np.save(folder / "numbers.npy", [self.z, self.seed])

    @classmethod
    def load(cls, folder: Path) -> Task:
        """Read what ``save`` wrote."""
        paths = {name: folder / f"{name}.npy" for name in _ARRAYS}
        arrays = {name: np.load(path) if path.exists() else None for name, path in paths.items()}
        z, seed = np.load(folder / "numbers.npy").tolist()
        return cls(**arrays, z=z, seed=seed)


_ARRAYS = ("X", "y", "planted", "X_test", "y_test")
