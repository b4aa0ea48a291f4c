"""What all children of an input have in common, and the list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from distributed_input.api import files, flags, names
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from distributed_input_operator.objects.snapshot import Settings

APPLIED_ANNOTATION = f"{names.PREFIX}applied"
"""A hash of what was applied: tells when something that we once said is to be taken back."""

_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LOST_SECONDS = 30
"""A node is called lost after 40 to 50 s of silence; most that come back do so within this."""


def manifest(
    resource: DistributedInput,
    api_version: str,
    kind: str,
    name: str,
    component: str | None = None,
    annotations: Mapping[str, str] | None = None,
    **content: Any,
) -> dict[str, Any]:
    """A child as it is applied: labelled, owned by the input, so that it goes when the input goes.

    `content` are its top-level fields, such as `spec`.
    """
    meta = resource.metadata
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    made = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": names.labels(meta.name, component),
            "ownerReferences": [owner],
            "annotations": dict(annotations or {}),
        },
        **content,
    }
    made["metadata"]["annotations"][APPLIED_ANNOTATION] = digest(made)
    return made


def default_image(named: str | None, default: str) -> dict[str, str]:
    """The annotation of a Deployment whose image is the operator's choice."""
    return {} if named else {names.DEFAULT_IMAGE_ANNOTATION: default}


def digest(value: Any) -> str:
    """A short hash of any JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod_template(
    name: str, component: str, spec: Mapping[str, Any], hashed: Mapping[str, Any]
) -> dict[str, Any]:
    """A pod template as restricted as pods can be; a change of `hashed` replaces the pods."""
    return {
        "metadata": {
            "labels": names.labels(name, component),
            "annotations": {
                names.CONFIG_HASH_ANNOTATION: digest(hashed),
                # Whoever may lose a pod at any time may be moved by the cluster's autoscaler.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **spec,
        },
    }


def tolerations(given: Sequence[Mapping[str, Any]] = ()) -> list[Mapping[str, Any]]:
    """Those that are `given`, and those for a lost node, so that another pod is made soon.

    Kubernetes' own default is 5 minutes.
    """
    said = {one.get("key") for one in given}
    lost = [key for key in _LOST if key not in said and None not in said]
    return [
        *given,
        *(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _LOST_SECONDS,
            }
            for key in lost
        ),
    ]


def pulling(settings: Settings) -> dict[str, Any]:
    """The part of a pod's spec that says with which Secrets its images are pulled."""
    secrets = [{"name": name} for name in settings.pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}


def pull_policy(named: str | None, settings: Settings) -> dict[str, str]:
    """The part of a container that says when its image is pulled; `named`: by the input, if any."""
    chosen = "" if named else settings.pull_policy
    return {"imagePullPolicy": chosen} if chosen else {}


def container(
    part: str, image: str, args: list[str], port: int, resources: Mapping[str, Any]
) -> dict[str, Any]:
    """The container of one of our processes: `python -m distributed_input.<part>`."""
    probe = {"grpc": {"port": port}, "timeoutSeconds": 5}
    return {
        "name": part,
        "image": image,
        "command": ["python", "-m", f"distributed_input.{part}"],
        "args": [*args, flags.METRICS_LISTEN, f":{names.METRICS_PORT}"],
        "ports": [
            {"name": names.GRPC_PORT_NAME, "containerPort": port},
            {"name": names.METRICS_PORT_NAME, "containerPort": names.METRICS_PORT},
        ],
        "resources": dict(resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # Its last log lines become the status of its pod, and from there the input's condition.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
    }


def token_volume(name: str) -> dict[str, Any]:
    """The input's token, as a file with the input's name."""
    item = {"key": files.TOKEN_KEY, "path": name}
    return {"name": "token", "secret": {"secretName": names.shared(name), "items": [item]}}


TOKEN_MOUNT = {"name": "token", "mountPath": files.TOKENS_DIR, "readOnly": True}
SCRATCH_VOLUME: dict[str, Any] = {"name": "tmp", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - of the container's own
