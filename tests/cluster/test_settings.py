"""Environment variables take precedence over binaries and clusters of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.cluster import lifecycle, packages
from testing.cluster.binaries import binary, build

_IMAGES = {f"E2E_{one}_IMAGE": f"some/{one.lower()}" for one in ("OPERATOR", "SIDECAR", "WORKER")}


@pytest.fixture
def _fresh() -> None:
    binary.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_a_binary_in_kubebuilder_assets_takes_precedence(tmp_path, monkeypatch):
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert binary("etcd") == tmp_path / "etcd"
    # KUBEBUILDER_ASSETS never contains this binary.
    assert binary("kube-scheduler") == build("kubernetes") / "kube-scheduler"
    binary.cache_clear()


def test_an_existing_cluster_is_used_without_changes(monkeypatch):
    monkeypatch.setenv("E2E_KUBECONFIG", "/some/kubeconfig")
    for name, image in _IMAGES.items():
        monkeypatch.setenv(name, image)
    found = lifecycle.up()
    assert found.kubeconfig == Path("/some/kubeconfig")
    assert found.images["worker"] == "some/worker"
    assert found.plane is None


def test_an_existing_cluster_requires_the_names_of_its_images(monkeypatch):
    monkeypatch.setenv("E2E_KUBECONFIG", "/some/kubeconfig")
    monkeypatch.delenv("E2E_OPERATOR_IMAGE", raising=False)
    with pytest.raises(packages.MissingRequirement, match="set E2E_OPERATOR_IMAGE"):
        lifecycle.up()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_error_without_root_has_one_line(tmp_path):
    root = Path(__file__).parents[2]
    script = (
        "import os, sys\n"
        # Import first: other users may not have access to this checkout.
        "from testing.cluster import __main__ as main\n"
        "os.setuid(65534)\n"
        "sys.argv[1:] = ['up']\n"
        "sys.exit(main.main())\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(root), "E2E_KUBECONFIG": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    assert line.startswith("cluster: ")
    assert "root" in line
