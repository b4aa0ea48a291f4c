"""`python -m testing.hosts shell [N]`: a shell on the first of N hosts, until it ends.

`$HOST2` is a prefix for commands on the second host, and `$ADDRESS2` its address.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess

from testing.hosts import network


def main() -> int:
    """Run the shell. Return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m testing.hosts", description=__doc__)
    parser.add_argument("command", choices=("shell",))
    parser.add_argument("hosts", type=int, nargs="?", default=2, metavar="N")
    count = parser.parse_args().hosts
    with network(*[[]] * count) as hosts:
        environment = dict(os.environ)
        for number, host in enumerate(hosts, 1):
            environment[f"HOST{number}"] = shlex.join(host.command([]))
            environment[f"ADDRESS{number}"] = host.address
        shell = environment.get("SHELL", "/bin/sh")
        return subprocess.run(hosts[0].command([shell]), env=environment).returncode


if __name__ == "__main__":
    raise SystemExit(main())
