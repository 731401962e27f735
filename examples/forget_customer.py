"""Forget a customer in a store, and prove it: nothing of the row is left, in the state or in the file.

The proof has two halves. The state is compared with that of a second store that never saw the customer; and
the bytes of the name and of the row are looked for in every file of the folder, before and after.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import duramen as dm

SETTINGS = {"loss": dm.LogisticLoss(), "size": 500, "n_outliers": 0.02, "random_state": 0}


def filled(path: Path, X: np.ndarray, y: np.ndarray, names: list[str]) -> dm.Store:
    """Make a store of customers, known by their names."""
    store = dm.open_store(path, create=True, **SETTINGS)
    store.insert(X, y, ids=names)
    return store


def traces(folder: Path, pieces: dict[str, bytes]) -> dict[str, int]:
    """Count in how many files of a folder each piece occurs."""
    contents = [file.read_bytes() for file in folder.iterdir()]
    return {name: sum(piece in content for content in contents) for name, piece in pieces.items()}


def main(folder: Path) -> None:
    """Insert, delete, compare, search."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 4))
    y = np.where(X[:, 0] + rng.logistic(size=5000) > 0, 1, -1)
    names = [f"customer-{number:04d}" for number in range(5000)]
    with filled(folder / "customers.duramen", X, y, names) as store:
        gone = store.names_of(store.coreset().ids)[0]  # a customer in the coreset
    place = names.index(gone)
    pieces = {"the name": gone.encode(), "the row": X[place].tobytes()}
    print("files with a trace, before:", traces(folder, pieces))

    with dm.open_store(folder / "customers.duramen") as store:
        store.delete(gone)
        store.reanchor()  # the anchor may have been made from the row, too
        store.compact()  # takes the name out of the file; the row is out already
        print(f"{gone} is here: {gone in store}; {len(store):,} others are")
        forgot = store.coreset()
    print("files with a trace, after: ", traces(folder, pieces))

    others = np.delete(np.arange(5000), place)
    with filled(folder / "never.duramen", X[others], y[others], [names[row] for row in others]) as never:
        never.reanchor()
        unknown = never.coreset()
    same = np.array_equal(forgot.ids, unknown.ids) and np.allclose(forgot.weights, unknown.weights, rtol=1e-9)
    print("the coreset is that of a store which never saw the row:", same)
    print("the anchor is, too:", np.allclose(forgot.anchor.theta, unknown.anchor.theta, rtol=1e-9))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder to keep the files in; it should be empty")
    with tempfile.TemporaryDirectory() as temporary:
        chosen = parser.parse_args().out or Path(temporary)
        chosen.mkdir(parents=True, exist_ok=True)
        main(chosen)
