"""Containers of a pod with their own mounts, user, environment and read-only root, as in a kubelet.

Real: mount namespaces, users, capabilities, file permissions, the expansion of `$(NAME)`. Not real:
images (all containers have this machine's), cgroups, networks. Needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Json = Mapping[str, Any]
IMAGE_USER = 65532
_CHECKOUT = Path(__file__).parents[2]


def reason_not_to_run() -> str:
    """Return why this machine cannot run containers; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, for mounts and users"
    result = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespaces here: {result.stderr}" if result.returncode else ""


class PodRunner:
    """The volumes and processes of one pod.

    Args:
        pod: the pod's manifest.
        objects: data of ConfigMaps and Secrets by (kind, name).
        hosts: host names that resolve to this machine.
    """

    def __init__(
        self, pod: Json, objects: Mapping[tuple[str, str], Mapping[str, str]], hosts: Sequence[str]
    ) -> None:
        self._pod = pod
        # In memory, like the pod's volume, and with a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="di-pod-", dir="/dev/shm"))
        self.folder.chmod(0o755)
        self._processes: list[subprocess.Popen[str]] = []
        for volume in pod["spec"].get("volumes", ()):
            self._make(volume, objects)
        names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *hosts))
        (self.folder / "etc").mkdir()
        (self.folder / "etc" / "hosts").write_text(names)

    def start(
        self,
        container: Json,
        user: int,
        argv: Sequence[str] = (),
        image: Mapping[str, str] | None = None,
        group: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a container.

        Args:
            container: its manifest.
            user: id of the user, if the manifest has none.
            argv: its command, if the manifest has none.
            image: environment variables of the image.
            group: id of the group. None: the same as that of the user.
        """
        env: dict[str, str] = {}
        for one in container.get("env", ()):  # a value may refer to variables before it
            env[one["name"]] = _expand(self._value(one), env)
        given = [*container.get("command", argv), *container.get("args", ())]
        expanded = [_expand(word, env) for word in given]
        security = container.get("securityContext", {})
        user = security.get("runAsUser", user)
        lines = [*self._mounts(container)]
        if security.get("readOnlyRootFilesystem"):
            lines += ["mount --bind / /", "mount -o remount,ro,bind /"]
        drop = [
            "setpriv",
            f"--reuid={user}",
            f"--regid={user if group is None else group}",
            "--clear-groups",
            "--inh-caps=-all",
        ]
        drop += ["--bounding-set=-all", "--no-new-privs", "--pdeathsig", "KILL", "--"]
        lines.append(f"cd / && exec {shlex.join([*drop, *expanded])}")
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        log = self.folder / f"{container['name']}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", "\n".join(lines)],
                env={
                    "PATH": path,
                    "HOME": "/nonexistent",
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    **(image or {}),
                    **env,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._processes.append(process)
        return process

    def probe(self, process: subprocess.Popen[str], container: Json) -> None:
        """Wait for the startup probe. Raises AssertionError with the container's log."""
        probe = container["startupProbe"]
        deadline = time.monotonic() + probe["failureThreshold"] * probe["periodSeconds"]
        while time.monotonic() < deadline and process.poll() is None:
            if _serves(probe):
                return
            time.sleep(0.05)
        raise AssertionError(f"{container['name']} does not serve:\n{self.log(container)}")

    def log(self, container: Json) -> str:
        """Return what a container wrote to stderr."""
        return (self.folder / f"{container['name']}.log").read_text()

    def __enter__(self) -> PodRunner:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
        shutil.rmtree(self.folder)

    def _make(self, volume: Json, objects: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        place = self.folder / "volumes" / volume["name"]
        place.mkdir(parents=True)
        if "emptyDir" in volume:
            place.chmod(0o777)
        sources = list(volume.get("projected", {}).get("sources", ()))
        if "secret" in volume:
            secret = volume["secret"]
            sources.append({"secret": {"name": secret["secretName"], "items": secret["items"]}})
        for source in sources:
            ((kind, one),) = source.items()
            for item in one["items"]:
                file = place / item["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(objects[kind, one["name"]][item["key"]])
                file.chmod(0o644)  # the default of projected volumes

    def _value(self, one: Json) -> str:
        if "valueFrom" not in one:
            return str(one.get("value", ""))
        path = one["valueFrom"]["fieldRef"]["fieldPath"]
        where, *keys = path.removeprefix("metadata.").removesuffix("']").split("['")
        value = self._pod["metadata"][where]
        return str(value[keys[0]] if keys else value)

    def _mounts(self, container: Json) -> list[str]:
        """Return shell lines that create the container's file system."""
        lines = _open_to_all_users(self.folder, [Path(sys.base_prefix), _CHECKOUT, self.folder])
        mounts = container.get("volumeMounts", ())
        for mount in mounts:
            top = _top(mount)
            if top == Path("/etc"):
                place = self.folder / mount["mountPath"].lstrip("/")
                place.mkdir(parents=True, exist_ok=True)
            else:
                lines += [f"mount -t tmpfs tmpfs {top}", f"mkdir -p {mount['mountPath']}"]
        lines.append(f"mount -t overlay overlay -o lowerdir={self.folder}/etc:/etc /etc")
        for mount in mounts:
            lines.append(f"mount --bind {self.folder}/volumes/{mount['name']} {mount['mountPath']}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,ro,bind {mount['mountPath']}")
        # A volume may hide the checkout, for example one at /tmp.
        if any(_CHECKOUT.is_relative_to(_top(one)) for one in mounts):
            checkout = self.folder / "checkout"
            checkout.mkdir(exist_ok=True)
            lines.insert(0, f"mount --bind {_CHECKOUT} {checkout}")
            lines += [f"mkdir -p {_CHECKOUT}", f"mount --bind {checkout} {_CHECKOUT}"]
        return lines


def _top(mount: Json) -> Path:
    return Path(*Path(mount["mountPath"]).parts[:2])


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Replace references `$(NAME)` to variables that exist, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)


def _serves(probe: Json) -> bool:
    """Return whether a probe succeeds: gRPC's health service, or an HTTP page."""
    seconds = probe["timeoutSeconds"]
    if "grpc" in probe:
        with grpc.insecure_channel(f"127.0.0.1:{probe['grpc']['port']}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            try:
                answer = check(health_pb2.HealthCheckRequest(), timeout=seconds)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
    page = f"http://127.0.0.1:{probe['httpGet']['port']}{probe['httpGet']['path']}"
    try:
        with urllib.request.urlopen(page, timeout=seconds):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _open_to_all_users(stage: Path, needed: Sequence[Path]) -> list[str]:
    """Return shell lines that let every user reach these paths, also in another user's home."""
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        for above in reversed(path.parents):
            if not above.stat().st_mode & 0o001:
                closed.setdefault(above, []).append(path)
                break
    lines = []
    for above, paths in closed.items():
        staged = [stage / "opened" / str(place) for place in range(len(paths))]
        for path, place in zip(paths, staged, strict=True):
            lines += [f"mkdir -p {place}", f"mount --bind {path} {place}"]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {above}")
        for path, place in zip(paths, staged, strict=True):
            lines += [f"mkdir -p {path}", f"mount --bind {place} {path}"]
    return lines
