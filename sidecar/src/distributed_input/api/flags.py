"""The processes' command-line flags: their names, and the argument lists with them.

The runner and the operator build command lines here. The processes' parsers declare the same
names. Pods get some of them as fields of a document, see `process_config`.
"""

from __future__ import annotations

import re

from distributed_input.api.errors import ConfigError

# All processes.
TOKEN_FILE = "--token-file"  # noqa: S105 - the flag's name
TLS_DIR = "--tls-dir"
METRICS_LISTEN = "--metrics-listen"
READY_FILE = "--ready-file"
GRACE_SECONDS = "--grace-seconds"
LOG_LEVEL = "--log-level"
LISTEN = "--listen"
DISPATCHER = "--dispatcher"
METRICS_OFF = "off"
"""Value of METRICS_LISTEN that turns metrics off."""

# The dispatcher.
HEARTBEAT_SECONDS = "--heartbeat-seconds"
EXPIRY_SECONDS = "--expiry-seconds"
MAX_DATASET_BYTES = "--max-dataset-bytes"

# The worker and the sidecar.
POD = "--pod"

# The worker.
ADVERTISE = "--advertise"
PARALLELISM = "--parallelism"
MAX_STREAMS = "--max-streams"
SHARE_BYTES = "--share-bytes"
PATH = "--path"
RELAXED = "--relaxed"
IDLE_CPUS = "--idle-cpus"
STATE_DIR = "--state-dir"
STORE_DIR = "--store-dir"
STORE_BYTES = "--store-bytes"
PLAIN_TRANSFER = "--plain-transfer"
MODULES = "--modules"
ADVERTISE_AUTO = "auto"

# The sidecar.
CONFIG = "--config"
DIR = "--dir"
CONSUMER_INDEX = "--consumer-index"
CONSUMER_COUNT = "--consumer-count"
RANKS_PER_TRAINER = "--ranks-per-trainer"
_RANKS = re.compile(r"([1-9][0-9]{0,8})|1/([1-9][0-9]{0,8})")

# TensorFlow's own tf.data service.
PORT = "--port"
WORK_DIR = "--work-dir"
STATIC_WORKERS = "--static-workers"
CACHE_BYTES = "--cache-bytes"


def arguments(**settings: str | float | bool | list[str] | None) -> list[str]:
    """Return settings as flags, in their order: `state_dir` is `--state-dir`.

    None, an empty text and False add no flag, so the process uses its default. True is a flag
    without a value. A list repeats its flag.

    >>> arguments(listen=":1", idle_cpus=True, grace_seconds=5.0, path=None, dispatcher=["a"])
    ['--listen', ':1', '--idle-cpus', '--grace-seconds', '5', '--dispatcher', 'a']
    """
    words: list[str] = []
    for name, setting in settings.items():
        flag = f"--{name.replace('_', '-')}"
        values = setting if isinstance(setting, list) else [setting]
        for value in values:
            if value is True:
                words.append(flag)
            elif value is not False and value not in (None, ""):
                is_whole = isinstance(value, float) and value.is_integer()
                words += [flag, str(int(value) if is_whole else value)]
    return words


def ranks_per_trainer(text: str, source: str) -> tuple[int, int]:
    """Return the ranks of each trainer, and the trainers of each rank.

    >>> ranks_per_trainer("4", RANKS_PER_TRAINER), ranks_per_trainer("1/2", RANKS_PER_TRAINER)
    ((4, 1), (1, 2))

    Raises:
        ConfigError: the text, which comes from `source`, is neither.
    """
    found = _RANKS.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{source}: {text!r} is neither a number of ranks from 1, nor 1/N for ranks that span "
            "N trainers each"
        )
    return int(found[1] or 1), int(found[2] or 1)
