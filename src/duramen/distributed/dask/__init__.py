"""Robust coresets of Dask collections, on the schedulers of one machine and on clusters.

>>> from duramen.distributed import dask as dmd

:func:`robust_coreset` is the one call; :class:`Traffic` tells how many bytes it
sends. Underneath, ``collections`` sees a Dask DataFrame or array as partitions,
``parts`` works on the points of each, and ``coreset`` makes passes over them.
:class:`LiveCoreset` is for rows that arrive on the workers and change there.
"""

from duramen.distributed.dask.coreset import robust_coreset
from duramen.distributed.dask.live import LiveCoreset
from duramen.distributed.dask.traffic import PassTraffic, Traffic

__all__ = ["LiveCoreset", "PassTraffic", "Traffic", "robust_coreset"]
