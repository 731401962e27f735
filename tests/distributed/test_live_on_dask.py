"""Rows that arrive on the workers of a Dask cluster, and change there."""

import os
import signal
import time

import numpy as np
import pytest

import duramen as dm
from tests.distributed.sites import (
    assert_law,
    rows_of,
)


@pytest.fixture(scope="module")
def client():
    """A cluster of its own, as one of its workers is killed."""
    distributed = pytest.importorskip("distributed", reason="needs duramen[dask]")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as started,
        distributed.Client(started, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def live(client):
    from duramen.distributed.dask import LiveCoreset

    made = LiveCoreset(client, loss=dm.LogisticLoss(), size=100, n_outliers=0.05, random_state=3)
    yield made
    made.close()


LIVE = {"loss": dm.LogisticLoss(), "size": 100, "random_state": 3}


def as_points(X, y, weights, ids):
    return dm.points(X, y, weights, ids)


def arrives(actor, seed):
    """A task that puts rows in at the site that it is handed."""
    X, y, _, ids = rows_of("logistic", 400, seed, start=1000 * seed)
    return len(actor.insert(X, y, ids=ids).result())


def test_actors_hold_rows_and_their_coreset_is_that_of_one_machine(client, live):
    X, y, _, ids = rows_of("logistic", 3000)
    np.testing.assert_array_equal(live.insert(X, y, ids=ids), ids)
    assert all(actor.n_points for actor in live.actors.values())
    rows = as_points(X, y, None, ids)
    core = assert_law(live, rows, LIVE, 0.05)
    live.delete(ids[:1000])
    live.update(ids[2000:2500], y=-y[2000:2500])
    live.update(int(ids[2999]), [9.0, 9.0], -1, 2.5)
    y[2000:2500] *= -1
    X[2999], y[2999] = 9.0, -1
    weights = np.where(np.arange(3000) == 2999, 2.5, 1.0)
    rows = as_points(X[1000:], y[1000:], weights[1000:], ids[1000:])
    assert assert_law(live, rows, LIVE, 0.05).anchor is core.anchor
    live.set_outliers(30)
    assert_law(live, rows, LIVE, 30)
    live.reanchor()
    assert assert_law(live, rows, LIVE, 30).anchor is not core.anchor


def test_rows_may_arrive_where_they_are(client):
    from duramen.distributed.dask import LiveCoreset

    live = LiveCoreset(client, sites=["berlin", "paris", "quito"], n_outliers=0.05, **LIVE)
    work = [client.submit(arrives, live.actors[name], seed) for seed, name in enumerate(live.actors)]
    assert client.gather(work) == [400] * 3
    parts = [as_points(*rows_of("logistic", 400, seed, start=1000 * seed)) for seed in range(3)]
    assert_law(live, dm.WeightedPoints.concat(parts), LIVE, 0.05)
    live.delete(parts[1].ids, site="paris")
    assert_law(live, dm.WeightedPoints.concat([parts[0], parts[2]]), LIVE, 0.05)
    assert len(live) == 800
    live.close()


def test_names_find_their_sites_again(live):
    X, y, _, _ = rows_of("logistic", 500)
    names = [f"patient {row}" for row in range(500)]
    live.insert(X, y, ids=names)
    live.delete(names[100:])
    assert len(live) == 100
    live.delete(names[0])
    assert len(live) == 99


def test_errors_of_actors_name_the_site_and_say_who_has_done_it(client, live):
    from duramen.distributed.dask import LiveCoreset

    first, second = live.actors
    X, y, _, _ = rows_of("logistic", 10)
    live.insert(X, y, ids=np.arange(10))
    with pytest.raises(KeyError, match=f"site '{second}': id 71 is not here; .*; done at '{first}'"):
        live.delete([4, 71])
    assert len(live) == 9
    with pytest.raises(TypeError, match="pass ids that no other row has"):
        live.insert(X, y)
    with pytest.raises(ValueError, match="there are 3 ids for 10 rows"):
        live.insert(X, y, ids=[20, 21, 22])
    with pytest.raises(ValueError, match="there is no site 'rome'"):
        live.delete(5, site="rome")
    with pytest.raises(ValueError, match="site 'a' is to be on 'tcp://nowhere'"):
        LiveCoreset(client, sites={"a": "tcp://nowhere"}, **LIVE)
    with pytest.raises(ValueError, match="distinct names"):
        LiveCoreset(client, sites=["a", "a"], **LIVE)
    with pytest.raises(TypeError, match="needs a dask"):
        LiveCoreset(None, **LIVE)
    with pytest.raises(ValueError, match="size=0"):
        LiveCoreset(client, loss=dm.LogisticLoss(), size=0)


def again(call):
    """Call until it fails, as the loss of a worker may take a moment to be noticed."""
    for _ in range(300):
        call()
        time.sleep(0.05)


def test_a_worker_that_is_lost_takes_its_rows_with_it_and_is_named(client, live):
    first = next(iter(live.actors))
    X, y, _, ids = rows_of("logistic", 1000)
    live.insert(X, y, ids=ids)
    live.coreset()
    os.kill(client.run(os.getpid, workers=[first])[first], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=f"site '{first}' did not answer: .*restart"):
        again(live.coreset)
    live.restart(first)
    mine = ids % 2 == 1
    assert_law(live, as_points(X[mine], y[mine], None, ids[mine]), LIVE, 0.05)
    live.insert(X[~mine], y[~mine], ids=ids[~mine])
    assert_law(live, as_points(X, y, None, ids), LIVE, 0.05)
