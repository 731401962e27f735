"""How tests run the command line: as a separate process, or inside this one; and the data they run it on."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from duramen.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
COMMAND = [sys.executable, "-m", "duramen"]


class Done(NamedTuple):
    """How a run ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(name):
    raise AssertionError(f"{name} is not JSON")


def process(*arguments, cwd, stdin=None):
    """Run through the real entry point."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, input=stdin, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def inside(capsys, *arguments):
    """Run in this process, which is a second quicker."""
    capsys.readouterr()
    try:
        code = main([str(one) for one in arguments])
    except SystemExit as exit:  # argparse's own
        code = exit.code
    return Done(code, *capsys.readouterr())


def table(n=3000, seed=0):
    """Rows with numbers, categories, text ids and labels; the first 2% are far out and mislabelled."""
    rng = np.random.default_rng(seed)
    age, income, colour = rng.normal(size=n), rng.normal(size=n), rng.choice(["blue", "green", "red"], n)
    ill = 2 * age - income + (colour == "red") + rng.logistic(size=n) > 0
    planted = np.arange(n) < n // 50
    age[planted], ill[planted] = 30.0, False
    columns = {"name": [f"r{number}" for number in range(n)], "age": age, "income": income}
    return pa.table({**columns, "colour": colour, "ill": np.where(ill, "yes", "no")})


def numbers(n=3000, seed=0):
    """Rows of numbers only: ids, two features, a class of two, one of three, counts, weights."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    return pa.table(
        {
            "key": np.arange(n) + 100,
            "a": a,
            "b": b,
            "two": (a - b + rng.logistic(size=n) > 0).astype(int),
            "three": np.digitize(a + rng.normal(size=n), [-0.5, 0.5]) + 1,
            "count": rng.poisson(np.exp(0.3 * a)),
            "value": a - 2 * b + rng.normal(size=n),
            "heavy": rng.uniform(0.5, 2, size=n),
        }
    )


def flip_bits(path, places, read):
    """Read a file with one flipped bit after the other: return what was read, and the errors."""
    raw, found, errors = path.read_bytes(), [], []
    for place in places:
        flipped = bytearray(raw)
        flipped[place] ^= 1 << (place % 7)
        path.write_bytes(flipped)
        try:
            found.append(read(path))
        except ValueError as error:
            errors.append(str(error))
    assert all(str(path) in message for message in errors)
    return found, errors


def schema():
    """Read from the docs which fields each command's JSON has, and of which types."""
    block = re.search(r"<!-- schema: begin -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    found = {}
    for line in block.splitlines():
        if not line.startswith(" "):
            command = re.split(r" {2,}", line)[0]
            line = line[len(command) :]
        found.setdefault(command, {}).update(field.split(":") for field in line.split())
    return found


_TYPES = {"text": str, "whole": int, "number": (int, float), "flag": bool, "list": list}


def conforms(output):
    """Check a command's JSON against the docs, field for field."""
    fields = {"command": "text", "warnings": "list", **schema()[output["command"]]}
    assert set(output) == set(fields)
    for name, kind in fields.items():
        if output[name] is None:
            assert kind.endswith("?"), name
            continue
        assert isinstance(output[name], _TYPES[kind.rstrip("?")]), (name, output[name])
        assert kind.startswith("flag") or not isinstance(output[name], bool), name
