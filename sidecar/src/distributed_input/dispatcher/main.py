"""The dispatcher's process, which serves until SIGTERM."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import Sequence

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.api.protocol import MAX_HEARTBEAT_SECONDS, MIN_HEARTBEAT_SECONDS
from distributed_input.dispatcher.clock import TICK_SECONDS, RunningClock
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.service import DESCRIPTOR, THREADS, DispatcherService
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.serving import make_server
from distributed_input.link.stubs import service_handler
from distributed_input.link.tls_credentials import credentials_of
from distributed_input.runtime import args as common
from distributed_input.runtime import logs, ready, shutdown
from distributed_input.runtime.exposition import Exposition

_MESSAGE_BYTES = 16 << 20  # a chunk has 1 MiB; a job with many columns may be larger
_log = logs.get("dispatcher.main")


def _parser() -> argparse.ArgumentParser:
    defaults = DispatcherLimits()
    parser = common.parser(
        "dispatcher", "Start a dispatcher: the registry of an input's workers, trainers and jobs."
    )
    common.add_listen(parser)
    parser.add_argument(
        flags.HEARTBEAT_SECONDS,
        type=common.positive_seconds,
        default=defaults.heartbeat,
        metavar="SECONDS",
        help="interval of the heartbeats of workers and sidecars "
        f"(default: {defaults.heartbeat:g}, from {MIN_HEARTBEAT_SECONDS:g} to "
        f"{MAX_HEARTBEAT_SECONDS:g})",
    )
    parser.add_argument(
        flags.EXPIRY_SECONDS,
        type=common.positive_seconds,
        default=defaults.expiry,
        metavar="SECONDS",
        help="time without a heartbeat after which a worker or trainer is removed "
        f"(default: {defaults.expiry:g})",
    )
    parser.add_argument(
        flags.MAX_DATASET_BYTES,
        type=int,
        default=defaults.dataset_bytes,
        metavar="BYTES",
        help=f"maximum total size of all traced datasets (default: {defaults.dataset_bytes})",
    )
    return parser


def _limits(args: argparse.Namespace) -> DispatcherLimits:
    if args.heartbeat_seconds > MAX_HEARTBEAT_SECONDS:
        raise ConfigError(
            f"--heartbeat-seconds {args.heartbeat_seconds:g} is above {MAX_HEARTBEAT_SECONDS:g}: "
            "workers and sidecars use no longer interval. Decrease it"
        )
    if args.heartbeat_seconds < MIN_HEARTBEAT_SECONDS:
        raise ConfigError(
            f"--heartbeat-seconds {args.heartbeat_seconds:g} is below {MIN_HEARTBEAT_SECONDS:g}: "
            "workers and sidecars use no shorter interval. Increase it"
        )
    if args.expiry_seconds < 2 * args.heartbeat_seconds:
        raise ConfigError(
            f"--expiry-seconds {args.expiry_seconds:g} is below twice --heartbeat-seconds "
            f"{args.heartbeat_seconds:g}: one late heartbeat would remove a process. "
            "Increase --expiry-seconds"
        )
    return DispatcherLimits(
        heartbeat=args.heartbeat_seconds,
        expiry=args.expiry_seconds,
        hold=2 * args.expiry_seconds,
        dataset_bytes=args.max_dataset_bytes,
    )


def _body(argv: Sequence[str] | None) -> int:
    args = common.parse("dispatcher", _parser(), argv)
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(args.grace_seconds)
    stopping.install()
    limits = _limits(args)
    clock = RunningClock()
    state = DispatcherState(uuid.uuid4().hex, clock.now(), limits)
    service = DispatcherService(state, clock)
    server = make_server(
        [service_handler(DESCRIPTOR, service)],
        args.listen,
        credentials_of(args.tls_dir, args.token_file, os.environ),
        max_workers=THREADS,
        max_message_bytes=_MESSAGE_BYTES,
    )
    exposed = Exposition()
    exposed.add_source(service.samples)
    scraped = exposed.serve(args.metrics_listen, lambda: server.healthy)
    server.start()
    ready.write(args.ready_file, server.address, scraped.address if scraped else None)
    _log.info("serving", address=server.address, dispatcher_id=state.dispatcher_id)
    while not stopping.wait(TICK_SECONDS):
        service.expire()
    _log.info("stopping")
    server.stop(args.grace_seconds)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a dispatcher until SIGTERM; return the exit status."""
    return common.exit_code("dispatcher", _body, argv)
