"""A poisoned training set: find the planted rows, inspect them, drop them, fit again, compare.

5% of the rows were planted: each of their values also occurs in honest rows, but together they point to the
label "spam", and their label says "ham".
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

import duramen as dm

TRUTH = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0])


def honest(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make rows and labels as they should be."""
    X = rng.normal(size=(n, len(TRUTH)))
    return X, np.where(X @ TRUTH + rng.logistic(size=n) > 0, "spam", "ham")


def main() -> None:
    """Find, look, drop, fit again."""
    rng = np.random.default_rng(0)
    X, y = honest(40_000, rng)
    X_test, y_test = honest(20_000, rng)
    planted = rng.choice(len(X), size=2000, replace=False)
    X[planted] = 2.5 * TRUTH + 0.3 * rng.normal(size=(2000, len(TRUTH)))
    y[planted] = "ham"

    plain = LogisticRegression().fit(X, y)
    print(f"scikit-learn on everything: {plain.score(X_test, y_test):.1%} of clean test rows right")

    # the number of planted rows is unknown, so more are set aside; rows among the others need several starts
    model = dm.RobustLogisticRegression(n_outliers=0.08, n_init=4, random_state=0).fit(X, y)
    print(f"robust, 8% set aside:       {model.score(X_test, y_test):.1%}")

    # how many are wrong? Sorted losses fall steeply where the planted rows end
    losses = np.sort(model.losses(X, y))[::-1]
    few, many = len(X) // 100, len(model.outliers_)
    knee = few + int(np.argmax(losses[few:many] / losses[few + 1 : many + 1]))
    print(f"the losses fall from {losses[knee]:.1f} to {losses[knee + 1]:.1f} after row {knee + 1:,}")

    suspects = model.outliers_[: knee + 1]
    print(f"of the {len(suspects):,} rows above the knee {np.isin(suspects, planted).sum():,} are planted")
    shift = (X[suspects].mean(axis=0) - X.mean(axis=0)) / X.std(axis=0)
    print("their columns, in spreads from the mean:", shift.round(1).tolist())
    print("their labels:", *np.unique(y[suspects]))

    kept = np.setdiff1d(np.arange(len(X)), suspects)
    again = LogisticRegression().fit(X[kept], y[kept])
    print(f"scikit-learn without them:  {again.score(X_test, y_test):.1%}")
    never = np.setdiff1d(np.arange(len(X)), planted)
    best = LogisticRegression().fit(X[never], y[never])
    print(f"had it never been poisoned: {best.score(X_test, y_test):.1%}")


if __name__ == "__main__":
    main()
