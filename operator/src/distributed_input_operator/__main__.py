import sys

from distributed_input_operator.main import main

sys.exit(main())
