"""Runs cert-manager's controllers beside a control plane.

    with run_cert_manager(cluster, plane.kubeconfig, folder):
        ...

The definitions are those of the Go module. The process has an administrator's kubeconfig. Its
admission webhook, which only validates, does not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from testing.cluster.binaries import MODULES, binary, go, version
from testing.cluster.daemon import Daemon
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

Json = dict[str, Any]
_NAME, _PATH = "cert-manager", "github.com/cert-manager/cert-manager"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_API = "/apis/cert-manager.io/v1/namespaces"
_APPLY = "application/apply-patch+yaml"


def _module() -> Path:
    """Return the folder of the Go module. Download it if it is missing."""
    command = [go(), "mod", "download", "-json", f"{_PATH}@{version(_NAME)}"]
    environment = {**os.environ, "GOWORK": "off", "GOTOOLCHAIN": "local"}
    found = subprocess.run(
        command, cwd=MODULES / _NAME, env=environment, capture_output=True, check=True, timeout=300
    )
    return Path(json.loads(found.stdout)["Dir"])


def install_definitions(cluster: Cluster) -> None:
    """Install cert-manager's definitions, and wait until the API server serves them."""
    for file in sorted((_module() / "deploy" / "crds").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one:
                path = f"{_DEFINITIONS}/{one['metadata']['name']}"
                cluster.call("PATCH", path, one, _APPLY, fieldManager="tests", force="true")
                eventually(partial(_is_served, cluster, path))


def _is_served(cluster: Cluster, path: str) -> bool:
    conditions = cluster.call("GET", path).get("status", {}).get("conditions") or ()
    return ("Established", "True") in {(one["type"], one["status"]) for one in conditions}


@contextmanager
def run_cert_manager(cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Daemon]:
    """Install the definitions and run the controllers. Print their log if the body fails."""
    install_definitions(cluster)
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

    def applied() -> Json:
        try:
            return cluster.call("PATCH", path, manifest, _APPLY, fieldManager="tests", force="true")
        except RequestRejected as error:
            if error.status == 404:
                return {}
            raise

    return eventually(applied)


def certificate_status(cluster: Cluster, name: str) -> Json:
    """Return the status of a Certificate."""
    path = f"{_API}/{cluster.namespace}/certificates/{name}"
    return dict(cluster.call("GET", path).get("status") or {})


def resource(kind: str, name: str, **spec: Any) -> Json:
    """Return an object of cert-manager."""
    meta = {"name": name}
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": meta, "spec": spec}
