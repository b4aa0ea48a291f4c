"""Runs the tests that depend on the API server, with a control plane of one version."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from testing.kubernetes_versions import results
from testing.kubernetes_versions.build import build

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


def run(release: str, *options: str) -> results.Result:
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
