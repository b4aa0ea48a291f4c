"""A node that runs pods. containerd, kubelet, kube-proxy and CoreDNS are processes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client as kubernetes

from testing.cluster import network
from testing.cluster.binaries import binary
from testing.cluster.control_plane import SERVICE_RANGE, ControlPlane
from testing.cluster.daemon import Daemon
from testing.cluster.images import Image
from testing.cluster.pki import Authority, kubeconfig_user, write_kubeconfig

NAME = "node-1"
_KUBELET_PORT = 10250
_PROXY_HEALTH_PORT = 10256
_READY_SECONDS = 120.0


class Node:
    """The one node of `plane`, whose address must be network.ADDRESS.

    folder: its state. run: sockets and mounts. Keep it short: a socket path has 108 characters.
    """

    def __init__(
        self, plane: ControlPlane, folder: Path, run: Path, *, die_with_parent: bool = False
    ) -> None:
        self._plane = plane
        self._folder = folder
        self._run = run
        self._socket = run / "containerd.sock"
        config = folder / "containerd.toml"
        self.containerd = Daemon(
            folder,
            "containerd",
            ["containerd", "--config", config],
            die_with_parent=die_with_parent,
        )
        self.kubelet = Daemon(folder, "kubelet", self._kubelet(), die_with_parent=die_with_parent)
        proxy: list[str | Path] = [binary("kube-proxy"), f"--config={folder / 'kube-proxy.yaml'}"]
        self.kube_proxy = Daemon(folder, "kube-proxy", proxy, die_with_parent=die_with_parent)
        dns: list[str | Path] = [binary("coredns"), "-conf", folder / "Corefile"]
        self.dns = Daemon(folder, "coredns", dns, die_with_parent=die_with_parent)
        self.daemons = (self.containerd, self.kubelet, self.kube_proxy, self.dns)

    def start(self, pause: Image) -> None:
        """Start all processes and wait until the node is Ready.

        Raises RuntimeError with the end of a log.
        """
        assert self._plane.authority, "another process created the control plane"
        self._write_configuration(self._plane.authority, pause.name)
        deadline = time.monotonic() + _READY_SECONDS
        self.containerd.start()
        self._wait(self.containerd, deadline, lambda: self._ctr("version").returncode == 0)
        self.load(pause)
        for daemon in (self.kubelet, self.kube_proxy, self.dns):
            daemon.start()
        self._wait(self.dns, deadline, _dns_is_ready)
        self._wait(self.kube_proxy, deadline, _proxy_is_ready)
        self._wait(self.kubelet, deadline, self._ready)

    def stop(self) -> None:
        """Stop all processes and pods, and remove everything that they created."""
        for daemon in reversed(self.daemons):
            daemon.stop()
        clean_up(self._folder, self._run)

    def alive(self) -> bool:
        """Return whether all processes run."""
        return all(daemon.alive() for daemon in self.daemons)

    def load(self, *images: Image) -> None:
        """Import images that the node lacks, and remove their older versions."""
        present = set(self._ctr("images", "list", "--quiet").stdout.split())
        for image in images:
            if image.name not in present:
                self._run_ctr("images", "import", str(image.archive))
            repository = image.name.rpartition(":")[0]
            older = {name for name in present if name.startswith(f"{repository}:")} - {image.name}
            if older:
                self._ctr("images", "remove", *older)

    def tag(self, image: str, name: str) -> None:
        """Add another name to an image of this node."""
        self._run_ctr("images", "tag", "--force", image, name)

    def kill(self, container_id: str) -> bool:
        """Send SIGKILL to a container's first process. Return False if it has already exited.

        container_id: from the pod's status, the part after `://`.
        """
        result = self._ctr("tasks", "kill", "--signal=SIGKILL", container_id)
        if result.returncode and "not found" not in result.stderr:
            raise RuntimeError(f"SIGKILL to {container_id}: {result.stderr}")
        return not result.returncode

    def _run_ctr(self, *command: str) -> None:
        result = self._ctr(*command)
        if result.returncode:
            raise RuntimeError(f"ctr {' '.join(command)}: {result.stderr}")

    def _ctr(self, *command: str) -> subprocess.CompletedProcess[str]:
        address = f"--address={self._socket}"
        return subprocess.run(
            ["ctr", address, "--namespace=k8s.io", *command],
            capture_output=True,
            text=True,
            timeout=300,
        )

    def _ready(self) -> bool:
        with self._plane.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            for node in core.list_node().items:
                conditions = {one.type: one.status for one in node.status.conditions or ()}
                return conditions.get("Ready") == "True"
        return False

    def _wait(self, daemon: Daemon, deadline: float, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            if not daemon.alive() or time.monotonic() > deadline:
                why = "is not ready in time" if daemon.alive() else "exited"
                raise RuntimeError(f"{daemon.name} {why}:\n{daemon.tail()}")
            time.sleep(0.1)

    def _write_configuration(self, authority: Authority, pause: str) -> None:
        """Write certificates and configuration files."""
        for folder in (self._folder, self._run):
            folder.mkdir(parents=True, exist_ok=True)
        url = self._plane.url
        for name, user, group in (
            ("kubelet", f"system:node:{NAME}", "system:nodes"),
            ("kube-proxy", "system:kube-proxy", ""),
            # CoreDNS's own role comes with its Deployment, which is not used here.
            ("coredns", "coredns", "system:masters"),
        ):
            pair = authority.issue(user, group, [NAME, network.ADDRESS])
            path = self._folder / f"{name}.kubeconfig"
            write_kubeconfig(path, url, authority.certificate, kubeconfig_user(pair))
            for suffix, content in (("crt", pair.certificate), ("key", pair.key)):
                file = self._folder / f"{name}.{suffix}"
                file.touch(mode=0o600)
                file.write_bytes(content)
        (self._folder / "ca.crt").write_bytes(authority.certificate)
        (self._folder / "containerd.toml").write_text(self._containerd_config(pause))
        cni = self._folder / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "10-bridge.conflist").write_text(json.dumps(self._cni_config()))
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config()))
        (self._folder / "kube-proxy.yaml").write_text(yaml.safe_dump(self._proxy_config()))
        (self._folder / "Corefile").write_text(self._corefile())

    def _containerd_config(self, pause: str) -> str:
        return f"""\
