"""The contents of the image archives: user, labels, packages and sizes."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from testing.cluster import images, packages
from testing.cluster.fixtures import skip_or_fail

MIB = 1 << 20
# Maximum uncompressed size without the base image.
MAX_SIZES = {"operator": 320 * MIB, "sidecar": 120 * MIB, "worker": 1700 * MIB}


@pytest.fixture(scope="module", params=images.TARGETS)
def archive(request: pytest.FixtureRequest) -> tuple[str, tarfile.TarFile]:
    try:
        created = images.image(request.param)
    except packages.MissingRequirement as missing:
        skip_or_fail(f"no images: {missing}")
    with tarfile.open(created.archive) as opened:
        yield request.param, opened


def _config(opened: tarfile.TarFile) -> dict[str, Any]:
    (manifest,) = _json(opened, "manifest.json")
    return _json(opened, manifest["Config"])


def _json(opened: tarfile.TarFile, name: str) -> Any:
    file = opened.extractfile(name)
    assert file
    return json.load(file)


def test_any_user_can_read_and_run_the_image(archive):
    """OpenShift starts containers with a user of its own choice."""
    _, opened = archive
    (manifest,) = _json(opened, "manifest.json")
    closed, seen = [], 0
    for layer in manifest["Layers"]:
        with tarfile.open(fileobj=opened.extractfile(layer)) as files:
            for one in files:
                needed = 0o005 if one.isdir() or one.mode & 0o100 else 0o004
                ours = one.name.lstrip("./").startswith("opt/distributed-input")
                seen += ours
                if ours and not one.issym() and one.mode & needed != needed:
                    closed.append(one.name)
    assert closed == []
    assert seen > 100


def test_the_user_is_not_root_and_the_labels_describe_the_image(archive):
    target, opened = archive
    config = _config(opened)["config"]
    user, _, group = config["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == f"distributed-input-{target}"
    for name in ("version", "revision", "licenses", "description"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_only_the_worker_has_tensorflow_and_no_image_has_build_files(archive):
    target, opened = archive
    paths = _paths(opened)
    assert any(path.endswith("/site-packages/grpc/__init__.py") for path in paths)
    tensorflow = any(path.endswith("/site-packages/tensorflow/__init__.py") for path in paths)
    assert tensorflow == (target == "worker")
    assert not [path for path in paths if path.startswith(("opt/uv", "src/", "root/.cache"))]


def test_the_image_is_small_and_the_projects_code_is_a_separate_layer(archive):
    target, opened = archive
    sizes = [opened.getmember(name).size for name in _layers(opened)]
    with tarfile.open(fileobj=opened.extractfile(_layers(opened)[-1])) as last:
        paths = last.getnames()
    assert "opt/distributed-input/code/distributed_input/__init__.py" in paths
    assert sizes[-1] < 8 * MIB
    assert sum(sizes[1:]) < MAX_SIZES[target]


def _layers(opened: tarfile.TarFile) -> list[str]:
    (manifest,) = _json(opened, "manifest.json")
    found: list[str] = manifest["Layers"]
    return found


def _paths(opened: tarfile.TarFile) -> set[str]:
    found: set[str] = set()
    for name in _layers(opened):
        with tarfile.open(fileobj=opened.extractfile(name)) as layer:
            found.update(layer.getnames())
    return found
