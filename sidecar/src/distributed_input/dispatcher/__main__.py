import sys

from distributed_input.dispatcher.main import main

sys.exit(main())
