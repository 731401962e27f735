"""What tests of the store share: processes that fork those that are to be killed, also on a disk that fails."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.store.life import make
from tests.store.nursery import Nursery
from tests.store.support import ROOT, X


@pytest.fixture
def tmp_path():
    """Make a folder in memory where there is one: these tests sync thousands of times."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def path(tmp_path):
    """Make a store of 80 rows in a tree."""
    with make(tmp_path / "a.duramen", "tree") as store:
        store.insert(X[:80])
    return tmp_path / "a.duramen"


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def disk(tmp_path_factory):
    """The library that stands between SQLite and the disk."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    made = tmp_path_factory.mktemp("disk") / "power.so"
    source = ROOT / "tests" / "store" / "power.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def weak(disk, tmp_path_factory):
    """A nursery whose children write to such a disk."""
    folder = tmp_path_factory.mktemp("weak")
    nursery = Nursery(folder, LD_PRELOAD=str(disk))
    tried = nursery.run(do="tried", path=str(folder / "tried.db"), seed=0)
    if "s" not in tried.said.get("calls", ""):
        nursery.close()
        pytest.skip("SQLite does not call the C library where something can stand between them")
    yield nursery
    nursery.close()
