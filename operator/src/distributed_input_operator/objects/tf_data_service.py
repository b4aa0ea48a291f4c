"""TensorFlow's own tf.data service in the pods of an input: containers, port and address.

Its containers have no readiness probe: an error of this service must not make our own dispatcher
and workers unavailable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed_input.api import environment, files, flags, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import quantity_bytes
from distributed_input.api.resource.sections.processes import TfDataServiceSpec
from distributed_input_operator.objects import children
from distributed_input_operator.objects.snapshot import Settings

_DEFAULT_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
_JOURNAL_DIR = "/var/lib/distributed-input"
_JOURNAL_VOLUME = "tf-data-journal"
_POD_IP_ENV = "POD_IP"


def tf_data_service_address(resource: DistributedInput) -> str:
    """Return grpc://host:port for `tf.data.experimental.service.distribute`, or ""."""
    service = resource.spec.tf_data_service
    return f"grpc://{names.address(resource.metadata.name, service.port)}" if service else ""


def tf_data_service_env(inputs: Sequence[DistributedInput]) -> list[dict[str, Any]]:
    """Return the trainer's variable with the addresses; see TF_DATA_SERVICE_ENV.

    The list is empty if no input has a tf.data service.
    """
    addresses = {one.metadata.name: tf_data_service_address(one) for one in inputs}
    found = {name: address for name, address in addresses.items() if address}
    if not found:
        return []
    value = environment.tf_data_service_value(found)
    return [{"name": environment.TF_DATA_SERVICE_ENV, "value": value}]


def tf_data_service_ports(resource: DistributedInput) -> list[dict[str, Any]]:
    """Return the further port of the dispatcher's Service, if the input has a tf.data service."""
    service = resource.spec.tf_data_service
    if service is None:
        return []
    name = names.TF_DATA_PORT_NAME
    return [{"name": name, "port": service.port, "targetPort": name}]


def add_tf_data_dispatcher(
    resource: DistributedInput, settings: Settings, pod: dict[str, Any]
) -> dict[str, Any]:
    """Return the spec of the dispatcher's pod with the tf.data dispatcher, if the input has one.

    Its image is the workers' image, because it needs TensorFlow.
    """
    service = resource.spec.tf_data_service
    if service is None:
        return pod
    name, spec = resource.metadata.name, resource.spec
    workers = f"{names.worker(name)}:{names.TF_DATA_WORKER_PORT}:{spec.workers.replicas}"
    args = flags.arguments(
        port=service.port,
        work_dir=f"{_JOURNAL_DIR}/journal",
        static_workers=f"dns:{workers}" if service.static_sharding else None,
    )
    image = spec.workers.container.image or settings.worker_image
    process = _container(
        names.TF_DATA_DISPATCHER_CONTAINER, image, service, ["dispatcher", *args], service.port
    )
    journal = {"name": _JOURNAL_VOLUME, "mountPath": _JOURNAL_DIR}
    process["volumeMounts"] = [children.SCRATCH_MOUNT, journal]
    volume = {"name": _JOURNAL_VOLUME, **(service.journal or {"emptyDir": {}})}
    return {
        **pod,
        "containers": [*pod["containers"], process],
        "volumes": [*pod["volumes"], volume],
        # Without fsGroup, only root could write to a new claim.
        "securityContext": {**children.POD_SECURITY, "fsGroup": names.USER_ID},
    }


def add_tf_data_worker(
    resource: DistributedInput, settings: Settings, pod: dict[str, Any]
) -> dict[str, Any]:
    """Return the spec of a worker's pod with a tf.data worker, if the input has the service.

    The tf.data worker has the same files as our worker, without the token.
    """
    service = resource.spec.tf_data_service
    if service is None:
        return pod
    port = names.TF_DATA_WORKER_PORT
    args = flags.arguments(
        dispatcher=names.address(resource.metadata.name, service.port),
        port=port,
        advertise=f"$({_POD_IP_ENV}):{port}",
        cache_bytes=quantity_bytes(service.cross_trainer_cache),
        path=files.CODE_DIR if resource.spec.dataset.config_map else None,
    )
    image = resource.spec.workers.container.image or settings.worker_image
    process = _container(names.TF_DATA_WORKER_CONTAINER, image, service, ["worker", *args], port)
    worker = pod["containers"][0]
    address = {"name": _POD_IP_ENV, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    env = [one for one in worker["env"] if one.get("name") != environment.CONFIG_ENV]
    process["env"] = [*env, address]
    process["volumeMounts"] = [
        mount for mount in worker["volumeMounts"] if mount.get("mountPath") != files.TOKENS_DIR
    ]
    return {**pod, "containers": [*pod["containers"], process]}


def _container(
    name: str, image: str, service: TfDataServiceSpec, args: list[str], port: int
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": ["python", "-m", "distributed_input.tf_data_service"],
        "args": args,
        "ports": [{"name": names.TF_DATA_PORT_NAME, "containerPort": port}],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - private to the container
        "resources": children.container_resources(service.resources, _DEFAULT_REQUESTS),
        "securityContext": children.CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
