"""The Deployment and the Service of the dispatcher."""

from __future__ import annotations

from typing import Any

from distributed_input.api import flags, identity, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.objects.children import (
    SCRATCH_MOUNT,
    SCRATCH_VOLUME,
    container,
    container_resources,
    credential_flags,
    credentials_volume,
    default_image_annotation,
    image_pull_policy,
    image_pull_secrets,
    manifest,
    node_fields,
    pod_template,
    queued,
)
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
    template = pod_template(name, names.DISPATCHER, pod, {})
    deployment = {
        "replicas": 0 if spec.suspend else 1,
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": queued(template, resource.metadata, names.DISPATCHER),
    }
    # The Service's port never changes: running trainers and workers keep using it.
    ports = [*service_ports(names.DISPATCHER_PORT), *tf_data_service_ports(resource)]
    return [
        manifest(
            resource,
            "apps/v1",
            "Deployment",
            names.dispatcher(name),
            {"spec": deployment},
            component=names.DISPATCHER,
            annotations=default_image_annotation(spec.dispatcher.image, settings.sidecar_image),
        ),
        manifest(
            resource,
            "v1",
            "Service",
            names.dispatcher(name),
            {"spec": {"selector": selector, "ports": ports}},
            component=names.DISPATCHER,
        ),
    ]


def _pod(resource: DistributedInput, settings: Settings) -> dict[str, Any]:
    name, spec = resource.metadata.name, resource.spec
    port = dispatcher_port(resource)
    process = container(
        names.DISPATCHER,
        spec.dispatcher.image or settings.sidecar_image,
        flags.arguments(
            listen=f":{port}", grace_seconds=_GRACE_SECONDS - 5, **credential_flags(resource)
        ),
        port,
        container_resources(spec.dispatcher.resources, _DEFAULT_REQUESTS),
        encrypted=spec.is_encrypted,
    )
    volume, mount = credentials_volume(resource, identity.DISPATCHER)
    process |= image_pull_policy(spec.dispatcher.image, settings)
    process["volumeMounts"] = [mount, SCRATCH_MOUNT]
    return {
        "serviceAccountName": names.shared(name),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [process],
        **node_fields(
            spec.dispatcher.node_selector,
            spec.dispatcher.tolerations,
            spec.dispatcher.priority_class_name,
        ),
        **image_pull_secrets(settings),
        "volumes": [volume, SCRATCH_VOLUME],
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
