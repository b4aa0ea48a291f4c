"""Runs cert-manager's controllers beside a control plane.

    with run_cert_manager(cluster, plane.kubeconfig, folder):
        ...

The definitions are those of the Go module. The process has an administrator's kubeconfig. Its
admission webhook, which only validates, does not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from testing.cluster.binaries import binary
from testing.cluster.daemon import Daemon
from testing.ecosystem.controllers import APPLY, Json, install, module_folder, when_served
from testing.operator.cluster import Cluster

_NAME = "cert-manager"
_API = "/apis/cert-manager.io/v1/namespaces"


@contextmanager
def run_cert_manager(cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Daemon]:
    """Install the definitions and run the controllers. Print their log if the body fails."""
    for file in sorted((module_folder(_NAME) / "deploy" / "crds").glob("*.yaml")):
        for one in filter(None, yaml.safe_load_all(file.read_text())):
            install(cluster, one)
    argv = [str(binary(_NAME)), f"--kubeconfig={kubeconfig}"]
    daemon = Daemon(folder, _NAME, argv, die_with_parent=True)
    daemon.start()
    try:
        yield daemon
    except BaseException:
        print(daemon.tail())
        raise
    finally:
        daemon.stop()


def apply(cluster: Cluster, manifest: Json) -> Json:
    """Apply an Issuer or a Certificate. Wait while the API server does not serve its kind yet."""
    plural = f"{manifest['kind'].lower()}s"
    path = f"{_API}/{cluster.namespace}/{plural}/{manifest['metadata']['name']}"
    return when_served(
        lambda: cluster.call("PATCH", path, manifest, APPLY, fieldManager="tests", force="true")
    )


def certificate_status(cluster: Cluster, name: str) -> Json:
    path = f"{_API}/{cluster.namespace}/certificates/{name}"
    return dict(cluster.call("GET", path).get("status") or {})


def resource(kind: str, name: str, **spec: Any) -> Json:
    """Return an object of cert-manager."""
    meta = {"name": name}
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": meta, "spec": spec}
