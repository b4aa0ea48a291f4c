"""Runs controllers of trainers as processes, with the definitions of their own Go modules.

    with run_mpi_operator(plane, folder):
        ...

The processes have an administrator's kubeconfig.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from distributed_input.runtime.addresses import free_ports
from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import Daemon
from testing.cluster.pki import Authority
from testing.ecosystem.controllers import (
    Json,
    install_files,
    install_webhooks,
    module_folder,
    running,
)
from testing.operator.cluster import Cluster

_MPI_HEALTH = 8080
"""The MPI operator's port. No flag sets another one."""


@contextmanager
def run_training_operator(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Run the controller of PyTorchJobs, without the webhook, which only validates."""
    name = "training-operator"
    install_files(plane, name, "manifests/base/crds/kubeflow.org_pytorchjobs.yaml")
    (health,) = free_ports(1)
    with _run(name, plane, folder, health, "/readyz", _health(health)):
        yield


@contextmanager
def run_mpi_operator(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Run the controller of MPIJobs, which is its only replica."""
    install_files(plane, "mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml")
    flags = ("--lock-namespace=default", "--kube-api-qps=100", "--kube-api-burst=100")
    with _run("mpi-operator", plane, folder, _MPI_HEALTH, "/healthz", *flags):
        yield


@contextmanager
def run_trainer(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Run the controllers of Kubeflow Trainer, which create JobSets, and its webhooks."""
    authority = Authority()
    pair = authority.issue("webhook", "", ("127.0.0.1",))
    webhook, health = free_ports(2)
    # No setting names another folder for the certificate than this one in TMPDIR.
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True)
    (certificates / "tls.crt").write_bytes(pair.certificate)
    (certificates / "tls.key").write_bytes(pair.key)
    configuration: Json = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    }
    file = folder / "configuration.yaml"
    file.write_text(yaml.safe_dump(configuration))
    install_files(plane, "trainer", "manifests/base/crds/trainer*.yaml")
    webhooks = module_folder("trainer") / "manifests/base/webhook/manifests.yaml"
    with plane.client() as client:
        cluster = Cluster(client, "default")
        install_webhooks(cluster, _documents(webhooks), webhook, authority.certificate)
    flags = (f"--config={file}",)
    with _run("trainer", plane, folder, health, "/readyz", *flags, TMPDIR=str(folder)):
        yield


@contextmanager
def run_kuberay(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Run KubeRay's controllers, which number the pods of a group."""
    install_files(plane, "ray-operator", "config/crd/bases/ray.io_*.yaml")
    (health,) = free_ports(1)
    flags = ("--metrics-addr=0", "--enable-leader-election=false", _health(health))
    numbers = "--feature-gates=RayMultiHostIndexing=true"  # since 1.6 it is the default
    with _run("ray-operator", plane, folder, health, "/readyz", numbers, *flags):
        yield


def runtime(name: str) -> Json:
    """Return a runtime of Kubeflow Trainer's module."""
    folder = module_folder("trainer") / "manifests/base/runtimes"
    manifests = [one for file in folder.glob("*.yaml") for one in _documents(file)]
    (found,) = (one for one in manifests if one.get("metadata", {}).get("name") == name)
    return dict(found)


def _documents(file: Path) -> list[Json]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def _health(port: int) -> str:
    return f"--health-probe-bind-address=127.0.0.1:{port}"


@contextmanager
def _run(
    name: str, plane: ControlPlane, folder: Path, health: int, path: str, *flags: str, **env: str
) -> Iterator[None]:
    environment = {"KUBECONFIG": str(plane.kubeconfig), **env}
    argv = [str(binary(name)), *flags]
    daemon = Daemon(folder, name, argv, die_with_parent=True, env=environment)
    with running(daemon, health, path):
        yield
