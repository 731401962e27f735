"""Robust coresets of Dask collections, on the schedulers of one machine and on clusters.

>>> from duramen.distributed import dask as dmd

``partitions`` reads a Dask DataFrame or array as partitions of points, ``coreset`` makes passes over them.
"""

from duramen.distributed.dask.coreset import robust_coreset

__all__ = ["robust_coreset"]
