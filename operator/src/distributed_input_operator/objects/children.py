"""Parts that the manifests of an input's child objects share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from distributed_input.api import environment, files, flags, identity, names, process_config
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, ObjectMeta
from distributed_input.api.resource.scalars import quantity
from distributed_input.api.resource.sections.template import ResourceRequirements
from distributed_input_operator.objects.snapshot import Settings

OS_LABEL = "kubernetes.io/os"
"""Label of nodes. The images are for Linux."""
APPLIED_ANNOTATION = f"{names.PREFIX}applied"
"""A hash of the applied manifest. It changes if the operator stops setting a field, which must
then be removed from the object."""

NO_TLS_1_2 = {"name": environment.GRPC_CIPHERS_ENV, "value": environment.NO_TLS_1_2}
"""The variable of encrypted processes that switches off TLS 1.2."""

CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard "restricted" requires."""

_LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LOST_NODE_SECONDS = 30
"""Kubernetes taints a node after 40 to 50 s of silence. Most nodes that recover do so within
another 30 s."""


def manifest(
    resource: DistributedInput,
    api_version: str,
    kind: str,
    name: str,
    content: Mapping[str, Any],
    component: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the manifest of a child object, with labels and an owner reference to the input.

    `content` has the top-level fields besides metadata. Without a component, the child is for both.
    """
    meta = resource.metadata
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        # `kubectl delete --cascade=foreground` waits for the pods.
        "blockOwnerDeletion": True,
    }
    result: dict[str, Any] = {
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
    result["metadata"]["annotations"][APPLIED_ANNOTATION] = digest(result)
    return result


def default_image_annotation(spec_image: str | None, default: str) -> dict[str, str]:
    """Return the annotation of a Deployment that uses the operator's default image.

    It is empty if the input's spec sets the image.
    """
    return {} if spec_image else {names.DEFAULT_IMAGE_ANNOTATION: default}


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod_template(
    meta: ObjectMeta, component: str, spec: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a pod template that the Pod Security Standard "restricted" allows.

    A change of `config`, which is not in the spec, replaces the pods.
    """
    return {
        "metadata": {
            "labels": names.labels(meta.name, component) | queue_labels(meta, component),
            "annotations": {
                names.CONFIG_HASH_ANNOTATION: digest(config),
                # No pod is irreplaceable, so the cluster autoscaler may remove its node.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
                **group_annotations(meta),
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": POD_SECURITY,
            **spec,
        },
    }


def node_fields(
    selector: Mapping[str, str],
    given: Sequence[Mapping[str, Any]],
    priority_class: str | None,
    own: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the fields of a pod's spec that select its nodes, and its priority.

    Short tolerations of the taints of a lost node replace the pod early: the default of Kubernetes
    is 5 minutes. A given toleration for the same taint, or for all taints, takes precedence.
    `selector` may override the operating system. `own` are further tolerations.
    """
    keys = {one.get("key") for one in given}
    taints = [key for key in _LOST_NODE_TAINTS if key not in keys and None not in keys]
    lost = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _LOST_NODE_SECONDS,
        }
        for key in taints
    ]
    return {
        "nodeSelector": {OS_LABEL: "linux", **selector},
        "tolerations": [*own, *given, *lost],
        **({"priorityClassName": priority_class} if priority_class else {}),
    }


def image_pull_secrets(settings: Settings) -> dict[str, Any]:
    """Return the field `imagePullSecrets` of a pod's spec, or nothing if there are none."""
    secrets = [{"name": name} for name in settings.pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}


def image_pull_policy(spec_image: str | None, settings: Settings) -> dict[str, str]:
    """Return the field `imagePullPolicy` of a container, or nothing.

    The operator's setting applies only to its default images, not to an image of the input's spec.
    """
    policy = "" if spec_image else settings.pull_policy
    return {"imagePullPolicy": policy} if policy else {}


def process_fields(arguments: Sequence[str]) -> dict[str, Any]:
    """Return `args` of a container, and `env` if it needs a document or is encrypted.

    See `process_config`.
    """
    args, document = process_config.split(arguments)
    env = [
        *([{"name": environment.CONFIG_ENV, "value": document}] if document else ()),
        *([NO_TLS_1_2] if flags.TLS_DIR in args else ()),
    ]
    return {"args": args, **({"env": env} if env else {})}


def variables(*env: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return environment variables, each name once. The last one of a name takes precedence."""
    last = {one.get("name"): at for at, one in enumerate(env)}
    return [one for at, one in enumerate(env) if last[one.get("name")] == at]


def container(
    part: str,
    image: str,
    args: list[str],
    port: int,
    resources: Mapping[str, Any],
    *,
    encrypted: bool = False,
) -> dict[str, Any]:
    """Return the container of one process, which runs `python -m distributed_input.<part>`."""
    probe: dict[str, Any] = {"grpc": {"port": port}, "timeoutSeconds": 5}
    if encrypted:  # The kubelet's gRPC probe has no certificate.
        page = {"path": "/healthz", "port": names.METRICS_PORT}
        probe = {"httpGet": page, "timeoutSeconds": 5}
    return {
        "name": part,
        "image": image,
        "command": ["python", "-m", f"distributed_input.{part}"],
        **process_fields([*args, flags.METRICS_LISTEN, f":{names.METRICS_PORT}"]),
        "ports": [
            {"name": names.GRPC_PORT_NAME, "containerPort": port},
            {"name": names.METRICS_PORT_NAME, "containerPort": names.METRICS_PORT},
        ],
        "resources": dict(resources),
        "securityContext": CONTAINER_SECURITY,
        # Kubernetes copies the last log lines to the pod's status. The operator reports them in a
        # condition of the input.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
    }


def credentials_volume(resource: DistributedInput, role: str) -> tuple[dict[str, Any], ...]:
    """Return the volume with the token or the certificate of a process, and its mount."""
    name = resource.metadata.name
    if not resource.spec.is_encrypted:
        item = {"key": files.TOKEN_KEY, "path": name}
        return (
            {"name": "token", "secret": {"secretName": names.shared(name), "items": [item]}},
            {"name": "token", "mountPath": files.TOKENS_DIR, "readOnly": True},
        )
    sources = certificate_sources(name, role, name)
    return (
        {"name": "tls", "projected": {"sources": sources}},
        {"name": "tls", "mountPath": files.TLS_DIR, "readOnly": True},
    )


def certificate_sources(name: str, role: str, folder: str) -> list[dict[str, Any]]:
    """Return the sources of a projected volume with the certificate of a role."""
    source = names.certificates(name)
    secret = [{"key": files.private_key(role), "path": f"{folder}/{identity.KEY_FILE}"}]
    # From one object, so that a process sees an authority and its certificates together.
    public = [
        {"key": files.AUTHORITIES_KEY, "path": f"{folder}/{identity.AUTHORITIES_FILE}"},
        {"key": files.certificate(role), "path": f"{folder}/{identity.CHAIN_FILE}"},
    ]
    return [
        {"secret": {"name": source, "items": secret}},
        {"configMap": {"name": source, "items": public}},
    ]


def credential_flags(resource: DistributedInput) -> dict[str, str]:
    """Return the setting of a process with its token file or its certificate."""
    name = resource.metadata.name
    if not resource.spec.is_encrypted:
        return {"token_file": files.token_file(name)}
    return {"tls_dir": files.tls_folder(name)}


SCRATCH_VOLUME: dict[str, Any] = {"name": "tmp", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - private to the container


def container_resources(
    resources: ResourceRequirements,
    default_requests: Mapping[str, str],
    devices: Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """Return the field `resources` of a container, without empty parts.

    The default requests are for resources without a request or limit in the spec. `devices`, which
    are accelerators, need equal requests and limits.
    """
    limits = {**resources.limits, **(devices or {})}
    # If only a limit is set, Kubernetes uses it as the request too.
    defaults = {key: value for key, value in default_requests.items() if key not in limits}
    requests = {**defaults, **resources.requests, **(devices or {})}
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def cpus(resources: Mapping[str, Mapping[str, str]]) -> int:
    """Return the CPUs of a container, rounded up, from its request or else its limit.

    The result is 1 if it has neither.
    """
    for kind in ("requests", "limits"):
        if "cpu" in resources.get(kind, {}):
            return max(1, math.ceil(quantity(resources[kind]["cpu"])))
    return 1


def is_in_group(meta: ObjectMeta) -> bool:
    """Return whether the pods of an input are admitted in a group."""
    return names.POD_GROUP_LABEL in meta.labels


def queue_labels(meta: ObjectMeta, component: str) -> dict[str, str]:
    """Return the labels of an input that its pods get.

    A dispatcher outside of a group starts without a queue: without it, workers and trainers wait.
    """
    if component == names.DISPATCHER and not is_in_group(meta):
        return {}
    kept = (*names.QUEUE_LABELS, names.POD_GROUP_LABEL)
    return {key: meta.labels[key] for key in kept if key in meta.labels}


def group_annotations(meta: ObjectMeta) -> dict[str, str]:
    """Return the annotations of an input that its pods get, if they are in a group."""
    kept = names.POD_GROUP_ANNOTATIONS if is_in_group(meta) else ()
    return {key: meta.annotations[key] for key in kept if key in meta.annotations}
