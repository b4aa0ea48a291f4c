"""Names of Kubernetes objects, labels, annotations, containers and ports.

They are an interface: users, dashboards and other versions of the operator rely on them. An
input's name has at most 52 characters, so every derived name fits the 63 of a Service.
"""

from __future__ import annotations

PREFIX = "distributed-input.dev/"
OPERATOR = "distributed-input-operator"
"""Field manager, `app.kubernetes.io/managed-by`, and name of the operator's Lease."""

# Labels of the objects that the operator creates.
INPUT_LABEL = f"{PREFIX}input"
"""Name of the input that an object belongs to. The operator watches objects with this label."""
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
APP = "distributed-input"
OPERATOR_COMPONENT = "operator"
"""Value of COMPONENT_LABEL on the operator's pods, which the chart creates."""
WEBHOOK_COMPONENT = "webhook"
"""Value of COMPONENT_LABEL on the webhook's pods, which the chart creates."""
DISPATCHER = "dispatcher"
WORKER = "worker"

# Labels and annotations of trainer pods.
INJECT_LABEL = f"{PREFIX}inject"
"""Requests the sidecar, if the user sets it to "true"."""
INPUTS_ANNOTATION = f"{PREFIX}inputs"
"""Names of the inputs, separated by commas."""
CONSUMERS_ANNOTATION = f"{PREFIX}consumers"
"""Number of trainers, if the pod's owner does not define it."""
CONSUMER_INDEX_ANNOTATION = f"{PREFIX}consumer-index"
"""Index of the pod's trainer, if neither its owner nor its environment defines it.

A number, or the label or annotation of the pod that has it: metadata.labels['KEY'].
"""
RANKS_ANNOTATION = f"{PREFIX}ranks-per-trainer"
"""Number of processes of the pod that read the inputs, each a consumer of its own. Default: 1."""
INJECTED_ANNOTATION = f"{PREFIX}injected"
"""Record of the injection. The webhook sets it, so that a second call changes nothing."""

# Labels and annotations of Kueue that the operator copies from inputs to their pods.
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
POD_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
"""Name of the group of pods that is admitted together."""
POD_GROUP_ANNOTATIONS = (
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/retriable-in-group",
)

# Annotations of the objects that the operator creates.
CONFIG_HASH_ANNOTATION = f"{PREFIX}config-hash"
"""On pod templates: a changed value replaces the pods."""

DEFAULT_IMAGE_ANNOTATION = f"{PREFIX}default-image"
"""On Deployments: the operator's default image when it created the Deployment. The pods keep this
image if a later operator has another default. Absent if the input names an image."""
TEMPLATE_HASH_ANNOTATION = f"{PREFIX}template-hash"
"""On Deployments: a hash of the pod template that the operator applied."""
INPUT_HASH_ANNOTATION = f"{PREFIX}input-hash"
"""On Deployments: a hash of what the user had set then. If it is the same and the template is not,
the operator has changed the template."""
ROLLOUT_ANNOTATION = f"{PREFIX}rollout"
"""On Deployments: the revision of the operator whose template the pods got. Absent if a change by
the user replaced the pods."""

# Containers.
DISPATCHER_CONTAINER = "dispatcher"
WORKER_CONTAINER = "worker"
TF_DATA_DISPATCHER_CONTAINER = "tf-data-dispatcher"
TF_DATA_WORKER_CONTAINER = "tf-data-worker"
SIDECAR_CONTAINER = "distributed-input"
USER_ID = 65532
"""User id of the images."""

# Ports.
DISPATCHER_PORT = 7070
"""Port of the dispatchers' Services, and the default port of their pods."""
WORKER_PORT = 7071
WORKER_TRANSFER_PORT = WORKER_PORT + 1
TF_DATA_WORKER_PORT = 7081
METRICS_PORT = 9090
"""Port of /metrics and /healthz. A sidecar uses the first port from here that its pod leaves
free."""
GRPC_PORT_NAME = "grpc"
METRICS_PORT_NAME = "metrics"
TF_DATA_PORT_NAME = "tf-data"
SIDECAR_METRICS_PORT_NAME = "input-metrics"
"""Differs from common names of trainers' ports. A Service's port name refers to the first container
that has it."""
LOCAL_WORKER_METRICS_PORT_NAME = "worker-metrics"
OPERATOR_HEALTH_PORT = 8080
"""Port of the operator's /healthz and /metrics."""
WEBHOOK_PORT = 9443
WEBHOOK_PATH = "/inject"
"""First part of the webhook's path. The operator adds a part that only the API server knows."""
WEBHOOK_CONFIGURATION = "distributed-input-operator"
"""Default name of the MutatingWebhookConfiguration that the operator updates."""
WEBHOOK_SECRET = "distributed-input-operator-webhook"  # noqa: S105 - the Secret's name
"""Secret with the webhook's certificate and the key of its path, in the operator's namespace."""
TOKEN_KEY_SECRET = "distributed-input-operator-tokens"  # noqa: S105 - the Secret's name
"""Secret with the key from which the operator derives the inputs' tokens, in its namespace."""


def operator(operator_class: str) -> str:
    """Return the name of the Lease, and the field manager, of the operators of a class."""
    return f"{OPERATOR}-{operator_class}" if operator_class else OPERATOR


def dispatcher(name: str) -> str:
    """Return the name of the Deployment and Service of an input's dispatcher."""
    return f"{name}-dispatcher"


def worker(name: str) -> str:
    """Return the name of an input's worker Deployment, Service and PodDisruptionBudget."""
    return f"{name}-worker"


def local_worker(name: str) -> str:
    """Return the name of the container of an input's worker in a trainer's pod."""
    return f"di-worker-{name}"


def shared(name: str) -> str:
    """Return the name of an input's ConfigMap, Secret, ServiceAccount and NetworkPolicy."""
    return f"{name}-distributed-input"


def certificates(name: str) -> str:
    """Return the name of the Secret with an encrypted input's keys, and of the ConfigMap with its
    certificates.
    """
    return f"{name}-distributed-input-tls"


def address(name: str, port: int = 0) -> str:
    """Return host:port of an input's dispatcher for pods of the same namespace.

    The address does not change while the input exists. `port`: another port of the same Service.
    """
    return f"{dispatcher(name)}:{port or DISPATCHER_PORT}"


def reads_label(name: str) -> str:
    """Return the label, with value "true", of the trainer pods that read an input.

    Workers use it to run near the trainers.
    """
    return f"{PREFIX}reads-{name}"


def labels(name: str, component: str | None = None) -> dict[str, str]:
    """Return the labels of an object of input `name`."""
    common = {
        NAME_LABEL: APP,
        INSTANCE_LABEL: name,
        MANAGED_BY_LABEL: OPERATOR,
        INPUT_LABEL: name,
    }
    return {**common, COMPONENT_LABEL: component} if component else common


def selector(name: str, component: str) -> dict[str, str]:
    """Return the labels that select a component's pods.

    They must never change, because the selectors of Deployments are immutable.
    """
    return {INPUT_LABEL: name, COMPONENT_LABEL: component}
