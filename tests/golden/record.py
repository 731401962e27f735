"""Rewrite the golden file: ``python -m tests.golden.record`` from the root of the repository.

Run it only when the behaviour of the package is meant to change: when other rows are to be chosen, or weights
are to be computed differently. A change that only moves, merges or renames code must leave the file as it is.
Say in the commit message why the file changed, and check the diff: every case that differs must be one that
the change was meant to affect.

``python -m tests.golden.record --missing`` adds the cases that the file lacks, and drops those that are no
longer in the table, without touching the others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duramen as dm
from tests.golden.cases import CASES, Case

PATH = Path(__file__).with_name("goldens.json")
EXACT = ("ids", "groups", "suspected", "n_suspected", "n_points", "calibrated")
CLOSE = ("weights", "inclusion", "threshold", "n_outliers", "estimate", "anchor")


def described(case: Case, core: dm.Coreset) -> dict[str, Any]:
    """List all that a golden records of a coreset, in the types of JSON."""
    return {
        "ids": core.ids.tolist(),
        "groups": core.groups.tolist(),
        "suspected": core.suspected.astype(int).tolist(),
        "n_suspected": int(core.n_suspected),
        "n_points": int(core.n_points),
        "calibrated": bool(core.calibrated),
        "weights": core.weights.tolist(),
        "inclusion": core.inclusion.tolist(),
        "threshold": float(core.threshold),
        "n_outliers": float(core.n_outliers),
        "estimate": [float(part) for part in core.estimate(case.probe)],
        "anchor": [] if core.anchor is None else [*core.anchor.theta.ravel().tolist(), core.anchor.radius],
    }


def read() -> dict[str, dict[str, Any]]:
    """Read the golden file; infinity and NaN are as Python writes them."""
    return json.loads(PATH.read_text())


def write(goldens: dict[str, dict[str, Any]]) -> None:
    """Write the golden file, one line per field, so that a diff shows what changed."""
    cases = []
    for name, golden in goldens.items():
        fields = [
            f"  {json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in golden.items()
        ]
        cases.append(f" {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n }")
    PATH.write_text("{\n" + ",\n".join(cases) + "\n}\n")


def main(arguments: list[str]) -> None:
    """Rebuild every case, or only those that are missing."""
    known = read() if "--missing" in arguments else {}
    write({case.name: known.get(case.name) or described(case, case.build()) for case in CASES})


if __name__ == "__main__":
    main(sys.argv[1:])
