"""Runs the controller of Kueue, JobSet or LWS as a process, with the objects of its own chart.

    with run_controller("kueue", plane, folder):
        ...

The charts are part of the Go modules. Their Deployments and roles are not used: the processes have
an administrator's kubeconfig, and the API server calls their webhooks at loopback addresses.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from distributed_input.runtime.addresses import free_ports
from testing.cluster.binaries import binary, go, module_of
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import Daemon
from testing.cluster.pki import Authority
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
_PATHS = {
    "kueue": "sigs.k8s.io/kueue",
    "jobset": "sigs.k8s.io/jobset",
    "keda": "github.com/kedacore/keda/v2",
    "cert-manager": "github.com/cert-manager/cert-manager",
    "trainer": "github.com/kubeflow/trainer/v2",
    "mpi-operator": "github.com/kubeflow/mpi-operator",
    "training-operator": "github.com/kubeflow/training-operator",
    "lws": "sigs.k8s.io/lws",
    "ray-operator": "github.com/ray-project/kuberay/ray-operator",
}
_CONFIGURATIONS: dict[str, Json] = {
    "kueue": {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        # The API server does not reach this process as an aggregated API.
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {
            "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment"]
        },
    },
    "jobset": {"apiVersion": "config.jobset.x-k8s.io/v1alpha1"},
    "lws": {"apiVersion": "config.lws.x-k8s.io/v1alpha1"},
}
_KINDS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    ),
}
_WEBHOOK_SECONDS = 60.0
_METRICS = "/etc/kueue/metrics/certs"
"""Kueue needs a certificate for metrics in this folder. No setting names another one."""
_WITH_METRICS = (
    f"mount -t tmpfs none /etc && mkdir -p {_METRICS} && cp $0/tls.crt $0/tls.key {_METRICS} && "
    'exec "$@"'
)


def module_folder(name: str) -> Path:
    """Return the folder of a controller's module. Download the module if it is missing."""
    command = [go(), "mod", "download", "-json", _PATHS[name]]
    environment = {**os.environ, "GOWORK": "off", "GOTOOLCHAIN": "local"}
    found = subprocess.run(
        command,
        cwd=module_of(name),
        env=environment,
        capture_output=True,
        check=True,
        timeout=300,
    )
    return Path(json.loads(found.stdout)["Dir"])


def objects(name: str) -> list[Json]:
    """Return the definitions and webhook configurations of a controller's chart."""
    # Kueue's chart reads there which pods and Deployments must not pass without the webhooks.
    values = {"managerConfig": {"controllerManagerConfigYaml": _text(_CONFIGURATIONS[name])}}
    chart = module_folder(name) / "charts" / name
    command = [str(binary("helm")), "template", name, str(chart), "--include-crds"]
    given = _text(values).encode()
    done = subprocess.run(
        [*command, "--values", "-"], input=given, capture_output=True, check=True, timeout=60
    )
    return [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] in _KINDS]


def _text(content: Json) -> str:
    return str(yaml.safe_dump(content))


def _at(client: Json, port: int, authority: bytes) -> None:
    """Replace the Service in a webhook's clientConfig with a port of this machine."""
    service = client.pop("service", None)
    if service:
        client["url"] = f"https://127.0.0.1:{port}{service.get('path', '')}"
        client["caBundle"] = base64.b64encode(authority).decode()


def install_files(plane: ControlPlane, name: str, pattern: str) -> None:
    """Install the definitions in the files of a controller's module, by a pattern of paths."""
    files = sorted(module_folder(name).glob(pattern))
    assert files, f"{name} has no {pattern}"
    with plane.client() as client:
        for file in files:
            for one in filter(None, yaml.safe_load_all(file.read_text())):
                install(Cluster(client, "default"), one)


def install_webhooks(cluster: Cluster, found: Iterable[Json], port: int, authority: bytes) -> None:
    """Install definitions and webhook configurations whose webhooks are at a port."""
    for one in found:
        if one["kind"] == "CustomResourceDefinition":
            webhook = (one["spec"].get("conversion") or {}).get("webhook")
            if webhook:
                _at(webhook["clientConfig"], port, authority)
        for webhook in one.get("webhooks") or []:
            _at(webhook["clientConfig"], port, authority)
        install(cluster, one)


def install(cluster: Cluster, one: Json) -> None:
    """Apply a definition or a webhook configuration. Return when the definition is served."""
    path = f"{_KINDS[one['kind']]}/{one['metadata']['name']}"
    cluster.call("PATCH", path, one, APPLY, fieldManager="tests", force="true")
    if one["kind"] == "CustomResourceDefinition":
        eventually(partial(_is_served, cluster, path))


def _is_served(cluster: Cluster, path: str) -> bool:
    conditions = cluster.call("GET", path).get("status", {}).get("conditions") or ()
    return ("Established", "True") in {(one["type"], one["status"]) for one in conditions}


def _configuration(name: str, folder: Path, webhook: int, health: int) -> Path:
    file = folder / "configuration.yaml"
    content: Json = {
        **_CONFIGURATIONS[name],
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    file.write_text(_text(content))
    return file


@contextmanager
def run_controller(name: str, plane: ControlPlane, folder: Path) -> Iterator[Daemon]:
    """Install and run a controller. Yield when its webhooks serve."""
    folder = folder / name
    folder.mkdir()
    authority = Authority()
    pair = authority.issue("webhook", "", ("127.0.0.1",))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    webhook, health = free_ports(2)
    with plane.client() as client:
        cluster = Cluster(client, "default")
        install_webhooks(cluster, objects(name), webhook, authority.certificate)
    configuration = _configuration(name, folder, webhook, health)
    argv = [str(binary(name)), f"--config={configuration}"]
    if name == "kueue":
        # In a mount namespace of its own, /etc has only this folder.
        unshare = ("unshare", "--user", "--map-root-user", "--mount")
        argv = [*unshare, "sh", "-c", _WITH_METRICS, str(folder), *argv]
    environment = {"KUBECONFIG": str(plane.kubeconfig)}
    daemon = Daemon(folder, name, argv, die_with_parent=True, env=environment)
    with running(daemon, health):
        yield daemon


@contextmanager
def running(daemon: Daemon, health: int, path: str = "/readyz") -> Iterator[None]:
    """Run a controller. Yield when a path of its health port reports that it is ready."""
    daemon.start()
    try:

        def serves() -> bool:
            assert daemon.alive(), daemon.tail()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{health}{path}", timeout=5) as page:
                    return bool(page.status == 200)
            except OSError:
                return False

        eventually(serves, _WEBHOOK_SECONDS)
        yield
    except BaseException:
        print(daemon.tail())
        raise
    finally:
        daemon.stop()


def create(cluster: Cluster, path: str, body: Mapping[str, Any]) -> Json:
    """Create an object when the API server serves its kind, and its webhooks respond."""
    return when_served(lambda: cluster.call("POST", path, dict(body)))


def when_served(call: Callable[[], Json]) -> Json:
    """Return the answer to a request that is repeated while nothing serves it."""

    def answer() -> Json:
        try:
            return call()
        except RequestRejected as error:
            if error.status == 404 or error.status >= 500:
                return {}
            raise

    return eventually(answer, _WEBHOOK_SECONDS)
