"""Names of the environment variables that the processes read or set."""

from __future__ import annotations

# Trainers. The operator and `distributed-input run` set them, except JOB_ENV.
DIR_ENV = "DISTRIBUTED_INPUT_DIR"
"""Folder that the trainer shares with its sidecar: the socket and the shared memory files."""
NAMES_ENV = "DISTRIBUTED_INPUT_NAMES"
"""Names of the inputs that the sidecar serves, separated by commas."""
JOB_ENV = "DISTRIBUTED_INPUT_JOB"
"""Default for the `job` argument of `connect`. The user sets it."""
CONSUMER_INDEX_ENV = "DISTRIBUTED_INPUT_CONSUMER_INDEX"
"""Index of this trainer, from 0."""
CONSUMER_COUNT_ENV = "DISTRIBUTED_INPUT_CONSUMER_COUNT"
"""Number of trainers."""
POD_UID_ENV = "DISTRIBUTED_INPUT_POD_UID"
"""Id of the trainer's pod, for the sidecar and the workers of the same pod."""
TF_DATA_SERVICE_ENV = "DISTRIBUTED_INPUT_TF_DATA_SERVICE"
"""Address of TensorFlow's own tf.data service, see `tf_data_service_value`."""

# Every process.
CONFIG_ENV = "DISTRIBUTED_INPUT_CONFIG"
"""Settings of a process in a pod, as a JSON document. The operator sets it, see
`process_config`."""
GRPC_CIPHERS_ENV = "GRPC_SSL_CIPHER_SUITES"
"""The ciphers of TLS 1.2 that gRPC may use. gRPC reads it when it is imported."""
NO_TLS_1_2 = "ECDHE-PSK-CHACHA20-POLY1305"
"""A value for GRPC_CIPHERS_ENV: a cipher that no process can use, because it needs a shared key.
gRPC has no setting for the minimum version of TLS. It has fixed ciphers of TLS 1.3."""
TOKEN_ENV = "DISTRIBUTED_INPUT_TOKEN"  # noqa: S105 - the variable's name
"""The input's bearer token, if there is no token file."""
DIE_WITH_PARENT_ENV = "DISTRIBUTED_INPUT_DIE_WITH_PARENT"
"""1: end when the parent process ends. A larger number is the parent's process id."""
RUN_MARK_ENV = "DISTRIBUTED_INPUT_RUN"
"""Marks the processes of one local run: `<run>:<name of the process>`."""
MACHINE_WORKERS_ENV = "DISTRIBUTED_INPUT_MACHINE_WORKERS"
"""Number of workers on the trainer's machine, which share its memory and have a lower CPU priority.
The local runner sets it."""
NATIVE_OPS_ENV = "DISTRIBUTED_INPUT_NATIVE_OPS"
"""For workers: 0 encodes rows in Python, also if there is a library of native ops."""

# The operator. Flags of `distributed-input-operator` take precedence.
WORKER_IMAGE_ENV = "DISTRIBUTED_INPUT_WORKER_IMAGE"
SIDECAR_IMAGE_ENV = "DISTRIBUTED_INPUT_SIDECAR_IMAGE"
"""Image of sidecars and dispatchers."""
POD_NAME_ENV = "POD_NAME"
POD_NAMESPACE_ENV = "POD_NAMESPACE"

LOCAL_RUN_ENV = frozenset(
    {
        CONFIG_ENV,
        DIR_ENV,
        NAMES_ENV,
        CONSUMER_INDEX_ENV,
        CONSUMER_COUNT_ENV,
        TF_DATA_SERVICE_ENV,
        TOKEN_ENV,
        DIE_WITH_PARENT_ENV,
        RUN_MARK_ENV,
        MACHINE_WORKERS_ENV,
    }
)
"""Variables that a local run sets itself. It does not pass on inherited values."""


def tf_data_service_value(addresses: dict[str, str]) -> str:
    """Return the value of TF_DATA_SERVICE_ENV.

    Returns:
        The address of a single input. Of several inputs, `NAME=ADDRESS` separated by commas.

    >>> tf_data_service_value({"train": "grpc://a:1"})
    'grpc://a:1'
    >>> tf_data_service_value({"train": "grpc://a:1", "eval": "grpc://b:2"})
    'train=grpc://a:1,eval=grpc://b:2'
    """
    if len(addresses) == 1:
        return next(iter(addresses.values()))
    return ",".join(f"{name}={address}" for name, address in addresses.items())
