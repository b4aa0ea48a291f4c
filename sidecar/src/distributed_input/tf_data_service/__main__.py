"""`python -m distributed_input.tf_data_service dispatcher|worker`."""

import sys

from distributed_input.tf_data_service.main import main

sys.exit(main())
