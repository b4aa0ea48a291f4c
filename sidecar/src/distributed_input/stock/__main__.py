"""`python -m distributed_input.stock dispatcher|worker`."""

import sys

from distributed_input.stock.main import main

sys.exit(main())
