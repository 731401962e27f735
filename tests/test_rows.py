"""Row norms, dense and sparse."""

import numpy as np
import pytest
from scipy import sparse

from duramen.arrays import row_norms


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1.0, 1e160, 1e200])
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_norms_do_not_overflow_or_vanish(form, scale):
    unit = np.random.default_rng(0).normal(size=(50, 4))
    unit[3] = 0
    unit[:, 1] = 0
    np.testing.assert_allclose(
        row_norms(form(unit * scale)), np.linalg.norm(unit, axis=1) * scale, rtol=1e-12
    )


def test_norms_of_rows_of_every_size_together():
    X = np.array([[3e-200, 4e-200], [3.0, 4.0], [3e200, 4e200], [0.0, 0.0]])
    for rows in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(row_norms(rows), [5e-200, 5.0, 5e200, 0.0], rtol=1e-14)
