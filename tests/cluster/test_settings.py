"""What the environment says comes before what would be built or started here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.cluster import packages, whole
from testing.cluster.binaries import binary, build

_IMAGES = {f"E2E_{one}_IMAGE": f"some/{one.lower()}" for one in ("OPERATOR", "SIDECAR", "WORKER")}


@pytest.fixture
def _fresh() -> None:
    binary.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_kubebuilder_assets_come_first_where_they_have_the_binary(tmp_path, monkeypatch):
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert binary("etcd") == tmp_path / "etcd"
    # They never have these.
    assert binary("kube-scheduler") == build("kubernetes") / "kube-scheduler"
    binary.cache_clear()


def test_an_existing_cluster_is_used_as_it_is(monkeypatch):
    monkeypatch.setenv("E2E_KUBECONFIG", "/some/kubeconfig")
    for name, image in _IMAGES.items():
        monkeypatch.setenv(name, image)
    found = whole.up()
    assert found.kubeconfig == Path("/some/kubeconfig")
    assert found.images["worker"] == "some/worker"
    assert found.plane is None


def test_an_existing_cluster_needs_images_that_it_can_have(monkeypatch):
    monkeypatch.setenv("E2E_KUBECONFIG", "/some/kubeconfig")
    monkeypatch.delenv("E2E_OPERATOR_IMAGE", raising=False)
    with pytest.raises(packages.Missing, match="set E2E_OPERATOR_IMAGE"):
        whole.up()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_without_root_one_line_says_what_is_missing(tmp_path):
    root = Path(__file__).parents[2]
    script = (
        "import os, sys\n"
        # Imports first: others may not read this checkout.
        "from testing.cluster import __main__ as main\n"
        "os.setuid(65534)\n"
        "sys.argv[1:] = ['up']\n"
        "sys.exit(main.main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(root), "E2E_KUBECONFIG": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("cluster: ")
    assert "root" in line
