"""Entry point of `python -m distributed_input.sidecar`."""

import sys

from distributed_input.sidecar.main import main

sys.exit(main())
