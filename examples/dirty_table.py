"""A CSV file with text, gaps and wrong rows: read it, fit it, look at what was set aside, predict new rows.

In 2% of the rows the age column holds a year of birth, and the label is wrong. ``--out FOLDER`` keeps the
files; otherwise they go to a temporary folder. Needs pandas.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import duramen as dm


def write_customers(path: Path, n: int = 10_000) -> None:
    """Write a file like an export from another system."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"customer": [f"C-{number}" for number in range(n)]})
    table["age"] = rng.normal(45, 12, n).round()
    table["visits"] = rng.poisson(6.0, n)
    table["plan"] = rng.choice(["basic", "plus", "pro"], n)
    leaning = 0.1 * (45 - table["age"]) - 0.3 * (table["visits"] - 6) + (table["plan"] == "basic")
    table["churned"] = np.where(leaning + rng.logistic(size=n) > 0, "yes", "no")
    table.loc[::50, "age"] = 2026 - table["age"]
    table.loc[::50, "churned"] = "yes"
    table.loc[7::100, "age"], table.loc[9::200, "plan"] = np.nan, None
    table.to_csv(path, index=False)


def features(table: pd.DataFrame, medians: pd.Series) -> pd.DataFrame:
    """Turn columns into numbers: medians for missing values, a column for each plan."""
    numbers = table[["age", "visits"]].fillna(medians)
    plans = pd.Categorical(table["plan"], categories=["basic", "plus", "pro"])
    return numbers.join(pd.get_dummies(plans, prefix="plan", dtype=float).set_index(table.index))


def main(folder: Path) -> None:
    """Read, fit, look, predict."""
    write_customers(folder / "customers.csv")
    table = pd.read_csv(folder / "customers.csv", index_col="customer")
    medians = table[["age", "visits"]].median()
    model = dm.RobustLogisticRegression(random_state=0)
    model.fit(features(table, medians), table["churned"])

    print(f"{len(table):,} rows, {len(model.outliers_)} outliers; the first of them:")
    print(table.iloc[model.outliers_[:3]].to_string(), end="\n\n")
    ages = table["age"].iloc[model.outliers_]
    print(f"ages among the first 200 of them: {ages[:200].min():.0f} to {ages[:200].max():.0f}")
    print(f"a year of age changes the log-odds by {model.coef_[0, 0]:.3f} (the truth: -0.100)")

    new = pd.DataFrame({"age": [24, 66], "visits": [2, 9], "plan": ["basic", None]}, index=["C-x", "C-y"])
    leaving = model.predict_proba(features(new, medians))[:, 1]
    print("new customers, chance of leaving:", dict(zip(new.index, leaving.round(2).tolist(), strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder to keep the files in")
    with tempfile.TemporaryDirectory() as temporary:
        chosen = parser.parse_args().out or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        main(chosen)
