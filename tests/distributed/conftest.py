"""A cluster of two workers, and two processes: begun once, and ended without a trace."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest


@pytest.fixture(scope="session")
def cluster():
    """Start two workers that talk over TCP on the loopback, and return their client."""
    distributed = pytest.importorskip("distributed", reason="needs duramen[dask]")
    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(**workers, **local) as started,
        distributed.Client(started, set_as_default=False) as client,
    ):
        assert started.scheduler_address.startswith("tcp://127.0.0.1")
        yield client


@pytest.fixture
def on_cluster(cluster):
    """Compute on the cluster, with both workers there."""
    cluster.wait_for_workers(2, timeout=60)
    with cluster.as_current():
        yield cluster


@pytest.fixture(scope="session")
def two_processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def synchronous():
    """Compute here, one task after the other."""
    dask = pytest.importorskip("dask", reason="needs duramen[dask]")
    with dask.config.set(scheduler="synchronous"):
        yield
