"""Entry point of `python -m distributed_input.worker`."""

import sys

from distributed_input.worker.main import main

sys.exit(main())
