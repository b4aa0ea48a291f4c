"""The Deployment, the Service and the PodDisruptionBudget of the workers."""

from __future__ import annotations

from typing import Any

from distributed_input.api import environment, files, flags, identity, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.merge import merge
from distributed_input.api.resource.scalars import quantity, quantity_bytes
from distributed_input.api.resource.sections.processes import StoreSpec
from distributed_input.api.resource.sections.workers import AcceleratorSpec, WorkersSpec
from distributed_input_operator.objects import children
from distributed_input_operator.objects.children import node_fields
from distributed_input_operator.objects.dispatcher import service_ports
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.tf_data_service import add_tf_data_worker

_STORE = "store"
_DEFAULT_REQUESTS = {"cpu": "250m", "memory": "512Mi"}
_LOCAL_CPU_REQUEST = "10m"
"""Request of a worker in a trainer's pod. Linux divides CPUs by request when they are scarce."""
_LOCAL_GRACE_SECONDS = 5
"""Such a worker stops after its trainer, when nothing reads from it."""
_SHUTDOWN_SECONDS = 3
"""The part of the grace period for shutting down after the worker's streams have ended."""


def parallelism(resource: DistributedInput) -> int:
    """Return the number of rows that one worker computes in parallel."""
    workers = resource.spec.workers
    return workers.parallelism or children.cpus(
        children.container_resources(workers.container.resources, _DEFAULT_REQUESTS)
    )


