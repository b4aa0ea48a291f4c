"""The images are what the Dockerfile promises: read from their archives, and run as pods."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from testing.cluster import images, packages
from testing.cluster.fixtures import lacking

MIB = 1 << 20
# Uncompressed, over the base: what may grow unseen otherwise.
MOST = {"operator": 320 * MIB, "sidecar": 120 * MIB, "worker": 1700 * MIB}


@pytest.fixture(scope="module", params=images.TARGETS)
def archive(request: pytest.FixtureRequest) -> tuple[str, tarfile.TarFile]:
    try:
        made = images.image(request.param)
    except packages.Missing as missing:
        lacking(f"no images: {missing}")
    with tarfile.open(made.archive) as opened:
        yield request.param, opened


def _config(opened: tarfile.TarFile) -> dict[str, Any]:
    (manifest,) = _json(opened, "manifest.json")
    return _json(opened, manifest["Config"])


def _json(opened: tarfile.TarFile, name: str) -> Any:
    file = opened.extractfile(name)
    assert file
    return json.load(file)


def test_it_runs_as_a_number_that_is_not_root(archive):
    _, opened = archive
    user, _, group = _config(opened)["config"]["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_its_labels_say_what_it_is(archive):
    target, opened = archive
    labels = _config(opened)["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"distributed-input-{target}"
    for name in ("version", "revision", "licenses", "description"):
        assert labels[f"org.opencontainers.image.{name}"]


def test_only_the_worker_has_tensorflow(archive):
    target, opened = archive
    paths = _paths(opened)
    assert any(path.endswith("/site-packages/grpc/__init__.py") for path in paths)
    tensorflow = any(path.endswith("/site-packages/tensorflow/__init__.py") for path in paths)
    assert tensorflow == (target == "worker")


def test_nothing_of_the_build_is_left(archive):
    """No compiler of dependencies, no sources, no cache."""
    _, opened = archive
    ours = [path for path in _paths(opened) if path.startswith(("opt/uv", "src/", "root/.cache"))]
    assert not ours


def test_our_own_code_is_a_small_layer_of_its_own(archive):
    _, opened = archive
    sizes = [opened.getmember(name).size for name in _layers(opened)]
    with tarfile.open(fileobj=opened.extractfile(_layers(opened)[-1])) as last:
        paths = last.getnames()
    assert "opt/distributed-input/code/distributed_input/__init__.py" in paths
    assert sizes[-1] < 8 * MIB


def test_it_stays_within_its_size(archive):
    target, opened = archive
    over_base = sum(opened.getmember(name).size for name in _layers(opened)[1:])
    assert over_base < MOST[target]


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
