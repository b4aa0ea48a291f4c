"""The trainer command of `distributed_input.local`: it stands for the caller of that function.

It runs when all processes are ready. It prints its environment, which has the variables of a
trainer, as one line of JSON. It ends when the caller writes a byte to its standard input, closes
it, or ends. The run then ends too, as with any trainer.

A fork of the caller may hold the other end of standard input open after the caller has ended. So
the proxy also waits for the end of the caller's process. Systems without pidfd_open poll it.

`python -I -S` runs this file by its path. It therefore imports only the standard library.
"""

from __future__ import annotations

import json
import os
import select
import sys

_POLL_SECONDS = 0.2


def main(caller: int) -> int:
    """Report the environment, and wait for the end of process `caller`."""
    watched: list[int] = [0]
    poll_seconds: float | None = _POLL_SECONDS
    if hasattr(os, "pidfd_open"):
        try:
            watched.append(os.pidfd_open(caller))
            poll_seconds = None
        except ProcessLookupError:
            return 0
        except OSError:  # the kernel or the sandbox does not support it
            pass
    print(json.dumps(dict(os.environ)), flush=True)
    while not select.select(watched, [], [], poll_seconds)[0]:
        try:
            os.kill(caller, 0)
        except ProcessLookupError:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
