"""Run the tests that depend on the API server with other versions of Kubernetes.

Run `python -m testing.kubernetes_versions [VERSION...]`, with versions such as 1.29 or 1.29.15.
Default: the lowest and the newest. The first build of a version takes about 15 minutes on two
cores. If all tests of the lowest or the newest version pass, the result is stored in results.json.
The exit status is 1 if a test fails.
"""

from __future__ import annotations

import argparse
import sys

from testing.kubernetes_versions import results
from testing.kubernetes_versions.results import VERSIONS, Result
from testing.kubernetes_versions.runs import run


def main() -> int:
    """Print the result of each version. Return 1 if a test failed."""
    flags = argparse.ArgumentParser(prog="python -m testing.kubernetes_versions")
    flags.add_argument("versions", nargs="*", metavar="VERSION", help="such as 1.29 or 1.29.15")
    given = flags.parse_args().versions or list(VERSIONS)
    try:
        releases = [results.release(one) for one in given]
    except ValueError as error:
        flags.error(str(error))
    found: dict[str, Result] = {one: run(one) for one in releases}
    passed = {one: result for one, result in found.items() if not result.failed}
    results.write(passed)
    for one, result in found.items():
        print(f"Kubernetes {one}: {result}")
    return int(passed != found)


if __name__ == "__main__":
    sys.exit(main())
