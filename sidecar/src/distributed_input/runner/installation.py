"""Checks of the installation: this machine, its Python packages, and the cluster."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from distributed_input.api import names
from distributed_input.api.errors import DistributedInputError
from distributed_input.runner import folders, kubectl

_FLOORS = {"grpcio": "1.62.1", "numpy": "1.26", "protobuf": "4.25.1"}
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")
_TENSORFLOW_FLOOR = "2.16"
_RUN_PACKAGES = ("pydantic", "pyyaml", "xxhash")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only its size is read
_BUFFER_BYTES = 256 << 20
"""Default of `sidecar.buffer`."""
_KUBECTL_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_INSTALL = (
    "run `pip install 'distributed-input[run]'`, or before the first release `pip install "
    "--find-links dist 'distributed-input[run]'`, see the README"
)


class Result(Enum):
    """The result of a check. Only FAILED makes the installation unusable."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    result: Result
    text: str
    """What was found and, if it is not OK, what to do."""


def check_all(env: Mapping[str, str], namespace: str | None = None) -> Iterator[Check]:
    """Yield the checks of this machine and then those of the cluster, each as it is done.

    The check of rights is for `namespace`. None: that of the kubeconfig's context.
    """
    yield check_python(sys.version_info[:2], platform.system())
    yield check_packages(installed_version)
    yield check_tensorflow(installed_version)
    yield check_run_packages(installed_version)
    yield check_shared_memory(_SHARED_MEMORY)
    yield from check_folder(env)
    yield from check_cluster(_kubectl, namespace)


def _kubectl(*arguments: str) -> str:
    """Return what kubectl prints. Its plugin for credentials may take longer than its requests."""
    timeout = f"--request-timeout={_KUBECTL_SECONDS:g}s"
    return kubectl.output(*arguments, timeout, seconds=2 * _KUBECTL_SECONDS)


Versions = Callable[[str], str | None]
"""Returns the version of an installed distribution; None if it is not installed."""


def installed_version(package: str) -> str | None:
    """Return the version of a distribution, see `Versions`."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_python(version: tuple[int, int], system: str) -> Check:
    """Check the version of Python, and the operating system."""
    found = f"Python {version[0]}.{version[1]} on {system}"
    if not (3, 10) <= version < (3, 14):
        return Check("python", Result.FAILED, f"{found}: use Python 3.10 to 3.13")
    if system == "Darwin":
        text = (
            f"{found} (macOS): `run`, `local` and the client are written for it, but only tested "
            "on Linux without the calls that macOS lacks. Use Linux for --workers local"
        )
        return Check("python", Result.WARNING, text)
    if system != "Linux":
        return Check("python", Result.WARNING, f"{found}: only Linux is tested")
    return Check("python", Result.OK, found)


def check_packages(version: Versions) -> Check:
    """Check the packages that every part needs."""
    found = {name: version(name) for name in ("distributed-input", *_FLOORS)}
    old = [
        f"{name} {found[name] or 'is missing'}: install {floor} or later"
        for name, floor in _FLOORS.items()
        if _numbers(found[name] or "0") < _numbers(floor)
    ]
    if old:
        return Check("packages", Result.FAILED, "; ".join(old))
    return Check("packages", Result.OK, ", ".join(f"{k} {v or '?'}" for k, v in found.items()))


def check_tensorflow(version: Versions) -> Check:
    """Check TensorFlow, which workers and `distribute` need, but not `numpy()`."""
    for package in _TENSORFLOW:
        if (found := version(package)) is None:
            continue
        if _numbers(found) < _numbers(_TENSORFLOW_FLOOR):
            text = f"{package} {found}: install {_TENSORFLOW_FLOOR} or later"
            return Check("tensorflow", Result.FAILED, text)
        return Check("tensorflow", Result.OK, f"{package} {found}")
    text = (
        f"not installed: workers need it. A trainer with `numpy()` does not. To add it, {_INSTALL}"
    )
    return Check("tensorflow", Result.WARNING, text)


def check_run_packages(version: Versions) -> Check:
    """Check what `run`, `validate` and `local` need."""
    if missing := [name for name in _RUN_PACKAGES if version(name) is None]:
        text = f"{', '.join(missing)} not installed: `distributed-input run` needs them: {_INSTALL}"
        return Check("run", Result.WARNING, text)
    return Check("run", Result.OK, "the packages of `distributed-input run` are installed")


def check_shared_memory(folder: Path, free: int | None = None) -> Check:
    """Check the free shared memory. `free`: bytes, to use in place of the measured value."""
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        text = f"{folder} cannot be written: buffers use the folder for temporary files, on a disk"
        return Check("shared memory", Result.WARNING, text)
    free = shutil.disk_usage(folder).free if free is None else free
    found = f"{free >> 20} MiB free in {folder}"
    if free < _BUFFER_BYTES:
        text = (
            f"{found}: a trainer needs sidecar.buffer, by default {_BUFFER_BYTES >> 20} MiB. If it "
            "does not fit, buffers use the folder for temporary files, on a disk. Start the "
            "container with more (docker run --shm-size=1g), or lower sidecar.buffer"
        )
        return Check("shared memory", Result.WARNING, text)
    return Check("shared memory", Result.OK, found)


def check_folder(env: Mapping[str, str]) -> Iterator[Check]:
    """Check that a run can create its private folder, and then sockets in it."""
    try:
        with folders.create(None, env) as created:
            text = f"runs create their folders in {created.path.parent}"
            yield Check("folder", Result.OK, text)
            yield check_sockets(created.shared)
    except (OSError, ValueError) as error:
        yield Check("folder", Result.FAILED, f"a run cannot create its folder: {error}")


def check_sockets(folder: Path) -> Check:
    """Check that a program can listen on a Unix socket in a folder, and connect to itself."""
    path = folder / "doctor"
    try:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as one:
            server.bind(str(path))
            server.listen()
            one.settimeout(_CONNECT_SECONDS)
            one.connect(str(path))
    except OSError as error:
        text = (
            f"cannot connect to a Unix socket in {folder}: {error}. The processes of a run use "
            "such sockets: check the sandbox and the file system"
        )
        return Check("sockets", Result.FAILED, text)
    finally:
        path.unlink(missing_ok=True)
    return Check("sockets", Result.OK, f"a program can listen on a Unix socket in {folder}")


Kubectl = Callable[..., str]
"""Return the output of kubectl with these arguments; see `kubectl.output`."""


def check_cluster(run: Kubectl, namespace: str | None = None) -> Iterator[Check]:
    """Yield the checks of the kubeconfig's cluster. Without kubectl, a warning."""
    try:
        context = run("config", "current-context").strip()
        version = json.loads(run("version", "--output", "json"))
    except (DistributedInputError, ValueError) as error:
        text = f"{error}. Only commands with the name of an input need a cluster"
        yield Check("cluster", Result.WARNING, text)
        return
    server = version.get("serverVersion", {}).get("gitVersion", "?")
    yield Check("cluster", Result.OK, f"Kubernetes {server}, context {context}")
    yield _check_definition(run)
    yield _check_operator(run)
    yield _check_rights(run, namespace or _namespace_of_context(run))


