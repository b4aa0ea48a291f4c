"""`python -m testing.cluster tools|storage|signing|issuer|ecosystem|up|down`: a test cluster.

tools: builds the binaries. The first build takes minutes; later calls take seconds.
storage: builds only the servers of object storage. signing: builds cosign, which tools does not.
issuer: builds cert-manager's controllers, which tools does not. ecosystem: those of Kueue, JobSet,
KEDA and trainers, which tools does not.
up: starts the cluster. down: deletes it. make runs these before tests, which have a time limit.
"""

from __future__ import annotations

import argparse
import sys
import time

from testing.cluster import lifecycle
from testing.cluster.binaries import (
    ECOSYSTEM_NAMES,
    ISSUER_NAMES,
    SIGNING_NAMES,
    STORAGE_NAMES,
    TOOL_NAMES,
    binary,
)
from testing.cluster.packages import MissingRequirement

_BUILDS = {
    "tools": TOOL_NAMES,
    "storage": STORAGE_NAMES,
    "signing": SIGNING_NAMES,
    "ecosystem": ECOSYSTEM_NAMES,
    "issuer": ISSUER_NAMES,
}


def main() -> int:
    """Run one command. Return its exit status: 2 if this machine lacks a requirement."""
    parser = argparse.ArgumentParser(prog="python -m testing.cluster", description=__doc__)
    parser.add_argument("command", choices=(*_BUILDS, "up", "down"))
    started = time.monotonic()
    try:
        command = parser.parse_args().command
        if command in _BUILDS:
            for name in _BUILDS[command]:
                binary(name)
            return 0
        if command == "down":
            lifecycle.down()
            return 0
        cluster = lifecycle.up()
    except MissingRequirement as missing:
        print(f"cluster: {missing}", file=sys.stderr)
        return 2
    for image in cluster.images.values():
        print(f"image {image}")
    print(f"up after {time.monotonic() - started:.1f} s: export KUBECONFIG={cluster.kubeconfig}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
