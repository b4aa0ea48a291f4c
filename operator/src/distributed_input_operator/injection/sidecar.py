"""The container of the sidecar, and its volumes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from distributed_input.api import environment, files, flags, identity, names, sidecar_memory
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import MIB, quantity, quantity_bytes
from distributed_input.api.resource.sections.processes import SIDECAR_BYTES
from distributed_input_operator.injection.trainer_pod import RefusedError, TrainerRank
from distributed_input_operator.objects import children
from distributed_input_operator.objects.worker import parallelism

RUN_VOLUME = "distributed-input"
MOUNTS_VOLUME = "distributed-input-config"
_EMPTY_VOLUME = "distributed-input-no-token"
_TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder's name
_DATASET_BYTES = 256 * MIB
"""Size reserved in the shared volume for a dataset that a rank of the trainer sends."""
_GRACE_SECONDS = 5

RUN_MOUNT = {"name": RUN_VOLUME, "mountPath": files.RUN_DIR}
NO_TOKEN_MOUNT = {"name": _EMPTY_VOLUME, "mountPath": _TOKEN_DIR, "readOnly": True}
"""Prevents Kubernetes from mounting the trainer's API token, which the added containers do not
need. The pod then stays unchanged after the webhook, so the API server need not call it again."""
POD_UID = {
    "name": environment.POD_UID_ENV,
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
}
"""The variable by which the sidecar recognizes the workers of its own pod."""


def sidecar_container(
    inputs: Sequence[DistributedInput],
    image: str,
    user: int | None,
    port: int,
    rank: TrainerRank,
) -> dict[str, Any]:
    """Return a native sidecar: an init container that runs until the other containers end.

    Without a `user`, it runs as the user of the pod or the image. `port` is for metrics and health
    checks.

    Raises:
        RefusedError: the inputs set different images.
    """
    security = {**children.CONTAINER_SECURITY, **children.POD_SECURITY}
    probe = {"httpGet": {"path": "/healthz", "port": port}}
    fields = children.process_fields(_arguments(inputs, port, rank.ranks_per_trainer))
    return {
        "name": names.SIDECAR_CONTAINER,
        "image": _image(inputs, image),
        "restartPolicy": "Always",
        "command": ["python", "-m", "distributed_input.sidecar"],
        "args": fields["args"],
        # Kubernetes expands references only to variables that come before.
        "env": [
            *rank_env(rank),
            *([POD_UID] if has_local_worker(inputs) else ()),
            *fields.get("env", ()),
        ],
        "ports": [{"name": names.SIDECAR_METRICS_PORT_NAME, "containerPort": port}],
        "resources": _resources(inputs, rank),
        "securityContext": security if user is None else {**security, "runAsUser": user},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The trainer starts after this probe succeeds. That needs no dispatcher and no worker.
        "startupProbe": {**probe, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 120},
        "livenessProbe": {**probe, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "volumeMounts": [
            RUN_MOUNT,
            {"name": MOUNTS_VOLUME, "mountPath": files.MOUNTS_DIR, "readOnly": True},
            NO_TOKEN_MOUNT,
        ],
    }


def has_local_worker(inputs: Sequence[DistributedInput]) -> bool:
    """Return whether a pod that reads these inputs has a worker of its own."""
    return any(one.spec.workers.local for one in inputs)


def rank_env(rank: TrainerRank) -> list[dict[str, Any]]:
    """Return the variables with trainer index and count. The sidecar's flags refer to them."""
    return [
        {"name": environment.CONSUMER_INDEX_ENV, **rank.index},
        {"name": environment.CONSUMER_COUNT_ENV, "value": str(rank.count)},
    ]


def sidecar_volumes(inputs: Sequence[DistributedInput], ranks: int = 1) -> list[dict[str, Any]]:
    """Return the memory shared with the trainer, and the sidecar's configuration and tokens.

    The shared memory has room for two buffers per input and rank: a restarted sidecar fills a new
    buffer while the trainer still uses batches in the old one.
    """
    size = sum(2 * ranks * _buffer_bytes(one) for one in inputs)
    size += ranks * _DATASET_BYTES * any(one.spec.dataset.type == "Trainer" for one in inputs)
    memory = {"medium": "Memory", "sizeLimit": _bytes_text(size)}
    sources: list[dict[str, Any]] = []
    for one in inputs:
        name = one.metadata.name
        config = {"key": files.CONFIG_KEY, "path": files.below_mounts(files.config_file(name))}
        sources.append({"configMap": {"name": names.shared(name), "items": [config]}})
        sources += _credential_sources(one)
    return [
        {"name": RUN_VOLUME, "emptyDir": memory},
        {"name": MOUNTS_VOLUME, "projected": {"sources": sources}},
        {"name": _EMPTY_VOLUME, "emptyDir": {}},
    ]


def _credential_sources(one: DistributedInput) -> list[dict[str, Any]]:
    """Return the sources of the volume with an input's token or certificate."""
    name = one.metadata.name
    if not one.spec.is_encrypted:
        token = {"key": files.TOKEN_KEY, "path": files.below_mounts(files.token_file(name))}
        return [{"secret": {"name": names.shared(name), "items": [token]}}]
    folder = files.below_mounts(files.tls_folder(name))
    return children.certificate_sources(name, identity.SIDECAR, folder)


