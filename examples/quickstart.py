"""Fit 200,000 rows of which 2% are planted: by scikit-learn, and by a robust coreset of some 1,000 rows.

Run it: ``python examples/quickstart.py``.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LogisticRegression

import duramen as dm


def contaminated(n: int, n_planted: int) -> tuple[np.ndarray, np.ndarray]:
    """Make rows whose label follows the first two columns; the first rows say the opposite, from far out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    y = X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0
    X[:n_planted, :2], y[:n_planted] = [20.0, -20.0], False
    return X, y


def main() -> None:
    """Fit twice, and print the results."""
    n_planted = 4000
    X, y = contaminated(200_000, n_planted)

    start = time.perf_counter()
    plain = LogisticRegression().fit(X, y)
    plain_seconds = time.perf_counter() - start

    start = time.perf_counter()
    model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    seconds = time.perf_counter() - start

    print("the true coefficients of the first three columns:  1.0  -1.0   0.0")
    print(f"scikit-learn, all rows:  {np.round(plain.coef_[0, :3], 2)} in {plain_seconds:.2f} s")
    print(
        f"robust, {model.coreset_size_:,} rows:     {np.round(model.coef_[0, :3], 2)} in {seconds:.2f} s, "
        "with a last look at all rows"
    )
    found = np.isin(np.arange(n_planted), model.outliers_).sum()
    print(f"planted rows among the {len(model.outliers_):,} outliers: {found:,} of {n_planted:,}")
    print(f"the loss, by the coreset:             {model.objective_}")
    print(f"the same, on all rows:               {model.trimmed_loss_:,.0f}")


if __name__ == "__main__":
    main()