def local_worker_container(
    resource: DistributedInput, settings: Settings, pod: str, metrics_port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the container of a worker in a trainer's pod, and a worker pod's spec.

    The container is that of a worker pod, with its user, environment and volume mounts. It differs
    in its resources, its flags and its probes. The worker listens on the loopback interface, which
    other pods cannot reach. `pod` is its id, or a reference to an environment variable.
    """
    local = resource.spec.workers.local
    assert local is not None
    spec = _worker_template(resource, settings, code="")["spec"]
    (base,) = (one for one in spec["containers"] if one["name"] == names.WORKER)
    arguments = _arguments(
        resource,
        settings,
        listen="127.0.0.1:0",
        parallelism=local.cpus,
        grace_seconds=_LOCAL_GRACE_SECONDS,
        share_bytes=quantity_bytes(local.memory) // 8,
        pod=pod,
    )
    fields = children.process_fields([*arguments, flags.METRICS_LISTEN, f":{metrics_port}"])
    own_env = (environment.CONFIG_ENV, environment.GRPC_CIPHERS_ENV)
    env = [one for one in base["env"] if one["name"] not in own_env]
    probe = {"httpGet": {"path": "/healthz", "port": metrics_port}, "timeoutSeconds": 5}
    unused = ("startupProbe", "readinessProbe")
    return {
        **{key: value for key, value in base.items() if key not in unused},
        "name": names.local_worker(resource.metadata.name),
        "args": fields["args"],
        "env": [*env, *fields.get("env", ())],
        "ports": [
            {"name": names.LOCAL_WORKER_METRICS_PORT_NAME, "containerPort": metrics_port},
        ],
        "resources": {
            "requests": {"cpu": _LOCAL_CPU_REQUEST, "memory": local.memory},
            "limits": {"cpu": str(local.cpus), "memory": local.memory},
        },
        # The trainer starts without waiting for it. On a busy node, its start takes minutes.
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 60},
    }, spec


def worker_objects(
    resource: DistributedInput, settings: Settings, replicas: int, code: str
) -> list[dict[str, Any]]:
    """Return a Deployment, a headless Service for metrics, and a PodDisruptionBudget.

    `code` is a hash of what workers import from a ConfigMap. A change replaces the pods.
    """
    name = resource.metadata.name
    selector = names.selector(name, names.WORKER)
    # By default, new workers are ready before old ones drain. Accelerators are scarce, so a new
    # worker with accelerators waits for an old one to stop. Kueue deletes each pod above the number
    # of a group, so there an old one stops first, too.
    in_place = resource.spec.workers.accelerator or children.is_in_group(resource.metadata)
    unavailable, surge = (1, 0) if in_place else (0, "25%")
    deployment = {
        "replicas": replicas,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge},
        },
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": _worker_template(resource, settings, code),
    }
    service = {"clusterIP": "None", "selector": selector, "ports": service_ports(names.WORKER_PORT)}
    budget = {
        "selector": {"matchLabels": selector},
        "maxUnavailable": "25%",
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    image = children.default_image_annotation(
        resource.spec.workers.container.image, settings.worker_image
    )
    return [
        children.manifest(resource, version, kind, names.worker(name), {"spec": spec}, *more)
        for version, kind, spec, *more in (
            ("apps/v1", "Deployment", deployment, names.WORKER, image),
            ("v1", "Service", service, names.WORKER),
            ("policy/v1", "PodDisruptionBudget", budget, names.WORKER),
        )
    ]


def _worker_template(resource: DistributedInput, settings: Settings, code: str) -> dict[str, Any]:
    # Python imports a module only once, so other code or another dataset needs new processes.
    config = {"dataset": resource.spec.dataset.model_dump(mode="json"), "code": code}
    pod = add_tf_data_worker(resource, settings, _pod(resource, settings))
    template = children.pod_template(resource.metadata, names.WORKER, pod, config)
    merged = merge(template, resource.spec.workers.template.further_fields)
    if resource.spec.is_encrypted:
        # The user's template does not weaken the encryption.
        for process in merged["spec"].get("containers") or ():
            if process.get("name") == names.WORKER:
                process["env"] = children.variables(*process.get("env", ()), children.NO_TLS_1_2)
    return dict(merged)


def _pod(resource: DistributedInput, settings: Settings) -> dict[str, Any]:
    name, workers = resource.metadata.name, resource.spec.workers
    given, config_map = workers.container, resource.spec.dataset.config_map
    volume, mount = children.credentials_volume(resource, identity.WORKER)
    volumes, mounts = [volume, children.SCRATCH_VOLUME], [mount, children.SCRATCH_MOUNT]
    if config_map:
        volumes.append({"name": "code", "configMap": {"name": config_map}})
        mounts.append({"name": "code", "mountPath": files.CODE_DIR, "readOnly": True})
    if store := resource.spec.store:
        volumes.append({"name": _STORE, **_store_volume(store)})
        mounts.append({"name": _STORE, "mountPath": files.STORE_DIR})
    process = children.container(
        names.WORKER,
        given.image or settings.worker_image,
        _arguments(
            resource,
            settings,
            listen=f":{names.WORKER_PORT}",
            parallelism=parallelism(resource),
            grace_seconds=workers.pod.termination_grace_period_seconds - _SHUTDOWN_SECONDS,
            share_bytes=_share_bytes(resource),
        ),
        names.WORKER_PORT,
        children.container_resources(
            given.resources, _DEFAULT_REQUESTS, accelerator_resources(workers.accelerator)
        ),
        encrypted=resource.spec.is_encrypted,
    )
    process |= children.image_pull_policy(given.image, settings)
    home = {"name": "HOME", "value": "/tmp"}  # noqa: S108 - private to the container
    process["env"] = children.variables(home, *given.env, *process.get("env", ()))
    process["volumeMounts"] = merge(mounts, given.volume_mounts, "volumeMounts")
    return {
        "serviceAccountName": workers.pod.service_account_name or names.shared(name),
        "terminationGracePeriodSeconds": workers.pod.termination_grace_period_seconds,
        "containers": [process],
        "volumes": merge(volumes, workers.pod.volumes, "volumes"),
        **scheduling_fields(name, workers),
        **children.image_pull_secrets(settings),
    }


def _store_volume(store: StoreSpec) -> dict[str, Any]:
    """Return the source of the volume with computed splits. A pod that fills it is evicted."""
    if store.claim_name:
        return {"persistentVolumeClaim": {"claimName": store.claim_name}}
    return {"emptyDir": {"sizeLimit": str(quantity_bytes(store.size) * 5 // 4)}}


def _share_bytes(resource: DistributedInput) -> int:
    """Return the memory for rows that other jobs of the same dataset can reuse.

    It is an eighth of the worker's memory request, or of its limit if it has no request.
    """
    resources = children.container_resources(
        resource.spec.workers.container.resources, _DEFAULT_REQUESTS
    )
    found = {**resources.get("limits", {}), **resources.get("requests", {})}
    return int(quantity(found["memory"])) // 8  # Kubernetes accepts 500m and 1E here, too.


def _arguments(
    resource: DistributedInput,
    settings: Settings,
    *,
    listen: str,
    parallelism: int,
    grace_seconds: int,
    share_bytes: int,
    pod: str | None = None,
) -> list[str]:
    """Return the arguments of a worker. `pod`: the trainer's pod that alone uses it."""
    spec = resource.spec
    return flags.arguments(
        listen=listen,
        dispatcher=names.address(resource.metadata.name),
        parallelism=parallelism,
        grace_seconds=grace_seconds,
        share_bytes=share_bytes,
        path=files.CODE_DIR if spec.dataset.config_map else None,
        relaxed=spec.determinism == "Relaxed",
        idle_cpus=pod is not None,
        state_dir=spec.workers.state_directory,
        store_dir=files.STORE_DIR if spec.store else None,
        store_bytes=quantity_bytes(spec.store.size) if spec.store else None,
        modules=",".join(settings.modules),
        pod=pod,
        plain_transfer=spec.encryption == "Control",
        **children.credential_flags(resource),
    )


HOSTNAME = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
_SPOT_LABELS = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def accelerator_resources(accelerator: AcceleratorSpec | None) -> dict[str, str]:
    """Return the number of accelerators by resource name, for both requests and limits."""
    if accelerator is None:
        return {}
    return {accelerator.resource_name: str(accelerator.count)}


def scheduling_fields(name: str, workers: WorkersSpec) -> dict[str, Any]:
    """Return the non-empty fields of a worker pod's spec that restrict its nodes."""
    accelerator = workers.accelerator.node_selector if workers.accelerator else {}
    selector = {**accelerator, **workers.pod.node_selector}
    affinity = _affinity(name, workers)
    return {
        **node_fields(
            selector,
            workers.pod.tolerations,
            workers.pod.priority_class_name,
            _tolerations(workers),
        ),
        **({"affinity": affinity} if affinity else {}),
    }


def _tolerations(workers: WorkersSpec) -> list[dict[str, str]]:
    taints = list(accelerator_resources(workers.accelerator))
    if workers.placement == "NearTrainers":
        taints = [GPU, TPU]  # the trainers' nodes may have either
    result = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints]
    if workers.spot:
        result += [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in _SPOT_LABELS
        ]
    return result


def _affinity(name: str, workers: WorkersSpec) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if workers.placement == "NearTrainers":
        # Not required: workers may start before trainers, or the trainers' nodes may be full.
        term = {"weight": 100, "podAffinityTerm": _pods({names.reads_label(name): "true"})}
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    if workers.placement == "Dedicated":
        term = _pods({names.INJECT_LABEL: "true"})
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if workers.spot:
        terms = [
            {
                "weight": 50,
                "preference": {
                    "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]
                },
            }
            for key, value in _SPOT_LABELS
        ]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return affinity


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}