def _arguments(inputs: Sequence[DistributedInput], port: int, ranks: str) -> list[str]:
    pairs = [
        flags.arguments(config=files.config_file(name), dispatcher=f"{name}={names.address(name)}")
        for name in (one.metadata.name for one in inputs)
    ]
    return [
        *itertools.chain.from_iterable(pairs),
        *flags.arguments(
            dir=files.RUN_DIR,
            token_file=files.TOKENS_DIR,
            tls_dir=files.TLS_DIR if any(one.spec.is_encrypted for one in inputs) else None,
            # Kubernetes expands these references to environment variables.
            consumer_index=f"$({environment.CONSUMER_INDEX_ENV})",
            consumer_count=f"$({environment.CONSUMER_COUNT_ENV})",
            ranks_per_trainer=ranks if ranks != "1" else None,
            pod=f"$({environment.POD_UID_ENV})" if has_local_worker(inputs) else None,
            grace_seconds=_GRACE_SECONDS,
            metrics_listen=f":{port}",
        ),
    ]


def _image(inputs: Sequence[DistributedInput], default: str) -> str:
    images = {one.spec.sidecar.image: one.metadata.name for one in inputs if one.spec.sidecar.image}
    if len(images) > 1:
        found = " and ".join(f"{image} ({name})" for image, name in sorted(images.items()))
        raise RefusedError(
            f"spec.sidecar.image of the pod's inputs differs: {found}: set the same image, because "
            "one sidecar serves all inputs of a pod"
        )
    return next(iter(images), default)


def _resources(inputs: Sequence[DistributedInput], rank: TrainerRank) -> dict[str, dict[str, str]]:
    """Return the sums over all inputs. A resource has a limit only if each input has one."""
    each = [_input_resources(one, rank) for one in inputs]
    result: dict[str, dict[str, str]] = {}
    for kind in ("requests", "limits"):
        parts = [one.get(kind, {}) for one in each]
        for resource in sorted({key for part in parts for key in part}):
            if kind == "limits" and not all(resource in part for part in parts):
                continue
            values = (quantity(part[resource]) for part in parts if resource in part)
            total = sum(values, Decimal(0))
            result.setdefault(kind, {})[resource] = _quantity_text(resource, total)
    return result


def _input_resources(one: DistributedInput, rank: TrainerRank) -> dict[str, dict[str, str]]:
    """Return the resources for one input, including the buffers and open streams of all ranks.

    Linux accounts the pages of a buffer to the sidecar, which writes them first. Memory always has
    a limit: a namespace's default limit would not include the buffers.

    Raises:
        RefusedError: the memory limit of the input has no room for the buffers.
    """
    buffers, spec = rank.ranks * _buffer_bytes(one), one.spec.sidecar.resources
    least = buffers + SIDECAR_BYTES
    defaults = {"cpu": f"{250 * rank.ranks}m", "memory": str(least)}
    result = children.container_resources(spec, defaults)
    limits = result.setdefault("limits", {})
    requested = int(quantity(result.get("requests", {}).get("memory", "0")))
    needed = buffers + rank.ranks * _stream_bytes(one, rank.consumers)
    limits.setdefault("memory", str(max(needed, requested)))
    if quantity(limits["memory"]) < least:
        raise RefusedError(
            f"input {one.metadata.name}: spec.sidecar.resources.limits.memory is "
            f"{limits['memory']}, too small for the buffers of {rank.ranks} ranks: set it to at "
            f"least {-(-least // MIB)}Mi, or remove it"
        )
    # Kubernetes uses a limit as the request if there is none. The sums need it explicitly.
    result["requests"] = {**limits, **result.get("requests", {})}
    return result


def _stream_bytes(one: DistributedInput, consumers: int) -> int:
    """Return the memory for the process and the open streams of one of an input's consumers."""
    parallel = one.spec.processing_mode == "ParallelEpochs"
    own = sidecar_memory.own_partitions(one.spec.partitions, consumers, parallel=parallel)
    read_ahead = one.spec.sidecar.read_ahead
    if read_ahead is None:
        workers = one.spec.workers
        most = workers.autoscaling.max_replicas if workers.autoscaling else workers.replicas
        partitions = one.spec.partitions or sidecar_memory.DEFAULT_PARTITIONS
        useful = sidecar_memory.useful_read_ahead(most * parallelism(one), partitions)
        read_ahead = min(useful, sidecar_memory.most_read_ahead(own))
    return sidecar_memory.default_bytes(own, read_ahead)


def _buffer_bytes(one: DistributedInput) -> int:
    return quantity_bytes(one.spec.sidecar.buffer)


def _quantity_text(resource: str, value: Decimal) -> str:
    """Return a quantity in the notation of the API server."""
    if value != value.to_integral_value():
        return f"{int((value * 1000).to_integral_value())}m"
    return _bytes_text(int(value)) if resource == "memory" else str(int(value))


def _bytes_text(size: int) -> str:
    for suffix, unit in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size % unit == 0 and size:
            return f"{size // unit}{suffix}"
    return str(size)
