"""The operator's process: one replica works, the others stand by."""

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
from distributed_input_operator.controller.controller import RESYNC_SECONDS, Controller
from distributed_input_operator.controller.dispatchers import Dispatchers
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.controller.tokens import Tokens
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
    made = argparse.ArgumentParser(
        prog=names.OPERATOR,
        description="Runs the input pipelines of DistributedInput resources.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="serve this namespace only; repeatable (default: all)",
    )
    made.add_argument(
        "--worker-image",
        default=os.environ.get(environment.WORKER_IMAGE_ENV, ""),
        help="image of workers where an input names none "
        f"(default: ${environment.WORKER_IMAGE_ENV})",
    )
    made.add_argument(
        "--sidecar-image",
        default=os.environ.get(environment.SIDECAR_IMAGE_ENV, ""),
        help="image of dispatchers and sidecars where an input names none "
        f"(default: ${environment.SIDECAR_IMAGE_ENV})",
    )
    made.add_argument(
        "--image-pull-policy",
        choices=("Always", "IfNotPresent", "Never"),
        default="",
        help="of these images in dispatchers and workers (default: Kubernetes' own)",
    )
    made.add_argument(
        "--image-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="a Secret, of each input's namespace, that dispatchers and workers pull with; "
        "repeatable",
    )
    made.add_argument(
        "--listen",
        default=f":{names.OPERATOR_HEALTH_PORT}",
        metavar="[HOST]:PORT",
        help="where to serve /healthz, /readyz and /metrics (default: %(default)s)",
    )
    webhook.add_flags(made)
    made.add_argument(
        "--resync-seconds",
        type=float,
        default=RESYNC_SECONDS,
        help="how often everything is listed, to prove that watches deliver (default: %(default)g)",
    )
    made.add_argument("--log-level", choices=("debug", "info", "warning"), default="info")
    return made


@dataclass
class _Process:
    """What runs, for the health page to look at."""

    controllers: list[Controller] = field(default_factory=list)
    webhook: Webhook | None = None

    def trouble(self) -> str:
        """Why to restart; empty where there is no reason."""
        dead = sorted({kind for one in self.controllers for kind in one.dead_watches})
        if dead:
            return f"no events arrive of {', '.join(dead)}"
        return self.webhook.trouble if self.webhook else ""

    def ready(self) -> bool:
        """Whether the API server may ask here."""
        return self.webhook is None or self.webhook.serving


async def _run(args: argparse.Namespace) -> int:
    await _load_config()
    process = _Process()
    host, _, port = args.listen.rpartition(":")
    page = await health.serve(host, int(port), process.trouble, process.ready)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with ApiClient() as client:
        api = Api(client)
        process.webhook = await webhook.start(api, _namespace(), args)
        lock = leader.Lock(api, names.OPERATOR, _namespace(), _identity())
        # Another, with a queue of its own: no lease and no trainer's pod waits for inputs.
        busy = Api(client)
        working = asyncio.create_task(leader.lead(lock, lambda: _work(args, busy, lock, process)))
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


async def _work(args: argparse.Namespace, api: Api, lock: leader.Lock, process: _Process) -> None:
    _log.info("%s leads", lock.identity)
    metrics.LEADER.set(1)
    await preconditions.wait(api, args.namespace or [None])
    settings = Settings(
        args.worker_image,
        args.sidecar_image,
        _namespace(),
        args.image_pull_policy,
        tuple(args.image_pull_secret),
    )
    kinds = (*WATCHED, POLICY) if await preconditions.policy(api) else WATCHED
    sources = Sources(api, Store(), Tokens(api), Dispatchers(), settings)
    controller = Controller(sources, kinds, args.namespace, lambda: lock.fresh, args.resync_seconds)
    process.controllers.append(controller)
    await controller.run()


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
    # New in each life: a restarted process must not take itself for the leader that it was.
    name = os.environ.get(environment.POD_NAME_ENV) or socket.gethostname()
    return f"{name}_{uuid.uuid4().hex[:8]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until SIGTERM; the exit status."""
    args = _parser().parse_args(argv)
    for flag in ("worker_image", "sidecar_image"):
        if not getattr(args, flag):
            sys.stderr.write(f"{names.OPERATOR}: --{flag.replace('_', '-')}: name an image\n")
            return 2
    logging.basicConfig(
        level=args.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    return asyncio.run(_run(args))
