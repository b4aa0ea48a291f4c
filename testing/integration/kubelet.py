"""Runs containers of a pod as a kubelet would: their own mounts, user, environment, read-only root.

What is real: mount namespaces, users, capabilities, files' permissions, the expansion of `$(NAME)`.
What is not: images (all containers have this machine's), cgroups, networks. Needs root.
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
from types import TracebackType
from typing import Any

Json = Mapping[str, Any]
IMAGE_USER = 65532
_CHECKOUT = Path(__file__).parents[2]


def can_run() -> str:
    """Why it cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root, for mounts and users"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespaces here: {tried.stderr}" if tried.returncode else ""


class Node:
    """One pod's volumes and processes. `objects`: data of ConfigMaps and Secrets by (kind, name);
    `hosts`: names that are this machine.
    """

    def __init__(
        self, pod: Json, objects: Mapping[tuple[str, str], Mapping[str, str]], hosts: Sequence[str]
    ) -> None:
        self._pod = pod
        # Memory, as the pod's volume is; and a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="di-pod-", dir="/dev/shm"))
        self.folder.chmod(0o755)
        self._processes: list[subprocess.Popen[str]] = []
        for volume in pod["spec"].get("volumes", ()):
            self._make(volume, objects)
        names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *hosts))
        (self.folder / "etc").mkdir()
        (self.folder / "etc" / "hosts").write_text(names)

    def start(self, container: Json, user: int, argv: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start a container; `argv` where it has no command of its own."""
        env = {one["name"]: self._value(one) for one in container.get("env", ())}
        given = [*container.get("command", argv), *container.get("args", ())]
        expanded = [re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), arg) for arg in given]
        security = container.get("securityContext", {})
        user = security.get("runAsUser", user)
        lines = [*self._mounts(container)]
        if security.get("readOnlyRootFilesystem"):
            lines += ["mount --bind / /", "mount -o remount,ro,bind /"]
        drop = [
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
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
                env={"PATH": path, "HOME": "/nonexistent", "TF_CPP_MIN_LOG_LEVEL": "2", **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._processes.append(process)
        return process

    def probe(self, process: subprocess.Popen[str], container: Json) -> None:
        """Wait for the startup probe. Raises AssertionError with the container's log."""
        probe = container["startupProbe"]
        page = f"http://127.0.0.1:{probe['httpGet']['port']}{probe['httpGet']['path']}"
        deadline = time.monotonic() + probe["failureThreshold"] * probe["periodSeconds"]
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(page, timeout=probe["timeoutSeconds"]):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise AssertionError(f"{container['name']} does not serve:\n{self.log(container)}")

    def log(self, container: Json) -> str:
        """What a container wrote to stderr."""
        return (self.folder / f"{container['name']}.log").read_text()

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(self.folder)

    def _make(self, volume: Json, objects: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        place = self.folder / "volumes" / volume["name"]
        place.mkdir(parents=True)
        if "emptyDir" in volume:
            place.chmod(0o777)
        for source in volume.get("projected", {}).get("sources", ()):
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
        where, key = path.removeprefix("metadata.").removesuffix("']").split("['")
        return str(self._pod["metadata"][where][key])

    def _mounts(self, container: Json) -> list[str]:
        """Shell lines that make the container's file system."""
        lines = _opened(self.folder, [Path(sys.base_prefix), _CHECKOUT, self.folder])
        mounts = container.get("volumeMounts", ())
        for mount in mounts:
            top = Path(*Path(mount["mountPath"]).parts[:2])
            if top == Path("/etc"):
                (self.folder / "etc" / Path(mount["mountPath"]).name).mkdir(exist_ok=True)
            else:
                lines += [f"mount -t tmpfs tmpfs {top}", f"mkdir -p {mount['mountPath']}"]
        lines.append(f"mount -t overlay overlay -o lowerdir={self.folder}/etc:/etc /etc")
        for mount in mounts:
            lines.append(f"mount --bind {self.folder}/volumes/{mount['name']} {mount['mountPath']}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,ro,bind {mount['mountPath']}")
        return lines


def _opened(stage: Path, needed: Sequence[Path]) -> list[str]:
    """Shell lines that let every user reach these paths, whichever home they are in."""
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
