"""The real data, loaded once: as the tests on them need it."""

import numpy as np
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="package")
def covertype(data_folder):
    """Columns standardised; labels +1 for the paper's positive class, 2."""
    table = pq.read_table(data_folder / "covertype.parquet")
    columns = np.stack([column.to_numpy() for column in table.columns], axis=1)
    X = columns[:, :-1].astype(np.float64)
    X -= X.mean(axis=0)
    X /= np.maximum(X.std(axis=0), 1e-12)
    X.flags.writeable = False
    return X, np.where(columns[:, -1] == 2, 1, -1)


@pytest.fixture(scope="package")
def survey(data_folder):
    """The four numeric columns, as a table."""
    columns = ["longitude", "latitude", "altitude_m", "total_field_anomaly_nt"]
    return pq.read_table(data_folder / "britain_magnetic_3d.parquet", columns=columns)
