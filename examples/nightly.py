"""A table that is exported every night: update a store to match it, by ids, and refit.

Each night some customers are new, some changed and some gone; new ones behave differently from the fourth
night on. ``sync`` applies the differences in one transaction, all or none; ``refit`` finds a new anchor if
the store's report advises it. ``--out FOLDER`` keeps the store.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import duramen as dm


def export(night: int, rng: np.random.Generator, before: pd.DataFrame | None) -> pd.DataFrame:
    """Make tonight's table out of last night's: a twentieth leaves, a fifth comes, 2% are corrected."""
    n = 4000 if before is None else len(before) // 5
    new = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "visits", "spend"])
    leaning = (1.0 if night < 4 else -1.0) * new["age"] + new["visits"]
    new["churned"] = np.where(leaning + rng.logistic(size=n) > 0, 1, -1)
    new.loc[::50, "visits"], new.loc[::50, "churned"] = 30.0, -1  # 2% are damaged, every night
    new.index = [f"{night}-{number:04d}" for number in range(n)]
    if before is None:
        return new
    kept = before.sample(frac=0.95, random_state=night).sort_index()
    kept.iloc[::50, 2] += 1.0
    return pd.concat([kept, new])


def sync(store: dm.Store, table: pd.DataFrame) -> str:
    """Make a store hold exactly the rows of a table, whose index names them."""
    X, y = table.drop(columns="churned"), table["churned"]
    if not len(store):
        return f"{len(store.insert(X, y, ids=list(X.index)))} new"
    here = pd.Index(store.names_of(store.ids))
    new, gone, both = X.index.difference(here), here.difference(X.index), X.index.intersection(here)
    kept = store.points(list(both))
    changed = both[(X.loc[both] != kept.X).any(axis=1) | (y[both] != kept.y)]
    with store.transaction():
        store.delete(list(gone))
        store.update(list(changed), X.loc[changed], y[changed])
        store.insert(X.loc[new], y[new], ids=list(new))
    return f"{len(new)} new, {len(changed)} changed, {len(gone)} gone"


def refit(store: dm.Store) -> tuple[np.ndarray, str]:
    """Fit; if the report advises it, find a new anchor and fit again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "far from the anchor": the report says so, too
        theta = store.fit().theta
    if not store.anchor_report().advised:
        return theta, ""
    store.reanchor()
    return store.fit().theta, "; a new anchor"


def main(folder: Path) -> None:
    """Run seven nights."""
    rng, table = np.random.default_rng(0), None
    settings = {"loss": dm.LogisticLoss(), "size": 500, "n_outliers": 0.02, "random_state": 0}
    for night in range(1, 8):
        table = export(night, rng, table)
        with dm.open_store(folder / "customers.duramen", create=True, **settings) as store:
            counts = sync(store, table)
            (age, visits, *_), anchored = refit(store)
        print(f"night {night}: {counts}; {len(table):,} rows; age {age:+.2f}, visits {visits:+.2f}{anchored}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder to keep the store in")
    with tempfile.TemporaryDirectory() as temporary:
        chosen = parser.parse_args().out or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        main(chosen)
