"""An operator that works on inputs in the order of their events, as if all were of one tenant."""

from __future__ import annotations

import sys

from distributed_input_operator.__main__ import main
from distributed_input_operator.controller import control_loop, looks
from distributed_input_operator.kube import api

if __name__ == "__main__":
    # All have the same numbers of workers and requests as one namespace has otherwise.
    vars(control_loop)["namespace_of"] = lambda _: ""
    vars(looks)["namespace_of"] = lambda _: ""
    vars(api)["_namespace"] = lambda _: ""
    sys.exit(main())
