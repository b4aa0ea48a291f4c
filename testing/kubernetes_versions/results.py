"""The last result for each version, which the reference page about versions shows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

VERSIONS = {"1.29": "1.29.15", "1.37": "1.37.2"}
"""The lowest version of Kubernetes that the chart supports, and the newest: minor → release."""
FILE = Path(__file__).with_name("results.json")


@dataclasses.dataclass(frozen=True)
class Result:
    """What the tests found on one version. `seconds` does not include the build."""

    passed: int
    failed: int
    skipped: int
    seconds: int

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{counts} in {self.seconds} s"


def release(version: str) -> str:
    """Return the release of a version, such as 1.29.15 for 1.29.

    Raises ValueError if the version is neither a release nor in `VERSIONS`.
    """
    if version.count(".") == 2:
        return version
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise ValueError(f"{version}: use a release such as {version}.0, or one of {known}")
    return VERSIONS[version]


def parse(junit: str) -> Result:
    """Return the result in a report of pytest (`--junitxml`)."""
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    seconds = 0.0
    for suite in ElementTree.fromstring(junit).iter("testsuite"):
        seconds += float(suite.get("time", 0))
        for name in total:
            total[name] += int(suite.get(name, 0))
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    return Result(passed, failed, total["skipped"], round(seconds))


def read(file: Path = FILE) -> dict[str, Result]:
    """Return the stored results by release, lowest first."""
    found: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.exists() else {}
    return {one: Result(**found[one]) for one in sorted(found, key=_order)}


def write(results: dict[str, Result], file: Path = FILE) -> None:
    """Store results of the releases in `VERSIONS`. Keep those of versions that did not run."""
    kept = {**read(file), **results}
    known = {one: dataclasses.asdict(kept[one]) for one in VERSIONS.values() if one in kept}
    file.write_text(json.dumps(known, indent=2) + "\n")


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
