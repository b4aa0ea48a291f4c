"""The operator's process: one replica leads and works, the others stand by."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input.api import environment, names
from distributed_input_operator import metrics
from distributed_input_operator.controller import health, leader
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.control_loop import RESYNC_SECONDS, ControlLoop
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.tokens import TokenCache
from distributed_input_operator.kube import preconditions
from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.kinds import POLICY, WATCHED
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook import server as webhook
from distributed_input_operator.webhook.server import Webhook

_log = logging.getLogger("distributed_input_operator")
_STOP_SECONDS = 5.0
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=names.OPERATOR,
        description="Run the input pipelines of DistributedInput resources.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="namespace to serve; repeatable (default: all)",
    )
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
        "--image-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret in each input's namespace, for the images of its dispatcher and workers; "
        "repeatable",
    )
    parser.add_argument(
        "--listen",
        default=f":{names.OPERATOR_HEALTH_PORT}",
        metavar="[HOST]:PORT",
        help="address of /healthz, /readyz and /metrics (default: %(default)s)",
    )
    webhook.add_flags(parser)
    parser.add_argument(
        "--resync-seconds",
        type=float,
        default=RESYNC_SECONDS,
        help="seconds between two checks that watches deliver events (default: %(default)g)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning"),
        default="info",
        help="minimum level of log lines (default: %(default)s)",
    )
    return parser


@dataclass
class _ProcessState:
    """The running parts of the process, for the health page."""

    loops: list[ControlLoop] = field(default_factory=list)
    webhook: Webhook | None = None

    def failure(self) -> str:
        """Return why the process should be restarted. Empty: it is healthy."""
        dead = sorted({kind for one in self.loops for kind in one.dead_watches})
        if dead:
            return f"no events arrive of {', '.join(dead)}"
        return self.webhook.trouble if self.webhook else ""

    def ready(self) -> bool:
        """Return whether this replica can serve the webhook."""
        return self.webhook is None or self.webhook.serving


async def _run(args: argparse.Namespace) -> int:
    await _load_config()
    process = _ProcessState()
    host, _, port = args.listen.rpartition(":")
    page = await health.serve(host, int(port), process.failure, process.ready)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with ApiClient() as client:
        api = Api(client)
        process.webhook = await webhook.start(api, _namespace(), args)
        lock = leader.LeaseLock(api, names.OPERATOR, _namespace(), _identity())
        # The control loop has its own request limit, so that it delays neither the lease nor the
        # webhook.
        loop_api = Api(client)
        working = asyncio.create_task(
            leader.run_as_leader(lock, lambda: _work(args, loop_api, lock, process))
        )
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        working.cancel()
        await asyncio.wait({working}, timeout=_STOP_SECONDS)
        if process.webhook:
            await process.webhook.stop()
        await lock.release()
    await page.cleanup()
    if working.done() and not working.cancelled() and (error := working.exception()):
        raise error
    return 0


async def _work(
    args: argparse.Namespace, api: Api, lock: leader.LeaseLock, process: _ProcessState
) -> None:
    _log.info("%s is the leader", lock.identity)
    metrics.LEADER.set(1)
    await preconditions.wait_until_met(api, args.namespace or [None])
    settings = Settings(
        args.worker_image,
        args.sidecar_image,
        _namespace(),
        args.image_pull_policy,
        tuple(args.image_pull_secret),
    )
    kinds = (*WATCHED, POLICY) if await preconditions.can_watch_policy(api) else WATCHED
    context = ControllerContext(api, Store(), TokenCache(api), DispatcherClient(), settings)
    loop = ControlLoop(context, kinds, args.namespace, lambda: lock.is_held, args.resync_seconds)
    process.loops.append(loop)
    await loop.run()


async def _load_config() -> None:
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config()  # type: ignore[no-untyped-call]


def _namespace() -> str:
    if environment.POD_NAMESPACE_ENV in os.environ:
        return os.environ[environment.POD_NAMESPACE_ENV]
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"


def _identity() -> str:
    # It is new in each process: a restarted process must not continue the lead of the previous one.
    name = os.environ.get(environment.POD_NAME_ENV) or socket.gethostname()
    return f"{name}_{uuid.uuid4().hex[:8]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until SIGTERM. Return the exit status."""
    args = _parser().parse_args(argv)
    for flag in ("worker_image", "sidecar_image"):
        if not getattr(args, flag):
            sys.stderr.write(
                f"{names.OPERATOR}: --{flag.replace('_', '-')} is not set: set it to an image\n"
            )
            return 2
    logging.basicConfig(
        level=args.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    return asyncio.run(_run(args))
