"""The dispatcher of an input in a cluster, through kubectl and so through the kubeconfig.

It needs the rights to get the input, its Secret and its Service, to get and list pods, and to
forward a port to a pod. If the input is encrypted, which is the default, also to get the ConfigMap
with its certificates.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.api import files, identity, names
from distributed_input.api.errors import ConfigError, UnavailableError

NOT_INSTALLED = "kubectl is not installed: install it"
INPUTS = "distributedinputs.distributed-input.dev"
_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ")
_GOOD = ("Ready", "DispatcherReady", "WorkersAvailable", "Applied")
"""Conditions that report a problem if they are not True. Others report one if they are."""


@dataclass(frozen=True)
class ClusterInput:
    """An input in a cluster, while the port of its dispatcher is forwarded."""

    address: str
    token: str
    problems: tuple[str, ...]
    """What the operator reports about it; see `problems_of`."""
    tls_folder: Path | None = None
    """Folder with a viewer's certificate, which replaces the token. None: it is not encrypted."""


@contextlib.contextmanager
def forwarded(name: str, namespace: str | None, seconds: float) -> Iterator[ClusterInput]:
    """Forward a port of this machine to the dispatcher of an input.

    Each command of kubectl has `seconds`. Without a namespace, it is that of the context.

    Raises:
        ConfigError: kubectl is not installed, or refuses.
        UnavailableError: the dispatcher cannot be reached. The message has the input's problems.
    """
    if shutil.which("kubectl") is None:
        remedy = "or forward a port to the dispatcher's Service and set --dispatcher"
        raise ConfigError(f"{NOT_INSTALLED}, {remedy}")
    where = _where(namespace)
    resource = get_input(name, namespace, seconds)
    problems = problems_of(resource)
    encrypted = resource["spec"]["encryption"] != "None"
    own = names.certificates(name) if encrypted else names.shared(name)
    secret = _decoded(_get("secret", own, where, seconds))
    token = secret.get(files.TOKEN_KEY, "").strip()
    certificates = _get("configmap", own, where, seconds).get("data", {}) if encrypted else {}
    service = f"service/{names.dispatcher(name)}"
    command = ["kubectl", "port-forward", *where, service, f":{names.DISPATCHER_PORT}"]
    forwarding = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with tempfile.TemporaryDirectory(prefix="distributed-input-") as folder, forwarding:
        try:
            path = _write_certificate(Path(folder), secret, certificates) if encrypted else None
            address = _address(forwarding, name, seconds, problems)
            yield ClusterInput(address, token, problems, path)
        finally:
            forwarding.terminate()


def get_input(name: str, namespace: str | None, seconds: float) -> Any:
    """Return an input as the cluster has it. The arguments are those of `forwarded`.

    Raises:
        ConfigError: there is no such input, kubectl is not installed, or it refuses.
        UnavailableError: the cluster does not respond.
    """
    return _get(INPUTS, name, _where(namespace), seconds)


def problems_of(resource: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the status of an input reports as a problem, one line each."""
    status = resource.get("status") or {}
    found: dict[str, str] = {}
    for one in status.get("conditions") or ():
        kind, message = one.get("type", ""), one.get("message", "")
        if (one.get("status") == "True") != (kind in _GOOD):
            # Ready, Reconciling and Stalled have the same message.
            found.setdefault(message, f"{kind} is {one['status']} ({one.get('reason')}): {message}")
    workers = status.get("workers") or {}
    requested, desired = workers.get("requested", 0), workers.get("desired", 0)
    if requested > desired:
        found["budget"] = (
            f"budgets grant {desired} of the {requested} workers that the input needs: see "
            "`kubectl describe inputpolicy cluster`"
        )
    return tuple(found.values())


def _where(namespace: str | None) -> list[str]:
    return ["--namespace", namespace] if namespace else []


def _decoded(secret: Mapping[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret.get("data", {}).items()}


def _write_certificate(
    folder: Path, secret: Mapping[str, str], certificates: Mapping[str, str]
) -> Path:
    """Write the certificate of a viewer into a private folder. Return the folder."""
    viewer = identity.VIEWER
    (folder / identity.CHAIN_FILE).write_text(certificates.get(files.certificate(viewer), ""))
    (folder / identity.KEY_FILE).write_text(secret.get(files.private_key(viewer), ""))
    (folder / identity.AUTHORITIES_FILE).write_text(certificates.get(files.AUTHORITIES_KEY, ""))
    return folder


def _get(kind: str, name: str, where: Sequence[str], seconds: float) -> Any:
    try:
        return json.loads(output("get", kind, name, *where, "--output", "json", seconds=seconds))
    except UnavailableError as error:
        raise UnavailableError(f"{error}, or set --timeout") from error
    except ConfigError as error:
        if "(NotFound)" in str(error) or str(error) == NOT_INSTALLED:
            raise
        hint = "`distributed-input doctor` checks the access to the cluster."
        raise ConfigError(f"{error}\n  {hint}") from error


def output(*arguments: str, seconds: float) -> str:
    """Return what kubectl prints.

    Raises:
        ConfigError: kubectl is not installed, or refuses.
        UnavailableError: it does not end within some seconds.
    """
    command = ["kubectl", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise ConfigError(NOT_INSTALLED) from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"`{' '.join(command)}` did not end within {seconds:g} s: check the kubeconfig"
        ) from error
    if done.returncode:
        # The lines before the last one are of kubectl's caches and retries.
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1].strip()
        raise ConfigError(f"`{' '.join(command)}`: {last}")
    return done.stdout


def _address(
    forwarding: subprocess.Popen[bytes], name: str, seconds: float, problems: Sequence[str]
) -> str:
    """Return the local address, which kubectl prints when it forwards."""
    assert forwarding.stdout is not None
    readable, _, _ = select.select([forwarding.stdout], [], [], seconds)
    line = forwarding.stdout.readline().decode(errors="replace").strip() if readable else ""
    if match := _FORWARDING.match(line):
        return match[1]
    cause = line or f"kubectl port-forward printed nothing for {seconds:g} s"
    reports = "".join(f"\n  {problem}" for problem in problems)
    raise UnavailableError(f"the dispatcher of {name} cannot be reached: {cause}{reports}")
