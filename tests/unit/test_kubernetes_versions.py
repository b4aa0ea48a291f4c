"""The versions of Kubernetes that `make kubernetes-versions` tests, and their results."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testing.cluster import binaries
from testing.kubernetes_versions import build, results
from testing.kubernetes_versions.__main__ import TESTS
from testing.kubernetes_versions.results import VERSIONS, Result
from testing.site.reference import versions
from testing.site.stage import ROOT

GO_MOD = """\
module k8s.io/kubernetes

go 1.21

require (
\tgithub.com/spf13/cobra v1.7.0
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.110.1
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""
REPORT = """\
<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="4.6">
<testcase/></testsuite></testsuites>"""


def minor(version: str) -> tuple[int, int]:
    parts = version.removeprefix("v").split(".")
    return int(parts[0]), int(parts[1])


def test_the_lowest_version_is_that_of_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "charts/distributed-input/Chart.yaml").read_text())
    lowest = chart["kubeVersion"].removeprefix(">=").removesuffix("-0")
    assert min(map(minor, VERSIONS)) == minor(lowest)
    assert minor(binaries.version("kubernetes")) < max(map(minor, VERSIONS))
    for version, release in VERSIONS.items():
        assert release.startswith(f"{version}.")


def test_the_generated_module_replaces_the_libraries_by_their_releases() -> None:
    lines = build.generate("1.29.15", GO_MOD).splitlines()
    assert "module distributed-input.dev/control-plane" in lines
    assert "\tk8s.io/api => k8s.io/api v0.29.15" in lines
    assert "\tk8s.io/client-go => k8s.io/client-go v0.29.15" in lines
    assert "\tgithub.com/spf13/cobra v1.7.0" in lines
    assert "require k8s.io/kubernetes v1.29.15" in lines
    assert not [line for line in lines if "staging" in line]
    with pytest.raises(ValueError, match=r"Kubernetes 1\.29\.15 replaces no library"):
        build.generate("1.29.15", "module k8s.io/kubernetes\n")


def test_a_release_is_found_by_its_minor_version() -> None:
    assert results.release("1.29") == VERSIONS["1.29"]
    assert results.release("1.33.5") == "1.33.5"
    with pytest.raises(ValueError, match=r"1\.33: use a release such as 1\.33\.0, or one of 1\.29"):
        results.release("1.33")


def test_a_report_of_pytest_is_counted() -> None:
    assert results.parse(REPORT) == Result(passed=4, failed=3, skipped=3, seconds=5)


def test_only_results_of_the_default_versions_are_stored(tmp_path: Path) -> None:
    file, (lowest, newest) = tmp_path / "results.json", VERSIONS.values()
    results.write({newest: Result(3, 0, 0, 7)}, file)
    results.write({lowest: Result(1, 0, 2, 5), "1.33.5": Result(1, 0, 0, 1)}, file)
    stored = {lowest: Result(1, 0, 2, 5), newest: Result(3, 0, 0, 7)}
    assert list(results.read(file).items()) == list(stored.items())


def test_the_page_has_each_version_with_its_result() -> None:
    stored, page = results.read(), versions.page()
    assert set(stored) <= set(VERSIONS.values())
    for version in VERSIONS.values():
        assert f"| {version} | " in page
    for version, result in stored.items():
        assert result.passed > 0
        assert result.failed == 0
        assert f"| {version} | {result.passed} | {result.skipped} |" in page


def test_the_tests_exist() -> None:
    assert [path for path in TESTS if not (ROOT / path).exists()] == []
