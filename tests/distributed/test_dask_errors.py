"""Errors on workers begin with the partition's name, also those in making it."""

import numpy as np
import pytest

import duramen as dm

pytest.importorskip("dask.dataframe", reason="needs duramen[dask]")
import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

from duramen.distributed import dask as dmd
from duramen.distributed.dask.partitions import prefixed

CHOSEN = {"loss": dm.KMeansLoss(2), "size": 50, "random_state": 0}


def frame(n=2000):
    return pd.DataFrame(np.random.default_rng(0).normal(size=(n, 3)), columns=["a", "b", "c"])


FIRE = OSError(5, "disk on fire")


def broken(part, partition_info=None, error=FIRE):
    if partition_info is not None and partition_info["number"] == 19:
        raise error
    return part


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize(
    "error", [OSError(5, "disk on fire"), ValueError("disk on fire"), KeyError("disk on fire")]
)
def test_a_partition_that_cannot_be_read_is_named(scheduler, error):
    whole = dd.from_pandas(frame(), npartitions=40)
    collection = whole.map_partitions(broken, error=error, meta=whole._meta)
    with (
        dask.config.set(scheduler=scheduler),
        pytest.raises(type(error), match=r"partition 19 of 40.*disk on fire"),
    ):
        dmd.robust_coreset(collection, **CHOSEN)
    with dask.config.set(scheduler=scheduler), pytest.raises(type(error), match="partition 19 of 40"):
        dm.RobustKMeans(2, coreset_size=50, random_state=0).fit(collection)


def test_so_it_is_on_a_cluster(on_cluster):
    whole = dd.from_pandas(frame(), npartitions=40)
    collection = whole.map_partitions(broken, meta=whole._meta)
    with pytest.raises(OSError, match=r"partition 19 of 40.*disk on fire"):
        dmd.robust_coreset(collection, **CHOSEN)


def test_an_error_keeps_its_type_where_that_takes_a_text():
    assert str(prefixed("partition 3", ValueError("no"))) == "partition 3: no"
    for error in (OSError(5, "no"), UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), KeyError("no")):
        named = prefixed("partition 3", error)
        assert isinstance(named, type(error).__mro__[1] if isinstance(error, UnicodeError) else type(error))
        assert "partition 3: " in str(named)
        assert "no" in str(named)


def test_columns_of_the_same_name_are_refused():
    twice = frame().rename(columns={"b": "a"})
    with pytest.raises(ValueError, match="more than one column is called 'a'"):
        dmd.robust_coreset(dd.from_pandas(twice, npartitions=3), **CHOSEN)


def test_many_chunks_are_seen_in_little_time():
    from duramen.distributed.dask.partitions import parts_of

    parts = parts_of(da.ones((3000, 1), chunks=(1, 1)))
    assert (parts.firsts[-1], parts.counts[-1]) == (2999, 1)
