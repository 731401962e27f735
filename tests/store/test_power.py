"""A disk that fails at each of SQLite's calls: a kill before it or in its middle, and power cuts.

Every call that writes, cuts, syncs or removes one of the store's files is a moment. For each of them the
script is run from the start, up to it. One kind of store goes through all of them, another through some;
with DURAMEN_ALL_MOMENTS set, through all.
"""

import os
import shutil
import signal

import pytest

from tests.store.life import assert_alike, opened, order, scripts_of

HOW = {"before": 1, "half": 2, "all lost": 3, "some lost": 4}
STRIDE = {"before": 1, "half": 6, "all lost": 5, "some lost": 4}


@pytest.fixture(scope="module", params=["ranked, names", pytest.param("tree", marks=pytest.mark.slow)])
def scripts(request, tmp_path_factory):
    return scripts_of(request.param, tmp_path_factory.mktemp("scripts"))


def moments(calls, how, kind, sample):
    """The calls at which to fail."""
    each = [n for n, call in enumerate(calls, 1) if how != "half" or call == "w"]
    if os.environ.get("DURAMEN_ALL_MOMENTS"):
        return each
    if sample:
        return each[::40]
    return each[:: STRIDE[how] * (1 if kind != "tree" else 8)]


@pytest.mark.parametrize(
    "how, which, sample",
    [
        ("some lost", "later", True),
        *(
            pytest.param(how, which, False, marks=pytest.mark.slow)
            for how in HOW
            for which in ("begun", "later")
        ),
    ],
)
def test_nothing_acknowledged_is_lost_at_any_call(
    how, which, sample, scripts, weak, tmp_path, record_property
):
    script = scripts[1][which]
    whole = weak.run(**order(scripts, which, tmp_path / "whole"))
    assert whole.code == 0, weak.errors()
    calls = whole.said["calls"]
    assert calls.count("s") >= len(script.operations)  # each commit waits for the disk
    chosen = moments(calls, how, script.kind, sample)
    for n in chosen:
        task = order(scripts, which, tmp_path / str(n), n=n, mode=HOW[how], seed=n)
        ended = weak.run(**task)
        assert ended.code == -signal.SIGKILL, weak.errors()
        with opened(task["path"], script, which) as store:
            assert store.check()
            found, done = script.found(store), max(ended.acknowledged, 0)
            assert found, f"at call {n}: half of an operation"
            assert {done, done + 1} & set(found), f"at call {n}: {done} were acknowledged, {found} are there"
            if n % 4 == 0 and len(store):
                assert_alike(store, script.cores[found[-1]])
        shutil.rmtree(tmp_path / str(n))
    record_property(
        "figures", f"store: {script.kind}, {which}, {how}: failed at {len(chosen)} of {len(calls)} calls"
    )


@pytest.mark.slow
def test_without_waiting_a_power_cut_takes_the_latest_and_leaves_a_sound_store(weak, tmp_path):
    """With synchronous="normal"; that acknowledged operations are lost also shows that the cuts are real."""
    scripts = scripts_of("ranked", tmp_path)
    script, lost = scripts[1]["later"], 0
    more = {"synchronous": "normal"}
    whole = weak.run(**order(scripts, "later", tmp_path / "whole", **more))
    for n in range(1, len(whole.said["calls"]) + 1, 3):
        how = HOW["all lost" if n % 2 else "some lost"]
        task = order(scripts, "later", tmp_path / str(n), n=n, mode=how, seed=n, **more)
        ended = weak.run(**task)
        assert ended.code == -signal.SIGKILL, weak.errors()
        with opened(task["path"], script, "later") as store:
            assert store.check()
            found = script.found(store)
            assert found, f"at call {n}: not the state after some operations"
            lost += found[-1] < max(ended.acknowledged, 0)
            if len(store):
                assert_alike(store, script.cores[found[-1]])
    assert lost > 5
