"""The dispatcher's Deployment and Service."""

from __future__ import annotations

from typing import Any

from distributed_input.api import files, flags, names
from distributed_input.api.resource.input import DistributedInput
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
    tolerations,
)
from distributed_input_operator.objects.resources import container_resources
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.tf_data_service import (
    add_stock_dispatcher,
    stock_service_port,
)

_DEFAULTS = {"cpu": "100m", "memory": "128Mi"}
_GRACE_SECONDS = 10


def dispatcher_port(resource: DistributedInput) -> int:
    """Where the dispatcher of this input listens, in its pod."""
    return resource.spec.dispatcher.port or names.DISPATCHER_PORT


def dispatcher_objects(resource: DistributedInput, settings: Settings) -> list[dict[str, Any]]:
    """Deployment and Service: one pod, for two would each know half of the workers."""
    name, spec = resource.metadata.name, resource.spec
    port = dispatcher_port(resource)
    made = container(
        names.DISPATCHER,
        spec.sidecar.image or settings.sidecar_image,
        _args(name, port),
        port,
        container_resources(spec.dispatcher.resources, _DEFAULTS),
    )
    made |= pull_policy(spec.sidecar.image, settings)
    made["volumeMounts"] = [TOKEN_MOUNT, SCRATCH_MOUNT]
    pod = {
        "serviceAccountName": names.shared(name),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [made],
        "tolerations": tolerations(),
        **pulling(settings),
        "volumes": [token_volume(name), SCRATCH_VOLUME],
    }
    selector = names.selector(name, names.DISPATCHER)
    deployment = {
        "replicas": 0 if spec.suspend else 1,
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": pod_template(
            name, names.DISPATCHER, add_stock_dispatcher(resource, settings, pod), {}
        ),
    }
    # Trainers and workers know the Service's port for as long as they run: it never changes.
    ports = [*service_ports(names.DISPATCHER_PORT), *stock_service_port(resource)]
    service = {"selector": selector, "ports": ports}
    own = (names.dispatcher(name), names.DISPATCHER)
    image = default_image(spec.sidecar.image, settings.sidecar_image)
    return [
        manifest(resource, "apps/v1", "Deployment", *own, image, spec=deployment),
        manifest(resource, "v1", "Service", *own, spec=service),
    ]


def _args(name: str, port: int) -> list[str]:
    process = flags.ProcessFlags(
        token_file=files.token_file(name), grace_seconds=_GRACE_SECONDS - 5
    )
    return flags.dispatcher_arguments(flags.DispatcherFlags(f":{port}", process))


def service_ports(port: int) -> list[dict[str, Any]]:
    """The ports of a Service of one of our parts."""
    return [
        {"name": names.GRPC_PORT_NAME, "port": port, "targetPort": names.GRPC_PORT_NAME},
        {
            "name": names.METRICS_PORT_NAME,
            "port": names.METRICS_PORT,
            "targetPort": names.METRICS_PORT_NAME,
        },
    ]