version = 2
root = "{self._folder / "containerd"}"
state = "{self._run / "containerd"}"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{self._folder / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Keep all mounts below `run`, so that cleaning it up removes them.
netns_mounts_under_state_dir = true
# Without CAP_SYS_RESOURCE, lowering the score fails, and so does the pod.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{self._folder / "cni"}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""

    def _cni_config(self) -> dict[str, object]:
        bridge = {
            "type": "bridge",
            "bridge": network.BRIDGE,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": str(network.POD_RANGE)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self._run / "addresses"),
            },
        }
        return {"cniVersion": "0.4.0", "name": "dinput", "plugins": [bridge]}

    def _kubelet(self) -> list[str | Path]:
        return [
            binary("kubelet"),
            f"--config={self._folder / 'kubelet.yaml'}",
            f"--kubeconfig={self._folder / 'kubelet.kubeconfig'}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--hostname-override={NAME}",
            f"--node-ip={network.ADDRESS}",
        ]

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": network.ADDRESS,
            "port": _KUBELET_PORT,
            "healthzPort": 0,
            "tlsCertFile": str(self._folder / "kubelet.crt"),
            "tlsPrivateKeyFile": str(self._folder / "kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._folder / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "clusterDNS": [network.ADDRESS],
            "clusterDomain": "cluster.local",
            # Some machines have cgroup v1 or swap.
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{network.CGROUP}",
            # Other programs share the disk: do not evict pods if it is nearly full.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self._folder / "pods"),
            "logging": {"verbosity": 1},
            # Fault tests kill containers: restart them quickly each time.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
        }

    def _proxy_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self._folder / "kube-proxy.kubeconfig")},
            "hostnameOverride": NAME,
            "healthzBindAddress": f"{network.ADDRESS}:{_PROXY_HEALTH_PORT}",
            # All pods share one bridge: a response would go straight to the client pod, from an
            # address that the client did not use.
            "iptables": {"masqueradeAll": True},
            # Keep the machine's own limits.
            "conntrack": {"maxPerCore": 0},
        }

    def _corefile(self) -> str:
        return f"""\
.:53 {{
    bind {network.ADDRESS}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {self._folder / "coredns.kubeconfig"}
    }}
    cache 5
}}
"""


def clean_up(folder: Path, run: Path) -> None:
    """Remove everything that a node created, whether or not it was stopped."""
    network.tear_down(folder, run)
    for path in (folder, run):
        shutil.rmtree(path, ignore_errors=True)


def _proxy_is_ready() -> bool:
    """Return whether kube-proxy has written its rules."""
    url = f"http://{network.ADDRESS}:{_PROXY_HEALTH_PORT}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def _dns_is_ready() -> bool:
    """Return whether DNS resolves the Service `kubernetes`."""
    parts = b"kubernetes.default.svc.cluster.local".split(b".")
    name = b"".join(bytes([len(part)]) + part for part in parts)
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0" + name + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        try:
            client.sendto(query, (network.ADDRESS, 53))
            return client.recv(512).endswith(SERVICE_RANGE[1].packed)
        except OSError:
            return False
