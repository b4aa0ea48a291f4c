"""The Deployment and the Service of the dispatcher."""

from __future__ import annotations

from typing import Any

from distributed_input.api import flags, identity, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.objects import children
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.tf_data_service import (
    add_tf_data_dispatcher,
    tf_data_service_ports,
)

_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "128Mi"}
_GRACE_SECONDS = 10


def dispatcher_port(resource: DistributedInput) -> int:
    """Return the port that the dispatcher listens on in its pod."""
    return resource.spec.dispatcher.port or names.DISPATCHER_PORT


def dispatcher_objects(resource: DistributedInput, settings: Settings) -> list[dict[str, Any]]:
    """Return the manifests of the Deployment and the Service, in this order.

    The Deployment has one pod: with two, each would know only a part of the workers.
    """
    name, spec = resource.metadata.name, resource.spec
    selector = names.selector(name, names.DISPATCHER)
    pod = add_tf_data_dispatcher(resource, settings, _pod(resource, settings))
    deployment = {
        "replicas": 0 if spec.suspend else 1,
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": children.pod_template(resource.metadata, names.DISPATCHER, pod, {}),
    }
    # The Service's port never changes: running trainers and workers keep using it.
    ports = [*service_ports(names.DISPATCHER_PORT), *tf_data_service_ports(resource)]
    service = {"selector": selector, "ports": ports}
    image = children.default_image_annotation(spec.dispatcher.image, settings.sidecar_image)
    return [
        children.manifest(resource, version, kind, names.dispatcher(name), {"spec": one}, *more)
        for version, kind, one, *more in (
            ("apps/v1", "Deployment", deployment, names.DISPATCHER, image),
            ("v1", "Service", service, names.DISPATCHER),
        )
    ]


def _pod(resource: DistributedInput, settings: Settings) -> dict[str, Any]:
    name, spec = resource.metadata.name, resource.spec
    port = dispatcher_port(resource)
    process = children.container(
        names.DISPATCHER,
        spec.dispatcher.image or settings.sidecar_image,
        flags.arguments(
            listen=f":{port}",
            grace_seconds=_GRACE_SECONDS - 5,
            **children.credential_flags(resource),
        ),
        port,
        children.container_resources(spec.dispatcher.resources, _DEFAULT_REQUESTS),
        encrypted=spec.is_encrypted,
    )
    volume, mount = children.credentials_volume(resource, identity.DISPATCHER)
    process |= children.image_pull_policy(spec.dispatcher.image, settings)
    process["volumeMounts"] = [mount, children.SCRATCH_MOUNT]
    return {
        "serviceAccountName": names.shared(name),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [process],
        **children.node_fields(
            spec.dispatcher.node_selector,
            spec.dispatcher.tolerations,
            spec.dispatcher.priority_class_name,
        ),
        **children.image_pull_secrets(settings),
        "volumes": [volume, children.SCRATCH_VOLUME],
    }


def service_ports(port: int) -> list[dict[str, Any]]:
    """Return the ports of a Service: gRPC on `port`, and metrics."""
    return [
        {"name": names.GRPC_PORT_NAME, "port": port, "targetPort": names.GRPC_PORT_NAME},
        {
            "name": names.METRICS_PORT_NAME,
            "port": names.METRICS_PORT,
            "targetPort": names.METRICS_PORT_NAME,
        },
    ]
