"""The estimators with scikit-learn's tools: a pipeline over a table with text and gaps, and a grid search.

The penalty is chosen by cross-validation; the number of outliers is not, because the more is set aside, the
better what is left scores (docs/choosing.md). Needs pandas.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, RobustScaler

import duramen as dm


def customers(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Make a table and its labels."""
    table = pd.DataFrame({"age": rng.normal(45, 12, n), "visits": rng.poisson(6.0, n).astype(float)})
    table["plan"] = rng.choice(["basic", "plus", "pro"], n)
    leaning = 0.1 * (45 - table["age"]) - 0.3 * (table["visits"] - 6) + (table["plan"] == "basic")
    churned = np.where(leaning + rng.logistic(size=n) > 0, "yes", "no")
    table.loc[7::100, "age"] = np.nan
    return table, churned


def pipeline(classifier: object) -> Pipeline:
    """Put a classifier after the encoding; medians and quartiles are robust to outliers."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), RobustScaler())
    plans = OneHotEncoder(sparse_output=False)
    columns = make_column_transformer((numbers, ["age", "visits"]), (plans, ["plan"]))
    return Pipeline([("columns", columns), ("classifier", classifier)])


def main() -> None:
    """Search, fit, compare on clean rows."""
    rng = np.random.default_rng(0)
    table, churned = customers(12_000, rng)
    test, test_churned = customers(6000, rng)
    table.loc[::50, "age"] = 2026 - table["age"]  # a year of birth where the age should be
    churned[::50] = "yes"

    robust = pipeline(dm.RobustLogisticRegression(random_state=0))
    search = GridSearchCV(robust, {"classifier__C": [0.001, 0.1, 10.0]}, cv=3).fit(table, churned)
    print(f"the penalty chosen by cross-validation: C = {search.best_params_['classifier__C']}")

    plain = pipeline(LogisticRegression(C=search.best_params_["classifier__C"])).fit(table, churned)
    print(f"right on clean rows: scikit-learn {plain.score(test, test_churned):.1%}, ", end="")
    print(f"robust {search.score(test, test_churned):.1%}")
    model = search.best_estimator_["classifier"]
    wrong = np.count_nonzero(table["age"].iloc[model.outliers_] > 150)
    print(f"the last fit found {len(model.outliers_)} outliers, {wrong} of them with a year for an age")


if __name__ == "__main__":
    main()
