"""The plane in which the demo's picture is drawn, and where a fit's boundary runs in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.cli.demo.data import Contaminated

__all__ = ["DemoPlane", "plane_of"]

_ENOUGH = 50_000  # rows that tell a mean and a covariance well enough for a picture
_FAR = 100.0  # standard deviations: lines leave the frame before


class DemoPlane(NamedTuple):
    """Two uncorrelated directions, in which the clean rows have variance 1.

    Attributes
    ----------
    middle : array (d,)
        The mean of the clean rows.
    covariance : array (d, d)
    directions : array (d, 2)
    """

    middle: Array
    covariance: Array
    directions: Array

    def places(self, rows: Array) -> Array:
        """Project rows (n, d): (n, 2)."""
        return np.asarray((rows - self.middle) @ self.directions)

    def boundary(self, theta: Array) -> Array:
        """Give two far ends of the line where ``theta`` is undecided, what the plane hides at its mean.

        It hides nothing of a theta whose coefficients are a sum of its directions.
        """
        normal = self.directions.T @ self.covariance @ theta[:-1]
        offset = theta[:-1] @ self.middle + theta[-1]
        foot = -offset * normal / (normal @ normal)
        along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
        return np.asarray(foot + np.outer([-_FAR, _FAR], along))


def plane_of(sample: Contaminated, theta: Array) -> DemoPlane:
    """Find the plane of the true coefficients and of those of ``theta``, the planted rows upwards."""
    X, planted = sample.X[:_ENOUGH], sample.planted[:_ENOUGH]
    middle, covariance = X[~planted].mean(axis=0), np.cov(X[~planted].T)
    true = sample.theta[:-1]
    first = true / np.sqrt(true @ covariance @ true)
    second = theta[:-1] - (theta[:-1] @ covariance @ first) * first
    up = np.sign((sample.X[sample.planted].mean(axis=0) - middle) @ second) or 1.0
    second *= up / np.sqrt(second @ covariance @ second)
    return DemoPlane(middle, covariance, np.column_stack([first, second]))
