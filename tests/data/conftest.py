"""The real data, loaded once: as the tests on them need it."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import duramen as dm
from tests.data import Z


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


@pytest.fixture(scope="package")
def contaminated(covertype):
    """Ten thousand training rows with noise of standard deviation 10 and shuffled labels, as in the paper."""
    X, y = covertype
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))[10_000:]  # the rest would be the test set
    X, y = X[order], y[order]
    planted = np.zeros(len(X), dtype=bool)
    planted[rng.choice(len(X), Z, replace=False)] = True
    X[planted] += rng.normal(scale=10, size=(Z, X.shape[1]))
    y[planted] = rng.permutation(y[planted])
    return dm.points(X, y), planted


@pytest.fixture(scope="package")
def trimmed_fit(contaminated):
    """The trimmed fit on everything: its f_z is what loss ratios are over."""
    return dm.solve(contaminated[0], dm.LogisticLoss(), Z, random_state=0)


@pytest.fixture(scope="package")
def informed_fit(contaminated):
    """A fit without the planted rows.

    l2 as LogisticRegression has it by default: some kinds of soil bear one class only, and without a penalty
    their coefficients grow for as long as the fit goes on.
    """
    points, planted = contaminated
    return dm.solve(points.take(~planted), dm.LogisticLoss(), l2=1.0, random_state=0)


@pytest.fixture(scope="package")
def harmful(contaminated, informed_fit):
    """Return which planted rows have a loss above 5 at the informed fit."""
    points, planted = contaminated
    return planted & (dm.LogisticLoss().values(informed_fit.theta, points.X, points.y) > 5)


@pytest.fixture(scope="package")
def covertype_anchor(contaminated):
    return dm.find_anchor(contaminated[0], dm.LogisticLoss(), Z, random_state=0)


@pytest.fixture(scope="package")
def contaminated_survey(survey):
    """Columns standardised; points in the bounding box with noise of standard deviation 20 added."""
    X = dm.points(survey).X
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rng = np.random.default_rng(0)
    box = rng.uniform(X.min(axis=0), X.max(axis=0), size=(Z, X.shape[1]))
    planted = box + rng.normal(scale=20, size=box.shape)
    return dm.points(np.concatenate([X, planted])), np.arange(len(X), len(X) + Z)
