"""Names and paths of the files that processes share."""

from __future__ import annotations

import hashlib

# In the folder that a sidecar shares with its trainers.
SOCKET_NAME = "sidecar.sock"
SLOTS_PREFIX = "slots-"
"""Files with batches in shared memory. The sidecar creates them."""
DATASET_PREFIX = "dataset-"
"""Files with traced datasets. The trainer creates them."""


def closed_prefix(job: str, consumer: int, readers: int) -> str:
    """Return the prefix of empty files that readers of a consumer create when they close a job.

    The rank of the reader follows. job: full name. readers: number of the consumer's readers.
    """
    key = hashlib.sha256(f"{job} {consumer} {readers}".encode()).hexdigest()[:16]
    return f"closed-{key}-"


# Keys of Kubernetes objects.
CONFIG_KEY = "inputs.json"
"""Key in an input's ConfigMap: `{"inputs": {NAME: CONFIG}}`, see `api.config`."""
TOKEN_KEY = "token"  # noqa: S105 - the key's name
"""Key in an input's Secret."""
AUTHORITIES_KEY = "ca.crt"
"""Key in the ConfigMap of an encrypted input: its authority, which its processes trust."""

# Paths in pods.
RUN_DIR = "/run/distributed-input"
"""Folder that sidecar and trainer share."""
MOUNTS_DIR = "/etc/distributed-input"
CONFIG_DIR = f"{MOUNTS_DIR}/config"
TOKENS_DIR = f"{MOUNTS_DIR}/tokens"
"""Folder with one token file per input. The sidecar's --token-file takes the folder."""
TLS_DIR = f"{MOUNTS_DIR}/tls"
"""Folder with one folder per input, which has the certificate of the process."""
CODE_DIR = f"{MOUNTS_DIR}/code"
"""Mount path, in workers, of the ConfigMap with the entry point's code."""
STORE_DIR = "/var/lib/distributed-input/store"
"""Mount path, in workers, of the volume with computed splits."""


def config_file(name: str) -> str:
    """Return the path of input `name`'s configuration in the sidecar's container."""
    return f"{CONFIG_DIR}/{name}.json"


def token_file(name: str) -> str:
    """Return the path of input `name`'s token in every container that has it."""
    return f"{TOKENS_DIR}/{name}"


def private_key(role: str) -> str:
    """Return the key of a role's private key in the Secret of an encrypted input."""
    return f"{role}.key"


def certificate(role: str) -> str:
    """Return the key of a role's certificate in the ConfigMap of an encrypted input."""
    return f"{role}.crt"


def tls_folder(name: str) -> str:
    """Return the path of the folder with input `name`'s certificate in every container."""
    return f"{TLS_DIR}/{name}"


def below_mounts(path: str) -> str:
    """Return `path` relative to MOUNTS_DIR, for the items of a projected volume."""
    return path.removeprefix(f"{MOUNTS_DIR}/")
