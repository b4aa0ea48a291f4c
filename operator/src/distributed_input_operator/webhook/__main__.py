"""Run the webhook: `python -m distributed_input_operator.webhook`."""

import sys

from distributed_input_operator.webhook.main import main

sys.exit(main())
