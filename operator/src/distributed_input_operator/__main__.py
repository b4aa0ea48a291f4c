"""Run the operator: `python -m distributed_input_operator`."""

import sys

from distributed_input_operator.main import main

sys.exit(main())
