"""TensorFlow's own tf.data service in an input's pods: containers, port, address. Pure.

Its containers have no readiness probe: what is wrong with it shall not take our own dispatcher and
workers out of service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import quantity_bytes
from distributed_input.api.resource.sections.tf_data_service import TfDataServiceSpec
from distributed_input_operator.objects.children import SCRATCH_MOUNT
from distributed_input_operator.objects.resources import container_resources
from distributed_input_operator.objects.snapshot import Settings

_DEFAULTS = {"cpu": "250m", "memory": "512Mi"}
_JOURNAL_DIR = "/var/lib/distributed-input"
_JOURNAL_VOLUME = "tf-data-journal"
_POD_IP_ENV = "POD_IP"


def stock_address(resource: DistributedInput) -> str:
    """grpc://host:port, as `tf.data.experimental.service.distribute` takes it; empty: none."""
    stock = resource.spec.tf_data_service
    return f"grpc://{names.address(resource.metadata.name, stock.port)}" if stock else ""


def stock_env(inputs: Sequence[DistributedInput]) -> list[dict[str, Any]]:
    """What a trainer is told of the inputs' stock services; see `names.TF_DATA_SERVICE_ENV`."""
    found = {one.metadata.name: stock_address(one) for one in inputs if stock_address(one)}
    if not found:
        return []
    named = [f"{name}={address}" for name, address in found.items()]
    value = ",".join(named) if len(found) > 1 else next(iter(found.values()))
    return [{"name": names.TF_DATA_SERVICE_ENV, "value": value}]


def stock_service_port(resource: DistributedInput) -> list[dict[str, Any]]:
    """The port of the dispatcher's Service, where there is a stock one."""
    stock = resource.spec.tf_data_service
    if stock is None:
        return []
    name = names.TF_DATA_PORT_NAME
    return [{"name": name, "port": stock.port, "targetPort": name}]


def add_stock_dispatcher(
    resource: DistributedInput, settings: Settings, pod: dict[str, Any]
) -> dict[str, Any]:
    """The dispatcher's pod, with the stock dispatcher where the input wants one.

    It has TensorFlow, so its image is the workers'.
    """
    stock = resource.spec.tf_data_service
    if stock is None:
        return pod
    name, spec = resource.metadata.name, resource.spec
    args = ["dispatcher", "--port", str(stock.port), "--work-dir", f"{_JOURNAL_DIR}/journal"]
    if stock.static_sharding:
        workers = f"{names.worker(name)}:{names.TF_DATA_WORKER_PORT}:{spec.workers.replicas}"
        args += ["--static-workers", f"dns:{workers}"]
    made = _container(
        names.TF_DATA_DISPATCHER_CONTAINER, resource, settings, stock, args, stock.port
    )
    made["volumeMounts"] = [SCRATCH_MOUNT, {"name": _JOURNAL_VOLUME, "mountPath": _JOURNAL_DIR}]
    volume = {"name": _JOURNAL_VOLUME, **(stock.journal or {"emptyDir": {}})}
    return {
        **pod,
        "containers": [*pod["containers"], made],
        "volumes": [*pod["volumes"], volume],
        # A claim's files are root's at first.
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": names.USER_ID,
        },
    }


def add_stock_worker(
    resource: DistributedInput, settings: Settings, pod: dict[str, Any]
) -> dict[str, Any]:
    """A worker's pod, with a stock worker that sees the same files."""
    stock = resource.spec.tf_data_service
    if stock is None:
        return pod
    port = names.TF_DATA_WORKER_PORT
    args = ["worker", "--dispatcher", names.address(resource.metadata.name, stock.port)]
    args += ["--port", str(port), "--advertise", f"$({_POD_IP_ENV}):{port}"]
    args += ["--cache-bytes", str(quantity_bytes(stock.cross_trainer_cache))]
    if resource.spec.dataset.source.config_map:
        args += ["--path", names.CODE_DIR]
    made = _container(names.TF_DATA_WORKER_CONTAINER, resource, settings, stock, args, port)
    ours = pod["containers"][0]
    address = {"name": _POD_IP_ENV, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    made["env"] = [*ours["env"], address]
    made["volumeMounts"] = [
        mount for mount in ours["volumeMounts"] if mount["mountPath"] != names.TOKENS_DIR
    ]
    return {**pod, "containers": [*pod["containers"], made]}


def _container(
    name: str,
    resource: DistributedInput,
    settings: Settings,
    stock: TfDataServiceSpec,
    args: list[str],
    port: int,
) -> dict[str, Any]:
    return {
        "name": name,
        "image": resource.spec.workers.image or settings.worker_image,
        "command": ["python", "-m", "distributed_input.tf_data_service"],
        "args": args,
        "ports": [{"name": names.TF_DATA_PORT_NAME, "containerPort": port}],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the container's own
        "resources": container_resources(stock.resources, _DEFAULTS),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
