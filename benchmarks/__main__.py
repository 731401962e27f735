"""Run all benchmarks: ``make bench``."""

import os
import platform

import numpy as np
import scipy
import sklearn

from benchmarks import coresets, distributed, dynamic, losses, solving, store, streaming, trimming

if __name__ == "__main__":
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}, {os.cpu_count()} cores, {platform.machine()}"
    )
    losses.main()
    trimming.main()
    solving.main()
    coresets.main()
    dynamic.main()
    store.main()
    streaming.main()
    distributed.main()