def _check_definition(run: Kubectl) -> Check:
    try:
        found: Any = json.loads(run("get", "crd", kubectl.INPUTS, "--output", "json"))
    except (DistributedInputError, ValueError):
        text = "the cluster has no DistributedInput definition: install the chart"
        return Check("definition", Result.WARNING, text)
    versions = [one["name"] for one in found["spec"]["versions"] if one.get("served")]
    return Check("definition", Result.OK, f"DistributedInput {', '.join(versions)}")


def _check_operator(run: Kubectl) -> Check:
    label = f"{names.NAME_LABEL}={names.APP},{names.COMPONENT_LABEL}={names.OPERATOR_COMPONENT}"
    command = ("get", "deployments", "--all-namespaces", "--selector", label, "--output", "json")
    try:
        found: Any = json.loads(run(*command))["items"]
    except (DistributedInputError, ValueError) as error:
        return Check("operator", Result.WARNING, f"cannot be listed: {error}")
    if not found:
        text = "no operator in the cluster: run `helm install`, see the README"
        return Check("operator", Result.WARNING, text)
    ready = found[0].get("status", {}).get("readyReplicas", 0)
    meta = found[0]["metadata"]
    image = found[0]["spec"]["template"]["spec"]["containers"][0]["image"]
    text = f"{meta['namespace']}/{meta['name']}, {ready} ready, image {image}"
    if not ready:
        text += f". Run `kubectl describe deployment {meta['name']} -n {meta['namespace']}`"
    return Check("operator", Result.OK if ready else Result.FAILED, text)


def _namespace_of_context(run: Kubectl) -> str:
    try:
        found = run("config", "view", "--minify", "--output", "jsonpath={..namespace}")
    except DistributedInputError:
        found = ""
    return found.strip() or "default"


def _check_rights(run: Kubectl, namespace: str) -> Check:
    """Check the rights that `status`, `explain`, `top` and `logs` need in a namespace."""
    # `kubectl port-forward` gets the Service, lists its pods and gets the first one.
    needed = {
        "get distributedinputs": ("get", kubectl.INPUTS),
        "get secrets": ("get", "secrets"),
        "get configmaps": ("get", "configmaps"),
        "get services": ("get", "services"),
        "get pods": ("get", "pods"),
        "list pods": ("list", "pods"),
        "create pods/portforward": ("create", "pods", "--subresource=portforward"),
        "get pods/log": ("get", "pods", "--subresource=log"),
    }
    missing = [text for text, words in needed.items() if not _allowed(run, words, namespace)]
    if missing:
        text = (
            f"namespace {namespace}: status, explain, top and logs need: {', '.join(missing)}. Ask "
            "for a Role with these"
        )
        return Check("rights", Result.WARNING, text)
    text = f"namespace {namespace}: status, explain, top and logs of an input are allowed"
    return Check("rights", Result.OK, text)


def _allowed(run: Kubectl, words: tuple[str, ...], namespace: str) -> bool:
    try:
        return run("auth", "can-i", *words, "--namespace", namespace).strip() == "yes"
    except DistributedInputError:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first numbers of a version: 2.17.0rc1 gives (2, 17, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
