"""No space left, or no right to write: a clear error, nothing changed, and all is well once there is some."""

import pytest

from tests.store.life import assert_same_coreset, held
from tests.store.script import opened, order, scripts_of


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return scripts_of("ranked, names", tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize("which", ["begun", "later"])
def test_a_disk_that_is_full_at_any_call_loses_nothing(which, scripts, weak, memory):
    """From the n-th call on no write succeeds, until an operation has failed; it is then done again."""
    script, failed = scripts[1][which], set()
    calls = weak.run(**order(scripts, which, memory / "whole")).said["calls"]
    wrong = []
    for n in [n for n, call in enumerate(calls, 1) if call == "w"][::2]:
        told = order(scripts, which, memory / str(n), n=n, do="full")
        ended = weak.run(**told)
        if ended.code:
            wrong.append((n, weak.errors()[-600:]))
            continue
        failed.add(ended.said["failed"])
        with opened(told["path"], script, which) as store:
            store.check()
            assert held(store) == script.lives[-1].held()
            assert_same_coreset(store, script.cores[-1])
    assert not wrong, f"{len(wrong)} wrong: {wrong[0]} {wrong[-1]}"
    assert failed >= ({"open", "insert"} if which == "begun" else {"insert", "delete", "update", "reanchor"})
