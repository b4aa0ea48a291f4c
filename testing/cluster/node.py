"""A node that runs pods: containerd, kubelet, kube-proxy and CoreDNS as processes."""

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

from testing.cluster import kubeconfig, network
from testing.cluster.binaries import binary
from testing.cluster.control_plane import SERVICE_RANGE, ControlPlane
from testing.cluster.daemon import Daemon
from testing.cluster.images import Image
from testing.cluster.pki import Authority

NAME = "node-1"
_KUBELET_PORT = 10250
_PROXY_HEALTH_PORT = 10256
_READY_SECONDS = 120.0


class Node:
    """The one node of `plane`, whose address must be network.ADDRESS.

    folder: its state. run: sockets and mounts; short, for a socket's path has 108 characters.
    """

    def __init__(self, plane: ControlPlane, folder: Path, run: Path, *, tied: bool = False) -> None:
        self._plane = plane
        self._folder = folder
        self._run = run
        self._socket = run / "containerd.sock"
        config = folder / "containerd.toml"
        self.containerd = Daemon(
            folder, "containerd", ["containerd", "--config", config], tied=tied
        )
        self.kubelet = Daemon(folder, "kubelet", self._kubelet(), tied=tied)
        proxy: list[str | Path] = [binary("kube-proxy"), f"--config={folder / 'kube-proxy.yaml'}"]
        self.kube_proxy = Daemon(folder, "kube-proxy", proxy, tied=tied)
        dns: list[str | Path] = [binary("coredns"), "-conf", folder / "Corefile"]
        self.dns = Daemon(folder, "coredns", dns, tied=tied)
        self.daemons = (self.containerd, self.kubelet, self.kube_proxy, self.dns)

    def start(self, pause: Image) -> None:
        """Start all and wait until the node is Ready. Raises RuntimeError with the end of a log."""
        assert self._plane.authority, "the control plane was not made by this process"
        self._write(self._plane.authority, pause.name)
        deadline = time.monotonic() + _READY_SECONDS
        self.containerd.start()
        self._wait(self.containerd, deadline, lambda: self._ctr("version").returncode == 0)
        self.load(pause)
        for daemon in (self.kubelet, self.kube_proxy, self.dns):
            daemon.start()
        self._wait(self.dns, deadline, _resolves)
        self._wait(self.kube_proxy, deadline, _routes)
        self._wait(self.kubelet, deadline, self._ready)

    def stop(self) -> None:
        """Stop all and end all pods; nothing of them stays on this machine."""
        for daemon in reversed(self.daemons):
            daemon.stop()
        clean_up(self._folder, self._run)

    def alive(self) -> bool:
        """Whether all its processes run."""
        return all(daemon.alive() for daemon in self.daemons)

    def load(self, *images: Image) -> None:
        """Bring images to the node where they are not there yet, and take their elders away."""
        there = set(self._ctr("images", "list", "--quiet").stdout.split())
        for image in images:
            if image.name not in there:
                self._done("images", "import", str(image.archive))
            repository = image.name.rpartition(":")[0]
            elders = {name for name in there if name.startswith(f"{repository}:")} - {image.name}
            if elders:
                self._ctr("images", "remove", *elders)

    def tag(self, image: str, name: str) -> None:
        """Give an image of this node another name, too."""
        self._done("images", "tag", "--force", image, name)

    def kill(self, container_id: str) -> bool:
        """SIGKILL a container's first process; False where it does not run any more.

        container_id: of its status, after `://`, which may be of one that has just died.
        """
        done = self._ctr("tasks", "kill", "--signal=SIGKILL", container_id)
        if done.returncode and "not found" not in done.stderr:
            raise RuntimeError(f"SIGKILL to {container_id}: {done.stderr}")
        return not done.returncode

    def _done(self, *command: str) -> None:
        done = self._ctr(*command)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(command)}: {done.stderr}")

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

    def _wait(self, daemon: Daemon, deadline: float, there: Callable[[], bool]) -> None:
        while not there():
            if not daemon.alive() or time.monotonic() > deadline:
                why = "is not ready in time" if daemon.alive() else "ended"
                raise RuntimeError(f"{daemon.name} {why}:\n{daemon.tail()}")
            time.sleep(0.1)

    def _write(self, authority: Authority, pause: str) -> None:
        """Certificates and configuration."""
        for folder in (self._folder, self._run):
            folder.mkdir(parents=True, exist_ok=True)
        url = self._plane.url
        for name, user, group in (
            ("kubelet", f"system:node:{NAME}", "system:nodes"),
            ("kube-proxy", "system:kube-proxy", ""),
            # Its own role would be made by its manifest, which is for a Deployment.
            ("coredns", "coredns", "system:masters"),
        ):
            pair = authority.issue(user, group, [NAME, network.ADDRESS])
            path = self._folder / f"{name}.kubeconfig"
            kubeconfig.write(path, url, authority.certificate, kubeconfig.user(pair))
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
# So that what is left below `run` is all that is left.
netns_mounts_under_state_dir = true
# Without CAP_SYS_RESOURCE, lowering it fails, and the pod with it.
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
            # Version 1 control groups, and swap, are what some machines have.
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{network.CGROUP}",
            # The disk is shared with much else: a full one is no reason to evict.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self._folder / "pods"),
            "logging": {"verbosity": 1},
            # Fault tests kill containers: they come back at once, as they would for a first time.
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
            # Every pod is on one bridge: an answer would go straight to the asking pod, under an
            # address that it did not ask.
            "iptables": {"masqueradeAll": True},
            # Not ours to set: the machine's own limits hold.
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
    """Take away what a node left, whether or not it was stopped."""
    network.tear_down(folder, run)
    for left in (folder, run):
        shutil.rmtree(left, ignore_errors=True)


def _routes() -> bool:
    """Whether kube-proxy has written its rules."""
    url = f"http://{network.ADDRESS}:{_PROXY_HEALTH_PORT}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def _resolves() -> bool:
    """Whether DNS answers with the address of the Service `kubernetes`."""
    parts = b"kubernetes.default.svc.cluster.local".split(b".")
    name = b"".join(bytes([len(part)]) + part for part in parts)
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0" + name + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        try:
            asking.sendto(query, (network.ADDRESS, 53))
            return asking.recv(512).endswith(SERVICE_RANGE[1].packed)
        except OSError:
            return False
