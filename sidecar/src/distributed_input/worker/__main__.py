"""Entry point of `python -m distributed_input.worker`."""

import os
import sys

if "PYTHONHASHSEED" not in os.environ:
    # Each worker runs other splits of a dataset. If dataset_fn iterates over a set of strings, the
    # order must be the same in all workers, or splits lose and repeat rows.
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from distributed_input.worker.main import main

sys.exit(main())
