"""The workflows of the public forge, as far as they can be checked without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from testing.publishing.artifacts import IMAGES, ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOWS[name])["jobs"]
    return found


def commands(name: str) -> Iterator[str]:
    """Yield each command line of a workflow, with each value of its job's matrix."""
    for job in jobs(name).values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                yield from expand(line, job.get("strategy", {}).get("matrix", {}))


def expand(line: str, matrix: dict[str, list[str]]) -> list[str]:
    for name, values in matrix.items():
        expression = f"${{{{ matrix.{name} }}}}"
        if expression in line:
            return [line.replace(expression, value) for value in values]
    return [line]


def targets(name: str) -> set[str]:
    """Return the targets of make that a workflow runs."""
    lines = [line for line in commands(name) if line.startswith("make ")]
    # Words after the first variable are its value.
    return {
        word
        for line in lines
        for word in re.split(r" (?:VERSIONS?|PYTHON|UNIT)=", line)[0].split()[1:]
    }


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_makefile_has_each_target_that_a_workflow_runs(name: str) -> None:
    assert targets(name)
    assert targets(name) <= TARGETS


def test_ci_runs_each_part_of_make_test_that_needs_no_node() -> None:
    (parts,) = re.findall(r"^PARTS := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert targets("ci") == set(parts.replace("\\", "").split()) - {"tools", "cluster", "e2e"} | {
        *("matrix", "run", "portability", "kubernetes-versions")
    }


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_to_a_commit_and_name_their_version(name: str) -> None:
    used = re.findall(r"uses: (.*)", WORKFLOWS[name])
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_may_only_read_unless_it_says_otherwise(name: str) -> None:
    assert yaml.safe_load(WORKFLOWS[name])["permissions"] == {"contents": "read"}


def test_the_release_builds_each_image_for_both_architectures_and_then_publishes() -> None:
    release = jobs("release")
    images = release["images"]
    built = {f"distributed-input-{one}" for one in images["strategy"]["matrix"]["target"]}
    assert built == set(IMAGES)
    (build,) = (step["with"] for step in images["steps"] if step.get("id") == "build")
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert (release["images"]["needs"], release["publish"]["needs"]) == ("test", "images")
    published = [step["run"] for step in release["publish"]["steps"] if "PUBLISH=1" in str(step)]
    assert len(published) == 1
