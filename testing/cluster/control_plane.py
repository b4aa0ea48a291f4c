"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of this machine.

    with ControlPlane(folder) as plane:
        client = plane.client()

There is no node: pods stay Pending unless kwok (`kwok.py`) or a kubelet (`node.py`) runs them.
Start it from a thread that outlives it: the kernel kills its processes when that thread ends.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubernetes import client as kubernetes
from kubernetes import config

from distributed_input.runtime.addresses import free_ports
from testing.cluster.binaries import binary
from testing.cluster.daemon import Daemon
from testing.cluster.pki import Authority, key_pem, kubeconfig_user, write_kubeconfig

SERVICE_RANGE = ipaddress.ip_network("10.96.0.0/16")
"""Address range of Services. The first address is the API server's own."""
_READY_SECONDS = 90.0
_TOKEN_SECONDS = 24 * 3600
_PORTS = ("etcd", "peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class ControlPlane:
    """One control plane below `folder`.

    address: the API server's address, for itself and for pods. Without pods, loopback is enough.
    die_with_parent: whether the kernel kills its processes when the starting process ends. If
    False, a later run finds the control plane by its folder.
    flags: additional flags by process, such as {"kube-scheduler": {"kube-api-qps": 200}}.
    Attributes: `url`; `kubeconfig`, the path of the administrator's kubeconfig; `authority`, None
    if an earlier run created the control plane; the daemons `etcd`, `api_server`,
    `controller_manager` and `scheduler`. A test may stop and start each of them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        die_with_parent: bool = True,
        flags: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.folder = folder
        self._flags = flags or {}
        self.address = address
        self._ports = _ports(folder / "ports.json")
        self.url = f"https://{address}:{self._ports['kube-apiserver']}"
        self.kubeconfig = folder / "admin.kubeconfig"
        self.authority = None if self.kubeconfig.exists() else self._make_credentials()
        self._die_with_parent = die_with_parent
        self.etcd = self._daemon("etcd", self._etcd())
        self.api_server = self._daemon("kube-apiserver", self._api_server())
        self.controller_manager = self._daemon(
            "kube-controller-manager", self._controller_manager()
        )
        self.scheduler = self._daemon("kube-scheduler", self._component("kube-scheduler"))
        self.daemons = (self.etcd, self.api_server, self.controller_manager, self.scheduler)

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes and wait until the API server is ready and namespaces are usable.

        Raises RuntimeError, with the end of a log, if that takes over 90 s.
        """
        deadline = time.monotonic() + _READY_SECONDS
        self.etcd.start()
        self.api_server.start()
        # The other processes exit if their RBAC roles do not exist yet.
        self._wait(self.serves, deadline, self.etcd, self.api_server)
        self.controller_manager.start()
        self.scheduler.start()
        self._wait(self._controllers_work, deadline, *self.daemons)

    def wait_ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait for the API server, for example after a restart.

        Raises RuntimeError, with the end of its log, after `seconds`.
        """
        self._wait(self.serves, time.monotonic() + seconds, self.api_server)

    def _wait(self, is_ready: Callable[[], bool], deadline: float, *daemons: Daemon) -> None:
        while not is_ready():
            for daemon in daemons:
                if not daemon.alive():
                    raise RuntimeError(f"{daemon.name} exited:\n{daemon.tail()}")
            if time.monotonic() > deadline:
                last = daemons[-1]
                raise RuntimeError(f"{last.name} is not ready in time:\n{last.tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop all processes, etcd last."""
        for daemon in (self.scheduler, self.controller_manager, self.api_server, self.etcd):
            daemon.stop()

    def serves(self) -> bool:
        """Return whether the API server reports that it is ready."""
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        trust.load_cert_chain(self.folder / "admin.crt", self.folder / "admin.key")
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=trust):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def client(self) -> kubernetes.ApiClient:
        """Return a new client with all permissions. The caller closes it."""
        return config.new_client_from_config(str(self.kubeconfig))

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig with a token of an existing ServiceAccount, valid for one day."""
        with self.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            response = core.create_namespaced_service_account_token(
                name, namespace, {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
            )
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        authority = (self.folder / "ca.crt").read_bytes()
        write_kubeconfig(path, self.url, authority, {"token": response.status.token}, namespace)
        return path

    def _controllers_work(self) -> bool:
        # The last object that a new namespace needs before pods can be created in it.
        with self.client() as api:
            try:
                kubernetes.CoreV1Api(api).read_namespaced_service_account("default", "default")
            except kubernetes.ApiException:
                return False
        return True

    def _make_credentials(self) -> Authority:
        self.folder.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        (self.folder / "ca.crt").write_bytes(authority.certificate)
        _secret(self.folder / "service-accounts.key", key_pem())
        hosts = ["localhost", "127.0.0.1", self.address, str(SERVICE_RANGE[1])]
        hosts += ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        for user, group, name in (
            ("kubernetes-admin", "system:masters", "admin"),
            ("system:kube-controller-manager", "", "kube-controller-manager"),
            ("system:kube-scheduler", "", "kube-scheduler"),
            ("kube-apiserver", "system:masters", "kube-apiserver"),
        ):
            pair = authority.issue(user, group, hosts if name == "kube-apiserver" else ())
            (self.folder / f"{name}.crt").write_bytes(pair.certificate)
            _secret(self.folder / f"{name}.key", pair.key)
            path = self.folder / f"{name}.kubeconfig"
            write_kubeconfig(path, self.url, authority.certificate, kubeconfig_user(pair))
        return authority

    def _daemon(self, name: str, argv: list[str | Path]) -> Daemon:
        extra = [f"--{flag}={value}" for flag, value in self._flags.get(name, {}).items()]
        return Daemon(self.folder, name, [*argv, *extra], die_with_parent=self._die_with_parent)

    def _etcd(self) -> list[str | Path]:
        client = f"http://127.0.0.1:{self._ports['etcd']}"
        peer = f"http://127.0.0.1:{self._ports['peer']}"
        return [
            binary("etcd"),
            *("--data-dir", self.folder / "etcd", "--log-level", "warn"),
            # This data need not survive a crash of the machine.
            "--unsafe-no-fsync",
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        ]

    def _api_server(self) -> list[str | Path]:
        path = self.folder
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self._ports['etcd']}",
            "bind-address": self.address,
            "advertise-address": self.address,
            "secure-port": self._ports["kube-apiserver"],
            "tls-cert-file": path / "kube-apiserver.crt",
            "tls-private-key-file": path / "kube-apiserver.key",
            "client-ca-file": path / "ca.crt",
            "kubelet-client-certificate": path / "kube-apiserver.crt",
            "kubelet-client-key": path / "kube-apiserver.key",
            # A node's name need not resolve.
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": path / "service-accounts.key",
            "service-account-signing-key-file": path / "service-accounts.key",
            "service-cluster-ip-range": SERVICE_RANGE,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            # Call webhooks behind a Service at its endpoints: there may be no kube-proxy.
            "enable-aggregator-routing": "true",
        }
        if ipaddress.ip_address(self.address).is_loopback:
            # Endpoints cannot be loopback addresses, so the Service `kubernetes` has none.
            flags["endpoint-reconciler-type"] = "none"
        return [binary("kube-apiserver"), *(f"--{name}={value}" for name, value in flags.items())]

    def _controller_manager(self) -> list[str | Path]:
        path = self.folder
        return [
            *self._component("kube-controller-manager"),
            f"--service-account-private-key-file={path / 'service-accounts.key'}",
            f"--root-ca-file={path / 'ca.crt'}",
            "--use-service-account-credentials=true",
            # Pods of a dead node must move before the tests time out.
            "--node-monitor-grace-period=20s",
            # The default of 15 s would slow down the tests of HorizontalPodAutoscalers.
            "--horizontal-pod-autoscaler-sync-period=2s",
        ]

    def _component(self, name: str) -> list[str | Path]:
        path = self.folder / f"{name}.kubeconfig"
        return [
            binary(name),
            *(f"--{flag}={path}" for flag in ("kubeconfig", "authentication-kubeconfig")),
            f"--authorization-kubeconfig={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[name]}",
            "--leader-elect=false",
        ]


def _ports(path: Path) -> dict[str, int]:
    """Return free ports. Store them in `path`, so that later runs use the same."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = zip(_PORTS, free_ports(len(_PORTS)), strict=True)
        path.write_text(json.dumps(dict(found)))
    read: dict[str, int] = json.loads(path.read_text())
    return read


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
