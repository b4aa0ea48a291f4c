"""`python -m tests.cluster up|down`: what `make cluster-up` and `make cluster-down` run."""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster import whole
from tests.cluster.packages import Missing


def main() -> int:
    """Run one command; its exit status, 2 where this machine lacks something."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    began = time.monotonic()
    try:
        if parser.parse_args().command == "down":
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
