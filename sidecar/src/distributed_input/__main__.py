"""Entry point of `python -m distributed_input`: the command line."""

import sys

from distributed_input.cli import main

sys.exit(main())
