"""`python -m testing.cluster tools|up|down`: what make runs before tests, whose time is limited.

tools: builds what an API server and helm are, minutes the first time; seconds from then on.
"""

from __future__ import annotations

import argparse
import sys
import time

from testing.cluster import whole
from testing.cluster.binaries import NAMES, binary
from testing.cluster.packages import Missing


def main() -> int:
    """Run one command; its exit status, 2 where this machine lacks something."""
    parser = argparse.ArgumentParser(prog="python -m testing.cluster", description=__doc__)
    parser.add_argument("command", choices=("tools", "up", "down"))
    began = time.monotonic()
    try:
        command = parser.parse_args().command
        if command == "tools":
            for name in NAMES:
                binary(name)
            return 0
        if command == "down":
            whole.down()
            return 0
        cluster = whole.up()
    except Missing as missing:
        print(f"cluster: {missing}", file=sys.stderr)
        return 2
    for image in cluster.images.values():
        print(f"image {image}")
    print(f"up after {time.monotonic() - began:.1f} s: export KUBECONFIG={cluster.kubeconfig}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
