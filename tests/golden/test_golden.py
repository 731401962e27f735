"""Coresets are what they were: ids and groups exactly, weights and estimates to nine digits."""

import numpy as np
import pytest

from tests.golden.cases import CASES
from tests.golden.record import CLOSE, EXACT, described, read

GOLDENS = read()


def test_every_case_has_a_golden():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) == set(GOLDENS)


def skip_without_dask(route):
    if route.startswith("dask"):
        pytest.importorskip("dask.array", reason="needs duramen[dask]")
        pytest.importorskip("dask.dataframe", reason="needs duramen[dask]")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case):
    skip_without_dask(case.route)
    found, golden = described(case, case.build()), GOLDENS[case.name]
    assert set(found) == set(golden) == {*EXACT, *CLOSE}
    for name in EXACT:
        assert found[name] == golden[name], name
    for name in CLOSE:
        np.testing.assert_allclose(found[name], golden[name], rtol=1e-9, atol=1e-12, err_msg=name)
