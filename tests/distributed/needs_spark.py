"""What the Spark example needs, and a way to skip where it is not there."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

JAVA = 17  # what Spark 4 asks for
LIGHT_JAVA = ("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # half the CPU time to warm up

spark_warnings = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed <socket.socket:ResourceWarning",  # by collect() of pyspark 4.0
)


def skip_without_spark():
    """Skip the test at hand, saying what is missing."""
    if find_spec("pyspark") is None:
        pytest.skip("needs pyspark; pip install 'duramen[spark]'")
    found = java_version()
    if found is None or found < JAVA:
        pytest.skip(f"needs Java {JAVA} or newer; found {found or 'none'}")


def java_version():
    """Return the version of Java that Spark would find: 8, 11, 17, ...; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None
