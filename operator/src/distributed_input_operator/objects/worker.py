"""The workers' Deployment, Service and PodDisruptionBudget."""

from __future__ import annotations

from typing import Any

from distributed_input.api import files, flags, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import quantity_bytes
from distributed_input_operator.objects.children import (
    SCRATCH_MOUNT,
    SCRATCH_VOLUME,
    TOKEN_MOUNT,
    container,
    default_image,
    manifest,
    pod_template,
    pull_policy,
    pulling,
    token_volume,
)
from distributed_input_operator.objects.dispatcher import service_ports
from distributed_input_operator.objects.resources import container_resources, cpus
from distributed_input_operator.objects.scheduling import accelerator_resources, scheduling
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.templates import merged
from distributed_input_operator.objects.tf_data_service import add_stock_worker

_DEFAULTS = {"cpu": "250m", "memory": "512Mi"}
_LEAVING_SECONDS = 3  # of the grace period: for what a worker does after its streams have ended


def parallelism(resource: DistributedInput) -> int:
    """Rows that one worker computes at once."""
    workers = resource.spec.workers
    return workers.parallelism or cpus(container_resources(workers.resources, _DEFAULTS))


def worker_objects(
    resource: DistributedInput, settings: Settings, replicas: int, code: str
) -> list[dict[str, Any]]:
    """Deployment of `replicas` workers, headless Service for their metrics, disruption budget.

    `code`: changes with the code that workers import from a ConfigMap.
    """
    name = resource.metadata.name
    selector = names.selector(name, names.WORKER)
    # New workers serve before old ones drain; where accelerators are scarce, the other way round.
    surge = (1, 0) if resource.spec.workers.accelerator else (0, "25%")
    deployment = {
        "replicas": replicas,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": surge[0], "maxSurge": surge[1]},
        },
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": merged(_template(resource, settings, code), resource.spec.workers.pod_template),
    }
    service = {"clusterIP": "None", "selector": selector, "ports": service_ports(names.WORKER_PORT)}
    budget = {
        "selector": {"matchLabels": selector},
        "maxUnavailable": "25%",
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    own = (names.worker(name), names.WORKER)
    image = default_image(resource.spec.workers.image, settings.worker_image)
    return [
        manifest(resource, "apps/v1", "Deployment", *own, image, spec=deployment),
        manifest(resource, "v1", "Service", *own, spec=service),
        manifest(resource, "policy/v1", "PodDisruptionBudget", *own, spec=budget),
    ]


def _template(resource: DistributedInput, settings: Settings, code: str) -> dict[str, Any]:
    name, workers = resource.metadata.name, resource.spec.workers
    made = container(
        names.WORKER,
        workers.image or settings.worker_image,
        _args(resource),
        names.WORKER_PORT,
        container_resources(
            workers.resources, _DEFAULTS, accelerator_resources(workers.accelerator)
        ),
    )
    made |= pull_policy(workers.image, settings)
    made["env"] = [
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - of the container's own
        *workers.env,
    ]
    config_map = resource.spec.dataset.source.config_map
    volumes, mounts = [token_volume(name), SCRATCH_VOLUME], [TOKEN_MOUNT, SCRATCH_MOUNT]
    if config_map:
        volumes.append({"name": "code", "configMap": {"name": config_map}})
        mounts.append({"name": "code", "mountPath": files.CODE_DIR, "readOnly": True})
    made["volumeMounts"] = [*mounts, *workers.volume_mounts]
    pod = {
        "serviceAccountName": workers.service_account_name or names.shared(name),
        "terminationGracePeriodSeconds": workers.termination_grace_period_seconds,
        "containers": [made],
        "volumes": [*volumes, *workers.volumes],
        **scheduling(name, workers),
        **pulling(settings),
    }
    # Python imports a module once: other code or another dataset needs new processes.
    hashed = {"dataset": resource.spec.dataset.model_dump(mode="json"), "code": code}
    pod = add_stock_worker(resource, settings, pod)
    made = pod_template(name, names.WORKER, pod, hashed)
    given = resource.metadata.labels
    queue = {label: given[label] for label in names.QUEUE_LABELS if label in given}
    return {**made, "metadata": {**made["metadata"], "labels": made["metadata"]["labels"] | queue}}


def _share_bytes(resource: DistributedInput) -> int:
    """Rows kept for other jobs of the same dataset: an eighth of what a worker asks for."""
    made = container_resources(resource.spec.workers.resources, _DEFAULTS)
    found = {**made.get("limits", {}), **made.get("requests", {})}
    return quantity_bytes(found["memory"]) // 8


def _args(resource: DistributedInput) -> list[str]:
    name, workers = resource.metadata.name, resource.spec.workers
    grace = workers.termination_grace_period_seconds - _LEAVING_SECONDS
    return flags.worker_arguments(
        flags.WorkerFlags(
            listen=f":{names.WORKER_PORT}",
            dispatcher=names.address(name),
            parallelism=parallelism(resource),
            share_bytes=_share_bytes(resource),
            path=files.CODE_DIR if resource.spec.dataset.source.config_map else None,
            relaxed=resource.spec.determinism == "relaxed",
            process=flags.ProcessFlags(token_file=files.token_file(name), grace_seconds=grace),
        )
    )
