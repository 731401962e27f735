"""Examples that need an extra are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("dask") and find_spec("pandas") else ["src/duramen/distributed/dask/*"]
