"""What the processes of the controller and of the webhook share: flags, credentials, signals."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from pydantic import TypeAdapter, ValidationError

from distributed_input.api import environment, names
from distributed_input.api.resource.scalars import OperatorClass

MAX_FILES = 65_536
"""Maximum number of files that a process asks for. It may be allowed a billion."""
_log = logging.getLogger(__name__)
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that both processes have."""
    parser.add_argument(
        "--worker-image",
        default=os.environ.get(environment.WORKER_IMAGE_ENV, ""),
        help=f"default image of workers (default: ${environment.WORKER_IMAGE_ENV})",
    )
    parser.add_argument(
        "--sidecar-image",
        default=os.environ.get(environment.SIDECAR_IMAGE_ENV, ""),
        help="default image of dispatchers and sidecars "
        f"(default: ${environment.SIDECAR_IMAGE_ENV})",
    )
    parser.add_argument(
        "--image-pull-policy",
        choices=("Always", "IfNotPresent", "Never"),
        default="",
        help="pull policy of these images in dispatchers and workers (default: that of Kubernetes)",
    )
    parser.add_argument(
        "--operator-class",
        type=_operator_class,
        default="",
        metavar="CLASS",
        help="manage the inputs with spec.managedBy distributed-input.dev/CLASS (default: those "
        "without it)",
    )
    parser.add_argument(
        "--listen",
        default=f":{names.OPERATOR_HEALTH_PORT}",
        metavar="[HOST]:PORT",
        help="address of /healthz, /readyz and /metrics (default: %(default)s)",
    )
    parser.add_argument(
        "--webhook-configuration",
        default=names.WEBHOOK_CONFIGURATION,
        metavar="NAME",
        help="MutatingWebhookConfiguration that the API server uses (default: %(default)s)",
    )
    parser.add_argument(
        "--webhook-secret",
        default=names.WEBHOOK_SECRET,
        metavar="NAME",
        help="Secret with the webhook's certificate and path, which the operator creates "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning"),
        default="info",
        help="minimum level of log lines (default: %(default)s)",
    )


def _operator_class(text: str) -> str:
    try:
        return TypeAdapter(OperatorClass).validate_python(text) if text else ""
    except ValidationError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a class: use at most 40 lower-case letters, digits and '-'"
        ) from None


def missing_image(args: argparse.Namespace) -> str:
    """Return the error about an image that is not set. Empty: both are set."""
    for flag in ("worker_image", "sidecar_image"):
        if not getattr(args, flag):
            return f"--{flag.replace('_', '-')} is not set: set it to an image"
    return ""


def set_up_logging(level: str) -> None:
    """Write the log to stderr."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


async def load_credentials() -> None:
    """Use the credentials of the pod, or else those of the kubeconfig."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config()  # type: ignore[no-untyped-call]
    configuration = Configuration.get_default_copy()
    configuration.connection_pool_maxsize = 0  # no limit: each watch takes a connection
    Configuration.set_default(configuration)


def raise_file_limit() -> None:
    """Allow as many open files as the system does. By default, a process may have only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def own_namespace() -> str:
    """Return the namespace of this pod."""
    if environment.POD_NAMESPACE_ENV in os.environ:
        return os.environ[environment.POD_NAMESPACE_ENV]
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


def run(main: Coroutine[Any, Any, int], stop_seconds: float) -> int:
    """Run `main` and return its result. Exit with it if tasks do not end in time after `main`.

    asyncio.run cancels them, and waits without a limit. For example, a watch of kopf may wait for a
    task that was cancelled with it. What they would still do does not matter: `main` has ended.
    """

    def give_up(status: int) -> NoReturn:
        _log.warning("%d tasks do not end: exiting without them", len(asyncio.all_tasks()))
        os._exit(status)

    async def bounded() -> int:
        status = 1
        # By default, Python looks for garbage after every 700 new objects. At the start with many
        # inputs that takes a quarter of the CPU time, and finds nothing.
        gc.set_threshold(20_000)
        try:
            status = await main
            return status
        finally:
            asyncio.get_running_loop().call_later(stop_seconds, give_up, status)

    return asyncio.run(bounded())
