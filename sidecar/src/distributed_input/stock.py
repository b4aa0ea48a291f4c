"""The name of `tf_data_service` in release 0.1.0: `python -m distributed_input.stock`.

Operators start tf.data service in pods by this name, because images of all releases have it.
"""

import sys

from distributed_input.tf_data_service.main import main

if __name__ == "__main__":
    sys.exit(main())
