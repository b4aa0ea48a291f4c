"""Names that more than one part, or someone outside, relies on: an interface, all in one place.

What is derived from an input's name fits Kubernetes' limits because the name has at most 52
characters: a Service's 63 leave room for "-dispatcher".
"""

from __future__ import annotations

PREFIX = "distributed-input.dev/"
OPERATOR = "distributed-input-operator"
"""Field manager, `app.kubernetes.io/managed-by`, and name of the operator's Lease."""

# Labels of what the operator makes.
INPUT_LABEL = f"{PREFIX}input"
"""The input that an object belongs to; what the operator watches has it."""
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
APP = "distributed-input"
OPERATOR_COMPONENT = "operator"
"""The component that the chart's operator pods are labelled as."""
DISPATCHER = "dispatcher"
WORKER = "worker"

# Labels and annotations of trainer pods.
INJECT_LABEL = f"{PREFIX}inject"
"""Set to "true" by whoever wants the sidecar."""
INPUTS_ANNOTATION = f"{PREFIX}inputs"
"""The inputs' names, separated by commas."""
CONSUMERS_ANNOTATION = f"{PREFIX}consumers"
"""How many trainers there are, where the pod's owner does not tell."""
CONSUMER_INDEX_ANNOTATION = f"{PREFIX}consumer-index"
"""Which of them the pod is, where neither its owner nor its environment tells."""
INJECTED_ANNOTATION = f"{PREFIX}injected"
"""Set by the webhook: what it has done, so that a second call changes nothing."""

# Labels of inputs that their worker pods get too.
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")

# Annotations of what the operator makes.
CONFIG_HASH_ANNOTATION = f"{PREFIX}config-hash"
"""On pod templates: a changed configuration rolls the pods."""

DEFAULT_IMAGE_ANNOTATION = f"{PREFIX}default-image"
"""On Deployments: the operator's own choice of image, which their pods keep under an operator with
another one. Missing where the input names an image."""

# Containers.
DISPATCHER_CONTAINER = "dispatcher"
WORKER_CONTAINER = "worker"
TF_DATA_DISPATCHER_CONTAINER = "tf-data-dispatcher"
TF_DATA_WORKER_CONTAINER = "tf-data-worker"
SIDECAR_CONTAINER = "distributed-input"
USER_ID = 65532
"""The images' user."""

# Ports.
DISPATCHER_PORT = 7070
"""Of the dispatchers' Services; their pods' too where the input names none."""
WORKER_PORT = 7071
TF_DATA_WORKER_PORT = 7081
METRICS_PORT = 9090
"""/metrics and /healthz of dispatcher, workers and sidecar; of a sidecar the next one that its pod
leaves free."""
GRPC_PORT_NAME = "grpc"
METRICS_PORT_NAME = "metrics"
TF_DATA_PORT_NAME = "tf-data"
SIDECAR_METRICS_PORT_NAME = "input-metrics"
"""Not the trainers' own: a port of a Service means the first container that has the name."""
OPERATOR_HEALTH_PORT = 8080
"""/healthz and /metrics of the operator."""
WEBHOOK_PATH = "/inject"
WEBHOOK_CONFIGURATION = "distributed-input-operator"
"""The MutatingWebhookConfiguration whose caBundle the operator keeps; charts may name another."""
WEBHOOK_SECRET = "distributed-input-operator-webhook"  # noqa: S105 - the Secret's name
"""The webhook's certificate, in the operator's namespace: tls.crt, tls.key, ca.crt."""

# Keys and paths.
CONFIG_KEY = "inputs.json"
"""In an input's ConfigMap: {"inputs": {NAME: SPEC}}, as the sidecar's --config takes it."""
TOKEN_KEY = "token"  # noqa: S105 - the key's name
MOUNTS_DIR = "/etc/distributed-input"
RUN_DIR = "/run/distributed-input"
"""Ring and socket, shared by sidecar and trainer."""
CONFIG_DIR = f"{MOUNTS_DIR}/config"
"""One file an input, NAME.json: its ConfigMap's key."""
TOKENS_DIR = f"{MOUNTS_DIR}/tokens"
"""One file an input, with its name: what the sidecar's --token-file takes."""
CODE_DIR = f"{MOUNTS_DIR}/code"
"""The ConfigMap with the entry point's code, in workers."""

# The trainer's environment.
DIR_ENV = "DISTRIBUTED_INPUT_DIR"
NAMES_ENV = "DISTRIBUTED_INPUT_NAMES"
CONSUMER_INDEX_ENV = "DISTRIBUTED_INPUT_CONSUMER_INDEX"
CONSUMER_COUNT_ENV = "DISTRIBUTED_INPUT_CONSUMER_COUNT"
TF_DATA_SERVICE_ENV = "DISTRIBUTED_INPUT_TF_DATA_SERVICE"
"""grpc://host:port of the stock tf.data service; with several inputs of one pod that have one,
NAME=grpc://host:port of each, separated by commas."""

# The operator's environment; the flags of `distributed-input-operator` go before it.
WORKER_IMAGE_ENV = "DISTRIBUTED_INPUT_WORKER_IMAGE"
SIDECAR_IMAGE_ENV = "DISTRIBUTED_INPUT_SIDECAR_IMAGE"
"""Of sidecars and dispatchers."""
POD_NAME_ENV = "POD_NAME"
POD_NAMESPACE_ENV = "POD_NAMESPACE"


def dispatcher(name: str) -> str:
    """Deployment and Service of an input's dispatcher."""
    return f"{name}-dispatcher"


def worker(name: str) -> str:
    """Deployment and PodDisruptionBudget of an input's workers."""
    return f"{name}-worker"


def shared(name: str) -> str:
    """ConfigMap, token Secret, ServiceAccount and NetworkPolicy of an input."""
    return f"{name}-distributed-input"


def address(name: str, port: int = 0) -> str:
    """Where pods of the same namespace reach the dispatcher: host:port, for its life the same.

    port: of another service there.
    """
    return f"{dispatcher(name)}:{port or DISPATCHER_PORT}"


def reads_label(name: str) -> str:
    """Label, "true", of trainer pods that read an input: what workers near trainers look for."""
    return f"{PREFIX}reads-{name}"


def labels(name: str, component: str | None = None) -> dict[str, str]:
    """The labels of an object of input `name`; `component` where it is a part's own."""
    made = {
        NAME_LABEL: APP,
        INSTANCE_LABEL: name,
        MANAGED_BY_LABEL: OPERATOR,
        INPUT_LABEL: name,
    }
    return {**made, COMPONENT_LABEL: component} if component else made


def selector(name: str, component: str) -> dict[str, str]:
    """The labels that select a part's pods: these never change, for selectors are immutable."""
    return {INPUT_LABEL: name, COMPONENT_LABEL: component}
