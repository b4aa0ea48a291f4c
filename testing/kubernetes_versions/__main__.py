"""Run the tests that depend on the API server with other versions of Kubernetes.

Run `python -m testing.kubernetes_versions [VERSION...]`, with versions such as 1.29 or 1.29.15.
Default: the lowest and the newest. The first build of a version takes about 15 minutes on two
cores. If all tests of the lowest or the newest version pass, the result is stored in results.json.
The exit status is 1 if a test fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from testing.kubernetes_versions import results
from testing.kubernetes_versions.build import build
from testing.kubernetes_versions.results import VERSIONS, Result

ROOT = Path(__file__).parents[2]
TESTS = (
    # The most basic ones first: without the definitions, all others fail.
    "tests/operator/schema/test_crd.py",
    # The other tests of the chart only render it.
    *(f"tests/charts/test_{name}.py" for name in ("chart_on_api_server", "trust_policy")),
    "tests/charts/test_user_policy.py",
    *(f"tests/operator/test_{name}.py" for name in ("reconcile", "injection")),
    "tests/operator/schema",
    "tests/operator/tenants/test_least_privilege.py",
    "tests/operator/status",
)


def run(release: str, *options: str) -> Result:
    """Run the tests on a release, and return their result. pytest prints what fails."""
    binaries = build(release)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", *TESTS, f"--junitxml={report}", *options],
            cwd=ROOT,
            # etcd, helm and kubectl are those of the other tests.
            env={**os.environ, "KUBEBUILDER_ASSETS": str(binaries)},
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"The tests with Kubernetes {release} did not start")
        return results.parse(report.read_text())


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
